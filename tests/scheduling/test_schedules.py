"""Schedules of an agent: stored, fired by a clock, each slot once, by the overlap policy and after a kill (T7)."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, calls, paying
from support.processes import call_of, eventually, killed, run_script, start_script
from support.schedules import START, die, fire_all, hourly, opened, passes
from worldagent import Role, Tier, Worker
from worldagent.core.errors import NameTaken, ScheduleInvalid, UnknownSchedule, UnknownShape, WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.scheduling import (
    Every,
    Once,
    Schedule,
    Schedules,
    Slot,
    StartSkill,
    StartTarget,
    StartTask,
)
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = [pytest.mark.requirement("T7"), pytest.mark.on_every_database(soak=True)]


async def shown(schedules: Schedules, schedule_id: str = "tide") -> list[tuple[str, str]]:
    """The runs, oldest first, as hour and status."""
    return [(run.slot[11:13], run.status) for run in reversed(await schedules.history(schedule_id))]


async def settled(schedules: Schedules, wanted: list[tuple[str, str]]) -> None:
    """Wait until the history is this one."""
    for _ in range(2000):
        if await shown(schedules) == wanted:
            return
        await asyncio.sleep(0.005)
    assert await shown(schedules) == wanted


async def test_each_slot_fires_once_on_a_thread_of_its_own(tmp_path: Path) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda call: {"reply": f"Low, {call.index}."})
    async with opened(tmp_path, lm, clock) as (agent, schedules):
        await schedules.add(hourly())
        assert await schedules.fire_due() == 30.0  # a machine can sleep, so the clock is read again at least so often
        assert await schedules.history("tide") == ()
        for hour in (1, 2):
            await passes(schedules, clock, 1)
            await schedules.fire_due()
            await settled(schedules, [(f"{each:02}", "done") for each in range(1, hour + 1)])
        [newest, _] = await schedules.history("tide")
        state = await agent.thread("schedule:tide").state()
        assert state is not None
        assert (state.turn_id, state.kind, state.unattended) == (newest.turn, "schedule", "refuse")
    assert len(lm.calls) == 2
    assert "What is the tide?" in lm.calls[0].text
    assert "2030-01-01T01:00:00" in lm.calls[0].text


async def test_it_fires_while_a_block_runs(tmp_path: Path) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (_, schedules), schedules.running():
        await schedules.add(hourly(when=Every(60)))
        assert await eventually(lambda: clock.sleepers > 0)
        for _ in range(5):
            await clock.advance(20)
            await asyncio.sleep(0.05)
        await settled(schedules, [("00", "done")])
    assert len(lm.calls) == 1


@pytest.mark.parametrize(
    ("policy", "wanted", "fired"),
    [("skip", [("00", "skipped")], 0), ("once", [("23", "skipped"), ("00", "done")], 1)],
)
async def test_a_laptop_that_slept_three_days(
    tmp_path: Path, policy: Any, wanted: list[tuple[str, str]], fired: int
) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (_, schedules):
        await schedules.add(hourly(misfire=policy))
        await clock.advance(600)  # ten minutes after the hour
        await passes(schedules, clock, 72)
        await settled(schedules, wanted)
        [skipped] = [run for run in await schedules.history("tide") if run.status == "skipped"]
        assert skipped.note == f"{72 - fired} since 2030-01-01T01:00:00Z: they passed while nothing could fire them"
    assert len(lm.calls) == fired


@pytest.mark.parametrize(
    ("overlap", "wanted"),
    [
        ("skip", [("01", "done"), ("02", "skipped")]),
        ("queue", [("01", "done"), ("02", "done")]),
        ("cancel-older", [("01", "cancelled"), ("02", "done")]),
    ],
)
async def test_a_slot_while_the_run_before_it_is_under_way(
    tmp_path: Path, overlap: Any, wanted: list[tuple[str, str]]
) -> None:
    clock, model = VirtualClock(START), Thinking()
    async with opened(tmp_path, model.lm, clock) as (_, schedules):
        await schedules.add(hourly(overlap=overlap))
        await passes(schedules, clock, 1)
        await asyncio.wait_for(model.asked.wait(), 10)
        await passes(schedules, clock, 1)
        model.may.set()
        for _ in range(200):
            await schedules.fire_due()
            if await shown(schedules) == wanted:
                break
            await asyncio.sleep(0.02)
        assert await shown(schedules) == wanted


@pytest.mark.parametrize(
    ("overlap", "wanted"),
    [
        ("skip", [("01", "done"), ("02", "skipped")]),
        ("queue", [("01", "done"), ("02", "done")]),
        ("cancel-older", [("01", "cancelled"), ("02", "done")]),
    ],
)
async def test_a_slot_while_the_run_before_it_waits_for_a_person(
    tmp_path: Path, overlap: Any, wanted: list[tuple[str, str]]
) -> None:
    clock, done = VirtualClock(START), list[str]()

    def reply(call: Any) -> Any:
        if "02:00:00" not in call.user and not call.steps:
            return {"reply": "", **calls(("pay", {"what": "toll"}))}
        return {"reply": "Done."}

    async with opened(tmp_path, ScriptedLM(reply), clock, tools=[paying(done)]) as (agent, schedules):
        await schedules.add(hourly(overlap=overlap, unattended="pause"))
        await passes(schedules, clock, 1)
        await settled(schedules, [("01", "paused")])
        await passes(schedules, clock, 1)
        thread = agent.thread("schedule:tide")
        if overlap != "cancel-older":
            await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
            assert done == ["toll"]
        await schedules.fire_due()
        await settled(schedules, wanted)


async def test_a_task_a_target_and_a_run_by_hand(tmp_path: Path) -> None:
    fired: list[tuple[str, Any]] = []

    class Bell:
        async def fire(self, schedule: Schedule, slot: Slot, payload: Any) -> None:
            fired.append((schedule.key(slot), payload))

    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"result": "Fine."})
    worker = Worker("critic", "You judge.", "judges")
    async with opened(tmp_path, lm, clock, workers=[worker], targets={"bell": Bell()}) as (_, schedules):
        task = StartTask("subagent", {"worker": "critic", "request": "Judge."})
        await schedules.add(hourly("judge", starts=task))
        await schedules.add(hourly("ring", starts=StartTarget("bell", {"times": 2}), when=Once(START + timedelta(1))))
        run = await schedules.run_now("judge")
        assert (run.status, run.slot) == ("started", "2030-01-01T00:00:00Z")
        await clock.advance(86400)
        await schedules.fire_due()
        assert fired == [("ring@2030-01-02T00:00:00Z", {"times": 2})]
        assert [each.status for each in await schedules.history("ring")] == ["done"]
        assert await schedules.next_slot("ring") is None


async def test_pause_and_remove(tmp_path: Path) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (_, schedules):
        await schedules.add(hourly())
        await schedules.pause("tide")
        assert (await schedules.get("tide")).paused
        await passes(schedules, clock, 2)
        await schedules.pause("tide", paused=False)
        await passes(schedules, clock, 1)
        await settled(schedules, [("02", "skipped"), ("03", "done")])
        await schedules.remove("tide")
        assert await schedules.list() == ()
        with pytest.raises(UnknownSchedule, match="there is no schedule 'tide'"):
            await schedules.get("tide")
    assert len(lm.calls) == 1


@pytest.mark.parametrize(
    ("schedule", "error", "problem"),
    [
        (hourly(workspace="other"), ScheduleInvalid, "is for the workspace 'other'"),
        (hourly(when=Once(START - timedelta(1))), ScheduleInvalid, "never fires from now on"),
        (hourly(starts=StartTask("none")), UnknownShape, "there is no shape 'none'"),
        (hourly(starts=StartSkill("tea", "Two.")), WorldAgentError, "there is no skill 'tea'"),
        (hourly(starts=StartTarget("bell")), ScheduleInvalid, "there is no target 'bell'"),
        (hourly(thread="t1"), ScheduleInvalid, "the thread 't1' of the schedule 'tide' is in use; omit `thread`"),
        (hourly("old"), NameTaken, "there is a schedule 'old' already"),
    ],
)
async def test_what_cannot_be_scheduled(
    tmp_path: Path, schedule: Schedule, error: type[WorldAgentError], problem: str
) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (agent, schedules):
        await schedules.add(hourly("old"))
        await agent.thread("t1").converse("Hello.")
        with pytest.raises(error) as caught:
            await schedules.add(schedule)
        assert problem in str(caught.value)
        assert [each.id for each in await schedules.list()] == ["old"]
        with pytest.raises(UnknownSchedule, match="there is no schedule 'none'"):
            await schedules.run_now("none")


# --- several processes ------------------------------------------------------------------------------------------------


async def test_two_processes_never_fire_a_slot_twice(tmp_path: Path) -> None:
    home, hours = tmp_path / "home", 60
    async with opened(home, ScriptedLM([]), VirtualClock(START)) as (_, schedules):
        await schedules.add(hourly(overlap="queue", misfire="all", misfire_limit=100))
    await asyncio.gather(*(run_script(call_of(fire_all, home, hours)) for _ in range(2)))
    async with opened(home, ScriptedLM([]), VirtualClock(START)) as (_, schedules):
        runs = await schedules.history("tide", limit=1000)
    assert len(runs) == len({run.slot for run in runs}) == len({run.turn for run in runs}) == hours
    assert {run.status for run in runs} == {"done"}
    assert len((tmp_path / "turns.txt").read_text().splitlines()) == hours


async def test_a_killed_run_is_resumed_before_a_later_slot_starts(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", VirtualClock(START)
    async with opened(home, ScriptedLM([]), clock) as (_, schedules):
        await schedules.add(hourly(overlap="queue"))
    await killed(await start_script(call_of(die, home)))
    lm = ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(home, lm, clock) as (_, schedules):
        [begun] = await schedules.history("tide")
        assert begun.status == "started"
        await passes(schedules, clock, 2)
        for _ in range(200):
            await schedules.fire_due()
            if await shown(schedules) == [("01", "done"), ("02", "done")]:
                break
            await asyncio.sleep(0.02)
        [later, first] = await schedules.history("tide")
    assert (first.turn, first.status, later.status) == (begun.turn, "done", "done")
    assert ["01:00:00" in call.text for call in lm.calls] == [True, True]
    assert ["02:00:00" in call.text for call in lm.calls] == [False, True]


async def test_stored_roles_resolve_when_it_fires_and_a_tier_can_be_left_out(tmp_path: Path) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (agent, schedules):
        await schedules.add(hourly("all", account="ana"))
        await schedules.add(hourly("some", account="ana", tiers=(Tier.ACCOUNT,)))
        await agent.roles.put("workspace", Role("terse", "Answer in three words."))
        await agent.roles.put("account", Role("sailor", "Answer as a sailor."), scope_id="ana")
        await passes(schedules, clock, 1)
        for each in ("all", "some"):
            for _ in range(200):
                if [run.status for run in await schedules.history(each)] == ["done"]:
                    break
                await asyncio.sleep(0.01)
    roles = {"Answer in three words." in (call.role or ""): call.role for call in lm.calls}
    assert roles.keys() == {True, False}
    assert all("Answer as a sailor." in (role or "") for role in roles.values())
