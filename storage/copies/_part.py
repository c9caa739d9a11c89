"""What a copy of a database consists of. No implementation here: `_rows` has tables, `graphs.copies` checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .._transaction import Transaction

Key = list[Any]
"""Where in a part a batch ends, as JSON can hold it."""

Check = Callable[[Transaction], None]


@dataclass(frozen=True, slots=True)
class Held:
    """What a part of a database holds.

    Attributes:
        rows: How many rows.
        digest: Stands for all of them, in whatever order they were read.
    """

    rows: int = 0
    digest: str = "0" * 64

    def more(self, rows: Sequence[str]) -> Held:
        """The same with more rows, each as a text that stands for it."""
        total = int(self.digest, 16)
        for row in rows:
            total += int.from_bytes(hashlib.sha256(row.encode()).digest(), "big")
        return Held(self.rows + len(rows), f"{total % (1 << 256):064x}")


class Part(Protocol):
    """One kind of thing that two databases hold."""

    @property
    def name(self) -> str:
        """Names it among the parts of a copy."""
        ...

    async def count(self) -> int:
        """How many the source has."""
        ...

    def batches(self, last: Key | None) -> AsyncGenerator[tuple[Sequence[Any], Key]]:
        """What the source has after `last`, each batch with where it ends."""
        ...

    async def put(self, batch: Sequence[Any], check: Check) -> None:
        """Write a batch into the target, where it may be already; what differs there is for `held` to tell.

        Args:
            batch: What `batches` gave.
            check: Raises where this run may write no more.
        """
        ...

    async def held(self) -> tuple[Held, Held]:
        """What the source and the target hold."""
        ...


__all__ = ["Check", "Held", "Key", "Part"]
