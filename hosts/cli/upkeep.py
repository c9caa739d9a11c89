"""The commands `backup`, and `threads rm`, `export`, `import` and `prune`: a home is kept in shape with no model."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...core import check_id
from ...core.errors import InvalidArgument
from ._thread_options import ThreadsOptions
from ._upkeep_options import STREAM, BackupOptions, ExportOptions, ImportOptions, PruneOptions, RemoveOptions
from .output import Output
from .session import FAILED, TERMINATED, run
from .signals import until_sigterm

if TYPE_CHECKING:
    from ...agent import Settings
    from ...agent.upkeep import Upkeep

Work = Callable[["Upkeep", "Settings", Output], Awaitable[int | None]]


def remove_thread(options: RemoveOptions) -> int:
    """Run `threads rm` and return its exit code."""

    async def work(upkeep: Upkeep, _: Settings, output: Output) -> int | None:
        return await _remove(upkeep, output, options)

    def check(output: Output) -> bool:
        check_id("THREAD", options.thread)
        return options.yes or _agreed(options, output)

    return _run(options, work, check=check)


def export_thread(options: ExportOptions) -> int:
    """Run `threads export` and return its exit code."""
    stream = sys.stdout.buffer if str(options.output) == STREAM else None

    async def work(upkeep: Upkeep, _: Settings, output: Output) -> None:
        found = await upkeep.export(options.thread, stream or options.output)
        place = "on standard output" if found.file is None else f"in {str(found.file)!r}"
        told = f"{_counted(found.messages, 'message')} of the thread {options.thread!r} are {place}"
        if found.attachments:
            told += f", with {_counted(found.attachments, 'attachment')}"
        output.note(told)
        if found.missing:
            output.note(f"gone from the home, so not in the file: {_counted(len(found.missing), 'attachment')}")
        value = {
            "thread": options.thread,
            "file": str(found.file),
            "messages": found.messages,
            "attachments": found.attachments,
            "missing": list(found.missing),
        }
        output.result({"exported": value})

    def check(output: Output) -> bool:
        check_id("THREAD", options.thread)
        if stream is not None and (options.json or sys.stdout.isatty()):
            what = "--json writes to standard output too" if options.json else "standard output is a terminal"
            raise InvalidArgument(what, remedy="give --output a file, or redirect standard output, without --json")
        return True

    return _run(options, work, check=check)


def import_thread(options: ImportOptions) -> int:
    """Run `threads import` and return its exit code."""
    source: Path | IO[bytes] = sys.stdin.buffer if str(options.file) == STREAM else options.file

    async def work(upkeep: Upkeep, _: Settings, output: Output) -> None:
        found = await upkeep.import_thread(source, to=options.to)
        messages = _counted(found.messages, "message")
        told = f"made the thread {found.thread!r} with {messages}"
        output.note(told if found.made else f"the thread {found.thread!r} has the {messages} already")
        value = {"thread": found.thread, "messages": found.messages, "added": found.added, "made": found.made}
        output.result({"imported": value})

    with ExitStack() as opened:

        def check(_: Output) -> bool:
            from ...agent.upkeep.exchange import readable

            nonlocal source
            # Read here, where an interrupt ends it at once: whoever writes to a pipe may take any time.
            source = opened.enter_context(readable(source))
            return True

        return _run(options, work, make=True, check=check)


def prune_threads(options: PruneOptions) -> int:
    """Run `threads prune` and return its exit code."""

    async def work(upkeep: Upkeep, settings: Settings, output: Output) -> None:
        given = options.keep is not None or options.age is not None
        keep = options.keep if given else settings.checkpoint_keep or None
        age = options.age if given else settings.checkpoint_age
        found = await upkeep.prune(keep=keep, age=age)
        told = f"removed {_counted(found.checkpoints, 'checkpoint')} of {_counted(found.threads, 'thread')}"
        if found.attachments:
            told += f", and {_counted(found.attachments, 'attachment')} of no message"
        output.note(f"{told}; left {found.left} alone whose turn runs or can go on" if found.left else told)
        value = {
            "checkpoints": found.checkpoints,
            "threads": found.threads,
            "left": found.left,
            "attachments": found.attachments,
        }
        output.result({"pruned": value})

    return _run(options, work)


def backup(options: BackupOptions) -> int:
    """Run `backup` and return its exit code."""
    output = Output.of(json=options.json)
    return run(output, lambda: _backup(options, output))


async def _backup(options: BackupOptions, output: Output) -> int | None:
    from ...agent import Settings
    from ...agent.upkeep import back_up
    from ...storage import Storage

    storage = Settings().storage(Storage(home=options.home))
    found = await until_sigterm(
        back_up(storage, options.folder, roles=not options.without_roles, home_only=options.home_only)
    )
    if found is None:
        output.failed("terminated", "stopped by SIGTERM; no part of a copy is left", "run the command again")
        return TERMINATED
    output.note(f"copied {_counted(len(found.files), 'file')}, {found.size} bytes, to {str(found.folder)!r}")
    if found.missing:
        output.note(f"gone from the home, so not in the copy: {_counted(len(found.missing), 'attachment')}")
    value = {
        "folder": str(found.folder),
        "files": list(found.files),
        "bytes": found.size,
        "missing": list(found.missing),
    }
    output.result({"backup": value})
    return None


async def _remove(upkeep: Upkeep, output: Output, options: RemoveOptions) -> int | None:
    removed = await upkeep.remove(options.thread, cancel=options.cancel)
    if removed is None:
        return _missing(options, output)
    parts = [
        _counted(removed.messages, "message"),
        _counted(removed.turns, "turn"),
        _counted(removed.calls, "call"),
        _counted(removed.checkpoints, "checkpoint"),
    ]
    if removed.attachments:
        parts.append(_counted(removed.attachments, "attachment"))
    output.note(f"removed the thread {options.thread!r}: {', '.join(parts)}")
    value = {
        "thread": options.thread,
        "messages": removed.messages,
        "turns": removed.turns,
        "calls": removed.calls,
        "checkpoints": removed.checkpoints,
        "attachments": removed.attachments,
    }
    output.result({"removed": value})
    return None


def _run(
    options: ThreadsOptions, work: Work, *, make: bool = False, check: Callable[[Output], bool] | None = None
) -> int:
    """Run a command on the database of a home, which is made where `make` says so; nothing is done unless `check`."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        check_id("--workspace", options.workspace)
        go = check is None or check(output)
        return _with_upkeep(options, output, work, make) if go else _leave(output)

    return run(output, begin)


