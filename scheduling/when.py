"""When a schedule fires: at the times of a cron line, at intervals, or once. `slots` works the times out.

A cron line has the five fields of Debian's cron, and its days follow the same rule: if both day fields are given, and
neither begins with `*`, one that matches is enough. Names of whole lines such as `@daily`, `?` and ranges over the end
such as `FRI-MON` are written out first. The library `cronsim` reads the lines and gives their times of day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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

_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final[Mapping[str, int]] = dict(
    zip(["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], range(1, 13), strict=True)
)
_WEEKDAYS: Final[Mapping[str, int]] = dict(
    zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], range(7), strict=True)
)
_ROUND: Final[tuple[tuple[int, int, Mapping[str, int]] | None, ...]] = (
    (0, 60, {}),
    (0, 24, {}),
    None,  # months have different lengths
    (1, 12, _MONTHS),
    (0, 7, _WEEKDAYS),
)
"""For each field its first value, how many values it has, and their names; None if a range over its end is unclear."""

_RANGE: Final = re.compile(r"([A-Z]{3}|\d{1,2})-([A-Z]{3}|\d{1,2})(?:/([1-9]\d?))?")


@dataclass(frozen=True, slots=True)
class Cron:
    """At the times of a cron line, by the clock of the schedule's zone.

    Where clocks change, the line follows Debian's rule. If its minute or hour begins with `*`, it counts real time:
    times that are left out do not fire, and times that come twice fire twice. Any other line fires once for each of its
    times: a time that is left out fires right after the change, and a time that comes twice fires the first time.

    Attributes:
        cron: Minute, hour, day of month, month and day of week, such as `30 2 * * MON-FRI`, in any case. Also `L` and
            `LW` as day of month (the last day, the last weekday), `MON#2` (the second Monday), `5L` (the last Friday),
            `?` for `*` in a day field, and ranges over the end such as `FRI-MON` or `22-2`. Or one of `@hourly`,
            `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually`.

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
        count = len(self.fields.split())
        if count != 5:
            raise ScheduleInvalid(
                f"the cron line {self.cron!r} has {count} fields", remedy=f"give five, separated by blanks: {_FIELDS}"
            )
        # The library gives up after 50 years without a match. In any 50 years each date and weekday occurs that exists.
        if next(self.wall_times(datetime(2000, 1, 1)), None) is None:
            raise _never_fires(self.cron)

    @property
    def fields(self) -> str:
        """The line in the notation of Debian's cron."""
        if self.cron.strip().startswith("@"):
            return _named(self.cron.strip())
        fields = self.cron.upper().split()
        if len(fields) != len(_ROUND):
            return self.cron
        for place, (field, limits) in enumerate(zip(fields, _ROUND, strict=True)):
            if field == "?" and place in (2, 4):
                fields[place] = "*"
            elif limits is not None:
                fields[place] = ",".join(_written_out(term, *limits) for term in field.split(","))
        return " ".join(fields)

    @property
    def counts_real_time(self) -> bool:
        """Whether the minute or the hour begins with `*`, so that changes of the clock do not move slots."""
        minute, hour, *_ = self.fields.split()
        return minute.startswith("*") or hour.startswith("*")

    def wall_times(self, after: datetime) -> Iterator[datetime]:
        """Yield the times of day that match, in order, without a zone.

        Args:
            after: A time without a zone; the first match is later.
        """
        # Without a zone the library does not know of any change of clocks. `slots` applies the rules: within the hour
        # that comes twice, the library's own would depend on where it starts.
        times = _parse(self, after)
        while True:
            try:
                yield next(times)
            except (StopIteration, OverflowError):  # no match within 50 years, or before the year 10000
                return


def _named(name: str) -> str:
    """The line that a name such as `@daily` stands for."""
    if name.lower() in _NAMED:
        return _NAMED[name.lower()]
    match name.lower().split():
        case ["@reboot"]:
            problem, remedy = "a schedule has no start of a machine", "start the turn from your own start-up code"
        case ["@every", _]:
            problem, remedy = "an interval is not a cron line", "give whole seconds as `every`, such as Every(300)"
        case _:
            problem, remedy = "there is no such name", f"give five fields, or one of {', '.join(_NAMED)}"
    raise ScheduleInvalid(f"the cron line {name!r} cannot be read: {problem}", remedy=remedy)


def _written_out(term: str, first: int, count: int, names: Mapping[str, int]) -> str:
    """The values of a range that goes over the end of its field; any other term as it is."""
    found = _RANGE.fullmatch(term)
    if found is None:
        return term
    low, high = (int(each) if each.isdigit() else names.get(each, -1) for each in found.groups()[:2])
    last = first + count - (names is not _WEEKDAYS)  # 7 is another number for Sunday
    if not first <= high < low <= last:
        return term
    return ",".join(str((each - first) % count + first) for each in range(low, high + count + 1, int(found[3] or 1)))


def _parse(cron: Cron, after: datetime) -> CronSim:
    if find_spec("cronsim") is None:
        raise MissingExtra(
            "cron lines need the package 'cronsim', which is not installed",
            remedy="install it: pip install 'worldagent[durable]'",
        )
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(cron.fields, after)
    except CronSimError as error:
        bad_field = str(error).removeprefix("Bad ")
    if bad_field == "day-of-month":  # the library also says so if only the months lack the day
        with suppress(CronSimError):
            CronSim(f"* * {cron.fields.split()[2]} * *", after)
            raise _never_fires(cron.cron)
    raise ScheduleInvalid(
        f"the {bad_field} of the cron line {cron.cron!r} cannot be read",
        remedy=f"give five fields as in cron: {_FIELDS}",
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
