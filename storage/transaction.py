"""The protocol of a transaction. The implementations are in `lane` (SQLite) and `postgres`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Transaction(Protocol):
    """A running transaction. It ends when the function that received it returns, and must not be used after that."""

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with `?` for each of `params` and return all its rows.

        Raises:
            InvalidArgument: A text in `params` contains half a surrogate pair, which UTF-8 cannot encode, or, on
                Postgres, a NUL character.
        """
        ...

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        """Like `execute`, for a SELECT on one table. No other transaction can change its rows before this one ends.

        With `alone`, no other transaction can hold the rows either. This waits for transactions that hold them.
        """
        ...
