"""Times in rows of messages and branches: integer microseconds since 1970. Turns store seconds (`storage`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import Field

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

StoredMoment = Annotated[int, Field(ge=0, lt=253_402_214_400_000_000)]
"""Microseconds since 1970, up to a day before the end of the year 9999, so that it fits every time zone."""


def stored_moment(moment: datetime) -> int:
    """Convert a time to the form in rows.

    Args:
        moment: An aware time.
    """
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Convert microseconds since 1970, as a row has them, to a time in UTC."""
    return _EPOCH + stored * _MICROSECOND


__all__ = ["StoredMoment", "moment_of", "stored_moment"]