async def _with_upkeep(options: ThreadsOptions, output: Output, work: Work, make: bool) -> int | None:
    from ...agent import Settings
    from ...storage import Storage

    settings = Settings()
    storage = settings.storage(Storage(home=options.home))
    if not make and not storage.begun():
        return _missing(options, output)
    async with _opened(storage, settings, options.workspace) as upkeep:
        return await work(upkeep, settings, output)


@asynccontextmanager
async def _opened(storage: Any, settings: Settings, workspace: str) -> AsyncGenerator[Upkeep]:
    from ...agent.threads import SCHEMAS
    from ...agent.upkeep import Upkeep, UpkeepParts
    from ...storage import Database

    database = await Database.open(storage.place, schemas=SCHEMAS)
    try:
        yield Upkeep(replace(UpkeepParts.of(storage, database), wait=settings.thread_wait), workspace)
    finally:
        await database.aclose()


def _missing(options: ThreadsOptions, output: Output) -> int:
    thread = getattr(options, "thread", None)
    problem = f"the workspace {options.workspace!r} has no thread" + (f" {thread!r}" if thread else "")
    output.failed("not_found", problem, "see `worldagent threads list`")
    return FAILED


async def _leave(output: Output) -> int:
    output.note("nothing was removed")
    return FAILED


def _agreed(options: RemoveOptions, output: Output) -> bool:
    """Ask whether the thread may go.

    Raises:
        InvalidArgument: There is nobody to ask.
    """
    import typer

    if output.form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArgument(f"the thread {options.thread!r} is not removed unasked", remedy="give --yes")
    try:
        return typer.confirm(f"Remove the thread {options.thread!r} for good?", err=True)
    except typer.Abort:
        return False


def _counted(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


__all__ = ["backup", "export_thread", "import_thread", "prune_threads", "remove_thread"]
