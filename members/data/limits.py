"""What members can use in a time: the limits of a member, a template, a brief and an event (A16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, get_args

from ...core import canonical_json
from ...core.checks import check_choice
from ...core.errors import BudgetInvalid
from ...storage import Transaction

Period = Literal["day", "week", "month", "life"]
"""How long limits hold before they begin again, in UTC, from the shortest to the longest."""

PERIODS: Final[tuple[Period, ...]] = get_args(Period)

_NANO: Final = 10**9  # costs are counted in billionths of a dollar, so that sums are exact
_MOST: Final = 2**53


class Amounts(NamedTuple):
    """What is used, as integers. `cost` is in billionths of a US dollar."""

    turns: int = 0
    calls: int = 0
    tokens: int = 0
    cost: int = 0

    def less(self, other: Amounts) -> Amounts:
        """This less another one."""
        return Amounts(*(one - two for one, two in zip(self, other, strict=True)))

    def to_json(self) -> dict[str, float]:
        """Its numbers by their names, with the cost in dollars."""
        return {**self._asdict(), "cost": self.cost / _NANO}


_PUT: Final = """INSERT INTO wa_limit(workspace, holder, member, limits) VALUES(?, ?, ?, ?)
                 ON CONFLICT(workspace, holder) DO UPDATE SET limits=excluded.limits"""
_ANY: Final = "SELECT 1 FROM wa_limit WHERE workspace=? LIMIT 1"
_NOT_USED: Final = "DELETE FROM wa_budget WHERE workspace=? AND holder=?"
_NO_LIMITS: Final = "DELETE FROM wa_limit WHERE workspace=? AND holder=?"

KINDS: Final = Amounts._fields


def in_nano(dollars: float) -> int:
    """US dollars in billionths, rounded up."""
    return -int(-round(dollars * _NANO, 3) // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    """What a member and all members below it can use, or what is used for a brief or an event; None sets no limit.

    Attributes:
        turns: Turns that messages and events start.
        calls: Calls of models.
        tokens: Tokens of models, sent and received.
        cost: US dollars. All models that are used must have a known price.
        seconds: How long one of its turns on a message can take, without the time that it waits for a person.
        period: How long the limits hold before they begin again, in UTC: `day`, `week`, `month`, or `life` for always.

    Raises:
        BudgetInvalid: A number is invalid, or the period is not known.
    """

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    period: Period = "life"

    def __post_init__(self) -> None:
        for name in (*KINDS, "seconds"):
            given: object = getattr(self, name)
            kind = int | float if name in ("cost", "seconds") else int
            if given is not None and not (
                isinstance(given, kind) and not isinstance(given, bool) and 0 <= given <= _MOST
            ):
                raise BudgetInvalid(
                    f"the limit `{name}` must be {'a number' if kind is not int else 'an integer'} of 0 or more,"
                    f" got {given!r}",
                    remedy="pass such a number, or omit it",
                )
        if self.seconds == 0:
            raise BudgetInvalid("the limit `seconds` must be above 0", remedy="pass such a number, or omit it")
        check_choice("period", self.period, PERIODS)

    @property
    def most(self) -> tuple[int | None, ...]:
        """The limits of what is counted, in the order of `KINDS`."""
        return (self.turns, self.calls, self.tokens, None if self.cost is None else round(self.cost * _NANO))

    def within(self, above: MemberLimits | None) -> MemberLimits:
        """These limits, none wider than the one above it of the same or a longer period (A9)."""
        if above is None or PERIODS.index(above.period) < PERIODS.index(self.period):
            return self  # what is used in the shorter period of the parent counts there
        both = {name: (getattr(self, name), getattr(above, name)) for name in KINDS}
        narrow: dict[str, Any] = {
            name: one if two is None or one is None else min(one, two) for name, (one, two) in both.items()
        }
        return replace(self, **narrow)

    def to_json(self) -> dict[str, Any]:
        """Those of its fields that are set, as JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def limits_of(given: object) -> MemberLimits | None:
    """Read limits from JSON; None stays None.

    Raises:
        BudgetInvalid: They have a field that is not known, or one is invalid.
    """
    if given is None or isinstance(given, MemberLimits):
        return given
    known = [each.name for each in fields(MemberLimits)]
    if not isinstance(given, Mapping) or not {*given} <= {*known}:
        raise BudgetInvalid("`limits` must be an object", remedy=f"its fields are {', '.join(known)}")
    return MemberLimits(**given)


def window(period: Period, at: datetime) -> tuple[str, datetime | None]:
    """The name of the window of a period that a time is in, and when it ends; None for `life`.

    The names of windows of one period are in the order of their time.
    """
    day = datetime(at.year, at.month, at.day, tzinfo=at.tzinfo)
    match period:
        case "day":
            return f"{day:day %Y-%m-%d}", day + timedelta(days=1)
        case "week":
            monday = day - timedelta(days=day.weekday())
            return f"{monday:week %Y-%m-%d}", monday + timedelta(days=7)
        case "month":
            first = day.replace(day=1)
            return f"{first:month %Y-%m}", (first + timedelta(days=32)).replace(day=1)
        case _:
            return "life", None


def put_limits(tx: Transaction, workspace: str, holder: str, limits: MemberLimits | None, *, member: str) -> None:
    """Store the limits of a holder, or remove them, in a transaction.

    Args:
        tx: The transaction.
        workspace: The workspace.
        holder: What has them: `member ID`, `brief ID` with the id of the message, or `case ID`.
        limits: The limits.
        member: The member that they are about; empty if none is known.
    """
    if limits is None:
        tx.execute(_NO_LIMITS, (workspace, holder))
    else:
        tx.execute(_PUT, (workspace, holder, member, canonical_json(limits.to_json())))


def drop_limits(tx: Transaction, workspace: str, holders: Iterable[str]) -> None:
    """Remove the limits of briefs and cases that are no longer kept, with what was counted for them."""
    if tx.execute(_ANY, (workspace,)):
        for each in holders:
            tx.execute(_NO_LIMITS, (workspace, each))
            tx.execute(_NOT_USED, (workspace, each))
