"""The protocol of a transaction. The implementations are in `lane` (SQLite) and `postgres`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import StorageInvalid
from ..core.validation import describe_failure


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


Moment = Annotated[float, Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970, up to the end of the year 9999."""


class Row(BaseModel):
    """Base class of row models. Declare a text column with JSON as `Json[...]`."""

    model_config = ConfigDict(hide_input_in_errors=True)


def check_row(model: type[Row], row: Mapping[str, Any], *, what: str, database: str) -> None:
    """Validate a row against its model.

    Args:
        model: The model of the row.
        row: Its columns by name.
        what: The name of the row, for the error.
        database: The name of its database, for the error.

    Raises:
        StorageInvalid: The row is invalid. The text says which columns are, and never shows their values.
    """
    try:
        model.model_validate(row)
    except ValidationError as failure:
        problems = describe_failure(failure)
    else:
        return
    raise StorageInvalid(
        f"{what[:300]} in {database!r} cannot be read: {problems[:1000]}",
        remedy="restore the database from a copy, or continue on another thread",
    )
