"""What a conversation with tool calls sends to services, and how much of it repeats (no network, no key).

Run `python benchmarks/wire_requests.py [--json]`. It prints a table and one JSON line, which README.md explains.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from worldagent import Role
from worldagent.benchmarks import _service_turns as turns
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.tests.support.services import FORMATS, SIGNATURE, Format, Service

ONE = turns.ROLE
OTHER = Role("child", "Answer as a child of six would, who has never seen the sea.")
_MARKS: Final = ("cache_control", "prompt_cache_breakpoint")
_KEY: Final = "prompt_cache_key"
_NEW: Final[Mapping[Format, str]] = {"chat": "openai/gpt-5.6", "responses": "openai:gpt-5.6"}  # the first with a mark
_FORBIDDEN: Final = "none"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the requests that a service received.

    Attributes:
        about: The topic.
        seen: What was observed.
        right: Whether that is correct.
    """

    about: str
    seen: str
    right: bool


async def sent(turn: Callable[..., Awaitable[Service]], wanted: Format, **how: Any) -> Service:
    """Return the stub after a turn in a new home."""
    with tempfile.TemporaryDirectory() as home:
        return await turn(Path(home), wanted, **how)


async def answered(wanted: Format, role: Role) -> list[dict[str, Any]]:
    """The requests of one turn: a step that ends in two calls, and the last step, which must answer."""
    settings = {"max_rounds": 1, "model_cache_hints": "on"}
    model = _NEW.get(wanted, FORMATS[wanted])
    return (await sent(turns.two_calls, wanted, role=role, settings=settings, lm=model)).requests


def pieces(body: Mapping[str, Any]) -> list[str]:
    """Return the prompt in the order of services: tools, then instructions, then messages, without cache marks."""
    before = [body.get("tools"), body.get("system") or body.get("instructions") or body.get("systemInstruction")]
    messages = body.get("messages") or body.get("input") or body.get("contents") or []
    parts = [part for message in messages for part in _parts(message)]
    return [json.dumps(_unmarked(each), sort_keys=True) for each in [*before, *parts] if each is not None]


def _parts(message: Mapping[str, Any]) -> list[Any]:
    for name in ("content", "parts"):
        if isinstance(message.get(name), list):
            return [{**message, name: [part]} for part in message[name]]
    if isinstance(message.get("content"), str):  # it is a list if it has a cache mark
        return [{**message, "content": [{"type": "text", "text": message["content"]}]}]
    return [message]


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {name: _unmarked(each) for name, each in value.items() if name not in _MARKS}
        case list():
            return [_unmarked(each) for each in value]
        case _:
            return value


