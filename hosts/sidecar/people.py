"""Who may resume, answer and cancel whose turn. Which workspace, account and thread a token reaches is `access`'.

A turn is of the account that began it. One that nobody's account began is of whoever reaches its workspace. An operator
may touch all of them. Others may answer where every pause that they answer names them among its approvers, and nothing
else: how the turn goes on is not theirs to say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...agent.threads import ThreadState
from ...core.pauses import Pause, may_answer
from .ports import Caller, Refused, forbidden


def is_of(caller: Caller, state: ThreadState) -> bool:
    """Whether a turn is the caller's to resume, answer and cancel."""
    return caller.operator or state.account is None or state.account == caller.account


def check_turn(caller: Caller, state: ThreadState) -> None:
    """Refuse to touch a turn that is not the caller's.

    Args:
        caller: Who calls.
        state: Where the turn stands.

    Raises:
        Refused: It is of another account.
    """
    if not is_of(caller, state):
        raise _not_theirs(caller, state)


def check_resume(
    caller: Caller, state: ThreadState, answered: Collection[str], pauses: Sequence[Pause], *, changes: bool
) -> None:
    """Refuse to go on with a turn that is not the caller's, but for those whom all that they answer names.

    Args:
        caller: Who calls.
        state: Where the turn stands.
        answered: The ids of the pauses that they answer.
        pauses: What the turn waits for.
        changes: Whether the call says more than answers: a role, also none on purpose, what a changed role means, a
            skill.

    Raises:
        Refused: It is of another account, and one pause or more does not name the caller, or is not open.
    """
    if is_of(caller, state):
        return
    known = {pause.id: pause for pause in pauses}
    named = [pause_id for pause_id in answered if pause_id in known and names(known[pause_id], caller)]
    if not answered or len(named) < len(answered):
        raise _not_theirs(caller, state)
    if changes:
        raise Refused(
            "forbidden",
            "the turn is of another account, and its approvers give answers alone",
            remedy="leave out role, skill and on_role_change; the account that began the turn may give them",
            turn_id=state.turn_id,
        )


def names(pause: Pause, caller: Caller) -> bool:
    """Whether a pause names the caller. One that anybody may answer names nobody."""
    return bool(pause.approvers) and may_answer(caller.account, pause.approvers)


def _not_theirs(caller: Caller, state: ThreadState) -> Refused:
    if state.account is None or not caller.may_speak_for(state.account):
        return forbidden("turn")
    return Refused(
        "forbidden",
        "the turn is of another account",
        remedy="call as the account that began it, which the token may speak for",
    )


__all__ = ["check_resume", "check_turn", "is_of", "names"]
