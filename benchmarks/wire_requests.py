"""What services are sent by a conversation that calls tools, and how much of it comes again (no network, no key).

Run `python benchmarks/wire_requests.py [--json]`. It prints a table and one JSON line, which README.md explains.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from worldagent import Role, Settings, Storage, WorldAgent, tool
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.tests.support.services import FORMATS, Format, Said, service

ONE = Role("pilot", "Answer as a harbour pilot of forty years would, in short and salty sentences.")
OTHER = Role("child", "Answer as a child of six would, who has never seen the sea.")
STEP = Said("Let me look.", (("price", {"item": "rope"}), ("stock", {"item": "rope"})))
_MARKS: Final = ("cache_control", "prompt_cache_breakpoint")
_KEY: Final = "prompt_cache_key"
_NEW: Final[Mapping[Format, str]] = {"chat": "openai/gpt-5.6", "responses": "openai:gpt-5.6"}  # the first with a mark


@tool(risk="read_only")
def price(item: str) -> float:
    """Price of an item, in euros."""
    return 12.5


@tool(risk="read_only")
def stock(item: str) -> int:
    """How many of an item are left."""
    return 3


async def requests(wanted: Format, role: Role) -> list[dict[str, Any]]:
    """What a service is sent in one turn: a step that ends in two calls, and the last step, which must answer."""
    with tempfile.TemporaryDirectory() as home, service(STEP, Said("12.50, and three are left.")) as stub:
        settings = Settings(
            api_base=stub.url(wanted), model_attempts=1, max_rounds=1, model_tools="native", model_cache_hints="on"
        )
        given: dict[str, Any] = {"settings": settings, "storage": Storage(home=Path(home)), "tools": [price, stock]}
        async with WorldAgent("shop", lm=_NEW.get(wanted, FORMATS[wanted]), **given) as agent:
            await agent.thread("t").converse("What is the rope, and how many are there?", role=role)
    return stub.requests


def pieces(body: Mapping[str, Any]) -> list[str]:
    """The prompt as services read it: tools, then instructions, then messages, without marks."""
    before = [body.get("tools"), body.get("system") or body.get("instructions") or body.get("systemInstruction")]
    messages = body.get("messages") or body.get("input") or body.get("contents") or []
    parts = [part for message in messages for part in _parts(message)]
    return [json.dumps(_unmarked(each), sort_keys=True) for each in [*before, *parts] if each is not None]


def _parts(message: Mapping[str, Any]) -> list[Any]:
    for name in ("content", "parts"):
        if isinstance(message.get(name), list):
            return [{**message, name: [part]} for part in message[name]]
    if isinstance(message.get("content"), str):  # a block with a mark is a list elsewhere
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
    """How much of the first `most` bytes of two prompts is the same, in percent."""
    mine, theirs = ("".join(pieces(body)).encode()[:most] for body in (one, other))
    same = next(
        (at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
    )
    return 100 * same / most


def before_role(body: Mapping[str, Any], role: Role) -> int:
    """Bytes of the parts before the one with the role, which is the last one."""
    parts = pieces(body)
    assert role.content in parts[-1], "the role stands alone in the last part"
    assert all(role.content not in part for part in parts[:-1]), "and nowhere else"
    return len("".join(parts[:-1]).encode())


def hint_of(body: Mapping[str, Any]) -> str:
    """The cache hints of a request."""
    text = json.dumps(body)
    found = [name for name in (_KEY, *_MARKS) if f'"{name}"' in text]
    return " and ".join(found) or "none"


def choice_of(body: Mapping[str, Any]) -> str:
    """What is said of the use of tools."""
    choice = body.get("tool_choice") or body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    return str(choice.get("type") if isinstance(choice, Mapping) else choice).lower()


async def run(report: Report) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        os.environ[name] = "key"
    for wanted in FORMATS:
        first, last = await requests(wanted, ONE)
        theirs, _ = await requests(wanted, OTHER)
        reusable = before_role(first, ONE)
        assert first.get("tools") == last.get("tools"), "the last step keeps the tools"
        report.section(
            f"{wanted}: hint {hint_of(first)}, use of tools {choice_of(first)}, at the last step {choice_of(last)}",
            [
                _row(wanted, "before_role", reusable, "B", "first request, before the role's part"),
                _row(wanted, "same_for_roles", shared(first, theirs, reusable), "%", "of it with another role"),
                _row(wanted, "same_for_steps", shared(first, last, reusable), "%", "of it at the next step"),
            ],
        )


def _row(wanted: Format, what: str, value: float, unit: str, note: str) -> Row:
    return Row(key=f"{wanted}_{what}", value=value, unit=unit, note=note)


if __name__ == "__main__":
    main("wire_requests", "What services are sent, and how much of it comes again", run)
