"""The commands of `memory`: entries that outlive threads. All but `distil` need no model."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, bad_usage, command, confirm
from .exits import DONE, FAILED
from .operating import ask, ask_in, opened, operation
from .options import JSON_RESULT, AgentOptions, ThreadsOptions, argument, option_group
from .output import Output, lines_of, problem_object, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...agent import WorldAgent
    from ..service.memory import EntryRecord

_COLUMNS: Final = ("ID", "OF", "CHANGED", "TEXT")
MAX_TEXT_CELLS: Final = 60
_STREAM: Final = Path("-")
_ID = argument("ID", "The id of the entry, as `memory list` shows it.")

app = typer.Typer(name="memory", no_args_is_help=True)


@app.callback()
def _memory() -> None:
    """Memory: what agents with memory know across threads, of an account or of the whole workspace.

    Agents recall entries if the setting memory is on, or if your own agent has memory=Memory(). Only `distil` needs a
    model.

    [bold]Example[/bold]

      worldagent memory add 'Ana is allergic to nuts.' --account ana
    """


@option_group
class MemoryOptions(ThreadsOptions):
    """The options of every command of `memory`.

    Attributes:
        account (--account ID; Which): The account whose entries they are. Default: the workspace's.
    """

    account: str | None = None


@option_group
class ImportOptions(ThreadsOptions):
    """The options of `memory import`.

    Attributes:
        account (--account ID; Which): The account that gets all entries. Default: that of each line.
    """

    account: str | None = None


def _value(found: Any) -> dict[str, Any]:
    """The answer of an operation for a program, with the data of entries, which is not shown to others."""
    shown = found.entries if hasattr(found, "entries") else None
    return {"entry": _record(found.entry)} if shown is None else {"entries": [_record(each) for each in shown]}


def _record(entry: EntryRecord) -> dict[str, Any]:
    return entry.model_dump(mode="json") | ({"data": entry.data} if entry.data else {})


def _table(found: Sequence[EntryRecord]) -> str:
    rows = [
        (entry.id, entry.account or "workspace", entry.changed[:16].replace("T", " "), _short(entry.text))
        for entry in found
    ]
    return table(_COLUMNS, rows) if rows else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT_CELLS else f"{line[: MAX_TEXT_CELLS - 3]}..."


def _times(given: dict[str, Any]) -> dict[str, Any]:
    """Check the time that an option gives."""
    if given["expires"] is None:
        return given
    try:
        found = datetime.fromisoformat(given["expires"])
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise bad_usage("--expires is not a time with a zone", remedy="write it as 2030-01-01T09:00Z")
    return given


@operation(
    app,
    "add",
    "memory_add",
    show=lambda found: found.entry.id,
    value=_value,
    read=_times,
)
def add(
    options: MemoryOptions,
    output: Output,
    text: str,
    kind: str = "entry",
    tags: list[str] | None = None,
    classification: str = "internal",
    domain: str = "",
    confidence: float = 1.0,
    expires: str | None = None,
    key: str | None = None,
) -> None:
    """Write an entry.

    [bold]Examples[/bold]

      worldagent memory add 'Ana is allergic to nuts.' --account ana --tag food

      worldagent memory add 'The harbour opens at six.' --kind fact --confidence 0.8

    Args:
        text (TEXT): What to remember: one thing, in a sentence that stands alone.
        kind (--kind KIND; Entry): entry, fact, episode or insight.
        tags (--tag TAG; Entry): A word to filter by. Repeatable.
        classification (--classification LEVEL; Entry): How widely it may be known: public, internal, confidential or
            secret.
        domain (--domain AREA; Entry): The area that the classification is of. Default: any.
        confidence (--confidence NUMBER; Entry): How certain it is, 0 to 1.
        expires (--expires TIME; Entry): When it is deleted, such as 2030-01-01T09:00Z.
        key (--key KEY; Entry): Adding it again with the same key writes nothing.
    """


@operation(
    app,
    "list",
    "memory_list",
    show=lambda found: _table(found.entries) or "there are no entries",
    value=_value,
)
def list_entries(
    options: MemoryOptions,
    output: Output,
    kind: str | None = None,
    tags: list[str] | None = None,
    limit: int = 100,
    replaced: bool = False,
) -> None:
    """List entries, the newest first. With --account those of the workspace are listed too.

    [bold]Example[/bold]

      worldagent memory list --account ana

    Args:
        kind (--kind KIND; Which): Only entries of this kind: entry, fact, episode or insight.
        tags (--tag TAG; Which): Only entries with this tag. Repeatable.
        limit (--limit N; Which): How many to list, 1 to 1000.
        replaced (--replaced; Which): Also those that newer entries replaced.
    """


@operation(
    app,
    "search",
    "memory_search",
    show=lambda found: _table(found.entries) or "nothing fits",
    value=_value,
)
def search(options: MemoryOptions, output: Output, text: str, limit: int = 10) -> None:
    """Show the entries that fit a text best, as a turn with this message would recall them.

    [bold]Example[/bold]

      worldagent memory search 'May I eat nuts?' --account ana

    Args:
        text (TEXT): The question.
        limit (--limit N; Which): How many to show, 1 to 100.
    """


@operation(app, "show", "memory_show", show=lambda found: lines_of(_record(found.entry)), value=_value)
def show(options: MemoryOptions, output: Output, entry: str = _ID) -> None:
    """Show an entry with all its fields.

    [bold]Example[/bold]

      worldagent memory show mem_01f2a3b4c5d6e7f8 --account ana
    """


@command(app, "edit", asks=("memory_edit",))
async def edit(
    options: MemoryOptions,
    output: Output,
    id: str = _ID,
    text: str | None = None,
    tag: list[str] | None = None,
    expires: str | None = None,
    no_expires: bool = False,
    of_version: int | None = None,
) -> None:
    """Change an entry. What is not given stays as it is.

    [bold]Example[/bold]

      worldagent memory edit mem_01f2a3b4c5d6e7f8 --text 'Ana eats nuts again.' --account ana

    Args:
        text (--text TEXT; Entry): The new text.
        tag (--tag TAG; Entry): A new tag, in place of all its tags. Repeatable.
        expires (--expires TIME; Entry): When it is deleted.
        no_expires (--no-expires; Entry): It is kept until it is forgotten.
        of_version (--of-version N; Which): Only if it still has this version.
    """
    if text is None and tag is None and expires is None and not no_expires:
        raise bad_usage("nothing is changed", remedy="give --text, --tag, --expires or --no-expires")
    if expires is not None and no_expires:
        raise bad_usage("--expires and --no-expires contradict each other", remedy="give one of them")
    named = _times({"text": text, "tags": tag, "expires": expires, "version": of_version})
    given = {name: each for name, each in named.items() if each is not None or (name == "expires" and no_expires)}
    found = await ask(options, "memory_edit", entry=id, **given)
    output.result(_value(found), f"{found.entry.id}: version {found.entry.version}")


@command(app, "forget", asks=("memory_forget",))
def forget(
    options: MemoryOptions, output: Output, ids: list[str] | None = None, everything: bool = False, yes: bool = False
) -> Work:
    """Delete entries, so that no file holds any of them. The database file is rewritten.

    What a thread said or read stays in it until the thread is removed.

    [bold]Examples[/bold]

      worldagent memory forget mem_01f2a3b4c5d6e7f8 --account ana --yes

      worldagent memory forget --everything --account ana

    Args:
        ids (ID...): The ids of entries.
        everything (--everything; Which): All entries of the account, or of the workspace without --account.
        yes (--yes -y; Which): Forget them without asking.
    """
    if bool(ids) == everything:
        raise bad_usage("it is not clear what to forget", remedy="give ids, or --everything")
    whose = "the workspace" if options.account is None else f"the account {options.account!r}"
    what = f"all entries of {whose}" if everything else f"{len(ids or ())} entries"
    problem = f"forgetting {what} must be confirmed"
    confirm(output, yes, f"Forget {what} for good?", problem=problem, kept="nothing was forgotten")

    async def work() -> None:
        async with opened(options) as workspace:
            count = (
                await workspace.memory.forget_all(account=options.account)
                if everything
                else await workspace.memory.forget(*(ids or ()), account=options.account)
            )
        output.result({"forgotten": count}, f"forgotten: {count}")

    return work()


@command(app, "export")
async def export(options: MemoryOptions, output: Output, file: Path) -> None:
    """Write all entries of an account, or of the workspace, as lines of JSON.

    [bold]Example[/bold]

      worldagent memory export --account ana -o ana.jsonl

    Args:
        file (--output -o FILE; Which): The file to write, or - for standard output.
    """
    import asyncio

    async with opened(options) as workspace:
        lines = [
            json.dumps(each, ensure_ascii=False) async for each in workspace.memory.export(account=options.account)
        ]
    text = "".join(f"{line}\n" for line in lines)
    if file == _STREAM:
        sys.stdout.write(text)
    else:
        await asyncio.to_thread(_write, file, text)
        output.result({"exported": len(lines), "file": str(file)}, f"entries in {file}: {len(lines)}")


@command(app, "import")
async def import_entries(options: ImportOptions, output: Output, file: Path) -> None:
    """Write the entries of a file, each for the account that its line names.

    Importing a file again writes nothing new, and entries that are still there stay as they are. Entries that newer
    ones replaced are left out. If a line is wrong, nothing is written.

    [bold]Example[/bold]

      worldagent memory import ana.jsonl

    Args:
        file (FILE): Lines of JSON, as `memory export` writes them, or - for standard input.
    """
    text = _read(file)
    async with opened(options) as workspace:
        count = await workspace.memory.import_lines([*_objects(text)], account=options.account)
    output.result({"imported": count}, f"entries of the file in memory: {count}")


@option_group
class DistilOptions(AgentOptions):
    """The options of `memory distil`.

    Attributes:
        thread (THREAD): The conversation within the workspace.
        quiet (--quiet SECONDS; Which): All threads without a turn for this long; 0 is all.
    """

    thread: str | None = None
    quiet: float | None = None
    role: str | None = typer.Option(None, metavar="TEXT", hidden=True)
    json: bool = JSON_RESULT
    verbose: bool = typer.Option(False, "--verbose", "-v", hidden=True)


@command(app, "distil", asks=("memory_distil",))
def distil(options: DistilOptions, output: Output) -> Work:
    """Let the model note what later conversations should know of a thread, or of all threads that are quiet.

    Only turns that are over and were not distilled yet are read, each account's alone. It costs a model call for each
    account of a thread. A thread that fails is shown on stderr, the others are distilled, and the exit code is 1.

    [bold]Examples[/bold]

      worldagent memory distil t1 --lm openai/gpt-4o-mini

      worldagent memory distil --quiet 3600 --workspace novel --json
    """
    from .agents import open_agent

    if options.role is not None:
        raise bad_usage("threads are distilled without a role", remedy="omit --role")
    if (options.thread is None) == (options.quiet is None):
        raise bad_usage("it is not clear what to distil", remedy="give a THREAD, or --quiet SECONDS")
    return _distil(open_agent(options, output, memory=True), options, output)


async def _distil(agent: WorldAgent, options: DistilOptions, output: Output) -> int:
    from ...core.errors import WorldAgentError
    from .progress import shown_progress

    made: list[EntryRecord] = []
    failed: list[dict[str, Any]] = []
    async with agent:
        if options.thread is not None:
            made += (await ask_in(agent, options, "memory_distil", thread=options.thread)).entries
        else:
            threads = await agent.memory.undistilled(quiet=options.quiet or 0)
            with shown_progress(output) as report:
                for count, thread in enumerate(threads, start=1):
                    try:
                        made += (await ask_in(agent, options, "memory_distil", thread=thread)).entries
                    except WorldAgentError as error:
                        output.note(f"thread {thread!r}: {error}")
                        failed.append({"thread": thread, "error": problem_object(error)})
                    report("threads", count, len(threads))
    entries = [_record(each) for each in made]
    output.result({"entries": entries, "failed": failed}, _table(made) or "there is nothing new to remember")
    return FAILED if failed else DONE


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
        return
    except OSError as error:
        problem = type(error).__name__
    raise bad_usage(f"the file {str(file)!r} cannot be written ({problem})", remedy="name a file in another folder")


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if file == _STREAM else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    raise bad_usage(f"the file {str(file)!r} cannot be read ({problem})", remedy="give a file of `memory export`")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    # Only at line feeds: the text of an entry can have other ends of lines, such as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            found = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):  # the second is nested too deep
            found = None
        if not isinstance(found, dict):
            raise bad_usage(f"line {number} is not a JSON object", remedy="give a file of `memory export`")
        if found:
            yield found
