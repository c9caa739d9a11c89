"""Further inputs of the conversation in schedules and submissions: stored, checked, and sent when the turn runs."""

import asyncio
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.schedules import START, hourly, opened, passes
from support.submissions import queued_agent, working
from worldagent.core.errors import InvalidArgument, ScheduleInvalid
from worldagent.scheduling import Schedule, StartMessage
from worldagent.signatures import Converse
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("T20")


class Tidal(Converse):
    """Say what the tide does."""

    harbour: str = dspy.InputField()
    level: int = dspy.OutputField()


SAID: dict[str, Any] = {"reply": "It rises.", "level": 3}
ASKED = StartMessage("What is the tide?", inputs={"harbour": "north"})


@pytest.mark.on_every_database(soak=True)
async def test_a_schedule_stores_the_inputs_of_its_runs(tmp_path: Path) -> None:
    lm, clock = ScriptedLM(lambda _: SAID), VirtualClock(START)
    schedule = hourly(starts=ASKED)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert schedule.to_json()["starts"] == {"message": "What is the tide?", "inputs": {"harbour": "north"}}
    assert hourly().to_json()["starts"] == {"message": "What is the tide?"}
    async with opened(tmp_path, lm, clock, converse=Tidal) as (agent, schedules):
        await schedules.add(schedule)
        await passes(schedules, clock, 1)
        await schedules.settled()
        [asked, said] = await agent.thread("schedule:tide").history()
        with pytest.raises(InvalidArgument, match="the input 'harbour' is missing"):
            await schedules.add(hourly("other"))
    assert asked.body["inputs"] == {"harbour": "north"}
    assert said.body["outputs"] == {"level": 3}
    assert lm.calls[0].fields["harbour"] == "north"


@pytest.mark.on_every_database(soak=True)
async def test_a_submitted_message_has_its_inputs(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: SAID)
    async with working(tmp_path, lm, converse=Tidal) as (agent, _):
        submission = await agent.submit(ASKED, thread=agent.thread("t"), key="1")
        turn = await asyncio.wait_for(submission.wait(), 20)
        events: list[Any] = [event async for event in submission.events()]
    assert (turn.text, turn.outputs) == ("It rises.", {"level": 3})
    assert events[-1].outputs == {"level": 3}
    assert lm.calls[0].fields["harbour"] == "north"


async def test_inputs_of_a_submission_are_checked_before_it_is_stored(tmp_path: Path) -> None:
    async with queued_agent(tmp_path, ScriptedLM([]), converse=Tidal) as agent:
        for start, problem in (
            (StartMessage("Tide?"), "the input 'harbour' is missing"),
            (StartMessage("Tide?", inputs={"harbour": 1}), "the input 'harbour' does not fit its type"),
            (StartMessage("Tide?", inputs={"harbour": "north", "moon": 1}), "no input 'moon'"),
        ):
            with pytest.raises(InvalidArgument, match=problem):
                await agent.submit(start, thread=agent.thread("t"), key="1")
    for given, problem in (({"harbour": object()}, "must be JSON"), (["north"], "must be a mapping")):
        with pytest.raises(ScheduleInvalid, match=problem):
            StartMessage("Tide?", inputs=given)  # type: ignore[arg-type] # what is refused
