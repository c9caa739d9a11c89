"""The commands `threads list`, `show`, `rename`, `cancel` and `fork`: out of the database alone, with no model."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ...agent.threads import SCHEMAS, Branching, ThreadRegister, ThreadState, Wanted
from ...core import Scope, check_id
from ...core.pauses import Pause
from ...harness.journal import SqlJournal
from ...memory import ConversationLog, Message, TurnRegister, thread_key
from ...memory.branches import Branches
from ...memory.titles import ThreadSearch, ThreadTitles
from ...memory.turn_log import TurnLog
from ...storage import Database, Leases, Storage
from ..pauses import unanswered
from ._messages import author_text, message_text
from ._options import WORKSPACE, AgentOptions
from ._output import Output, time_text
from ._pauses import pause_text
from ._session import FAILED, open_agent, run
from ._thread_options import ForkOptions, RenameOptions, ShowOptions, ThreadOptions, ThreadsListOptions, ThreadsOptions
from ._turn import pauses_text, resume_command

_COLUMNS: Final = ("THREAD", "STATUS", "SINCE", "ACCOUNT", "TITLE", "WAITS FOR")
_WIDTHS: Final = (16, 9, 16, 8)  # of thread, status, since and account; with the rest the table fits 80 columns
_NARROWEST: Final = 12  # of a title
_LETTERS: Final = 1000  # of one message
_WITHOUT_APP: Final = (
    "note: add the --app, --worker or --workers that the turn began with, if it began with one; with --app this "
    "command shows the `resume` command in full"
)

Work = Callable[["OpenThreads", Output], Awaitable[int | None]]


@dataclass(frozen=True)
class OpenThreads:
    """A home's threads.

    Attributes:
        register: Where they stand.
        log: What was said on them.
        leases: Who owns them.
        branches: Which were branched off.
        database: The database.
    """

    register: ThreadRegister
    log: ConversationLog
    leases: Leases
    branches: Branches
    database: Database

    async def branching(self) -> Branching:
        """What branches threads off."""
        from ...graphs.heads import Heads  # its folder loads langgraph

        return Branching(self.leases, self.branches, await Heads.open(self.database, self.branches), self.log)


@asynccontextmanager
async def open_threads(storage: Storage) -> AsyncGenerator[OpenThreads | None]:
    """Open the threads of a home, without an agent; None where it has no database, and none is made.

    Raises:
        InvalidArgument: The home is a file.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The database cannot be used.
    """
    if not storage.begun():
        yield None
        return
    database = await Database.open(storage.place, schemas=SCHEMAS)
    try:
        turns, leases, branches = TurnRegister(database), Leases(database, storage.locks), Branches(database)
        register = ThreadRegister(
            turns,
            SqlJournal(database),
            leases,
            branches,
            TurnLog(database),
            ThreadTitles(database),
            ThreadSearch(database),
        )
        yield OpenThreads(register, ConversationLog(database), leases, branches, database)
    finally:
        await database.aclose()


def list_threads(options: ThreadsListOptions) -> int:
    """Run `threads list` and return its exit code."""
    return _run(options, lambda threads, output: _list(threads, output, options))


def show_thread(options: ShowOptions) -> int:
    """Run `threads show` and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        found, storage = options, None
        if options.app is not None:
            # The agent is made and not started: its storage is read, and no model is needed for that.
            app = open_agent(AgentOptions(app=options.app, workspace=options.workspace, home=options.home), output)
            found, storage = replace(options, workspace=app.workspace), app.storage
        _check(found)
        return _with_threads(found, output, lambda threads, output: _show(threads, output, found), storage)

    return run(output, begin)


def cancel_thread(options: ThreadOptions) -> int:
    """Run `threads cancel` and return its exit code."""
    return _run(options, lambda threads, output: _cancel(threads, output, options))


def rename_thread(options: RenameOptions) -> int:
    """Run `threads rename` and return its exit code."""
    return _run(options, lambda threads, output: _rename(threads, output, options))


