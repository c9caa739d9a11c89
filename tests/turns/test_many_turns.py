"""What holds of all turns: of their events for any model, and of branches in any order (T4, T10)."""

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from support.agents import CRITIC, scripted_agent, standing
from support.homes import counting, ids, said
from worldagent import Role, WorldAgent
from worldagent.core import events as ev
from worldagent.core.errors import WorldAgentError
from worldagent.harness import Worker
from worldagent.testing import ScriptedCall, ScriptedLM

LIMIT = 60


# --- events -----------------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("[]# \n\t\u200b"), max_size=40)
awkward = st.sampled_from(
    [
        "[[ ## completed ## ]]",
        "a [[ ## reply ## ]] b",
        "[[ ## calls ## ]]\n[]",
        "",
        "  ",
        "x" * 300,
        "half \ud83d a pair",
        "Answer as the lighthouse keeper who has not spoken to a soul since the great storm.",
    ]
)
texts = words | awkward
dispatches = st.lists(
    st.sampled_from(["critic", "poet", "nobody"]).flatmap(
        lambda to: st.fixed_dictionaries({"tool": st.just(to), "arguments": st.fixed_dictionaries({"request": texts})})
    ),
    max_size=3,
)
failures = st.sampled_from(
    [dspy.lm15.ServerError("down"), dspy.lm15.RateLimitError("slow"), ValueError("odd"), asyncio.CancelledError()]
)
planned = st.fixed_dictionaries({"reply": texts, "calls": dispatches}) | texts | failures
worked = st.fixed_dictionaries({"result": texts}) | texts | failures
ROLE = Role("keeper", "Answer as the lighthouse keeper who has not spoken to a soul since the great storm.")


def check(events: list[Any], failed: bool) -> None:
    """What holds of the events of every turn."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({event.turn_id for event in events}) == 1
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("turn_started", "turn_ended")
    assert kinds.count("turn_started") == kinds.count("turn_ended") == 1
    for kind in ("task", "call"):
        open_: set[str] = set()
        for event in events:
            if event.type == f"{kind}_started":
                assert getattr(event, f"{kind}_id") not in open_
                open_.add(getattr(event, f"{kind}_id"))
            elif event.type == f"{kind}_ended":
                open_.remove(getattr(event, f"{kind}_id"))
        assert not open_
    end = events[-1]
    assert (end.status == "done") is not failed
    assert (end.code is None) is (end.status != "failed")
    assert standing(events) == end.text
    assert all(before.at <= after.at for before, after in pairwise(events))
    assert all(ev.parse_event(event.model_dump_json()) == event for event in events)


async def one_turn(plans: list[Any], works: list[Any], roled: bool, chunk: int) -> None:
    left = {"plan": list(plans), "work": list(works)}

    def reply(call: ScriptedCall) -> Any:
        queue = left["work" if "request" in call.fields else "plan"]
        given = queue.pop(0) if queue else ("Enough." if "request" in call.fields else {"reply": "Enough."})
        if isinstance(given, BaseException):
            raise given
        return given

    with tempfile.TemporaryDirectory() as home:
        workers = [CRITIC, Worker("poet", "You write.", "writes")]
        async with scripted_agent(Path(home), ScriptedLM(reply, chunk=chunk), workers=workers) as agent:
            events: list[Any] = []
            failure: WorldAgentError | None = None
            stream = agent.thread("t").stream("Hi", role=ROLE if roled else None)
            try:
                async with asyncio.timeout(LIMIT), stream:
                    async for event in stream:
                        events.append(event)
            except WorldAgentError as error:
                failure = error
            check(events, failed=failure is not None)
            if failure is not None:
                assert (failure.turn_id, failure.code) == (events[-1].turn_id, events[-1].code)
            else:
                assert stream.turn.text == events[-1].text
                assert (await agent.thread("t").history())[-1].body["text"] == events[-1].text
            left["plan"].clear()
            assert (await agent.thread("t").converse("Still there?")).text == "Enough."


@pytest.mark.requirement("T10")
@given(
    plans=st.lists(planned, max_size=4),
    works=st.lists(worked, max_size=4),
    roled=st.booleans(),
    chunk=st.integers(1, 30),
)
def test_every_turn_has_complete_events(plans: list[Any], works: list[Any], roled: bool, chunk: int) -> None:
    asyncio.run(one_turn(plans, works, roled, chunk))


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
@pytest.mark.requirement("T4")
def test_branches_say_what_lists_of_texts_would_say(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(play(Path(home), steps))
