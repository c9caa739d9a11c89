"""Places: where functions write and read what later turns read back, and the marks of what is there (H11).

Only digests of names are stored, so that nothing of a path or a title is kept. Marks are added and never taken away.
"""

from __future__ import annotations

import unicodedata
from asyncio import to_thread
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from ..core import digest
from ..core.errors import FunctionInvalid
from ..storage import Database, Schema, Transaction, portions
from .guard import OnError

Place = str | Callable[[Mapping[str, Any]], str | Iterable[str] | None]
"""The argument that names a place, or what returns the names of places for the arguments of a call."""

PLACES: Final = Schema(
    "places",
    (("CREATE TABLE wa_place(place TEXT NOT NULL, mark TEXT NOT NULL, PRIMARY KEY(place, mark))",),),
)
EVERYWHERE: Final = ""
"""The place that all others are in."""

_DEEPEST: Final = 60  # names in a place; what is further down counts as there
_ADD: Final = "INSERT INTO wa_place(place, mark) VALUES(?, ?) ON CONFLICT(place, mark) DO NOTHING"
_AT: Final = "SELECT mark FROM wa_place WHERE place IN ({})"
# A place below begins with the place and a slash; `0` is the character after the slash.
_BELOW: Final = "SELECT DISTINCT mark FROM wa_place WHERE place >= ? AND place < ?"


class Places:
    """The marks of places in a database that was opened with the schema `PLACES`.

    All workspaces share them, as they share the folders of tools.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, places: Collection[str], marks: Collection[str]) -> None:
        """Keep marks with what will be written at some places, beside those that are there.

        Args:
            places: The names of the places.
            marks: The marks; see `core.marks`.
        """
        rows = sorted((stored, mark) for stored in {*map(_stored, places)} for mark in marks)

        def work(transaction: Transaction) -> None:
            for row in rows:
                transaction.execute(_ADD, row)

        if rows:
            await self._database.transact(work)

    async def marks(self, places: Collection[str]) -> frozenset[str]:
        """The marks of some places, of all that is in them, and of what they are in.

        Args:
            places: The names of the places.
        """
        names = sorted({*map(_stored, places)})
        around = sorted({above for name in names for above in _way_to(name)})

        def work(transaction: Transaction) -> frozenset[str]:
            found = [row for marks, some in portions(around) for row in transaction.execute(_AT.format(marks), some)]
            for name in names:
                found += transaction.execute(_BELOW, (f"{name}/", f"{name}0"))
            return frozenset(mark for (mark,) in found)

        return await self._database.read(work) if names else frozenset()


async def places_of(place: Place, arguments: Mapping[str, Any], on_error: OnError | None) -> tuple[str, ...]:
    """The names of the places that a call writes or reads. If they cannot be told, it can be anywhere.

    Args:
        place: What the function declares.
        arguments: The arguments of the call, as JSON.
        on_error: Receives what a function raises, and an error if it returns anything but names.
    """
    try:
        named = arguments.get(place, EVERYWHERE) if isinstance(place, str) else await to_thread(place, arguments)
        if named is None and not isinstance(place, str):
            return ()
        if named is None or isinstance(named, str | int | float):
            return (EVERYWHERE if named is None else str(named),)
        found = tuple(named)
        if isinstance(named, Mapping) or not all(isinstance(each, str | int | float) for each in found):
            raise FunctionInvalid("a place is not a name", remedy="return a text, a list of texts, or None")
        return tuple(map(str, found))
    except Exception as error:
        if on_error is not None:
            on_error(error)
        return (EVERYWHERE,)


def _stored(name: str) -> str:
    """A place as it is stored. Names that differ only in case or in how they are encoded count as one."""
    parts = (each for each in unicodedata.normalize("NFC", name).casefold().split("/") if each not in ("", "."))
    return "".join(f"/{digest(each, length=16)}" for each in [*parts][:_DEEPEST])


def _way_to(stored: str) -> Iterator[str]:
    """The place itself, and those that it is in."""
    return accumulate(stored.split("/"), "{}/{}".format)
