"""The commands `threads list`, `show`, `rename`, `archive`, `hand-over`, `hand-back`, `cancel` and `fork`.

They need no model.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, command, storage_of
from .exits import FAILED
from .options import WORKSPACE, AgentOptions, ThreadOptions, ThreadsOptions, app_option, option_group
from .output import Output, last_turn_text, time_text

if TYPE_CHECKING:
    from ...agent.threads import ThreadState
    from ...core.pauses import Pause
    from ...memory import Message
    from ...storage import Storage
    from ..service.home import HomeThread

_COLUMNS: Final = ("THREAD", "STATUS", "SINCE", "ACCOUNT", "TITLE", "WAITS FOR")
_WIDTHS: Final = (16, 9, 16, 8)  # of thread, status, since and account; with the rest the table fits 80 columns
MIN_TITLE_CELLS: Final = 12  # of a title
MAX_MESSAGE_CHARACTERS: Final = 1000  # of one message
_WITHOUT_APP: Final = (
    "note: add the --app, --worker or --workers that the turn began with, if it began with one; with --app this "
    "command shows the complete `resume` command"
)

app = typer.Typer(name="threads", no_args_is_help=True)


@app.callback()
def _threads() -> None:
    """Manage the threads of a workspace: their status, what they wait for, and their messages.

    No model is needed.

    [bold]Example[/bold]

      worldagent threads list --status paused
    """


@option_group
class ThreadsListOptions(ThreadsOptions):
    """The options of `threads list`.

    Attributes:
        status (--status STATUS; Which): Only threads with this status, such as paused. With it, threads of background
            tasks are listed, too.
        account (--account ID; Which): Only threads with a turn of this account.
        channel (--channel ID; Which): Only threads whose newest turn is of this channel.
        query (--query TEXT; Which): Only threads whose title or messages contain TEXT, in any case.
        before (--before KEY|TIME; Which): The next page: the page_key of the last thread that --json shows. A TIME such
            as 2026-11-24 or 2026-11-24T10:00 lists those whose newest turn began before it.
        archived (--archived; Which): Only archived threads, which are not listed otherwise.
        limit (--limit N; Which): How many to list, 1 to 1000.
    """

    status: str | None = None
    account: str | None = None
    channel: str | None = None
    query: str | None = None
    before: str | None = None
    archived: bool = False
    limit: int = 100


@command(app, "list", asks=("threads",))
async def list_threads(options: ThreadsListOptions, output: Output) -> None:
    """List the threads of a workspace by their newest turns, the newest first.

    The status of a thread is paused, stopped, running, done, failed, cancelled, cut_off (interrupted: its process
    ended), abandoned (interrupted, and then replaced by new input) or forked (branched off, without a turn yet).
    [bold]worldagent resume[/bold] resumes a thread that is paused, stopped, failed or cut_off.

    [bold]Example[/bold]

      worldagent threads list --workspace novel --status paused

      worldagent threads list --account ana --query "dragons"
    """
    from ..service.home import open_threads

    check_ids(options)
    async with open_threads(storage_of(options.home), options.workspace) as threads:
        found = () if threads is None else await threads.threads(**_filters(options))
    if not found:
        output.note(_no_threads_text(options))
    elif len(found) == options.limit:
        output.note(f"there may be more: add --before {shlex.quote(found[-1].page_key)}")
    output.result({"threads": [_state_object(state) for state in found]}, _table(found, output) if found else None)


@command(
    app,
    "show",
    asks=(
        "pauses",
        "history",
    ),
)
def show_thread(
    options: ThreadOptions,
    output: Output,
    app: str | None = app_option(
        "Your own agent that the thread belongs to. Its workspace and home are used, and the `resume` command "
        "that is shown names it."
    ),
    messages: int = 6,
) -> Work:
    """Show the status of a thread, what it waits for, and its last messages.

    Pauses are shown with the command that answers them. Add the --app or other options that the turn began with.

    [bold]Example[/bold]

      worldagent threads show t1

    Args:
        messages (--messages N; Which): How many of the last messages to show, 1 to 1000.
    """
    from .agents import open_agent
    from .turn_run import resume_command

    storage = None
    named = AgentOptions(app=app, workspace=options.workspace, home=options.home)
    if app is not None:
        # The agent is made but not started: reading its storage needs no model.
        agent = open_agent(named, output)
        options, storage = replace(options, workspace=agent.workspace), agent.storage
        named = replace(named, workspace=WORKSPACE)  # the app decides the workspace

    async def work() -> None:
        async with _thread(options, output, storage) as (thread, state):
            pauses = await thread.pauses()
            said = await thread.history(limit=messages)
        found: dict[str, Any] = _state_object(state) | {
            "pauses": [pause.to_json() for pause in pauses],
            "messages": [each.to_json() | {"turn": each.turn_id, "name": each.name} for each in said],
        }
        again = resume_command(named, options.thread)
        if state.resumable:
            found["resume"] = again
        output.result({"thread": found}, _shown(state, pauses, said, again))
        if state.resumable and app is None:
            output.note(_WITHOUT_APP)

    return work()


@command(app, "rename", asks=("thread_rename",))
async def rename_thread(options: ThreadOptions, output: Output, title: str) -> None:
    """Set the title that lists show for a thread.

    A thread without a title is listed with the first words of its first message. An empty TITLE restores them.

    [bold]Example[/bold]

      worldagent threads rename t1 "Dragons of Vell"

    Args:
        title (TITLE): 1 to 120 characters. An empty title restores the first words of the thread.
    """
    async with _thread(options, output) as (thread, _):
        now = await thread.rename(title or None)
    output.note(f"the thread {options.thread!r} has the title {now!r}" if now else "the thread has no title")
    output.result({"renamed": {"thread": options.thread, "title": now}})


@command(app, "archive", asks=("thread_archive",))
async def archive_thread(options: ThreadOptions, output: Output, undo: bool = False) -> None:
    """Hide a thread in lists until its next message. Nothing is removed.

    An agent that distils quiet threads distils it soon.

    [bold]Examples[/bold]

      worldagent threads archive t1

      worldagent threads list --archived

    Args:
        undo (--undo): Show the thread in lists again.
    """
    async with _thread(options, output) as (thread, _):
        await thread.archive(not undo)
    output.note(f"the thread {options.thread!r} is {'listed again' if undo else 'archived'}")
    output.result({"archived": {"thread": options.thread, "archived": not undo}})


@command(app, "hand-over", asks=("thread_hand_over",))
async def hand_over_thread(options: ThreadOptions, output: Output, member: str, messages: str = "none") -> None:
    """Let a member of the workspace speak in a conversation from the next turn on.

    It answers as itself, within what both it and the conversation may do. Approvals stay those of the person.

    [bold]Example[/bold]

      worldagent threads hand-over t1 bdr-apac --messages last:10

    Args:
        member (MEMBER): The id of the member.
        messages (--messages WHICH): What it is shown of the conversation so far: none, all, or last:N.
    """
    count = messages.removeprefix("last:")
    shown: Any = int(count) if count != messages and count.isdecimal() else messages
    async with _thread(options, output) as (thread, _):
        await thread.hand_over(member, messages=shown)
    output.note(f"{member!r} speaks in the thread {options.thread!r} from the next turn on")
    output.result({"handed": {"thread": options.thread, "speaker": member}})


@command(app, "hand-back", asks=("thread_hand_back",))
async def hand_back_thread(options: ThreadOptions, output: Output) -> None:
    """Let the World Agent speak in a conversation again, from the next turn on.

    [bold]Example[/bold]

      worldagent threads hand-back t1
    """
    async with _thread(options, output) as (thread, _):
        await thread.hand_back()
    output.note(f"the World Agent speaks in the thread {options.thread!r} from the next turn on")
    output.result({"handed": {"thread": options.thread, "speaker": None}})


@command(app, "cancel", asks=("cancel",))
async def cancel_thread(options: ThreadOptions, output: Output) -> int | None:
    """Cancel a thread's turn, also if it waits or runs in another process.

    If there is no turn to cancel, the exit code is 1.

    [bold]Example[/bold]

      worldagent threads cancel t1
    """
    async with _thread(options, output) as (thread, state):
        cancelled = await thread.cancel()
        now = await thread.state()
    if not cancelled:
        output.failed("nothing_to_cancel", last_turn_text(state), "there is nothing to cancel")
        return FAILED
    over = now is None or now.turn_id != state.turn_id or now.status not in ("running", "cut_off")
    shown = "cancelled the turn" if over else "asked the process that runs the turn to cancel it"
    output.note(f"{shown} of the thread {options.thread!r}")
    output.result({"cancelled": {"thread": options.thread, "turn": state.turn_id, "over": over}})
    return None


@command(app, "fork", asks=("fork",))
async def fork_thread(options: ThreadOptions, output: Output, at: str | None = None, to: str | None = None) -> None:
    """Make a thread that continues from a message of another one, and print its name.

    Both threads share the earlier messages, so a fork costs only one row. [bold]threads show --messages 100
    --json[/bold] shows the ids of messages.

    [bold]Example[/bold]

      worldagent threads fork t1 --to plan-b

    Args:
        at (--at ID; New thread): The message that the new thread continues from. Default: the newest.
        to (--to NAME; New thread): The new thread. Default: a name from THREAD and a number.
    """
    async with _thread(options, output) as (thread, _):
        made = (await thread.fork(at=at, to=to)).scope.thread or ""
    output.result({"forked": {"thread": options.thread, "to": made}}, made)


def check_ids(options: ThreadsOptions) -> None:
    """Refuse ids that are not valid, before anything is opened.

    Raises:
        InvalidArgument: The workspace or the thread is not a valid id.
    """
    from ...core import check_id

    check_id("--workspace", options.workspace)
    if isinstance(options, ThreadOptions):
        check_id("THREAD", options.thread)


def missing(options: ThreadsOptions, output: Output) -> int:
    """Say that the workspace does not have the thread, and return the exit code."""
    thread = f" {options.thread!r}" if isinstance(options, ThreadOptions) else ""
    problem = f"the workspace {options.workspace!r} has no thread{thread}"
    output.failed("not_found", problem, "see `worldagent threads list`")
    return FAILED


@contextlib.asynccontextmanager
async def _thread(
    options: ThreadOptions, output: Output, storage: Storage | None = None
) -> AsyncGenerator[tuple[HomeThread, ThreadState]]:
    """The thread that the options name, with its state. If it does not exist, the command ends with code 1."""
    from ..service.home import open_threads

    check_ids(options)
    async with open_threads(storage or storage_of(options.home), options.workspace) as threads:
        thread = None if threads is None else threads.thread(options.thread)
        state = None if thread is None else await thread.state()
        if thread is None or state is None:
            raise typer.Exit(missing(options, output))
        yield thread, state


def _filters(options: ThreadsListOptions) -> dict[str, Any]:
    before: datetime | str | None = options.before
    if options.before is not None and "/" not in options.before:
        with contextlib.suppress(ValueError, OverflowError):
            before = datetime.fromisoformat(options.before).astimezone()  # a time without a zone is local time
    names = ("limit", "status", "account", "channel", "query", "archived")
    return {name: getattr(options, name) for name in names} | {"before": before}


def _table(found: Sequence[ThreadState], output: Output) -> str:
    # Titles get the remaining width of the terminal.
    left = shutil.get_terminal_size().columns - sum(_WIDTHS) - 2 * len(_COLUMNS) + 2 - len(_COLUMNS[-1])
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
    return output.table(_COLUMNS, rows, widths=(*_WIDTHS, max(left, MIN_TITLE_CELLS)))


def _no_threads_text(options: ThreadsListOptions) -> str:
    which = f" that is {options.status}" if options.status else " that is archived" if options.archived else ""
    if any((options.account, options.channel, options.query, options.before)):
        which += " that matches the options"
    return f"the workspace {options.workspace!r} has no thread{which}"


def _shown(state: ThreadState, pauses: tuple[Pause, ...], said: tuple[Message, ...], command: str) -> str:
    from ..service.pauses import unanswered
    from ..service.typed_answers import pause_text
    from .output import author_text
    from .turn_run import pauses_text

    who = "".join(f", {name} {value}" for name in ("account", "channel") if (value := getattr(state, name)))
    turn = f"\n{state.kind} {state.turn_id}{who}" if state.turn_id else ""
    title = f"\ntitle: {state.title}" if state.title else ""
    title += f"\nspeaker: {state.speaker}" if state.speaker else ""
    status = f"{state.status} (archived)" if state.archived else state.status
    parts = [f"{state.thread}: {status} since {time_text(state.since)}{title}{turn}"]
    waiting = unanswered(pauses)
    answered = [f"{pause_text(pause, answer=False)}\nid: {pause.id}" for pause in pauses if pause.answered]
    if answered:
        parts.append("\n\n".join(["answered, but not resumed since:", *answered]))
    if waiting:
        parts.append(pauses_text(waiting, command))
    elif state.resumable:
        parts.append(f"resume with: {command}")
    if said:
        lines = (f"  {author_text(message)}: {_text(message)}" for message in said)
        parts.append("\n".join(["last messages:", *lines]))
    return "\n\n".join(parts)


def _text(message: Message) -> str:
    from ..service.pauses import shortened
    from .output import message_text

    return shortened(message_text(message), MAX_MESSAGE_CHARACTERS).replace("\n", "\n    ")


def _state_object(state: ThreadState) -> dict[str, Any]:
    found = state.to_json()
    # `threads show` lists the pauses themselves under `pauses`, so their number gets another key.
    return found | {"turn": found["turn_id"], "waits_for": found.pop("pauses"), "unattended": state.unattended}
