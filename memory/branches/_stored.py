"""What rows of branches must be to be read again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...storage import Row


class StoredBranch(Row):
    """A row of `wa_branch`."""

    thread: str
    head: str | None
    origin: str
    after: str
    at: Annotated[int, Field(ge=0, lt=253_402_300_800_000_000)]
