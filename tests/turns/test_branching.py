"""Any order of saying, forking, replaying and editing gives the conversations that lists would give (T4, D7)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from support.agents import scripted_agent
from support.homes import counting, ids, said
from worldagent import WorldAgent

pytestmark = pytest.mark.requirement("T4")

# What is done, on which of the threads so far, and at which of its messages, counted round.
EXAMPLES = (settings.default or settings()).max_examples // 4
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "fork", "replay", "edit", "reopen"]), st.integers(0, 5), st.integers(0, 9)
    ),
    min_size=2,
    max_size=9,
)


class Lists:
    """Threads as lists of texts, and the same threads in an agent."""

    def __init__(self, agent: WorldAgent) -> None:
        self.agent = agent
        self.threads: dict[str, list[str]] = {"t": []}
        self.answers = 0

    def answered(self, past: list[str], text: str) -> list[str]:
        self.answers += 1
        return [*past, text, f"a{self.answers}"]

    async def step(self, number: int, what: str, which: int, place: int) -> None:
        name = list(self.threads)[which % len(self.threads)]
        thread, texts = self.agent.thread(name), self.threads[name]
        if what == "say" or not texts:
            await thread.converse(f"m{number}")
            self.threads[name] = self.answered(texts, f"m{number}")
            return
        known = await ids(thread)
        at, asked = place % len(texts), place % len(texts) // 2 * 2  # every other message is a person's
        match what:
            case "fork":
                fork = await thread.fork(at=known[at])
                self.threads[fork.scope.thread or ""] = texts[: at + 1]
                if at % 2 == 0:  # so that messages of a person stay at even places
                    self.threads.pop(fork.scope.thread or "")
            case "replay":
                turn = await thread.replay(known[asked])
                self.threads[turn.thread] = self.answered(texts[:asked], texts[asked])
            case "edit":
                kept = f"kept {number}"
                await thread.edit(f"e{number}", at=known[asked], keep_as=kept)
                self.threads[kept] = texts
                self.threads[name] = self.answered(texts[:asked], f"e{number}")
            case _:
                pass

    async def check(self) -> None:
        for name, texts in self.threads.items():
            assert await said(self.agent.thread(name)) == texts, name


async def play(home: Path, steps: list[tuple[str, int, int]]) -> None:
    lm: Any = counting()
    async with scripted_agent(home, lm) as agent:
        lists = Lists(agent)
        for number, (what, which, place) in enumerate(steps):
            note(f"{what} {which} {place}: {lists.threads}")
            if what == "reopen":
                await agent.aclose()
                await agent.start()
            else:
                await lists.step(number, what, which, place)
        await lists.check()


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS)
def test_branches_say_what_lists_of_texts_would_say(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(play(Path(home), steps))
