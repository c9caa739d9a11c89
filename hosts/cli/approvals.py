"""The commands `approvals list`, `approve` and `reject`: calls that wait for leave, over all threads of a workspace."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadRegister, ThreadState, ThreadStatus, Wanted
from ...core import Scope, check_id
from ...core.errors import AlreadyAnswered, AnswerInvalid, InvalidArgument, UnknownPause
from ...core.pauses import Approve, Pause, PersonAnswer, Reject, call_id_of, current_pause_id
from ...storage import Storage
from ..pauses import is_late, unanswered
from ._approvals_options import ApprovalsListOptions, ApproveOptions, RejectOptions
from ._approvals_text import Always, leave
from ._pauses import pause_text
from .answers import GoingOn, checked_role, go_on, no_thread, output_of
from .output import Output, time_text
from .session import open_agent, run
from .sources import json_object, text
from .threads import open_threads
from .turn import where

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role

_ASKING: Final[tuple[ThreadStatus, ...]] = ("paused", "running", "stopped", "failed", "cut_off")
_MOST: Final = 1000  # threads of one status that are looked at
_LIST: Final = "see `worldagent approvals list`, with the --workspace and --home of the turn"
_WITH: Final = "answer with one of these, and with the --app or other options that the turn began with:"

Say = Callable[[Pause], PersonAnswer]


@dataclass(frozen=True)
class _Approval:
    """A call that waits for leave, and the turn that does."""

    state: ThreadState
    pause: Pause


def list_approvals(options: ApprovalsListOptions) -> int:
    """Run `approvals list` and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, None]:
        check_id("--workspace", options.workspace)
        if options.thread is not None:
            check_id("--thread", options.thread)
        return _list(options, output)

    return run(output, begin)


def approve(options: ApproveOptions) -> int:
    """Run `approvals approve` and return its exit code."""
    output = output_of(options)

    def begin() -> Coroutine[Any, Any, int]:
        call_role = checked_role(options, "--arguments", options.arguments)
        given = (
            None if options.arguments is None else json_object("--arguments", text("--arguments", options.arguments))
        )
        for name in ("arguments", "hash"):
            if getattr(options, name) is not None and len(options.ids) > 1:
                raise InvalidArgument(f"--{name} is for one call, and several are named", remedy="approve it by itself")

        always: Always = "any" if options.always_any else "same" if options.always else False

        def say(pause: Pause) -> Approve:
            _check_seen(pause, options.hash)
            return leave(pause, arguments=given, always=always)

        return _answer(open_agent(options, output), options, output, call_role, say)

    return run(output, begin)


def reject(options: RejectOptions) -> int:
    """Run `approvals reject` and return its exit code."""
    output = output_of(options)

    def begin() -> Coroutine[Any, Any, int]:
        call_role = checked_role(options, "approvals reject", None)
        reason = options.reason.strip()
        return _answer(open_agent(options, output), options, output, call_role, lambda pause: Reject(reason))

    return run(output, begin)


# --- listing ---------------------------------------------------------------------------------------------------------


async def _list(options: ApprovalsListOptions, output: Output) -> None:
    from ...agent import Settings

    found: list[_Approval] = []
    async with open_threads(Settings().storage(Storage(home=options.home))) as threads:
        if threads is not None:
            states = await _asking(threads.register, options.workspace, options.thread, output)
            found = [approval for state in states for approval in await _of(threads.register, options.workspace, state)]
    found.sort(key=lambda approval: (approval.pause.since, approval.pause.id))
    if not found:
        where = "" if options.thread is None else f" on the thread {options.thread!r}"
        output.note(f"no call waits for leave in the workspace {options.workspace!r}{where}")
    told = _listed(found, options) if found else None
    output.result({"approvals": [_object(approval) for approval in found]}, told)


async def _asking(
    register: ThreadRegister, workspace: str, thread: str | None, output: Output | None = None
) -> tuple[ThreadState, ...]:
    """The threads that may ask somebody; with `thread` that one, where there is such a thread."""
    if thread is not None:
        state = await register.find(Scope(workspace=workspace, thread=thread))
        return () if state is None else (state,)
    found: dict[str, ThreadState] = {}  # one may go from one status to the next meanwhile
    for status in _ASKING:
        listed = await register.list(workspace, Wanted.of(limit=_MOST, status=status))
        if len(listed) == _MOST and output is not None:
            output.note(f"of the threads that are {status}, only the newest {_MOST} are looked at")
        found |= {state.thread: state for state in listed}
    return tuple(found.values())


async def _of(register: ThreadRegister, workspace: str, state: ThreadState) -> list[_Approval]:
    if not state.pauses:
        return []
    pauses = unanswered(await register.pauses(Scope(workspace=workspace, thread=state.thread)))
    return [_Approval(state, pause) for pause in pauses if pause.kind == "approval"]


