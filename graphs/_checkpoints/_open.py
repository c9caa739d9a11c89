"""Which saver a database has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...storage import PostgresAddress
from ._sqlite import WholeSaver

if TYPE_CHECKING:
    from ._postgres import PostgresSaver

    Saver = WholeSaver | PostgresSaver
else:
    Saver = WholeSaver  # the other one needs an extra (D16)


async def open_saver(place: Path | PostgresAddress) -> Saver:
    """Open the checkpoint tables in the database at `place`.

    Raises:
        StorageUnavailable, StorageInvalid: The database cannot be used.
    """
    if isinstance(place, PostgresAddress):
        from ._postgres import PostgresSaver

        return await PostgresSaver.open(place)
    return await WholeSaver.open(place)
