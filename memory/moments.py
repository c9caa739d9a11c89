"""Times as rows of messages and branches hold them: whole microseconds since 1970. Turns have seconds (`storage`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import Field

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

StoredMoment = Annotated[int, Field(ge=0, lt=253_402_214_400_000_000)]
"""Microseconds since 1970, up to a day before the calendar's end, for all time zones."""


def stored_moment(moment: datetime) -> int:
    """A time as a row holds it.

    Args:
        moment: An aware time.
    """
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """The time, in UTC, that a row holds as microseconds since 1970."""
    return _EPOCH + stored * _MICROSECOND


__all__ = ["StoredMoment", "moment_of", "stored_moment"]
