"""The commands `storage copy` and `storage drop`, which move the data of agents. `agent.copying` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .command import Work, bad_usage, command, storage_of
from .output import Output, table
from .progress import shown_progress

if TYPE_CHECKING:
    from ...agent.copying import Copied
    from ...storage import Storage

_SCHEMES: Final = ("postgresql://", "postgres://")

app = typer.Typer(name="storage", no_args_is_help=True)


@app.callback()
def _storage() -> None:
    """Move conversations, turns and checkpoints between the home's file and a Postgres database.

    [bold]Example[/bold]

      worldagent storage copy --to postgresql://ana@db.example/agents
    """


@command(app, "copy")
def copy(output: Output, source: str | None = None, target: str | None = None) -> Work:
    """Copy all data of agents from one place to another, such as from a home to a Postgres database, or back.

    Stop the agents of both places first. Until the copy is complete, nothing else can open the target. If a copy is
    interrupted, run the command again, and it starts afresh. At the end, both places are compared. Roles, the role key
    and attachments stay in the home.

    PLACE is a home's folder, or postgresql://... By default, --from is the home, and --to is the setting database_url.
    Other users of the machine can see a password in PLACE in its list of processes. To hide it, put it into the setting
    or into libpq's password file.

    [bold]Examples[/bold]

      worldagent storage copy --to postgresql://ana@db.example/agents

      worldagent storage copy --from postgresql://ana@db.example/agents --to ./home --json

    Args:
        source (--from PLACE; Places): What to copy. Default: the home.
        target (--to PLACE; Places): Where to. Default: the setting database_url.
    """
    from ...storage import Storage

    home = Storage(home=storage_of(None).home)
    return _copy(home if source is None else _named(source), _target(target), output)


@command(app, "drop")
async def drop(output: Output, place: str) -> None:
    """Remove the data of an interrupted copy. A complete copy is refused.

    [bold]Example[/bold]

      worldagent storage drop postgresql://ana@db.example/agents

    Args:
        place (PLACE): The target of the copy.
    """
    from ...agent.copying import drop_copy

    storage = _named(place)
    await drop_copy(storage)
    output.note(f"dropped the copy into {str(storage.place)!r}")
    output.result({"dropped": str(storage.place)})


async def _copy(source: Storage, target: Storage, output: Output) -> None:
    from ...agent.copying import copy_storage

    with shown_progress(output) as progress:
        copied = await copy_storage(source, target, progress=progress)
    if source.url is None:
        output.note(f"note: roles, the role key and attachments stay in {str(source.resolve())!r}")
    shown = {
        "from": copied.source,
        "to": copied.target,
        "restarted": copied.restarted,
        "parts": {name: {"count": held.rows, "digest": held.digest} for name, held in copied.parts.items()},
    }
    output.result({"copied": shown}, _report(copied))


def _report(copied: Copied) -> str:
    rows = [(name, f"{held.rows:,}") for name, held in copied.parts.items()]
    return f"{table(('PART', 'COUNT'), rows)}\nCopied {copied.source!r} to {copied.target!r}; both hold the same."


def _target(place: str | None) -> Storage:
    if place is not None:
        return _named(place)
    storage = storage_of(None)
    if storage.url is None:
        raise bad_usage(
            "--to is not given, and the setting database_url is not set",
            remedy="give --to, a folder or postgresql://...",
        )
    return storage


def _named(place: str) -> Storage:
    """The storage that an argument names. A storage on a server gets the home of the settings, which it does not use.

    Raises:
        InvalidArgument: The argument is empty, or an address that cannot be used.
    """
    from ...storage import Storage

    if place.startswith(_SCHEMES):
        return Storage(home=storage_of(None).home, url=place)
    if not place or "://" in place:
        raise bad_usage(
            f"{place.partition('://')[0][:40]!r} must be a folder or the address of a Postgres database",
            remedy="give a home's folder, or postgresql://USER@HOST:PORT/DATABASE",
        )
    return Storage(home=Path(place))
