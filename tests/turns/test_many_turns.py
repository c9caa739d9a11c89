"""Many turns at once, and what holds of the events of every turn whatever the model does."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import CRITIC, scripted_agent, standing
from worldagent import Role
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
def test_the_events_of_a_turn_are_whole_whatever_the_model_does(
    plans: list[Any], works: list[Any], roled: bool, chunk: int
) -> None:
    asyncio.run(one_turn(plans, works, roled, chunk))
