"""How rows of a society's tables become objects, and objects their columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ...storage import Row, checked_row

R = TypeVar("R", bound=Row)


@lru_cache(maxsize=16)
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)  # made on first use, because that takes milliseconds


def read_as(kind: type, given: object) -> Any:
    """Read a dataclass of this folder from its JSON; None stays None."""
    return None if given is None else _adapter(kind).validate_python(given)


def read(model: type[R], row: Sequence[Any], what: str) -> R:
    """Read a row.

    Raises:
        StorageInvalid: It is invalid; the text names `what`.
    """
    return checked_row(model, row, what=what, database="the society")


def seconds(time: datetime | None) -> float | None:
    """A time as a column holds it."""
    return None if time is None else time.timestamp()
