"""The commands `storage copy` and `storage drop`: moving what agents keep. What is done is in `agent.copying`."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument
from ...storage import Storage
from ._output import Output, table
from ._session import run
from ._storage_options import StorageCopyOptions, StorageDropOptions

if TYPE_CHECKING:
    from ...agent.copying import Copied, Progress

_SCHEMES = ("postgresql://", "postgres://")


def copy(options: StorageCopyOptions) -> int:
    """Run `storage copy` and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        return _copy(_source(options.source), _target(options.target), output)

    return run(output, begin)


def drop(options: StorageDropOptions) -> int:
    """Run `storage drop` and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        return _drop(_storage(options.place), output)

    return run(output, begin)


async def _copy(source: Storage, target: Storage, output: Output) -> None:
    from ...agent.copying import copy_storage

    with _shown(output) as progress:
        copied = await copy_storage(source, target, progress=progress)
    if source.url is None:
        output.note(f"note: roles, the role key and attachments stay in {str(source.resolve())!r}")
    told = {
        "from": copied.source,
        "to": copied.target,
        "restarted": copied.restarted,
        "parts": {name: {"count": held.rows, "digest": held.digest} for name, held in copied.parts.items()},
    }
    output.result({"copied": told}, _report(copied))


async def _drop(place: Storage, output: Output) -> None:
    from ...agent.copying import drop_copy

    await drop_copy(place)
    output.note(f"dropped the copy into {str(place.place)!r}")
    output.result({"dropped": str(place.place)})


@contextmanager
def _shown(output: Output) -> Generator[Progress]:
    """Show how far a copy is: on a terminal as bars, elsewhere a line for each part once it is whole."""
    if not sys.stderr.isatty():
        yield lambda part, done, total: output.note(f"{part}: {done:,} of {total:,}") if done >= total else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    known: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def told(part: str, done: int, total: int) -> None:
            bar = known.setdefault(part, TaskID(-1))
            if bar == -1:
                bar = known[part] = bars.add_task(part, total=total)
            bars.update(bar, completed=done, total=total)

        yield told


def _report(copied: Copied) -> str:
    rows = [(name, f"{held.rows:,}") for name, held in copied.parts.items()]
    return "\n".join(
        [
            table(("PART", "COUNT"), rows, widths=(24,)),
            f"Copied {copied.source!r} to {copied.target!r}; both hold the same.",
        ]
    )


def _source(place: str | None) -> Storage:
    if place is not None:
        return _storage(place)
    from ...agent import Settings

    return Storage(home=Settings().storage().home)


def _target(place: str | None) -> Storage:
    if place is not None:
        return _storage(place)
    from ...agent import Settings

    storage = Settings().storage()
    if storage.url is None:
        raise InvalidArgument(
            "--to is left out, and the setting database_url is not set",
            remedy="give --to, a folder or postgresql://...",
        )
    return storage


def _storage(place: str) -> Storage:
    """The storage that an argument names; on a server it needs no home, so it gets the settings' one.

    Raises:
        InvalidArgument: It is empty, or an address that cannot be used.
    """
    if place.startswith(_SCHEMES):
        from ...agent import Settings

        return Storage(home=Settings().storage().home, url=place)
    if not place or "://" in place:
        raise InvalidArgument(
            f"{place.partition('://')[0][:40]!r} is neither a folder nor the address of a Postgres database",
            remedy="give a home's folder, or postgresql://USER@HOST:PORT/DATABASE",
        )
    return Storage(home=Path(place))


__all__ = ["copy", "drop"]
