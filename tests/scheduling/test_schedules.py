"""Schedules of an agent: stored, fired by a clock, each slot once, by the overlap policy and after a kill (T7)."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import Thinking, answering, calls, paying
from support.processes import call_of, ending, eventually, killed, next_line, run_script, start_script
from support.role_specs import spec_of
from support.schedules import START, die, die_in_a_target, die_in_an_effect, fire_all, hourly, opened, passes, rings
from support.skill_turns import package
from worldagent import Role, Tier, Worker, tool
from worldagent.core.errors import (
    InvalidArgument,
    NameTaken,
    ScheduleInvalid,
    UnknownSchedule,
    UnknownShape,
    WorldAgentError,
)
from worldagent.core.pauses import Approve
from worldagent.members import WorkspaceConfig
from worldagent.scheduling import (
    Cron,
    Every,
    Once,
    Schedule,
    Schedules,
    Slot,
    StartEvent,
    StartSkill,
    StartTarget,
    StartTask,
)
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = [pytest.mark.requirement("T7"), pytest.mark.on_every_database(soak=True)]


async def shown(schedules: Schedules, schedule_id: str = "tide") -> list[tuple[str, str]]:
    """The runs, oldest first, as hour and status."""
    return [(run.slot[11:13], run.status) for run in reversed(await schedules.history(schedule_id))]


async def settled(
    schedules: Schedules, wanted: list[tuple[str, str]], schedule_id: str = "tide", *, fire: bool = False
) -> None:
    """Wait until the history is this one; with `fire` fire what is due meanwhile."""
    for _ in range(2000):
        if fire:
            await schedules.fire_due()
        if await shown(schedules, schedule_id) == wanted:
            return
        await asyncio.sleep(0.005)
    assert await shown(schedules, schedule_id) == wanted


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


async def test_a_slot_that_passes_while_another_fires_is_not_waited_for(tmp_path: Path) -> None:
    clock = VirtualClock(START)

    class Slow:
        async def fire(self, schedule: Schedule, slot: Slot, payload: Any) -> None:
            await clock.advance(5)

    async with opened(tmp_path, ScriptedLM([]), clock, targets={"bell": Slow()}) as (_, schedules):
        await schedules.add(hourly(when=Every(1), starts=StartTarget("bell")))
        await clock.advance(1)
        assert await schedules.fire_due() == 0


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


class Bell:
    """A target that keeps when it was rung."""

    def __init__(self) -> None:
        self.rung: list[tuple[str, Any]] = []

    async def fire(self, schedule: Schedule, slot: Slot, payload: Any) -> None:
        self.rung.append((schedule.key(slot), payload))


@pytest.mark.parametrize(
    ("zone", "begin", "daily", "half_hourly"),
    [
        ("Europe/Berlin", "2026-03-28T12", ["29T01:00", "30T00:30"], []),
        ("Europe/Berlin", "2026-10-24T12", ["25T00:30", "26T01:30"], ["25T00:00", "25T00:30", "25T01:00", "25T01:30"]),
        ("America/New_York", "2026-03-07T12", ["08T07:00", "09T06:30"], []),
        ("America/New_York", "2026-10-31T12", ["01T07:30", "02T07:30"], ["01T07:00", "01T07:30"]),
    ],
)
async def test_days_on_which_clocks_change(
    tmp_path: Path, zone: str, begin: str, daily: list[str], half_hourly: list[str]
) -> None:
    clock, bell = VirtualClock(datetime.fromisoformat(f"{begin}:00:00Z")), Bell()
    async with opened(tmp_path, ScriptedLM([]), clock, targets={"bell": bell}) as (_, schedules):
        await schedules.add(hourly("daily", when=Cron("30 2 * * *"), zone=zone, starts=StartTarget("bell")))
        await schedules.add(hourly("often", when=Cron("*/30 2 * * *"), zone=zone, starts=StartTarget("bell")))
        for _ in range(46 * 6):
            await clock.advance(600)
            await schedules.fire_due()
    rung = [key.split("@") for key, _ in bell.rung]
    assert [slot[8:16] for schedule, slot in rung if schedule == "daily"] == daily
    often = [slot[8:16] for schedule, slot in rung if schedule == "often"]
    assert [slot for slot in often if slot[:2] == daily[0][:2]] == half_hourly


class SetBack(VirtualClock):
    """A clock that can be set back."""

    behind = timedelta()

    def now(self) -> datetime:
        return super().now() - self.behind


async def test_a_clock_that_is_set_back_fires_no_slot_again(tmp_path: Path) -> None:
    clock, bell = SetBack(START), Bell()
    async with opened(tmp_path, ScriptedLM([]), clock, targets={"bell": bell}) as (_, schedules):
        await schedules.add(hourly(starts=StartTarget("bell")))
        await passes(schedules, clock, 1)
        await passes(schedules, clock, 1)
        clock.behind = timedelta(hours=2)
        for _ in range(3):
            await passes(schedules, clock, 1)
        assert [key[16:18] for key, _ in bell.rung] == ["01", "02", "03"]
        assert [run.status for run in await schedules.history("tide")] == ["done"] * 3


@pytest.mark.parametrize(
    ("policy", "wanted", "fired"),
    [
        ("skip", [("00", "skipped")], 0),
        ("once", [("23", "skipped"), ("00", "done")], 1),
        ("all", [("21", "skipped"), ("22", "done"), ("23", "done"), ("00", "done")], 3),
    ],
)
async def test_a_laptop_that_slept_three_days(
    tmp_path: Path, policy: Any, wanted: list[tuple[str, str]], fired: int
) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (_, schedules):
        await schedules.add(hourly(misfire=policy, misfire_limit=3, overlap="queue"))
        await clock.advance(600)  # ten minutes after the hour
        await passes(schedules, clock, 72)
        for _ in range(fired - 1):
            await schedules.settled()
            await schedules.fire_due()
        await settled(schedules, wanted)
        [skipped] = [run for run in await schedules.history("tide") if run.status == "skipped"]
        assert skipped.note == f"{72 - fired} since 2030-01-01T01:00:00Z: they passed while nothing could fire them"
    assert len(lm.calls) == fired


OVERLAPS = [
    ("skip", [("01", "done"), ("02", "skipped")]),
    ("queue", [("01", "done"), ("02", "done")]),
    ("cancel-older", [("01", "cancelled"), ("02", "done")]),
]


@pytest.mark.parametrize(("overlap", "wanted"), OVERLAPS)
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
        await settled(schedules, wanted, fire=True)


@pytest.mark.parametrize(("overlap", "wanted"), OVERLAPS)
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
        await settled(schedules, wanted, fire=True)


async def test_a_task_a_target_and_a_run_by_hand(tmp_path: Path) -> None:
    bell, clock, lm = Bell(), VirtualClock(START), ScriptedLM(lambda _: {"result": "Fine."})
    worker = Worker("critic", "You judge.", "judges")
    async with opened(tmp_path, lm, clock, workers=[worker], targets={"bell": bell}) as (_, schedules):
        task = StartTask("subagent", {"worker": "critic", "request": "Judge."})
        await schedules.add(hourly("judge", starts=task))
        await schedules.add(hourly("ring", starts=StartTarget("bell", {"times": 2}), when=Once(START + timedelta(1))))
        run = await schedules.run_now("judge")
        assert (run.status, run.slot) == ("started", "2030-01-01T00:00:00Z")
        await clock.advance(86400)
        await schedules.fire_due()
        assert bell.rung == [("ring@2030-01-02T00:00:00Z", {"times": 2})]
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
        await schedules.add(hourly())  # its thread has runs of the earlier one
        await schedules.remove("tide")
        assert await schedules.list() == ()
        with pytest.raises(UnknownSchedule, match="there is no schedule 'tide'"):
            await schedules.get("tide")
    assert len(lm.calls) == 1


@pytest.mark.parametrize(
    ("schedule", "error", "problem"),
    [
        (hourly().to_json(), ScheduleInvalid, "`schedule` must be a Schedule, got a dict; make one with"),
        (hourly(workspace="other"), ScheduleInvalid, "is for the workspace 'other'"),
        (hourly(when=Once(START - timedelta(1))), ScheduleInvalid, "never fires from now on"),
        (hourly(starts=StartTask("none")), UnknownShape, "there is no shape 'none'"),
        (hourly(starts=StartSkill("tea", "Two.")), WorldAgentError, "there is no skill 'tea'"),
        (hourly(starts=StartTarget("bell")), ScheduleInvalid, "there is no target 'bell'"),
        (hourly(thread="t1"), ScheduleInvalid, "the thread 't1' of the schedule 'tide' is in use; omit `thread`"),
        (
            hourly("busy"),
            ScheduleInvalid,
            "the thread 'schedule:busy' of the schedule 'busy' is in use; give it another id",
        ),
        (hourly("old"), NameTaken, "there is a schedule 'old' already"),
    ],
)
async def test_what_cannot_be_scheduled(
    tmp_path: Path, schedule: Any, error: type[WorldAgentError], problem: str
) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (agent, schedules):
        await schedules.add(hourly("old"))
        for each in ("t1", "schedule:busy"):
            await agent.thread(each).converse("Hello.")
        with pytest.raises(error) as caught:
            await schedules.add(schedule)
        assert problem in str(caught.value)
        assert [each.id for each in await schedules.list()] == ["old"]
        with pytest.raises(UnknownSchedule, match="there is no schedule 'none'"):
            await schedules.run_now("none")


async def test_a_skill_that_is_gone_when_a_slot_fires(tmp_path: Path) -> None:
    package(tmp_path)
    home, clock, lm = tmp_path / "home", VirtualClock(START), ScriptedLM(lambda _: {"reply": "Tea."})
    async with opened(home, lm, clock, skills=[tmp_path / "skills"]) as (_, schedules):
        await schedules.add(hourly(starts=StartSkill("tea", "Two.")))
        await schedules.add(hourly("other"))
    async with opened(home, lm, clock) as (_, schedules):
        await passes(schedules, clock, 1)
        [run] = await schedules.history("tide")
        assert (run.status, run.turn) == ("failed", None)
        assert run.note == "unknown_skill: there is no skill 'tea': the agent has none"
        await schedules.settled()
        assert [each.status for each in await schedules.history("other")] == ["done"]
    async with opened(home, lm, clock, skills=[tmp_path / "skills"]) as (_, schedules):
        await passes(schedules, clock, 1)
        await schedules.settled()
        assert await shown(schedules) == [("01", "failed"), ("02", "done")]


async def test_a_turn_of_a_person_on_the_thread_is_not_cancelled(tmp_path: Path) -> None:
    clock, done = VirtualClock(START), list[str]()
    lm = ScriptedLM(
        lambda call: {"reply": "Paid."} if call.steps else {"reply": "", **calls(("pay", {"what": "toll"}))}
    )
    async with opened(tmp_path, lm, clock, tools=[paying(done)]) as (agent, schedules):
        await schedules.add(hourly(overlap="cancel-older"))
        thread = agent.thread("schedule:tide")
        turn = await thread.converse("Pay the toll.")
        await passes(schedules, clock, 1)
        [run] = await schedules.history("tide")
        assert (run.status, run.note) == ("skipped", "the thread has a turn that the schedule did not start")
        assert (await thread.resume({pause.id: Approve() for pause in turn.pauses})).text == "Paid."
    assert done == ["toll"]


# --- several processes ------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 180)), min_size=2, max_size=12),
    misfire=st.sampled_from(["skip", "once", "all"]),
)
async def test_two_schedulers_with_clocks_of_their_own_never_fire_a_slot_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], misfire: Any
) -> None:
    home, clocks, bell = tmp_path_factory.mktemp("home"), (VirtualClock(START), VirtualClock(START)), Bell()
    targets = {"bell": bell}
    async with (
        opened(home, ScriptedLM([]), clocks[0], targets=targets) as (_, first),
        opened(home, ScriptedLM([]), clocks[1], targets=targets) as (_, second),
    ):
        await first.add(hourly(starts=StartTarget("bell"), misfire=misfire, misfire_limit=3))
        try:
            for which, minutes in steps:
                await clocks[which].advance(minutes * 60)
                await asyncio.gather(first.fire_due(), second.fire_due())
            runs = await first.history("tide", limit=1000)
        finally:  # the examples share a database, if it is on a server
            await first.remove("tide")
    rung = [key for key, _ in bell.rung]
    assert len(rung) == len(set(rung))
    assert sorted(rung) == [f"tide@{run.slot}" for run in reversed(runs) if run.status == "done"]
    assert {run.status for run in runs} <= {"done", "skipped"}


@pytest.mark.parametrize("hours", [60, pytest.param(1000, marks=pytest.mark.soak)])
async def test_two_processes_never_fire_a_slot_twice(tmp_path: Path, hours: int) -> None:
    home = tmp_path / "home"
    async with opened(home, ScriptedLM([]), VirtualClock(START)) as (_, schedules):
        await schedules.add(hourly(overlap="queue", misfire="all", misfire_limit=100))
    await asyncio.gather(*(run_script(call_of(fire_all, home, hours), limit=60 + hours) for _ in range(2)))
    async with opened(home, ScriptedLM([]), VirtualClock(START)) as (_, schedules):
        runs = await schedules.history("tide", limit=1000)
    assert len(runs) == len({run.slot for run in runs}) == len({run.turn for run in runs}) == hours
    assert {run.status for run in runs} == {"done"}
    asked = (tmp_path / "turns.txt").read_text().splitlines()
    assert len(asked) == len(set(asked)) == hours


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
        await settled(schedules, [("01", "done"), ("02", "done")], fire=True)
        [later, first] = await schedules.history("tide")
    assert (first.turn, first.status, later.status) == (begun.turn, "done", "done")
    assert ["01:00:00" in call.text for call in lm.calls] == [True, True]
    assert ["02:00:00" in call.text for call in lm.calls] == [False, True]


UNCERTAIN = [
    ("refuse", "skip", ["failed", "done", "done"], 2),
    ("refuse", "queue", ["failed", "done", "done"], 2),
    ("pause", "skip", ["paused", "skipped", "skipped"], 0),
    ("pause", "queue", ["paused", "due", "due"], 0),
    ("pause", "cancel-older", ["cancelled", "done", "done"], 2),
]


@pytest.mark.requirement("T13")
@pytest.mark.parametrize(("unattended", "overlap", "wanted", "effects"), UNCERTAIN)
async def test_a_slot_that_ended_uncertain_holds_up_no_later_one_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unattended: Any, overlap: Any, wanted: list[str], effects: int
) -> None:
    home, clock = tmp_path / "home", VirtualClock(START)
    async with rings(home, clock) as (_, schedules):
        await schedules.add(hourly(unattended=unattended, overlap=overlap))
    await killed(await start_script(call_of(die_in_an_effect, home)))
    async with rings(home, clock) as (agent, schedules):
        await clock.advance(3600)
        await schedules.fire_due()
        await schedules.settled()
        for _ in range(2):
            await passes(schedules, clock, 1)
            await schedules.settled()
        await schedules.fire_due()
        runs = [*reversed(await schedules.history("tide"))]
        assert [each.status for each in runs] == wanted
        assert (tmp_path / "rung.txt").read_text().splitlines() == ["3"] * (1 + effects)
        begun = [each.turn for each in runs if each.turn]
        assert len(begun) == len(set(begun)) == 1 + effects
        waits = [each.note for each in runs if each.status in ("skipped", "due") and each.note is not None]
        assert bool(waits) == (effects == 0)
        assert waits == ["the run of 2030-01-01T01:00:00Z waits for a person"] * len(waits)
        told = [each.getMessage() for each in caplog.records if each.name == "worldagent.schedules"]
        if unattended == "refuse":
            assert str(runs[0].note).startswith("effect_uncertain: ")
            assert [each.partition(" continues with the slot ")[2][:20] for each in told] == [runs[1].slot]
            first = await agent.turn(runs[0].turn or "")
            assert first is not None
            assert first.status == "cancelled"
        else:
            assert len(told) == len(waits)


@pytest.mark.requirement("T4")
async def test_a_run_that_can_never_resume_ends_for_the_next_slot_or_after_the_grace_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, done = VirtualClock(START), list[str]()
    lm = ScriptedLM(
        lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls(("pay", {"what": "toll"}))}
    )
    society = WorkspaceConfig(id="novel", owner="charles")
    once = hourly("once", when=Once(START + timedelta(hours=1)), unattended="pause")
    async with opened(tmp_path, lm, clock, tools=[paying(done)], society=society) as (_, schedules):
        await schedules.add(hourly(unattended="pause", overlap="queue"))
        await schedules.add(once)
        await passes(schedules, clock, 1)
        for each in ("tide", "once"):
            await settled(schedules, [("01", "paused")], each)
        [left] = await schedules.history("once")

    @tool(name="pay", risk="read_only")
    async def pay(what: str, how: str = "cash") -> str:
        return f"paid {what} {how}"

    async with opened(tmp_path, lm, clock, tools=[pay], society=society) as (agent, schedules):
        await passes(schedules, clock, 1)
        await settled(schedules, [("01", "failed"), ("02", "done")])
        _, first = await schedules.history("tide")
        assert str(first.note).startswith("graph_changed: 'pay', which the turn calls, is gone or has changed")
        assert [each.message.payload["error"] for each in await agent.society.mail.inbox()] == ["graph_changed"] * 2
        assert sum("can never resume: graph_changed" in each.getMessage() for each in caplog.records) == 2
        for hours, wanted in ((22, "paused"), (2, "failed")):
            await passes(schedules, clock, hours)
            state = await agent.turn(left.turn or "")
            assert state is not None
            assert state.status == wanted
    assert done == []


async def test_a_target_is_called_again_only_after_a_kill(tmp_path: Path) -> None:
    home, clock, bell = tmp_path / "home", VirtualClock(START), Bell()
    async with opened(home, ScriptedLM([]), clock, targets={"bell": bell}) as (_, schedules):
        await schedules.add(hourly(starts=StartTarget("bell"), misfire="all"))
        async with ending(await start_script(call_of(die_in_a_target, home))) as child:
            assert await next_line(child, 60) == "there"
            await passes(schedules, clock, 2)
            assert bell.rung == []
            child.kill()
            await child.wait()
        await schedules.fire_due()
        assert [key[16:18] for key, _ in bell.rung] == ["01", "02"]
        await settled(schedules, [("01", "done"), ("02", "done")])


async def test_stored_roles_resolve_when_it_fires_and_a_tier_can_be_left_out(tmp_path: Path) -> None:
    clock, lm = VirtualClock(START), ScriptedLM(lambda _: {"reply": "Low."})
    async with opened(tmp_path, lm, clock) as (agent, schedules):
        await schedules.add(hourly("all", account="ana"))
        await schedules.add(hourly("some", account="ana", tiers=(Tier.ACCOUNT,)))
        await agent.roles.put("workspace", Role("terse", "Answer in three words."))
        await agent.roles.put("account", Role("sailor", "Answer as a sailor."), scope_id="ana")
        await passes(schedules, clock, 1)
        for each in ("all", "some"):
            await settled(schedules, [("01", "done")], each)
    roles = {"Answer in three words." in (call.role or ""): call.role for call in lm.calls}
    assert roles.keys() == {True, False}
    assert all("Answer as a sailor." in (role or "") for role in roles.values())


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A12")
async def test_a_schedule_posts_an_event_for_each_slot(tmp_path: Path) -> None:
    clock = VirtualClock(START)
    society = WorkspaceConfig(id="novel", owner="charles")
    async with opened(tmp_path, answering(), clock, society=society) as (agent, schedules):
        await agent.society.join(spec_of("cro", domains=("revenue",)))
        starts = StartEvent("pipeline.review", "revenue", {"quarter": 1})
        await schedules.add(hourly(starts=starts))
        await passes(schedules, clock, 1)
        await passes(schedules, clock, 1)
        first, second = await agent.society.events.list()
        assert (first.event.id, first.event.type, first.member) == (
            "tide@2030-01-01T01:00:00Z",
            "pipeline.review",
            "cro",
        )
        assert first.event.payload == {"quarter": 1}
        assert second.event.timestamp == START + timedelta(hours=2)
        assert [run.status for run in await schedules.history("tide")] == ["done", "done"]


async def test_a_schedule_of_an_event_needs_a_society(tmp_path: Path) -> None:
    async with opened(tmp_path, answering(), VirtualClock(START)) as (_, schedules):
        with pytest.raises(InvalidArgument, match="has no society"):
            await schedules.add(hourly(starts=StartEvent("pipeline.review", "revenue")))


def test_an_event_of_a_schedule_is_read_from_json() -> None:
    starts = StartEvent("pipeline.review", "revenue", {"quarter": 1}, to="cro")
    assert Schedule.from_json(hourly(starts=starts).to_json()).starts == starts
    with pytest.raises(ScheduleInvalid, match="must be a mapping"):
        StartEvent("pipeline.review", "revenue", [])  # type: ignore[arg-type] # what a caller can get wrong
    with pytest.raises(InvalidArgument, match="`domain` of an event"):
        StartEvent("pipeline.review", "")
