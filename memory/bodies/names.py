"""The name of a person in a message: a label for people and models. Only the account has authority."""

from __future__ import annotations

from typing import Final

from ...core.errors import InvalidArgument

_LONGEST: Final = 80


def is_name(value: object) -> bool:
    """Whether a person can have this name: 1 to 80 printable characters in one line, not only blanks."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable() and bool(value.strip())


def check_name(value: str) -> str:
    """Return `value` if a person can have this name.

    Raises:
        InvalidArgument: It is not a valid name; the error does not show the value.
    """
    if is_name(value):
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`name` must be 1 to {_LONGEST} printable characters in one line, not only blanks, got {given}",
        remedy="shorten it, or leave it out",
    )


__all__ = ["check_name", "is_name"]
