"""Decides who can resume, answer and cancel a turn. `access` decides which workspaces, accounts and threads they reach.

A turn belongs to the account that began it. A turn without an account belongs to every caller that reaches its
workspace. An operator can resume, answer and cancel all turns. Other callers can only answer pauses that name them as
approvers; they cannot change how the turn continues.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...agent.threads import ThreadState
from ...core.pauses import Pause, may_answer
from .ports import Caller, Refused, forbidden


def owns_turn(caller: Caller, state: ThreadState) -> bool:
    """Whether the caller can resume, answer and cancel a turn."""
    return caller.operator or state.account is None or state.account == caller.account


def check_turn(caller: Caller, state: ThreadState) -> None:
    """Refuse a call on another account's turn.

    Args:
        caller: The caller.
        state: The state of the turn.

    Raises:
        Refused: The turn belongs to another account.
    """
    if not owns_turn(caller, state):
        raise _not_theirs(caller, state)


def check_resume(
    caller: Caller, state: ThreadState, answered: Collection[str], pauses: Sequence[Pause], *, changes: bool
) -> None:
    """Refuse to resume another account's turn, unless every answered pause names the caller as an approver.

    Args:
        caller: The caller.
        state: The state of the turn.
        answered: The ids of the pauses that the call answers.
        pauses: The pauses that the turn waits for.
        changes: Whether the call has more than answers: a role (an explicit null too), `on_role_change` or a skill.

    Raises:
        Refused: The turn belongs to another account, and an answered pause does not name the caller or is not open.
            Or the caller is only an approver, and the call has more than answers.
    """
    if owns_turn(caller, state):
        return
    known = {pause.id: pause for pause in pauses}
    named = [pause_id for pause_id in answered if pause_id in known and names(known[pause_id], caller)]
    if not answered or len(named) < len(answered):
        raise _not_theirs(caller, state)
    if changes:
        raise Refused(
            "forbidden",
            "the turn belongs to another account, and its approvers can only give answers",
            remedy="omit role, skill and on_role_change; only the account that began the turn can set them",
            turn_id=state.turn_id,
        )


def names(pause: Pause, caller: Caller) -> bool:
    """Whether a pause names the caller as an approver. A pause without approvers names no one."""
    return bool(pause.approvers) and may_answer(caller.account, pause.approvers)


def _not_theirs(caller: Caller, state: ThreadState) -> Refused:
    if state.account is None or not caller.may_speak_for(state.account):
        return forbidden("turn")
    return Refused(
        "forbidden",
        "the turn belongs to another account",
        remedy="call as the account that began it; the token can speak for that account",
    )


__all__ = ["check_resume", "check_turn", "names", "owns_turn"]
