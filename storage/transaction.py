"""What work inside a transaction sees. No implementation here: `lane` has the one over SQLite, `_postgres` its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Transaction(Protocol):
    """A transaction under way. It ends with the function it was given to and is of no use afterwards."""

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with `?` for each of `params` and return all its rows.

        Raises:
            InvalidArgument: A text among `params` holds half a surrogate pair, which UTF-8 cannot hold, or, on
                Postgres, a NUL character.
        """
        ...

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        """As `execute`, for a SELECT of one table whose rows nobody else may change before this transaction ends.

        Where it is `alone`, nobody else may hold them either: whoever did is waited for.
        """
        ...
