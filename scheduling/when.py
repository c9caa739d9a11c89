"""When a schedule fires: at the times of a cron line, at intervals, or once. `slots` works the times out.

A cron line has the five fields of Debian's cron, and its days follow the same rule: if both day fields are given, and
neither begins with `*`, one that matches is enough. The library `cronsim` reads the lines and gives their times of day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import ConfigDict

from ..agent.starts import STRICT
from ..core.errors import MissingExtra, ScheduleInvalid

if TYPE_CHECKING:
    from cronsim import CronSim

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_EVERY_SECONDS: Final = 10 * 366 * 86400
_MAX_LINE: Final = 200
_FIELDS: Final = "minute, hour, day of month, month, day of week"


@dataclass(frozen=True, slots=True)
class Cron:
    """At the times of a cron line, by the clock of the schedule's zone.

    Where clocks change, the line follows Debian's rule. If its minute or hour begins with `*`, it counts real time:
    times that are left out do not fire, and times that come twice fire twice. Any other line fires once for each of its
    times: a time that is left out fires right after the change, and a time that comes twice fires the first time.

    Attributes:
        cron: Minute, hour, day of month, month and day of week, such as `30 2 * * MON-FRI`. Also `L` and `LW` as day of
            month (the last day, the last weekday), `MON#2` (the second Monday) and `5L` (the last Friday).

    Raises:
        ScheduleInvalid: The line cannot be read, or no date matches it.
        MissingExtra: The extra `durable` is not installed.
    """

    cron: str

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not isinstance(self.cron, str) or len(self.cron) > _MAX_LINE or not self.cron.isascii():
            raise ScheduleInvalid(
                f"a cron line must be at most {_MAX_LINE} ASCII characters", remedy=f"give five fields: {_FIELDS}"
            )
        count = len(self.cron.split())
        if count != 5:
            raise ScheduleInvalid(
                f"the cron line {self.cron!r} has {count} fields", remedy=f"give five, separated by blanks: {_FIELDS}"
            )
        # The library gives up after 50 years without a match. In any 50 years each date and weekday occurs that exists.
        if next(self.wall_times(datetime(2000, 1, 1)), None) is None:
            raise _never_fires(self.cron)

    @property
    def counts_real_time(self) -> bool:
        """Whether the minute or the hour begins with `*`, so that changes of the clock do not move slots."""
        minute, hour, *_ = self.cron.split()
        return minute.startswith("*") or hour.startswith("*")

    def wall_times(self, after: datetime) -> Iterator[datetime]:
        """Yield the times of day that match, in order, without a zone.

        Args:
            after: A time without a zone; the first match is later.
        """
        # Without a zone the library does not know of any change of clocks. `slots` applies the rules: within the hour
        # that comes twice, the library's own would depend on where it starts.
        times = _parse(self.cron, after)
        while True:
            try:
                yield next(times)
            except (StopIteration, OverflowError):  # no match within 50 years, or before the year 10000
                return


def _parse(line: str, after: datetime) -> CronSim:
    if find_spec("cronsim") is None:
        raise MissingExtra(
            "cron lines need the package 'cronsim', which is not installed",
            remedy="install it: pip install 'worldagent[durable]'",
        )
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(line, after)
    except CronSimError as error:
        bad_field = str(error).removeprefix("Bad ")
    if bad_field == "day-of-month":  # the library also says so if only the months lack the day
        with suppress(CronSimError):
            CronSim(f"* * {line.split()[2]} * *", after)
            raise _never_fires(line)
    raise ScheduleInvalid(
        f"the {bad_field} of the cron line {line!r} cannot be read", remedy=f"give five fields as in cron: {_FIELDS}"
    )


def _never_fires(line: str) -> ScheduleInvalid:
    return ScheduleInvalid(f"the cron line {line!r} never fires", remedy="give a day that exists in one of its months")


@dataclass(frozen=True, slots=True)
class Every:
    """At intervals of real time. Changes of clocks do not affect them; for "daily at 9" use `Cron`.

    Attributes:
        every: Whole seconds between two slots, from 1 to ten years.
        start: The first slot, aware. None counts the intervals from 1970-01-01 in UTC, so that `Every(3600)` fires on
            the hour.

    Raises:
        ScheduleInvalid: The interval is not such a number, or `start` has no zone.
    """

    every: int
    start: datetime | None = None

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, int) or not 1 <= self.every <= MAX_EVERY_SECONDS:
            raise ScheduleInvalid(
                f"`every` must be whole seconds from 1 to {MAX_EVERY_SECONDS}, got {str(self.every)[:40]!r}",
                remedy="give an interval of at least a second",
            )
        if self.start is not None and (not isinstance(self.start, datetime) or self.start.utcoffset() is None):
            raise ScheduleInvalid(
                f"`start` must be a time with a zone, got {str(self.start)[:40]!r}",
                remedy="pass an aware datetime, or omit it",
            )

    @property
    def interval(self) -> timedelta:
        """The time between two slots."""
        return timedelta(seconds=self.every)


@dataclass(frozen=True, slots=True)
class Once:
    """At one time, and never again.

    Attributes:
        at: The time. Without a zone it is a time of day in the schedule's zone. If clocks leave that time out, the slot
            is right after the change; if the time comes twice, it is the first.

    Raises:
        ScheduleInvalid: `at` is not a time.
    """

    at: datetime

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not isinstance(self.at, datetime):
            raise ScheduleInvalid(
                f"`at` must be a time, got {type(self.at).__name__}", remedy="pass a datetime, with or without a zone"
            )


When = Cron | Every | Once
