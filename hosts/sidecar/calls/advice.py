"""What a caller is told where a turn does not go on that could: what became of answers, who goes on, what to call.

The package says what is wrong and what its own caller can do about it. Over the wire that may be somebody else: whoever
only answers has no role to bring, and may not resume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ....agent import WorldAgent
from ....agent.threads import ThreadState
from ....core.errors import (
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
from ....core.pauses import Pause
from ...pauses import unanswered
from ..contract.surfaces import ResumeArguments
from ..contract.turns import NextStep
from ..contract.words import ThreadArguments
from ..pauses import pause_result
from .answering import to_call
from .call import Call, thread_of

_STUCK: Final = ("paused", "stopped", "cut_off", "running")
_OPEN: Final = {False: _STUCK, True: (*_STUCK, "failed")}
"""How a turn stands that a call failed to go on with, and that goes on; by whether it was in passing."""

_OF_A_TURN: Final = (AlreadyAnswered, AnswerInvalid, EventsGone, NothingToResume, UnknownPause)
"""What is said of a turn that the call did not begin, and whose id the package leaves out."""

_WITH_ROLE: Final = "with the role that the turn began with, or with `on_role_change` as `refresh`"


async def name_turn(call: Call[Any], agent: WorldAgent, failure: WorldAgentError) -> None:
    """Say which turn an error is about: the one that the call went on with or read, and none that never began."""
    if isinstance(failure, StorageUnavailable):  # nothing can be looked for
        return
    if not failure.turn_id and call.noted.own and isinstance(failure, _OF_A_TURN):
        failure.turn_id = call.noted.turn
    with suppress(WorldAgentError):  # where the look fails, the id stays, and the caller is told the error itself
        if failure.turn_id and await agent.turn(failure.turn_id) is None:
            failure.turn_id = None


async def advised(call: Call[Any], agent: WorldAgent, failure: WorldAgentError) -> Mapping[str, Any]:
    """What the record of an error has instead of what the failure says, or beside it.

    Args:
        call: The call that failed.
        agent: Its agent.
        failure: What it failed with.

    Raises:
        WorldAgentError: It cannot be seen how the turn stands.
    """
    of_role = isinstance(failure, RoleRequired | RoleChanged)
    if not (isinstance(failure, ThreadPaused) or of_role or call.noted.kept) or isinstance(failure, AgentClosed):
        return {}
    assert isinstance(call.given, ThreadArguments), "a turn is begun on a thread, or goes on there"
    thread = thread_of(agent, call)
    pauses, state = unanswered(await thread.pauses()), await thread.state()
    if state is None:
        return {}
    call.meets(state)
    if isinstance(failure, ThreadPaused):
        return _of_paused(call, state, pauses)
    if state.turn_id != failure.turn_id or state.status not in _OPEN[failure.retryable]:
        return {}
    return _of_stuck(call, state, failure, of_role, pauses)


def _of_paused(call: Call[Any], state: ThreadState, pauses: Sequence[Pause]) -> Mapping[str, Any]:
    """Of a thread that takes nothing new, since its turn can go on."""
    steps = to_call(call, state.status, state.turn_id, pauses)
    if call.noted.own:
        how = "with an answer to each pause" if pauses else "which goes on with it"
        remedy = f"call `resume`, {how}, or `cancel`"
        steps.append(_step(call, "cancel", "or end that turn, and then say this anew"))
    elif steps:
        remedy = f"call `resume` with an answer to what names you; the rest is for {_owner(state)}"
    else:
        remedy = f"wait until {_owner(state)} has gone on with it, or use another thread"
        steps.append(_step(call, "pauses", "where the thread stands"))
    # The turn is the one that waits, not the one that was to begin.
    waiting = [pause_result(pause) for pause in pauses]
    return {"remedy": remedy, "turn_id": state.turn_id, "pauses": waiting, "next": steps}


def _of_stuck(
    call: Call[Any], state: ThreadState, failure: WorldAgentError, of_role: bool, pauses: Sequence[Pause]
) -> Mapping[str, Any]:
    """Of a turn that did not go on, and still can."""
    if call.noted.own:
        needs = {*call.noted.needs, *(("role",) if of_role else ())}
        step = _step(call, "resume", _WITH_ROLE if of_role else "the turn goes on from where it stands")
        steps = [step.model_copy(update={"needs": sorted(needs)})]
        if state.status == "running":
            steps = to_call(call, state.status, state.turn_id, ())
        if not call.noted.kept and pauses:  # the answers were not taken, so they have to be given again
            steps = [step.model_copy(update={"arguments": {**step.arguments, "answers": {}}}) for step in steps]
        if not call.noted.kept or _may_be_repeated(call):
            return {"next": steps}
        remedy = f"{failure.remedy}; what was answered is kept, so call `resume` without answers"
        return {"remedy": remedy, "retryable": False, "next": steps}
    return {
        "problem": f"what you answered is kept, and this call did not go on with the turn: {failure.problem}",
        "remedy": f"you need do nothing more; {_owner(state)} goes on with it by `resume`{', with the role' * of_role}",
        "retryable": False,
        "next": [_step(call, "pauses", "where the thread stands")],
    }


def _may_be_repeated(call: Call[Any]) -> bool:
    """Whether the same call finds its turn again, and says nothing a second time that was taken."""
    if isinstance(call.given, ResumeArguments):
        return not call.given.answers
    return call.given.key is not None or call.params.request_state is not None


def _owner(state: ThreadState) -> str:
    return f"the account {state.account!r}, which began the turn,"


def _step(call: Call[Any], tool: str, why: str) -> NextStep:
    return NextStep(tool=tool, arguments=dict(call.ids), why=why)


__all__ = ["advised", "name_turn"]