def _listed(found: Sequence[_Approval], options: ApprovalsListOptions) -> str:
    parts: list[str] = []
    for approval in found:
        state, pause = approval.state, approval.pause
        since = time_text(pause.since)
        lines = [pause_text(pause, answer=False), f"thread: {state.thread}, since {since}", f"id: {pause.id}"]
        if is_late(pause):
            lines.append(f"takes no answer any more: `worldagent resume {state.thread}` goes on without it")
        parts.append("\n".join(lines))
    more = f" {shlex.join(where(options))}".rstrip()
    ways = [f"worldagent approvals approve ID{more}", f"worldagent approvals reject ID --reason REASON{more}"]
    return "\n\n".join([*parts, "\n".join([_WITH, *(f"  {way}" for way in ways)])])


def _object(approval: _Approval) -> dict[str, Any]:
    state = approval.state
    about = {"thread": state.thread, "turn": state.turn_id, "account": state.account, "channel": state.channel}
    return {**about, **approval.pause.to_json(), "expired": is_late(approval.pause)}


# --- answering -------------------------------------------------------------------------------------------------------


async def _answer(
    agent: WorldAgent, options: ApproveOptions | RejectOptions, output: Output, call_role: Role | None, say: Say
) -> int:
    options = replace(options, ids=[current_pause_id(pause_id) for pause_id in options.ids])
    twice = [pause_id for pause_id in options.ids if options.ids.count(pause_id) > 1]
    if twice:
        raise InvalidArgument(f"{twice[0][:200]!r} is answered twice", remedy="answer each once")
    thread, pauses = await _waiting(agent, options)
    answers = {pause.id: say(pause) for pause in pauses}
    return await go_on(agent, options, output, GoingOn(thread, answers, call_role))


async def _waiting(agent: WorldAgent, options: ApproveOptions | RejectOptions) -> tuple[str, list[Pause]]:
    """The thread whose turn waits for what is named, and the calls. Read before the agent opens, with no model.

    Raises:
        NothingToResume, UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: Something cannot be answered so.
    """
    if options.thread is not None:
        agent.thread(options.thread)  # refused before anything is opened
    async with open_threads(agent.storage) as threads:
        if threads is None:
            raise _unknown(options.ids[0])
        register = threads.register
        states = await _asking(register, agent.workspace, options.thread)
        if options.thread is not None and not states:
            raise no_thread(agent.workspace, options.thread)
        state = _one(states, options)
        scope = Scope(workspace=agent.workspace, thread=state.thread)
        open_ = {pause.id: pause for pause in unanswered(await register.pauses(scope))}
        gone = await register.answered(scope)
    for pause_id in options.ids:
        if pause_id in gone:
            raise AlreadyAnswered(
                f"{pause_id!r} is answered already",
                remedy=f"leave it out, or go on with `worldagent resume {state.thread}`",
            )
        if pause_id not in open_:
            raise _unknown(pause_id)
        if open_[pause_id].kind != "approval":
            raise AnswerInvalid(
                f"{pause_id!r} waits for no leave: it is of kind {open_[pause_id].kind!r}",
                remedy=f"answer it with `worldagent resume {state.thread} --answer ID=ANSWER`",
            )
        if is_late(open_[pause_id]):
            raise AnswerInvalid(
                f"{pause_id!r} has expired, and takes no answer any more",
                remedy=f"go on without it with `worldagent resume {state.thread}`; it fails with PauseExpired",
            )
    return state.thread, [open_[pause_id] for pause_id in options.ids]


def _one(states: Sequence[ThreadState], options: ApproveOptions | RejectOptions) -> ThreadState:
    """The thread that all ids are of: an id begins with that of its turn."""
    turns = {state.turn_id: state for state in states}
    found: dict[str, ThreadState] = {}
    for pause_id in options.ids:
        state = turns.get(call_id_of(pause_id).partition("/")[0])
        if state is None:
            raise _unknown(pause_id)
        found[state.thread] = state
    if len(found) > 1:
        raise InvalidArgument(
            f"the ids are of {len(found)} threads: {', '.join(map(repr, found))}", remedy="answer thread by thread"
        )
    return next(iter(found.values()))


def _check_seen(pause: Pause, seen: str | None) -> None:
    if seen is not None and seen != pause.hash:
        raise AnswerInvalid(
            f"--hash {seen[:80]!r} is not that of {pause.id!r}: something else was seen than what waits there",
            remedy="see `worldagent approvals list --json`, and give its hash",
        )


def _unknown(pause_id: str) -> UnknownPause:
    return UnknownPause(f"{pause_id[:200]!r} does not wait now; it may be answered already", remedy=_LIST)


__all__ = ["approve", "list_approvals", "reject"]
