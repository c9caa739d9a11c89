"""What turns texts into vectors, for the search of memory entries (M3)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """A model of embeddings: an `async def` function, or an object with such a `__call__`.

    If it has an attribute `name` with a text, this is its name, otherwise it is that of the function or class. Stored
    vectors belong to this name: an embedder with another one makes them again.
    """

    async def __call__(self, texts: list[str], /) -> list[list[float]]:
        """Return one vector for each text, all with the same number of numbers."""
        ...
