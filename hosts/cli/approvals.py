"""The commands `approvals list`, `approve` and `reject`: the calls of a workspace that wait for approval."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, bad_usage, command, storage_of
from .options import WHERE, ResumingOptions, ThreadsOptions, argument, option
from .output import Output, time_text
from .threads import check_ids

if TYPE_CHECKING:
    from ...agent.threads import ThreadState
    from ...core.pauses import Pause, PersonAnswer
    from ...role_resolution import Role
    from ..service.home import HomeWorkspace

_WITH: Final = "answer with one of these commands, and add the --app or other options that the turn began with:"

_IDS: Final = argument("ID...", "Ids of calls, as `approvals list` shows them, all of one thread.")
_THREAD: Final = option("ID", "The thread. Default: the thread of the ids.", WHERE)

app = typer.Typer(name="approvals", no_args_is_help=True)


@app.callback()
def _approvals() -> None:
    """Answer the calls of a workspace that wait for approval.

    You can answer some of them or all, in any order and from any process on the same home.

    [bold]Example[/bold]

      worldagent approvals list
    """


@command(app, "list")
async def list_approvals(options: ThreadsOptions, output: Output, thread: str | None = None) -> None:
    """List the calls that wait for approval, in all threads of the workspace, the longest waiting first.

    No model is needed. For questions and interrupted calls, use [bold]threads show[/bold].

    [bold]Example[/bold]

      worldagent approvals list --thread t1

    Args:
        thread (--thread ID; Which): List only the calls of this thread.
    """
    from ...core import check_id
    from ..service.home import open_threads
    from ..service.pauses import unanswered

    check_ids(options)
    if thread is not None:
        check_id("--thread", thread)
    found: list[tuple[ThreadState, Pause]] = []
    async with open_threads(storage_of(options.home), options.workspace) as threads:
        states = [] if threads is None else await _waiting_threads(threads, thread, output)
        for state in states:
            if threads is not None and state.pauses:
                pauses = await threads.thread(state.thread).pauses()
                found += [(state, pause) for pause in unanswered(pauses) if pause.kind == "approval"]
    found.sort(key=lambda each: (each[1].since, each[1].id))
    if not found:
        on = "" if thread is None else f" on the thread {thread!r}"
        output.note(f"no call waits for approval in the workspace {options.workspace!r}{on}")
    output.result({"approvals": [_object(*each) for each in found]}, _listed(found, options) if found else None)


@command(app, asks=("resume",))
def approve(
    options: ResumingOptions,
    output: Output,
    ids: list[str] = _IDS,
    thread: str | None = _THREAD,
    arguments: str | None = None,
    always: bool = False,
    always_any: bool = False,
    hash: str | None = None,
) -> Work:
    """Approve waiting calls and resume their turn, as [bold]resume[/bold] does.

    Give the same options for the agent as when the turn began. The exit code is 3 if the turn still waits for answers.

    [bold]Examples[/bold]

      worldagent approvals approve ID --app shop:agent --account ana

      worldagent approvals approve ID --arguments '{"what": "cap"}' --hash 1f0c9a2b7d3e

      worldagent approvals approve ID ID --always

    Args:
        arguments (--arguments JSON|@FILE|-; Answers): A JSON object with all arguments, which replace those of the
            call. For one call only.
        always (--always; Answers): Also approve later calls by the same caller with equal arguments in this turn,
            within the policy's limits.
        always_any (--always-any; Answers): Like --always, for calls of this function with any arguments.
        hash (--hash HASH; Answers): The hash of the call that you saw, so that no other call is approved. For one call
            only.
    """
    from ..service.typed_answers import approval_of
    from .answers import checked_role
    from .sources import json_object, text

    call_role = checked_role(options, "--arguments", arguments)
    given = None if arguments is None else json_object("--arguments", text("--arguments", arguments))
    for name, value in (("arguments", arguments), ("hash", hash)):
        if value is not None and len(ids) > 1:
            raise bad_usage(f"--{name} must be given with exactly one ID", remedy="approve that call by itself")

    def say(pause: Pause) -> PersonAnswer:
        _check_seen(pause, hash)
        return approval_of(pause, arguments=given, always="any" if always_any else "same" if always else False)

    return _answer(options, output, ids, thread, call_role, say)


@command(app, asks=("resume",))
def reject(
    options: ResumingOptions, output: Output, ids: list[str] = _IDS, thread: str | None = _THREAD, reason: str = ""
) -> Work:
    """Reject waiting calls and resume their turn, as [bold]resume[/bold] does.

    The caller receives the reason. The exit code is 3 if the turn still waits for answers.

    [bold]Example[/bold]

      worldagent approvals reject ID --reason 'too dear' --app shop:agent

    Args:
        reason (--reason TEXT; Answers): The reason, which the caller receives.
    """
    from ...core.pauses import Reject
    from .answers import checked_role

    call_role = checked_role(options, "approvals reject", None)
    return _answer(options, output, ids, thread, call_role, lambda pause: Reject(reason.strip()))


def _answer(
    options: ResumingOptions,
    output: Output,
    ids: Sequence[str],
    thread: str | None,
    call_role: Role | None,
    say: Callable[[Pause], PersonAnswer],
) -> Work:
    """Answer the named calls of a thread, and resume its turn with the call role."""
    from .agents import open_agent
    from .answers import resume_turn, waiting_calls

    agent = open_agent(options, output)

    async def work() -> int:
        found, pauses = await waiting_calls(agent, thread, ids)
        answers = {pause.id: say(pause) for pause in pauses}
        return await resume_turn(agent, options, output, found, answers, call_role)

    return work()


def _check_seen(pause: Pause, seen: str | None) -> None:
    from ...core.errors import AnswerInvalid

    if seen is not None and seen != pause.hash:
        raise AnswerInvalid(
            f"--hash {seen[:80]!r} is not the hash of {pause.id!r}: the waiting call is not the one that was seen",
            remedy="see `worldagent approvals list --json`, and give its hash",
        )


async def _waiting_threads(threads: HomeWorkspace, thread: str | None, output: Output) -> Sequence[ThreadState]:
    """The threads whose turns can wait for a person. With `thread`, only that thread, if it exists."""
    from ...agent.threads.register import MAX_SEARCHED_THREADS

    if thread is not None:
        state = await threads.thread(thread).state()
        return [] if state is None else [state]
    states, cut = await threads.with_pauses()
    for status in cut:
        output.note(f"of the threads that are {status}, only the newest {MAX_SEARCHED_THREADS} are searched")
    return states


def _listed(found: Sequence[tuple[ThreadState, Pause]], options: ThreadsOptions) -> str:
    from ..service.pauses import is_late
    from ..service.typed_answers import pause_text
    from .turn_run import where

    parts: list[str] = []
    for state, pause in found:
        since = time_text(pause.since)
        lines = [pause_text(pause, answer=False), f"thread: {state.thread}, since {since}", f"id: {pause.id}"]
        if is_late(pause):
            lines.append(f"accepts no answer any more: `worldagent resume {state.thread}` resumes the turn without it")
        parts.append("\n".join(lines))
    more = f" {shlex.join(where(options))}".rstrip()
    ways = [f"worldagent approvals approve ID{more}", f"worldagent approvals reject ID --reason REASON{more}"]
    return "\n\n".join([*parts, "\n".join([_WITH, *(f"  {way}" for way in ways)])])


def _object(state: ThreadState, pause: Pause) -> dict[str, Any]:
    from ..service.pauses import is_late

    about = {"thread": state.thread, "turn": state.turn_id, "account": state.account, "channel": state.channel}
    return {**about, **pause.to_json(), "expired": is_late(pause)}
