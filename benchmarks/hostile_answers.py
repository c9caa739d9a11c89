"""How long answers of a model that are long, deep or broken hold the event loop.

Run `python benchmarks/hostile_answers.py [--quick] [--json]`. It prints a table and one JSON line, which README.md
explains.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from worldagent import Role, Settings, Storage, WorldAgent
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._stubs import ROLE_TEXT, _pieces, constant_lm
from worldagent.core.errors import WorldAgentError
from worldagent.harness import Worker, tool

_AIM = 50.0  # ms
_READ = 130_000  # the longest answer in characters that is still parsed
_TEXTS = {
    "brackets": ("40 KB of open brackets", "[{" * 20_000),
    "deep": ("JSON 100,000 levels deep", "[" * 100_000 + "]" * 100_000),
    "digits": ("a number of a million digits", "9" * 1_000_000),
    "repair": ("4 KB that take a minute to repair without a bound", '["/*true' + "“{]“" * 1020),
    "keys": ("an object of 8,000 keys", json.dumps({f"k{number}": number for number in range(8000)})),
    "values": ("a list of 43,000 objects", "[" + ",".join(["{}"] * (_READ // 3)) + "]"),
    "markers": ("7,600 field markers", "[[ ## what ## ]]\n" * (_READ // 17)),
    "lines": ("65,000 lines", "a\n" * (_READ // 2)),
    "letters": ("130,000 Chinese characters", "".join(chr(0x4E00 + place % 20_000) for place in range(_READ))),
    "long": ("10 MB of text", "x" * 10_000_000),
    "long_field": ("10 MB in a field of JSON", json.dumps({"what": "x" * 10_000_000})),
}
_REPLY = "[[ ## reply ## ]]\n{}\n\n[[ ## completed ## ]]"
_PLAN = "[[ ## reply ## ]]\nYes.\n\n[[ ## calls ## ]]\n{}\n\n[[ ## completed ## ]]"
_CALLS = "[[ ## calls ## ]]\n{}\n\n[[ ## completed ## ]]"
_ARGUMENTS = '[[ ## calls ## ]]\n[{{"tool": "look", "arguments": {}}}]\n\n[[ ## completed ## ]]'
_ROLE = Role("bench", ROLE_TEXT)


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look something up."""
    return what


_SCOUT = Worker("scout", "You look.", "looks", tools=("look",), retries=0)


async def _reply(agent: WorldAgent) -> None:
    await agent.thread("t").converse("Go.")


async def _roled(agent: WorldAgent) -> None:
    await agent.thread("t").converse("Go.", role=_ROLE)


async def _streamed(agent: WorldAgent) -> None:
    async with agent.thread("t").stream("Go.", role=_ROLE) as events:
        async for _ in events:
            pass


async def _worker(agent: WorldAgent) -> None:
    await agent.call("scout", {"request": "Go."})


_WAYS: tuple[tuple[str, Callable[[WorldAgent], Awaitable[None]]], ...] = (
    (_REPLY, _reply),
    (_REPLY, _roled),
    (_REPLY, _streamed),
    (_PLAN, _reply),
    (_CALLS, _worker),
    (_ARGUMENTS, _worker),
)


async def held(asked: Awaitable[None]) -> float:
    """Return the longest time, in ms, for which the loop's thread worked without a step of its other tasks."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    with contextlib.suppress(WorldAgentError):
        await asked
    await asyncio.sleep(0.002)  # one more step, which measures the last piece of work
    ticking.cancel()
    return longest * 1000


async def _longest(text: str, rounds: int) -> float:
    longest = 0.0
    for form, ask in _WAYS:
        answer = "{}"
        lm = constant_lm(lambda request: answer)  # noqa: B023  # it is called in this round only
        with tempfile.TemporaryDirectory() as home:
            settings = Settings(trace=False, max_rounds=1, model_attempts=1)
            storage = Storage(home=Path(home))
            async with WorldAgent(
                "bench", lm=lm, workers=[_SCOUT], tools=[look], storage=storage, settings=settings
            ) as agent:
                await held(ask(agent))  # the setup in a first call
                answer = form.format(text)
                _pieces(answer)  # the service's work, done in advance
                for _ in range(rounds):
                    gc.collect()
                    longest = max(longest, await held(ask(agent)))
    return longest


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    rows = []
    gc.freeze()  # the collector would scan all imported objects
    for name, (note, text) in _TEXTS.items():
        held = await _longest(text, 1 if report.quick else 5)
        rows.append(Row(key=f"{name}_held_ms", value=held, unit="ms", aim=_AIM, note=note))
    report.section("The longest time that an answer holds the event loop", rows)


if __name__ == "__main__":
    main("hostile_answers", "How long hostile answers hold the event loop.", run)
