"""Rows that are read again, checked against what was written: a file may have been changed by others meanwhile.

Which columns a row has, and what stands in them, is said by whoever keeps it; `schema` is about the tables themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import StorageInvalid
from ..core.validation import describe_failure

Moment = Annotated[float, Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970, up to the last that a calendar has."""


class Row(BaseModel):
    """Base of what a row should be. A text column that holds JSON is declared as `Json[...]`."""

    model_config = ConfigDict(hide_input_in_errors=True)


def check_row(model: type[Row], row: Mapping[str, Any], *, what: str, database: str) -> None:
    """Compare a row with what it should be.

    Args:
        model: What it should be.
        row: Its columns by name.
        what: What it is, for the error: it names the row.
        database: The name of the database that it is in.

    Raises:
        StorageInvalid: It is something else; the text says which columns are, and never what is in them.
    """
    try:
        model.model_validate(row)
    except ValidationError as failure:
        problems = describe_failure(failure)
    else:
        return
    raise StorageInvalid(
        f"{what[:300]} in {database!r} cannot be read: {problems[:1000]}",
        remedy="restore the database from a copy, or go on with another thread",
    )
