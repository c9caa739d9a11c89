"""Times as answers have them, which is as events do."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: datetime) -> str:
    """A time in UTC, as RFC 3339 with `Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


__all__ = ["moment"]