def fork_thread(options: ForkOptions) -> int:
    """Run `threads fork` and return its exit code."""
    return _run(options, lambda threads, output: _fork(threads, output, options))


async def _list(threads: OpenThreads, output: Output, options: ThreadsListOptions) -> None:
    found = await threads.register.list(options.workspace, _wanted(options))
    if not found:
        output.note(_none(options))
    if len(found) == options.limit:
        output.note(f"there may be more: add --before {shlex.quote(found[-1].page_key)}")
    rows = [
        (
            state.thread,
            state.status,
            time_text(state.since),
            state.account or "",
            state.title or "",
            str(state.pauses or ""),
        )
        for state in found
    ]
    told = output.table(_COLUMNS, rows, widths=_widths()) if rows else None
    output.result({"threads": [_state_object(state) for state in found]}, told)


def _wanted(options: ThreadsListOptions) -> Wanted:
    """What is listed.

    Raises:
        InvalidArgument: An option does not fit.
    """
    before: datetime | str | None = options.before
    if options.before is not None and "/" not in options.before:
        with contextlib.suppress(ValueError, OverflowError):
            before = datetime.fromisoformat(options.before).astimezone()  # a time without a zone is this machine's
    return Wanted.of(
        limit=options.limit,
        status=options.status,
        account=options.account,
        channel=options.channel,
        query=options.query,
        before=before,
    )


async def _rename(threads: OpenThreads, output: Output, options: RenameOptions) -> int | None:
    scope = _scope(options)
    if await threads.register.find(scope) is None:
        return _missing(output, options)
    title = await threads.register.rename(scope, options.title or None)
    output.note(f"the thread {options.thread!r} has the title {title!r}" if title else "the thread has no title")
    output.result({"renamed": {"thread": options.thread, "title": title}})
    return None


def _widths() -> tuple[int, ...]:
    """The widths of all columns but the last on this terminal: what is left goes to the titles."""
    left = shutil.get_terminal_size().columns - sum(_WIDTHS) - 2 * len(_COLUMNS) + 2 - len(_COLUMNS[-1])
    return (*_WIDTHS, max(left, _NARROWEST))


async def _show(threads: OpenThreads, output: Output, options: ShowOptions) -> int | None:
    scope = _scope(options)
    state = await threads.register.find(scope)
    if state is None:
        return _missing(output, options)
    pauses = await threads.register.pauses(scope)
    said = await _said(threads, scope, state, options.messages)
    found: dict[str, Any] = _state_object(state) | {
        "pauses": [pause.to_json() for pause in pauses],
        "messages": [_message_object(message) for message in said],
    }
    named = options.workspace if options.app is None else WORKSPACE  # an app has one of its own
    command = resume_command(AgentOptions(app=options.app, workspace=named, home=options.home), options.thread)
    if state.resumable:
        found["resume"] = command
    told = _shown(state, pauses, said, command)
    output.result({"thread": found}, told)
    if state.resumable and options.app is None:
        output.note(_WITHOUT_APP)
    return None


async def _cancel(threads: OpenThreads, output: Output, options: ThreadOptions) -> int | None:
    scope = _scope(options)
    turn_id = await threads.register.ask_to_cancel(scope)
    if turn_id is None:
        state = await threads.register.find(scope)
        if state is None:
            return _missing(output, options)
        output.failed(
            "nothing_to_cancel",
            f"the last turn of the thread {options.thread!r} is {state.status}"
            if state.turn_id
            else f"the thread {options.thread!r} has no turn yet",
            "there is nothing to cancel",
        )
        return FAILED
    await threads.register.end_waiting(scope, turn_id)
    state = await threads.register.find(scope)
    over = state is None or state.turn_id != turn_id or state.status not in ("running", "cut_off")
    told = "cancelled the turn" if over else "asked the process that runs the turn to cancel it"
    output.note(f"{told} of the thread {options.thread!r}")
    output.result({"cancelled": {"thread": options.thread, "turn": turn_id, "over": over}})
    return None


