"""What rows of branches must be to be read again."""

from __future__ import annotations

from ...storage import Row
from ..moments import StoredMoment


class StoredBranch(Row):
    """A row of `wa_branch`."""

    thread: str
    head: str | None
    origin: str
    after: str
    at: StoredMoment
