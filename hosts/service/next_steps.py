"""What a caller can call next: after a turn has paused or ended, and after a call has failed.

Errors of the package address a caller who owns the turn. A caller can also be an approver, who only answers, has no
role to send, and cannot resume the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadState
from ...core import errors
from ...core.errors import WorldAgentError
from ...core.pauses import Pause
from .answers import default_forms, pause_record
from .arguments import BackgroundTaskArguments, ResumeArguments, ThreadArguments
from .call import Call, Refused, names
from .pauses import is_late, takes_answer, unanswered, waits_for_reply
from .records import ErrorRecord, NextStep

if TYPE_CHECKING:
    from .home import Workspace

_WHY: Final = {
    "paused": "it is answered; resume continues it",
    "cut_off": "its process ended; it continues from its last step",
    "stopped": "it was stopped; it continues from its last step",
    "failed": "it failed; once the cause is fixed, it continues from its last step",
    "running": "the turn is running and keeps no events; resume waits a while for its end",
}
"""What `resume` does with a turn of each status. A turn of another status is over."""


def is_over(status: str) -> bool:
    """Whether nothing continues a turn of this status."""
    return status not in _WHY


def to_call(
    call: Call[Any],
    status: str,
    turn_id: str,
    pauses: Sequence[Pause],
    *,
    seq: int = 0,
    ids: Mapping[str, str] | None = None,
) -> list[NextStep]:
    """Return what the caller can call to continue a turn; empty if it is over or only another account can resume it.

    A person's answers are never filled in, nor is a role or a skill, which are stored nowhere.

    Args:
        call: The call. Its `facts` say whether the turn is the caller's own, whether it keeps its events, and which
            arguments `resume` needs again.
        status: The status of the turn.
        turn_id: The id of the turn.
        pauses: The pauses that it waits for.
        seq: The number of the last event that the client has.
        ids: The ids to repeat, if they differ from those of the call.
    """
    facts, known = call.facts, call.ids if ids is None else ids
    if status == "running" and facts.recorded:
        where = {name: value for name, value in known.items() if name in ("workspace", "account")}
        arguments = {**where, "turn_id": turn_id, "after": seq}
        return [NextStep(tool="events", arguments=arguments, why="the turn is running; its next events")]
    if not facts.own:
        pauses = [pause for pause in pauses if names(pause, call.caller)]
    if status not in _WHY or (not facts.own and (status == "running" or not pauses)):
        return []
    if pauses and all(map(waits_for_reply, pauses)):
        return []  # the turn continues once the reply is there
    needs = facts.needs if facts.own and status != "running" else ()
    again = f"; add the {' and the '.join(needs)} that the turn began with" if needs else ""
    if not pauses or status not in ("paused", "failed"):
        return [NextStep(tool="resume", arguments=dict(known), why=_WHY[status] + again, needs=list(needs))]
    fill = ("answers",) if any(map(takes_answer, pauses)) else ()
    arguments = {**known, "answers": {}}
    return [NextStep(tool="resume", arguments=arguments, why=_asks(pauses) + again, needs=[*fill, *needs])]


def _asks(pauses: Sequence[Pause]) -> str:
    asked = [f"{pause.id} ({_forms(pause)})" for pause in pauses if takes_answer(pause)]
    late = "; an expired pause fails once the turn continues" if any(map(is_late, pauses)) else ""
    if not asked:
        return f"no pause can be answered any more{late}"
    return f"a person must answer; `answers` takes one form of answer for each pause: {', '.join(asked)}{late}"


def _forms(pause: Pause) -> str:
    forms = " or ".join(default_forms(pause))
    return f"{forms}, by {' or '.join(pause.approvers)}" if pause.approvers else forms


# --- after a call has failed ------------------------------------------------------------------------------------------

_UNQUOTED: Final[Mapping[type[Exception], str]] = {
    errors.EntryChanged: "the entry has another version by now",
    errors.KeyReused: "the key was used on this thread for another call",
    errors.UnknownContact: "the receiver or one that the message introduces is not a contact of the person",
    errors.UnknownEntry: "the caller sees no entry of the workspace with this id",
    errors.UnknownEpisode: "the workspace has no outcome of an episode with this id",
    errors.UnknownMember: "the workspace has no member with this id",
    errors.UnknownMessage: "the thread has no such message",
    errors.UnknownPause: "the thread has no such pause",
    errors.UnknownSchedule: "the token reaches no schedule of the workspace with this id",
    errors.UnknownShape: "there is no such shape",
    errors.UnknownSkill: "there is no such skill",
    errors.UnknownTask: "the conversation has no background task of the caller with this id",
}
"""New texts for problems of the package that quote what the caller sent."""

_REMEDIES: Final[Mapping[type[Exception], str]] = {
    errors.AttachmentMissing: "send the file again, or ask the operator of the server to restore it",
    errors.NothingToSteer: "begin a turn with the message: call `converse`, or set `begin` to true",
    errors.NotSteerable: "call `thread_queue` with the message, so that it begins a turn of its own",
}
"""Remedies for callers, where that of the package names a folder of the server or a method."""

_STUCK: Final = ("paused", "stopped", "cut_off", "running")
_OPEN: Final = {False: _STUCK, True: (*_STUCK, "failed")}
"""The statuses from which a turn can continue after a call failed, by whether the failure is retryable."""

_OF_A_TURN: Final = (
    errors.AlreadyAnswered,
    errors.AnswerInvalid,
    errors.EventsGone,
    errors.NothingToResume,
    errors.UnknownPause,
)
"""Errors about a turn that the call did not begin. The package does not set their turn id."""

_STRANGER: Final = "write to a contact, or ask one for an introduction with the message_type introduction_request"

_WITH_ROLE: Final = "send the role that the turn began with, or `on_role_change` as `refresh`"


def error_record(failure: WorldAgentError | Refused, advice: Mapping[str, Any]) -> ErrorRecord:
    """Return an error as a record.

    Args:
        failure: The error.
        advice: Fields that replace or extend the record, from `advised`.
    """
    return ErrorRecord(
        code=failure.code,
        problem=_UNQUOTED.get(type(failure), failure.problem),
        remedy=_REMEDIES.get(type(failure), failure.remedy),
        retryable=failure.retryable,
        turn_id=failure.turn_id or None,  # a turn that never began has an empty id
    ).model_copy(update=dict(advice))


async def name_turn(call: Call[Any], workspace: Workspace, failure: WorldAgentError) -> None:
    """Set the turn id of an error: the turn that the call resumed or read. Remove the id of a turn that never began."""
    if isinstance(failure, errors.StorageUnavailable):  # no turn can be looked up
        return
    if not failure.turn_id and call.facts.own and isinstance(failure, _OF_A_TURN):
        failure.turn_id = call.facts.turn
    with suppress(WorldAgentError):  # if the lookup fails, keep the id and report the original error
        if failure.turn_id and await workspace.turn(failure.turn_id) is None:
            failure.turn_id = None


async def advised(call: Call[Any], workspace: Workspace, failure: WorldAgentError) -> Mapping[str, Any]:
    """Return fields that replace or extend the record of an error.

    Args:
        call: The call that failed.
        workspace: The threads of its workspace.
        failure: The error.

    Raises:
        WorldAgentError: The state of the turn cannot be read.
    """
    if isinstance(call.given, BackgroundTaskArguments):
        return {"remedy": failure.remedy}  # not that of a message to a turn
    if isinstance(failure, errors.UnknownContact):
        return {"remedy": _STRANGER, "next": [_step(call, "society_contacts", "whom the person can write to")]}
    of_role = isinstance(failure, errors.RoleRequired | errors.RoleChanged)
    paused = isinstance(failure, errors.ThreadPaused)
    if isinstance(failure, errors.AgentClosed) or not (paused or of_role or call.facts.kept):
        return {}
    assert isinstance(call.given, ThreadArguments), "tools that begin or resume a turn name its thread"
    given = call.given
    thread = workspace.thread(given.thread, account=call.caller.account, channel=given.channel)
    pauses, state = unanswered(await thread.pauses()), await thread.state()
    if state is None:
        return {}
    call.note_turn(state)
    if paused:
        return _of_paused(call, state, pauses)
    if state.turn_id != failure.turn_id or state.status not in _OPEN[failure.retryable]:
        return {}
    return _of_stuck(call, state, failure, of_role, pauses)


def _of_paused(call: Call[Any], state: ThreadState, pauses: Sequence[Pause]) -> Mapping[str, Any]:
    """Advise about a thread that accepts no new input, because its turn can continue."""
    steps = to_call(call, state.status, state.turn_id, pauses)
    if call.facts.own:
        how = "with an answer to each pause" if pauses else "to continue the turn"
        remedy = f"call `resume` {how}, or call `cancel`"
        steps.append(_step(call, "cancel", "or end that turn, and then repeat this call"))
    elif steps:
        remedy = f"call `resume` with an answer to each pause that names you; the rest is for {_owner(state)}"
    else:
        remedy = f"wait until {_owner(state)} resumes the turn, or use another thread"
        steps.append(_step(call, "pauses", "the status of the thread"))
    # The turn id is that of the waiting turn, not of the one that the call would have begun.
    waiting = [pause_record(pause) for pause in pauses]
    return {"remedy": remedy, "turn_id": state.turn_id, "pauses": waiting, "next": steps}


def _of_stuck(
    call: Call[Any], state: ThreadState, failure: WorldAgentError, of_role: bool, pauses: Sequence[Pause]
) -> Mapping[str, Any]:
    """Advise about a turn that did not continue, but still can."""
    if call.facts.own:
        needs = {*call.facts.needs, *(("role",) if of_role else ())}
        step = _step(call, "resume", _WITH_ROLE if of_role else "the turn continues from its last step")
        steps = [step.model_copy(update={"needs": sorted(needs)})]
        if state.status == "running":
            steps = to_call(call, state.status, state.turn_id, ())
        if not call.facts.kept and pauses:  # the answers were not accepted, so the caller must send them again
            steps = [step.model_copy(update={"arguments": {**step.arguments, "answers": {}}}) for step in steps]
        if not call.facts.kept or _may_be_repeated(call):
            return {"next": steps}
        remedy = f"{failure.remedy}; your answers are kept, so call `resume` without answers"
        return {"remedy": remedy, "retryable": False, "next": steps}
    return {
        "problem": f"your answers are kept, but this call did not resume the turn: {failure.problem}",
        "remedy": f"you are done; {_owner(state)} must call `resume`{' with the role' * of_role}",
        "retryable": False,
        "next": [_step(call, "pauses", "the status of the thread")],
    }


def _may_be_repeated(call: Call[Any]) -> bool:
    """Whether the same call finds its turn again, without repeating answers that were accepted."""
    if isinstance(call.given, ResumeArguments):
        return not call.given.answers
    return call.given.key is not None or call.is_repeated


def _owner(state: ThreadState) -> str:
    return f"the turn's account {state.account!r}"


def _step(call: Call[Any], tool: str, why: str) -> NextStep:
    return NextStep(tool=tool, arguments=dict(call.ids), why=why)
