"""The commands `backup`, `accounts rm`, and `threads rm`, `export`, `import` and `prune`. They need no model."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import typer

from .command import Work, bad_usage, command, confirm, storage_of, until_sigterm
from .exits import TERMINATED
from .operating import open_upkeep
from .options import HOME, ThreadOptions, ThreadsOptions
from .output import Output, counted
from .progress import shown_progress
from .threads import app as threads_app
from .threads import check_ids, missing

if TYPE_CHECKING:
    from ...agent.upkeep import Upkeep

_STREAM: Final = "-"  # standard output or input instead of a file

app = typer.Typer()
accounts_app = typer.Typer(name="accounts", no_args_is_help=True)
app.add_typer(accounts_app, rich_help_panel="Data")


@accounts_app.callback()
def _accounts() -> None:
    """Remove what a workspace holds of an account. No model is needed.

    [bold]Example[/bold]

      worldagent accounts rm ana --workspace novel
    """


@command(accounts_app, "rm")
def remove_account(
    options: ThreadsOptions, output: Output, account: str, yes: bool = False, cancel: bool = False
) -> Work:
    """Remove an account from a workspace: its schedules, its threads and its memory entries.

    A thread on which another account has a turn is kept and named; [bold]threads rm[/bold] removes it. Numbers of usage
    go by themselves after two days. The stored role of the account serves all workspaces: [bold]roles delete[/bold].

    [bold]Example[/bold]

      worldagent accounts rm ana --workspace novel --yes

    Args:
        account (ACCOUNT): The account.
        yes (--yes -y; Which): Remove it without asking.
        cancel (--cancel; Which): Cancel its turns that run or can be resumed.
    """
    check_ids(options)
    asked = f"Remove the account {account!r} from the workspace {options.workspace!r} for good?"
    confirm(output, yes, asked, problem=f"removing the account {account!r} must be confirmed")

    async def work() -> None:
        async with _upkeep(options, output) as upkeep:
            value = asdict(await upkeep.remove_account(account, cancel=cancel))
        shared = value.pop("shared")
        names = {"entries": "memory entries", "rows": "rows of capabilities"}
        parts = [f"{count:,} {names.get(key, key)}" for key, count in value.items()]
        output.note(f"removed of the account {account!r}: {', '.join(parts)}")
        if shared:
            output.note(f"kept, because another account has a turn on them: {', '.join(shared)}")
        output.result({"removed": {"account": account, **value, "shared": [*shared]}})

    return work()


@command(threads_app, "rm")
def remove_thread(options: ThreadOptions, output: Output, yes: bool = False, cancel: bool = False) -> Work:
    """Remove a thread with all its messages and turns, so that no file holds any of them.

    Messages that a fork shares stay with the fork. A thread whose turn runs or can be resumed is removed only with
    --cancel. The database file is rewritten, which takes longer the larger it is. If the thread does not exist, the
    exit code is 1.

    [bold]Example[/bold]

      worldagent threads rm t1 --yes

    Args:
        yes (--yes -y; Which): Remove it without asking.
        cancel (--cancel; Which): Cancel its turn, if one runs or can be resumed.
    """
    check_ids(options)
    asked = f"Remove the thread {options.thread!r} for good?"
    confirm(output, yes, asked, problem=f"removing the thread {options.thread!r} must be confirmed")

    async def work() -> int | None:
        async with _upkeep(options, output) as upkeep:
            removed = await upkeep.remove(options.thread, cancel=cancel)
        if removed is None:
            return missing(options, output)
        value = asdict(removed)
        parts = [counted(count, key[:-1]) for key, count in value.items() if count or key != "attachments"]
        output.note(f"removed the thread {options.thread!r}: {', '.join(parts)}")
        output.result({"removed": {"thread": options.thread, **value}})
        return None

    return work()


@command(threads_app, "export")
async def export_thread(options: ThreadOptions, output: Output, file: Path) -> None:
    """Write a thread's conversation to a file of JSON Lines: its messages and attachments, but no role.

    The file holds neither the calls of turns nor a turn that waits.

    [bold]Example[/bold]

      worldagent threads export t1 -o t1.jsonl

      worldagent threads export t1 -o - | gzip > t1.jsonl.gz

    Args:
        file (--output -o FILE; Where): The file to write, or - for standard output. An existing file is replaced only
            if it is an export.
    """
    check_ids(options)
    stream = sys.stdout.buffer if str(file) == _STREAM else None
    if stream is not None and (options.json or sys.stdout.isatty()):
        what = "--json writes to standard output too" if options.json else "standard output is a terminal"
        raise bad_usage(what, remedy="give --output a file, or redirect standard output and omit --json")

    async with _upkeep(options, output) as upkeep:
        found = await upkeep.export(options.thread, stream or file)
    place = "on standard output" if found.file is None else f"in {str(found.file)!r}"
    shown = f"{counted(found.messages, 'message')} of the thread {options.thread!r} are {place}"
    if found.attachments:
        shown += f", with {counted(found.attachments, 'attachment')}"
    output.note(shown)
    if found.missing:
        output.note(f"gone from the home, so not in the file: {counted(len(found.missing), 'attachment')}")
    output.result({"exported": {"thread": options.thread, **asdict(found), "file": str(found.file)}})


@command(threads_app, "import")
def import_thread(options: ThreadsOptions, output: Output, file: Path, to: str | None = None) -> Work:
    """Read an exported conversation into a thread: all of it, or nothing if the file was changed.

    A thread that already has the conversation is not changed.

    [bold]Example[/bold]

      worldagent threads import t1.jsonl --as t1-again

      gunzip -c t1.jsonl.gz | worldagent threads import -

    Args:
        file (FILE): A file that `threads export` wrote, or - for standard input.
        to (--as THREAD; Where): The name of the new thread. Default: the name it had.
    """
    from ...agent.upkeep.thread_files import readable

    check_ids(options)
    given: Path | IO[bytes] = sys.stdin.buffer if str(file) == _STREAM else file
    opened = ExitStack()
    # Read here, where an interrupt ends it at once: the writer of a pipe can take any time.
    source = opened.enter_context(readable(given))

    async def work() -> None:
        with opened:
            async with open_upkeep(options) as upkeep:
                found = await upkeep.import_thread(source, to=to)
        messages = counted(found.messages, "message")
        shown = f"made the thread {found.thread!r} with {messages}"
        output.note(shown if found.made else f"the thread {found.thread!r} has the {messages} already")
        output.result({"imported": asdict(found)})

    return work()


@command(threads_app, "prune")
async def prune_threads(
    options: ThreadsOptions, output: Output, keep: int | None = None, age: float | None = None
) -> None:
    """Remove old checkpoints that no turn resumes from, and free their space.

    Each thread keeps its newest checkpoint. A thread whose turn runs or can be resumed keeps all of them. The recorded
    events of as many turns are kept. Attachments
    that no message refers to are removed too, and so are memory entries that have expired, and work of members finished
    for longer than the setting society_age.

    [bold]Example[/bold]

      worldagent threads prune --keep 10

    Args:
        keep (--keep N; Which): How many checkpoints of each thread to keep, 1 to 1000000000. Default: the setting
            checkpoint_keep.
        age (--age SECONDS; Which): The highest age of a checkpoint, up to 315360000. Default: the setting
            checkpoint_age.
    """
    check_ids(options)
    from ...agent import Settings

    given, settings = keep is not None or age is not None, Settings()
    async with _upkeep(options, output) as upkeep:
        found = await upkeep.prune(
            keep=keep if given else settings.checkpoint_keep or None, age=age if given else settings.checkpoint_age
        )
    shown = f"removed {counted(found.checkpoints, 'checkpoint')} of {counted(found.threads, 'thread')}"
    for name in ("event", "message", "outcome", "step"):
        if count := getattr(found, f"{name}s"):
            shown += f", {counted(count, name)} of members"
    if found.attachments:
        shown += f", and {counted(found.attachments, 'attachment')} of no message"
    output.note(f"{shown}; skipped {found.left} whose turn runs or can be resumed" if found.left else shown)
    output.result({"pruned": asdict(found)})


@command(app, "prune", panel="Data")
async def prune(
    options: ThreadsOptions,
    output: Output,
    runs: float | None = None,
    calls: float | None = None,
    traces: float | None = None,
    threads: float | None = None,
    society: float | None = None,
    dry_run: bool = False,
) -> None:
    """Remove what is older than an age, in small steps, while agents use the database.

    Turns that run or can be resumed lose nothing. Only what you name is removed. On SQLite the file keeps its size, and
    bytes of removed rows can stay in it: [bold]threads prune[/bold] rewrites it.

    [bold]Examples[/bold]

      worldagent prune --runs 2592000 --calls 2592000

      worldagent prune --threads 31536000 --dry-run --json

    Args:
        runs (--runs SECONDS; Which): Remove runs of schedules that are over and began longer ago. Default: none.
        calls (--calls SECONDS; Which): Remove the calls of turns that ended longer ago. Messages stay. Default: none.
        traces (--traces SECONDS; Which): Remove traces of turns that began longer ago. Default: none.
        threads (--threads SECONDS; Which): Remove threads whose newest turn ended longer ago, with all messages.
            Default: none.
        society (--society SECONDS; Which): Remove older finished work of members: events with their turns,
            messages, outcomes, steps. Default: none.
        dry_run (--dry-run; Which): Only count what would be removed.
    """
    check_ids(options)
    async with _upkeep(options, output) as upkeep:
        with shown_progress(output) as progress:
            found = await upkeep.prune_by_age(
                runs=runs,
                calls=calls,
                traces=traces,
                threads=threads,
                society=society,
                dry_run=dry_run,
                progress=progress,
            )
    value = asdict(found)
    del value["more"]  # this process has no capability with an age of its own
    given = {"runs": runs, "calls": calls, "traces": traces, "threads": threads}
    given |= dict.fromkeys(("events", "messages", "outcomes", "steps", "briefs"), society)
    parts = [counted(value[name], name[:-1]) for name, age in given.items() if age is not None]
    shown = f"{'would remove' if dry_run else 'removed'} {', '.join(parts)}"
    if found.attachments:
        shown += f", and {counted(found.attachments, 'attachment')} of no message"
    output.note(f"{shown}; skipped {found.left} that a turn has taken up" if found.left else shown)
    output.result({"pruned": value})


@command(app, panel="Data")
def backup(
    output: Output, folder: Path, home: Path | None = HOME, without_roles: bool = False, home_only: bool = False
) -> Work:
    """Copy a home while agents use it. The copy is a home too: use it with --home FOLDER.

    It holds the stored roles and the key of role digests, unless you give --without-roles.

    [bold]Example[/bold]

      worldagent backup /backups/monday

    Args:
        folder (FOLDER): The folder to create.
        without_roles (--without-roles; Which): Omit the stored roles and the key of role digests.
        home_only (--home-only; Which): Copy only the home, if its database is on a Postgres server. Copy the database
            with pg_dump.
    """
    from ...agent.upkeep import back_up

    async def work() -> int | None:
        found = await until_sigterm(back_up(storage_of(home), folder, roles=not without_roles, home_only=home_only))
        if found is None:
            output.failed("terminated", "stopped by SIGTERM; no part of the copy remains", "run the command again")
            return TERMINATED
        output.note(f"copied {counted(len(found.files), 'file')}, {found.size} bytes, to {str(found.folder)!r}")
        if found.missing:
            output.note(f"gone from the home, so not in the copy: {counted(len(found.missing), 'attachment')}")
        value = {
            "folder": str(found.folder),
            "files": list(found.files),
            "bytes": found.size,
            "missing": list(found.missing),
        }
        output.result({"backup": value})
        return None

    return work()


@asynccontextmanager
async def _upkeep(options: ThreadsOptions, output: Output) -> AsyncGenerator[Upkeep]:
    """The upkeep of a home that has a database."""
    if not storage_of(options.home).begun():
        raise typer.Exit(missing(options, output))
    async with open_upkeep(options) as upkeep:
        yield upkeep
