"""Advice in errors about a turn that did not continue but can: what became of answers, who can resume, what to call.

Errors of the package address a caller who owns the turn. Over the wire, the caller can be an approver, who only
answers, has no role to send, and cannot resume the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...agent import WorldAgent
from ...agent.threads import ThreadState
from ...core.errors import (
    AgentClosed,
    AlreadyAnswered,
    AnswerInvalid,
    EventsGone,
    NothingToResume,
    RoleChanged,
    RoleRequired,
    StorageUnavailable,
    ThreadPaused,
    UnknownPause,
    WorldAgentError,
)
from ...core.pauses import Pause
from ..sidecar.asking import pause_result
from ..sidecar.calls import Call, thread_of, to_call
from .arguments import ResumeArguments, ThreadArguments
from .pauses import unanswered
from .records import NextStep

_STUCK: Final = ("paused", "stopped", "cut_off", "running")
_OPEN: Final = {False: _STUCK, True: (*_STUCK, "failed")}
"""The statuses from which a turn can continue after a call failed, by whether the failure is retryable."""

_OF_A_TURN: Final = (AlreadyAnswered, AnswerInvalid, EventsGone, NothingToResume, UnknownPause)
"""Errors about a turn that the call did not begin. The package does not set their turn id."""

_WITH_ROLE: Final = "send the role that the turn began with, or `on_role_change` as `refresh`"


async def name_turn(call: Call[Any], agent: WorldAgent, failure: WorldAgentError) -> None:
    """Set the turn id of an error: the turn that the call resumed or read. Remove the id of a turn that never began."""
    if isinstance(failure, StorageUnavailable):  # no turn can be looked up
        return
    if not failure.turn_id and call.noted.own and isinstance(failure, _OF_A_TURN):
        failure.turn_id = call.noted.turn
    with suppress(WorldAgentError):  # if the lookup fails, keep the id and report the original error
        if failure.turn_id and await agent.turn(failure.turn_id) is None:
            failure.turn_id = None


async def advised(call: Call[Any], agent: WorldAgent, failure: WorldAgentError) -> Mapping[str, Any]:
    """Return fields that replace or extend the record of an error.

    Args:
        call: The call that failed.
        agent: Its agent.
        failure: The error.

    Raises:
        WorldAgentError: The state of the turn cannot be read.
    """
    of_role = isinstance(failure, RoleRequired | RoleChanged)
    if not (isinstance(failure, ThreadPaused) or of_role or call.noted.kept) or isinstance(failure, AgentClosed):
        return {}
    assert isinstance(call.given, ThreadArguments), "tools that begin or resume a turn name its thread"
    thread = thread_of(agent, call)
    pauses, state = unanswered(await thread.pauses()), await thread.state()
    if state is None:
        return {}
    call.note_turn(state)
    if isinstance(failure, ThreadPaused):
        return _of_paused(call, state, pauses)
    if state.turn_id != failure.turn_id or state.status not in _OPEN[failure.retryable]:
        return {}
    return _of_stuck(call, state, failure, of_role, pauses)


def _of_paused(call: Call[Any], state: ThreadState, pauses: Sequence[Pause]) -> Mapping[str, Any]:
    """Advise about a thread that accepts no new input, because its turn can continue."""
    steps = to_call(call, state.status, state.turn_id, pauses)
    if call.noted.own:
        how = "with an answer to each pause" if pauses else "to continue the turn"
        remedy = f"call `resume` {how}, or call `cancel`"
        steps.append(_step(call, "cancel", "or end that turn, and then repeat this call"))
    elif steps:
        remedy = f"call `resume` with an answer to each pause that names you; the rest is for {_owner(state)}"
    else:
        remedy = f"wait until {_owner(state)} resumes the turn, or use another thread"
        steps.append(_step(call, "pauses", "the status of the thread"))
    # The turn id is that of the waiting turn, not of the one that the call would have begun.
    waiting = [pause_result(pause) for pause in pauses]
    return {"remedy": remedy, "turn_id": state.turn_id, "pauses": waiting, "next": steps}


def _of_stuck(
    call: Call[Any], state: ThreadState, failure: WorldAgentError, of_role: bool, pauses: Sequence[Pause]
) -> Mapping[str, Any]:
    """Advise about a turn that did not continue, but still can."""
    if call.noted.own:
        needs = {*call.noted.needs, *(("role",) if of_role else ())}
        step = _step(call, "resume", _WITH_ROLE if of_role else "the turn continues from its last step")
        steps = [step.model_copy(update={"needs": sorted(needs)})]
        if state.status == "running":
            steps = to_call(call, state.status, state.turn_id, ())
        if not call.noted.kept and pauses:  # the answers were not accepted, so the caller must send them again
            steps = [step.model_copy(update={"arguments": {**step.arguments, "answers": {}}}) for step in steps]
        if not call.noted.kept or _may_be_repeated(call):
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
    return call.given.key is not None or call.params.request_state is not None


def _owner(state: ThreadState) -> str:
    return f"the turn's account {state.account!r}"


def _step(call: Call[Any], tool: str, why: str) -> NextStep:
    return NextStep(tool=tool, arguments=dict(call.ids), why=why)