def shared(one: Mapping[str, Any], other: Mapping[str, Any], most: int) -> float:
    """Return how much of the first `most` bytes of two prompts is the same, in percent."""
    mine, theirs = ("".join(pieces(body)).encode()[:most] for body in (one, other))
    same = next(
        (at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
    )
    return 100 * same / most


def before_role(body: Mapping[str, Any]) -> int:
    """Return the number of bytes of all parts except the last, which has the role."""
    return len("".join(pieces(body)[:-1]).encode())


def is_alone(body: Mapping[str, Any], role: Role) -> bool:
    """Whether the role is in the last part only."""
    return [role.content in part for part in pieces(body)] == [False] * (len(pieces(body)) - 1) + [True]


def hint_of(body: Mapping[str, Any]) -> str:
    """Return the cache hints of a request."""
    text = json.dumps(body)
    found = [name for name in (_KEY, *_MARKS) if f'"{name}"' in text]
    return " and ".join(found) or "none"


def choice_of(body: Mapping[str, Any]) -> str:
    """Return the setting for the use of tools."""
    choice = body.get("tool_choice") or body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    return str(choice.get("type") if isinstance(choice, Mapping) else choice).lower()


def facts_of_two_steps(first: Mapping[str, Any], last: Mapping[str, Any], wanted: Format) -> list[Fact]:
    """Return the facts about a turn whose second step is its last one."""
    count, choice, alone = len(turns.results(last)), choice_of(last), [is_alone(body, ONE) for body in (first, last)]
    kept = first.get("tools") == last.get("tools")
    back, signs = SIGNATURE in json.dumps(last), wanted != "chat"
    thought = "thinking" in [each.get("type") for each in turns.mappings(turns.told(last))]
    return [
        Fact("cache hint", hint_of(first), (hint_of(first) != "none") == (wanted != "gemini")),
        Fact("use of tools", choice_of(first), choice_of(first) != _FORBIDDEN),
        Fact("last step", f"{choice}, tools {'kept' if kept else 'changed'}", kept and choice == _FORBIDDEN),
        Fact("role", "alone at the end" if all(alone) else "not alone at the end", all(alone)),
        Fact("parallel calls", f"{count} results in one request", count == 2),
        Fact("signature", "given back" if back else "not given back", back or not signs),
        Fact("thinking block", "given back" if thought else "none given back", thought == (wanted == "anthropic")),
    ]


async def facts_of_turns(wanted: Format) -> list[Fact]:
    """Return the facts about turns of other kinds."""
    unstreamed, streamed = await sent(turns.two_calls, wanted), await sent(turns.two_calls, wanted, stream=True)
    asked = all(streamed.streamed) and not any(unstreamed.streamed)
    ours, theirs = ((turns.calls(last), turns.results(last)) for last in (unstreamed.requests[1], streamed.requests[1]))
    same = ours == theirs and len(ours[0]) == 2
    refused = (await sent(turns.refused_tools, wanted)).requests
    tools, in_words = [len(turns.named(body)) for body in refused], "12.5" in json.dumps(turns.told(refused[-1]))
    image = turns.image_kind((await sent(turns.with_an_image, wanted)).requests[0])
    after = (await sent(turns.over_a_pause, wanted)).requests[-1]
    text = json.dumps(turns.told(after))
    thought = SIGNATURE in text or turns.BUYING.thinking in text
    bought = "one rope" in text and not turns.results(after)
    seen = {
        "streamed": f"{sum(streamed.streamed)} streams, {'same messages' if same else 'other messages'}",
        "refused": f"{tools} tools in {len(refused)} requests, result {'in words' if in_words else 'lost'}",
        "after": f"thinking {'kept' if thought else 'gone'}, result {'in words' if bought else 'lost'}",
    }
    return [
        Fact("streamed calls", seen["streamed"], same and asked),
        Fact("refusal of tools", seen["refused"], in_words and tools == [3, 0, 0]),
        Fact("image", image or "none before the role", bool(image)),
        Fact("after a pause", seen["after"], bought and not thought),
    ]


async def fact_of_order() -> Fact:
    """Return the order of messages for a service that refuses a user message after a result, as Mistral's does."""
    requests = (await sent(turns.two_calls, "chat", orderly=True, lm="mistral/mistral-stub")).requests
    order = turns.speakers(requests[-1])
    shown = not turns.results(requests[-1]) and "12.5" in json.dumps(turns.told(requests[-1]))
    # Two requests mean that the service refused none.
    right = shown and ("tool", "user") not in pairwise(order) and len(requests) == 2
    return Fact("Mistral's order", f"{', '.join(order)}; {len(requests)} requests", right)


async def run(report: Report) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"):
        os.environ[name] = "key"
    logging.getLogger("worldagent").setLevel(logging.ERROR)  # it warns about the refusal that this causes on purpose
    for wanted in FORMATS:
        first, last = await answered(wanted, ONE)
        theirs, _ = await answered(wanted, OTHER)
        reusable = before_role(first)
        facts = [*facts_of_two_steps(first, last, wanted), *await facts_of_turns(wanted)]
        facts += [await fact_of_order()] if wanted == "chat" else []
        wrong = [fact.about for fact in facts if not fact.right]
        report.section(
            wanted,
            [
                _row(wanted, "before_role", reusable, "B", "first request, before the role's part"),
                _row(
                    wanted, "same_for_roles", shared(first, theirs, reusable), "%", "of it with another role", least=100
                ),
                _row(wanted, "same_for_steps", shared(first, last, reusable), "%", "of it at the next step", least=100),
                _row(wanted, "wrong", len(wrong), "facts", ", ".join(wrong) or f"of {len(facts)} below", aim=0),
            ],
        )
        if not report.quiet:
            print(*(f"    {fact.about:<18}{fact.seen}{'' if fact.right else '  WRONG'}" for fact in facts), sep="\n")


def _row(
    wanted: Format,
    what: str,
    value: float,
    unit: str,
    note: str,
    *,
    aim: float | None = None,
    least: float | None = None,
) -> Row:
    return Row(key=f"{wanted}_{what}", value=value, unit=unit, aim=aim, least=least, note=note)


if __name__ == "__main__":
    main("wire_requests", "What services receive, and how much of it repeats", run)
