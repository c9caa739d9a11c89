"""How a person is called in what they say: a label for people and models, and no authority. That is the account."""

from __future__ import annotations

from typing import Final

from ...core.errors import InvalidArgument

_LONGEST: Final = 80


def is_name(value: object) -> bool:
    """Whether a person can be called so: 1 to 80 printable characters in one line, not only blanks."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable() and bool(value.strip())


def check_name(value: str) -> str:
    """Return `value` if a person can be called so.

    Raises:
        InvalidArgument: They cannot; the value is not shown.
    """
    if is_name(value):
        return value
    problem = f"of {len(value)} characters" if isinstance(value, str) else f"of type {type(value).__name__}"
    raise InvalidArgument(
        f"name= is {problem} and cannot be a person's",
        remedy=f"give name= 1 to {_LONGEST} printable characters in one line, not only blanks, or leave it out",
    )


__all__ = ["check_name", "is_name"]
