"""Slots: the times at which a schedule fires, the same in each process and whenever they are worked out (T7).

A slot is identified by its time in UTC. Times of day become slots here, with one rule for changes of clocks:

| line | a time that clocks leave out | a time that comes twice |
|---|---|---|
| minute or hour begins with `*` | does not fire | fires twice |
| any other, and `Once` without a zone | fires right after the change | fires the first time |
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core import utc_text
from ..core.errors import InvalidArgument, MissingExtra, ScheduleInvalid
from .when import EPOCH, Cron, Every, Once, When

_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_FIRST_WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One time at which a schedule fires.

    Attributes:
        at: The time, in UTC.
    """

    at: datetime

    @property
    def id(self) -> str:
        """The time in UTC, such as `2026-03-29T01:00:00Z`: the same in each process."""
        return utc_text(self.at)

    @classmethod
    def parse(cls, slot_id: str) -> Slot:
        """Return the slot with this id.

        Raises:
            InvalidArgument: It is not the id of a slot.
        """
        try:
            slot = cls(datetime.fromisoformat(slot_id).astimezone(UTC))
        except (TypeError, ValueError, OverflowError):
            slot = None
        if slot is None or slot.id != slot_id:
            raise InvalidArgument(
                f"{str(slot_id)[:60]!r} is not the id of a slot", remedy="give a time such as 2026-03-29T01:00:00Z"
            )
        return slot


def find_zone(name: object) -> tzinfo:
    """Return the IANA time zone with this name. `UTC` needs no time zone data.

    Raises:
        ScheduleInvalid: There is no such zone.
        MissingExtra: This machine has no time zone data.
    """
    if name == "UTC":
        return UTC
    found = _load_zone(name)
    if found is not None:
        return found
    if _load_zone("Etc/UTC") is None:
        raise MissingExtra(
            f"this machine has no time zone data, so that the zone {str(name)[:60]!r} cannot be used",
            remedy="install the package 'tzdata': pip install tzdata",
        )
    raise ScheduleInvalid(
        f"there is no time zone {str(name)[:60]!r}", remedy="use a name of the IANA database, such as Europe/Berlin"
    )


def _load_zone(name: object) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of the database
        return None


# --- slots ------------------------------------------------------------------------------------------------------------


def slots_after(when: When, zone: tzinfo, after: datetime) -> Iterator[Slot]:
    """Yield all slots later than a time, in order. The list does not depend on where it begins.

    Args:
        when: The times.
        zone: The zone of times of day.
        after: An aware time.

    Raises:
        InvalidArgument: `after` has no zone; that of the machine would give each machine other slots.
    """
    if after.utcoffset() is None:
        raise InvalidArgument(f"`after` must have a time zone, got {after!r}", remedy="pass an aware datetime")
    after = after.astimezone(UTC)
    match when:
        case Cron():
            yield from _cron_slots(when, zone, after)
        case Every():
            start = EPOCH if when.start is None else when.start.astimezone(UTC)
            number = max(0, (after - start) // when.interval + 1)
            while True:
                try:
                    slot = Slot(start + number * when.interval)
                except OverflowError:  # after the year 9999
                    return
                yield slot
                number += 1
        case Once():
            at = when.at.astimezone(UTC) if when.at.utcoffset() is not None else _instants(when.at, zone, False)[0]
            if at > after:
                yield Slot(at)


def newest_slots(when: When, zone: tzinfo, after: datetime, until: datetime, most: int) -> list[Slot]:
    """Return the newest slots later than `after` and not later than `until`, at most `most`, oldest first.

    The cost depends on `most` and not on how long ago `after` is. Both times must be aware.
    """
    window = _FIRST_WINDOW
    while True:
        begin = after if until - after <= window else until - window
        found = deque(takewhile(lambda slot: slot.at <= until, slots_after(when, zone, begin)), maxlen=most)
        if begin == after or len(found) == most:
            return list(found)
        window *= 4


def _cron_slots(cron: Cron, zone: tzinfo, after: datetime) -> Iterator[Slot]:
    real = cron.counts_real_time
    wall = after.astimezone(zone).replace(tzinfo=None, fold=0)
    if real:
        # Clocks that are about to be set back show times again that are before the present one.
        wall -= max(timedelta(), _offset(zone, after) - _offset(zone, after + _DAY))
    waiting: list[datetime] = []
    last = after
    for time in cron.wall_times(wall):
        instants = _instants(time, zone, real)
        for instant in instants:
            heapq.heappush(waiting, instant)
        # The first instants of times of day never decrease, so nothing that comes later is before this one's first.
        while instants and waiting and waiting[0] <= instants[0]:
            instant = heapq.heappop(waiting)
            if instant > last:
                last = instant
                yield Slot(instant)


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _instants(wall: datetime, zone: tzinfo, real: bool) -> tuple[datetime, ...]:
    """The instants of a time of day, in UTC, by the rule at the top of this module.

    Args:
        wall: The time of day.
        zone: Its zone.
        real: Whether the rule is that of real time.
    """
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return (first,)
    if first < second:  # the clock shows this time twice
        return (first, second) if real else (first,)
    return () if real else (_clock_change(second, first, zone),)


def _clock_change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first instant with the new offset, between one with the old offset and one with the new."""
    old = _offset(zone, before)
    low, high = 0, int((after - before) / _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, before + middle * _SECOND) == old:
            low = middle
        else:
            high = middle
    return before + high * _SECOND
