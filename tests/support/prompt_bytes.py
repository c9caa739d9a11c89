"""How many bytes two prompts share from their beginning, which is what a service can keep between calls (R17)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from worldagent import Role, Storage, WorldAgent
from worldagent.harness import Worker
from worldagent.signatures import REPLY_DEMOS, Predictor, converse_signature
from worldagent.signatures.adapter import PlainAdapter
from worldagent.testing import ScriptedLM

ROLES = (
    "Judge every claim as a severe critic would, and name the page that each one rests on.",
    "Explain every claim to a curious child of eight, and leave out whatever is gruesome.",
)
EARLIER = "Tell me how this part of the town came to be what it is today."
ANSWER = "The river Ashe divides the two halves of the old town, and the bridge is the only crossing."
QUESTION = "Which of the two halves of the town is the older one?"
_PARTS = "\n"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Bytes of one situation.

    Attributes:
        format: How the prompt is written.
        workers: Whether the planner can dispatch to anybody.
        earlier: How many turns stand before this one.
        without: Size of the prompt without a role.
        one: Size of the prompt with the first role.
        between: What the prompts with two different roles share from the beginning.
        switched: What the prompts with and without a role share from the beginning.
    """

    format: str
    workers: bool
    earlier: int
    without: int
    one: int
    between: int
    switched: int


def measure() -> Iterator[Shared]:
    """Yield the figures of each situation in the order of the table in `docs/guides/roles.md`."""
    for workers in (False, True):
        for earlier in (0, 1, 10):
            yield _shared("chat", workers, earlier, asyncio.run(_chat_prompts(workers, earlier)))
    for earlier in (0, 1, 10):
        yield _shared("embedded", False, earlier, [_embedded_prompt(role, earlier) for role in (None, *ROLES)])


def _shared(form: str, workers: bool, earlier: int, prompts: Sequence[str]) -> Shared:
    without, one, other = (prompt.encode() for prompt in prompts)
    return Shared(
        format=form,
        workers=workers,
        earlier=earlier,
        without=len(without),
        one=len(one),
        between=_in_common(one, other),
        switched=_in_common(without, one),
    )


def _in_common(one: bytes, other: bytes) -> int:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in same)


async def _chat_prompts(workers: bool, earlier: int) -> list[str]:
    fields: Mapping[str, Any] = {"reply": ANSWER, "calls": []} if workers else {"reply": ANSWER}
    lm = ScriptedLM(lambda call: fields)
    crew = [Worker("critic", "You judge.", "judges drafts")] if workers else []
    with tempfile.TemporaryDirectory() as home:
        async with WorldAgent("w", lm=lm, storage=Storage(home=Path(home)), workers=crew) as agent:
            prompts: list[str] = []
            for number, content in enumerate((None, *ROLES)):
                thread = agent.thread(f"t{number}")
                for _ in range(earlier):
                    await thread.converse(EARLIER)
                await thread.converse(QUESTION, role=Role("r", content) if content else None)
                last = lm.calls[-1]
                prompts.append(_PARTS.join((last.system, *(text for _, text in last.messages))))
            return prompts


def _embedded_prompt(role: str | None, earlier: int) -> str:
    predictor = Predictor(converse_signature(None, plain=True), demos=REPLY_DEMOS)
    past = [{"message": EARLIER}, {"reply": ANSWER}] * earlier
    predict = predictor.predict(roled=role is not None)
    inputs = {"history": past, "message": QUESTION, **({} if role is None else {"role": role})}
    signature: Any = predict.signature
    messages = PlainAdapter().format(signature, predict.demos, inputs)
    return _PARTS.join(message["content"] for message in messages)
