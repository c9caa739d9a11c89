"""What is asked of a host over a link, as a type. What a request says is its kind's: `_contract`'s for role hosts."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Request(Generic[T]):
    """Something that is asked and that gives a `T`."""

    __slots__ = ()
