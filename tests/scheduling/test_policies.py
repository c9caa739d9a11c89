"""Which slots fire after a delay, and what happens at a slot while a run is not over (T7)."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.agent.threads import ThreadState
from worldagent.scheduling import Cron, Every, Misfire, Once, Overlap, Schedule, Slot, StartMessage, When
from worldagent.scheduling.policies import due_slots, overlap_action, seconds_to_next
from worldagent.testing import VirtualClock

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
FRIDAY = datetime(2026, 3, 27, 12, tzinfo=UTC)


def schedule(when: When | str = "0 9 * * *", misfire: Misfire = "once", **others: Any) -> Schedule:
    if isinstance(when, str):
        when = Cron(when)
    base: dict[str, Any] = {"id": "daily", "starts": StartMessage("Go."), "workspace": "w", "zone": "Europe/Berlin"}
    return Schedule(when=when, misfire=misfire, **{**base, **others})


# --- misfire ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_a_slot_on_time_fires_under_each_policy(misfire: Misfire) -> None:
    due = due_slots(schedule(misfire=misfire), handled=FRIDAY, now=datetime(2026, 3, 28, 8, 0, 59, tzinfo=UTC))
    assert [slot.id for slot in due.fires] == ["2026-03-28T08:00:00Z"]
    assert due.skipped is None


def test_skip_fires_the_slot_on_time_and_none_before_it() -> None:
    due = due_slots(schedule(misfire="skip"), handled=FRIDAY, now=datetime(2026, 3, 30, 7, 0, 30, tzinfo=UTC))
    assert [slot.id for slot in due.fires] == ["2026-03-30T07:00:00Z"]
    assert due.skipped is not None
    assert due.skipped.last.id == "2026-03-29T07:00:00Z"


def test_a_paused_schedule_skips_its_slots_and_does_not_make_up_for_them() -> None:
    plan = schedule(misfire="all", paused=True)
    due = due_slots(plan, handled=FRIDAY, now=FRIDAY + 3 * DAY)
    assert due.fires == ()
    assert due.skipped is not None
    assert due.skipped.count == 3
    assert due_slots(schedule(misfire="all"), handled=due.handled, now=FRIDAY + 3 * DAY).fires == ()


def test_years_of_sleep_cost_no_more_than_the_slots_that_fire() -> None:
    plan = schedule(Every(1), "all", misfire_limit=3)
    due = due_slots(plan, handled=datetime(1990, 1, 1, tzinfo=UTC), now=FRIDAY)
    assert [slot.at - FRIDAY for slot in due.fires] == [timedelta(seconds=each) for each in (-2, -1, 0)]
    assert due.skipped is not None
    assert due.skipped.first.id == "1990-01-01T00:00:01Z"
    assert due.skipped.last.at == FRIDAY - timedelta(seconds=3)
    assert due.skipped.count is None


WHEN = st.one_of(
    st.sampled_from(["*/10 * * * *", "30 2 * * *", "0 */5 * * *", "15,45 1-3 * * *", "* 2 * * *"]).map(Cron),
    st.integers(600, 100_000).map(Every),
    st.datetimes(datetime(2026, 10, 24), datetime(2026, 10, 27)).map(Once),
)


@pytest.mark.requirement("T7")
@given(
    when=WHEN,
    misfire=st.sampled_from(["skip", "once", "all"]),
    limit=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(-600, 2000), st.booleans()), max_size=12),
)
def test_no_slot_is_handled_twice_and_none_is_lost(
    when: When, misfire: Misfire, limit: int, steps: list[tuple[int, bool]]
) -> None:
    begin = now = newest = handled = datetime(2026, 10, 24, tzinfo=UTC)
    fired: list[Slot] = []
    skipped = 0
    for minutes, paused in steps:
        now += minutes * MINUTE
        newest = max(now, newest)
        plan = schedule(when, misfire, misfire_limit=limit, paused=paused)
        due = due_slots(plan, handled=handled, now=now)
        assert all(handled < slot.at <= now for slot in due.fires)
        assert len(due.fires) <= (0 if paused else limit if misfire == "all" else 1)
        if due.skipped:
            assert handled < due.skipped.first.at <= due.skipped.last.at <= due.handled
            assert not due.fires or due.skipped.last < due.fires[0]
            assert due.skipped.count is not None
            skipped += due.skipped.count
        fired += due.fires
        handled = due.handled
    assert all(earlier < later for earlier, later in pairwise(fired))
    passed = 0
    for slot in schedule(when).slots(begin):
        if slot.at > newest:
            break
        passed += 1
    assert len(fired) + skipped == passed


async def test_the_wait_for_a_slot_reads_the_time_of_day_again() -> None:
    clock = VirtualClock(FRIDAY)
    plan = schedule(Once(FRIDAY + timedelta(seconds=40)))
    assert seconds_to_next(plan, handled=FRIDAY, clock=clock) == 30
    await clock.advance(30)
    assert seconds_to_next(plan, handled=FRIDAY, clock=clock) == 10
    await clock.advance(100)
    assert seconds_to_next(plan, handled=FRIDAY, clock=clock) == 0
    handled = due_slots(plan, handled=FRIDAY, now=clock.now()).handled
    assert seconds_to_next(plan, handled=handled, clock=clock) is None


# --- overlap ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T7")
@pytest.mark.parametrize(
    ("status", "pauses", "skip", "queue", "cancel_older"),
    [
        ("done", 0, "start", "start", "start"),
        ("failed", 0, "start", "start", "start"),
        ("failed", 1, "skip", "queue", "cancel-older"),
        ("running", 0, "skip", "queue", "cancel-older"),
        ("paused", 1, "skip", "queue", "cancel-older"),
        ("stopped", 0, "start", "start", "cancel-older"),
        ("cut_off", 0, "start", "start", "cancel-older"),
    ],
)
def test_what_happens_at_a_slot_while_a_run_is_not_over(
    status: Any, pauses: int, skip: str, queue: str, cancel_older: str
) -> None:
    state = ThreadState(thread="t", kind="schedule", status=status, since=FRIDAY, pauses=pauses)
    policies: dict[Overlap, str] = {"skip": skip, "queue": queue, "cancel-older": cancel_older}
    assert {policy: overlap_action(state, policy) for policy in policies} == policies
    assert overlap_action(None, "queue") == "start"
