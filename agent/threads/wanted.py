"""Which threads a listing gives, and where its next page begins: what was asked, checked. No database."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self, get_args

from ...core import check_id, utc_text
from ...core.errors import InvalidArgument
from ...memory import TurnStatus
from ...memory.titles import check_query
from .state import ThreadStatus

_MOST: Final = 1000
_KNOWN: Final[tuple[ThreadStatus, ...]] = (*get_args(TurnStatus), "cut_off", "forked")
_LAST: Final = "\x7f"  # sorts after every key of a thread


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a thread stands in a listing, the newest first.

    Attributes:
        at: When its newest turn began, or when it was branched off.
        has_turn: Whether a turn has run on it; at the same time such a thread stands before one that has none.
        id: The id of the turn, or the key of the thread that has none.
    """

    at: datetime
    has_turn: bool
    id: str

    @classmethod
    def parse(cls, given: object) -> Self:
        """The place that a page key names; a time is the place before all that began then.

        Raises:
            InvalidArgument: It is neither.
        """
        if isinstance(given, datetime) and given.tzinfo is not None:
            with suppress(OverflowError):
                return cls(given.astimezone(UTC), False, "")
        elif isinstance(given, str):
            time, slash, name = given.partition("/")
            with suppress(ValueError, OverflowError):
                at = datetime.fromisoformat(time)
                if slash and name and at.tzinfo is not None:
                    return cls(at.astimezone(UTC), "/" not in name, name)
        raise InvalidArgument(
            "before is neither a page key nor a time with a time zone",
            remedy="give the page_key of the last thread that you have, or a datetime with a tzinfo",
        )

    def __str__(self) -> str:
        return f"{utc_text(self.at)}/{self.id}"

    @property
    def for_turns(self) -> tuple[datetime, str]:
        """The bound of turns that stand behind it."""
        return self.at, self.id if self.has_turn else ""

    @property
    def for_branches(self) -> tuple[datetime, str]:
        """The bound of threads without a turn that stand behind it."""
        return self.at, _LAST if self.has_turn else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is listed; see `ThreadRegister.list`."""

    limit: int
    status: ThreadStatus | None
    account: str | None
    channel: str | None
    query: str | None
    before: Place | None

    @classmethod
    def of(
        cls,
        *,
        limit: object = 100,
        status: object = None,
        account: str | None = None,
        channel: str | None = None,
        query: str | None = None,
        before: datetime | str | None = None,
    ) -> Self:
        """What was asked.

        Raises:
            InvalidArgument: Something of it does not fit.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
            raise InvalidArgument(f"limit {limit!r} is out of bounds", remedy=f"give limit 1 to {_MOST}")
        known: ThreadStatus | None = next((each for each in _KNOWN if each == status), None)
        if status is not None and known is None:
            raise InvalidArgument(f"status {str(status)[:40]!r} is unknown", remedy=f"use one of {', '.join(_KNOWN)}")
        return cls(
            limit=limit,
            status=known,
            account=None if account is None else check_id("account", account),
            channel=None if channel is None else check_id("channel", channel),
            query=None if query is None else check_query(query),
            before=None if before is None else Place.parse(before),
        )

    @property
    def sifted(self) -> bool:
        """Whether some threads are left out after they were read."""
        return self.query is not None or self.account is not None or self.status in ("running", "cut_off")

    @property
    def of_turns(self) -> TurnStatus | None:
        """The status of the turns that are read. Which of the running ones were cut off is seen only at each."""
        match self.status:
            case "cut_off":
                return "running"
            case "forked":
                raise AssertionError("a thread that is forked has no turn")
            case status:
                return status


__all__ = ["Place", "Wanted"]
