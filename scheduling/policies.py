"""What happens at the slots of a schedule: which fire after a delay (misfire), and what if a run is not over (overlap).

Both are pure functions. The caller keeps the time up to which slots are handled, and looks the run up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final, Literal

from ..agent.threads import ThreadState
from ..core import Clock
from .schedule import Overlap, Schedule
from .slots import Slot, newest_slots

GRACE_SECONDS: Final = 60.0
"""A slot that is not older than this is on time, and `misfire="skip"` fires it."""

MAX_WAIT_SECONDS: Final = 30.0
"""The longest wait for a slot. A machine that sleeps stops the clock of a wait, and clocks are set, so the time of day
is read again at least this often."""

MAX_COUNTED: Final = 10_000
"""Skipped slots are counted up to this number."""


# --- misfire ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SkippedSlots:
    """A range of slots that do not fire.

    Attributes:
        first: The oldest.
        last: The newest.
        count: How many they are; None for more than 10,000.
    """

    first: Slot
    last: Slot
    count: int | None


@dataclass(frozen=True, slots=True)
class DueSlots:
    """What is due.

    Attributes:
        fires: The slots that fire, oldest first.
        skipped: The slots that do not fire; all are older than those that do. None if there are none.
        handled: The time up to which slots are handled, once this is stored. It is never earlier than before.
    """

    fires: tuple[Slot, ...]
    skipped: SkippedSlots | None
    handled: datetime


def due_slots(schedule: Schedule, *, handled: datetime, now: datetime) -> DueSlots:
    """Decide which slots fire now, by the schedule's misfire policy. A paused schedule skips all that are due.

    A slot that is handled is never due again, even if the clock is set back: nothing is due until the clock has passed
    `handled`.

    Args:
        schedule: The schedule.
        handled: The time up to which slots are handled, aware: `handled` of the last call, or the time at which the
            schedule was created.
        now: The time, from `Clock.now()`.
    """
    limit = 0 if schedule.paused else schedule.misfire_limit if schedule.misfire == "all" else 1
    newest = newest_slots(schedule.when, schedule.time_zone, handled, now, limit + 1)
    if not newest:
        return DueSlots((), None, handled)
    if schedule.misfire == "skip" and now - newest[-1].at > timedelta(seconds=GRACE_SECONDS):
        limit = 0
    fires = tuple(newest[max(0, len(newest) - limit) :])
    skipped = None
    if len(newest) > limit:
        skipped = _skipped(schedule, handled, newest[len(newest) - limit - 1])
    return DueSlots(fires, skipped, newest[-1].at)


def _skipped(schedule: Schedule, handled: datetime, last: Slot) -> SkippedSlots:
    """The slots later than `handled` up to `last`, which is one of them."""
    first = next(schedule.slots(handled))
    counted = sum(1 for _ in islice(takewhile(lambda slot: slot <= last, schedule.slots(handled)), MAX_COUNTED + 1))
    return SkippedSlots(first, last, counted if counted <= MAX_COUNTED else None)


def seconds_to_next(schedule: Schedule, *, handled: datetime, clock: Clock) -> float | None:
    """How long to wait before `due_slots` is called again.

    Args:
        schedule: The schedule.
        handled: The time up to which slots are handled, aware.
        clock: The clock.

    Returns:
        Seconds from 0 to `MAX_WAIT_SECONDS`; None if the schedule has no slot left.
    """
    slot = next(schedule.slots(handled), None)
    if slot is None:
        return None
    return min(MAX_WAIT_SECONDS, max(0.0, (slot.at - clock.now()).total_seconds()))


# --- overlap ----------------------------------------------------------------------------------------------------------


def overlap_action(state: ThreadState | None, policy: Overlap) -> Overlap | Literal["start"]:
    """Decide what to do at a slot while the run of an earlier slot may not be over.

    Args:
        state: The state of the thread. A turn that was stopped or cut off waits for nobody: it is resumed before, or it
            is none of the schedule's.
        policy: The schedule's `overlap`.
    """
    if state is None:
        return "start"
    goes_on = state.status in ("running", "paused") or (state.status == "failed" and state.pauses)
    cut = state.status in ("stopped", "cut_off")
    return policy if goes_on or (cut and policy == "cancel-older") else "start"
