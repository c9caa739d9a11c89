"""The model of the rows of branches."""

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
