"""`backup` and the commands of `threads` for upkeep, with their help; what they do loads when one runs."""

from __future__ import annotations

import typer

from ._upkeep_options import BackupOptions, ExportOptions, ImportOptions, PruneOptions, RemoveOptions
from .options import options_of

_REMOVE = """\
Remove a thread with all that was said and done on it, so that no file holds any of it.

Messages that a fork shares stay with the fork. A thread whose turn runs or can go on is removed only with --cancel. The
database file is written anew for it, which takes time with its size; where there is no such thread, the exit code is 1.

[bold]Example[/bold]

  worldagent threads rm t1 --yes
"""

_EXPORT = """\
Write a thread's conversation to a file of JSON Lines: messages and attachments, and no role.

What a turn called, and a turn that waits, are not in it.

[bold]Example[/bold]

  worldagent threads export t1 -o t1.jsonl

  worldagent threads export t1 -o - | gzip > t1.jsonl.gz
"""

_IMPORT = """\
Read an exported conversation into a thread: all of it, or nothing where the file was changed.

A thread that has the conversation already is left as it is.

[bold]Example[/bold]

  worldagent threads import t1.jsonl --as t1-again

  gunzip -c t1.jsonl.gz | worldagent threads import -
"""

_PRUNE = """\
Remove old checkpoints that no turn goes on from, and give the space back.

Each thread keeps its newest one, and a thread whose turn runs or can go on keeps all. Attachments that no message
refers to are removed too.

[bold]Example[/bold]

  worldagent threads prune --keep 10
"""

_BACKUP = """\
Copy a home while agents use it. The copy is a home: --home FOLDER uses it.

It holds the stored roles and the key of role digests, unless --without-roles leaves them out.

[bold]Example[/bold]

  worldagent backup /backups/monday
"""


def add_upkeep(app: typer.Typer, threads: typer.Typer) -> None:
    """Add the commands to `worldagent` and to `worldagent threads`."""
    threads.command("rm", help=_REMOVE)(options_of(RemoveOptions, _remove))
    threads.command("export", help=_EXPORT)(options_of(ExportOptions, _export))
    threads.command("import", help=_IMPORT)(options_of(ImportOptions, _import))
    threads.command("prune", help=_PRUNE)(options_of(PruneOptions, _prune))
    app.command("backup", help=_BACKUP)(options_of(BackupOptions, _backup))


def _remove(options: RemoveOptions) -> int:
    from .upkeep import remove_thread

    return remove_thread(options)


def _export(options: ExportOptions) -> int:
    from .upkeep import export_thread

    return export_thread(options)


def _import(options: ImportOptions) -> int:
    from .upkeep import import_thread

    return import_thread(options)


def _prune(options: PruneOptions) -> int:
    from .upkeep import prune_threads

    return prune_threads(options)


def _backup(options: BackupOptions) -> int:
    from .upkeep import backup

    return backup(options)


__all__ = ["add_upkeep"]
