"""The validated filters of a listing of threads, and where its next page begins. It needs no database."""

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

MAX_THREADS: Final = 1000
_KNOWN: Final[tuple[ThreadStatus, ...]] = (*get_args(TurnStatus), "cut_off", "forked")
AFTER_ALL_KEYS: Final = "\x7f"  # sorts after every thread key


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The position of a thread in a listing, which has the newest first.

    Attributes:
        at: When its newest turn began, or when it was forked.
        has_turn: Whether a turn has run on it; of two threads with the same time, the one with a turn comes first.
        id: The id of the turn, or the key of a thread without a turn.
    """

    at: datetime
    has_turn: bool
    id: str

    @classmethod
    def parse(cls, given: object) -> Self:
        """Return the position that a page key names. A time is the position before all threads that began then.

        Raises:
            InvalidArgument: `given` is neither.
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
            "`before` must be a page key or a time with a time zone",
            remedy="pass the page_key of the last thread that you have, or a datetime with a tzinfo",
        )

    def __str__(self) -> str:
        return f"{utc_text(self.at)}/{self.id}"

    @property
    def for_turns(self) -> tuple[datetime, str]:
        """The bound for the turns after this position."""
        return self.at, self.id if self.has_turn else ""

    @property
    def for_branches(self) -> tuple[datetime, str]:
        """The bound for the threads without a turn after this position."""
        return self.at, AFTER_ALL_KEYS if self.has_turn else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFilters:
    """The filters of a listing; see `ThreadRegister.list`."""

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
        """Validate the arguments of a listing.

        Raises:
            InvalidArgument: One of them is invalid.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_THREADS:
            raise InvalidArgument(
                f"`limit` must be 1 to {MAX_THREADS}, got {limit!r}", remedy=f"pass limit= 1 to {MAX_THREADS}"
            )
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
    def filtered_after_read(self) -> bool:
        """Whether some threads are filtered out after they were read."""
        return self.query is not None or self.account is not None or self.status in ("running", "cut_off")

    @property
    def of_turns(self) -> TurnStatus | None:
        """The status of the turns to read. Which running ones were interrupted shows only after each is read."""
        match self.status:
            case "cut_off":
                return "running"
            case "forked":
                raise AssertionError("a forked thread has no turn")
            case status:
                return status


__all__ = ["Place", "ThreadFilters"]