async def _fork(threads: OpenThreads, output: Output, options: ForkOptions) -> int | None:
    scope = _scope(options)
    if await threads.register.find(scope) is None:
        return _missing(output, options)
    new = await (await threads.branching()).fork(scope, at=options.at, to=options.to)
    output.result({"forked": {"thread": options.thread, "to": new.thread}}, new.thread)
    return None


async def _said(threads: OpenThreads, scope: Scope, state: ThreadState, limit: int) -> tuple[Message, ...]:
    key = thread_key(scope)
    if state.status != "forked":
        return await threads.log.of_turn(key, state.turn_id, limit=limit)
    branch = await threads.branches.get(key)
    return () if branch is None else await threads.log.history(branch.head, limit=limit)


def _run(options: ThreadsOptions, work: Work) -> int:
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        _check(options)
        return _with_threads(options, output, work)

    return run(output, begin)


def _check(options: ThreadsOptions) -> None:
    check_id("--workspace", options.workspace)
    if isinstance(options, ThreadOptions):
        check_id("THREAD", options.thread)


async def _with_threads(
    options: ThreadsOptions, output: Output, work: Work, storage: Storage | None = None
) -> int | None:
    from ...agent import Settings

    async with open_threads(storage or Settings().storage(Storage(home=options.home))) as threads:
        if threads is not None:
            return await work(threads, output)
    if isinstance(options, ThreadOptions):
        return _missing(output, options)
    output.note(_none(options))
    output.result({"threads": []})
    return None


def _scope(options: ThreadOptions) -> Scope:
    return Scope(workspace=options.workspace, thread=options.thread)


def _none(options: ThreadsOptions) -> str:
    which = ""
    if isinstance(options, ThreadsListOptions):
        which = f" that is {options.status}" if options.status else ""
        if any((options.account, options.channel, options.query, options.before)):
            which += " that fits"
    return f"the workspace {options.workspace!r} has no thread{which}"


def _missing(output: Output, options: ThreadOptions) -> int:
    problem = f"the workspace {options.workspace!r} has no thread {options.thread!r}"
    output.failed("not_found", problem, "see `worldagent threads list`")
    return FAILED


def _shown(state: ThreadState, pauses: tuple[Pause, ...], said: tuple[Message, ...], command: str) -> str:
    who = "".join(f", {name} {value}" for name in ("account", "channel") if (value := getattr(state, name)))
    turn = f"\n{state.kind} {state.turn_id}{who}" if state.turn_id else ""
    title = f"\ntitle: {state.title}" if state.title else ""
    parts = [f"{state.thread}: {state.status} since {time_text(state.since)}{title}{turn}"]
    waiting = unanswered(pauses)
    answered = [f"{pause_text(pause, answer=False)}\nid: {pause.id}" for pause in pauses if pause.answered]
    if answered:
        parts.append("\n\n".join(["answered, and not resumed since:", *answered]))
    if waiting:
        parts.append(pauses_text(waiting, command))
    elif state.resumable:
        parts.append(f"go on with: {command}")
    if said:
        lines = (f"  {author_text(message)}: {_text(message)}" for message in said)
        parts.append("\n".join(["last messages:", *lines]))
    return "\n\n".join(parts)


def _text(message: Message) -> str:
    told = message_text(message)
    short = told if len(told) <= _LETTERS else f"{told[:_LETTERS]}… ({len(told)} characters)"
    return short.replace("\n", "\n    ")


def _state_object(state: ThreadState) -> dict[str, Any]:
    found = state.to_json()
    # `threads show` lists the pauses themselves under this key, so their number has a key of its own.
    return found | {"turn": found["turn_id"], "waits_for": found.pop("pauses"), "unattended": state.unattended}


def _message_object(message: Message) -> dict[str, Any]:
    return message.to_json() | {"turn": message.turn_id, "name": message.name}


__all__ = [
    "OpenThreads",
    "cancel_thread",
    "fork_thread",
    "list_threads",
    "open_threads",
    "rename_thread",
    "show_thread",
]
