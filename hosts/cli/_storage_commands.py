"""The commands of `storage` and their help. What they do is in `_storage`, which loads when one runs."""

from __future__ import annotations

import typer

from ._options import options_of
from ._storage_options import StorageCopyOptions, StorageDropOptions

_STORAGE = """\
Where conversations, turns and checkpoints are kept: the home's file, or a Postgres database.

[bold]Example[/bold]

  worldagent storage copy --to postgresql://ana@db.example/agents
"""

_COPY_STORAGE = """\
Copy all that agents keep from one place to another, such as from a home to a Postgres database, or back.

Stop the agents on both before. Until the copy is complete, nothing else can open the target. A copy that was
interrupted starts afresh when the command is run again. Both are compared in the end. Roles, the role key and
attachments stay in the home.

PLACE is a home's folder, or postgresql://... Left out, --from is the home, and --to is the setting database_url. Other
users of the machine may see a password in PLACE among its processes; one in the setting, or in libpq's own file, is not
seen.

[bold]Examples[/bold]

  worldagent storage copy --to postgresql://ana@db.example/agents

  worldagent storage copy --from postgresql://ana@db.example/agents --to ./home --json
"""

_DROP_STORAGE = """\
Remove what a copy has written that was interrupted. A copy that is complete is refused.

[bold]Example[/bold]

  worldagent storage drop postgresql://ana@db.example/agents
"""


def add_storage(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    storage = typer.Typer(no_args_is_help=True, help=_STORAGE, rich_markup_mode="rich")
    storage.command("copy", help=_COPY_STORAGE)(options_of(StorageCopyOptions, _copy_storage))
    storage.command("drop", help=_DROP_STORAGE)(options_of(StorageDropOptions, _drop_storage))
    app.add_typer(storage, name="storage")


def _copy_storage(options: StorageCopyOptions) -> int:
    from ._storage import copy

    return copy(options)


def _drop_storage(options: StorageDropOptions) -> int:
    from ._storage import drop

    return drop(options)


__all__ = ["add_storage"]
