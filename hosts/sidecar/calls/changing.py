"""The tools that change a thread: cancel, fork, its title and role. `surfaces` has the tools that begin a turn."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any, Final

from ....agent import Thread, WorldAgent
from ....core.errors import NameTaken, ThreadBusy
from ..contract.answers import CancelAnswer, ForkAnswer, RenameAnswer, RoleClearAnswer, RoleSetAnswer
from ..contract.arguments import ForkArguments, RenameArguments, RoleSetArguments
from ..contract.words import ThreadArguments
from ..people import check_turn
from ..ports import Refused
from .call import Call, role_of, thread_of

MAX_STEM_CHARACTERS: Final = 180  # characters of a thread's id that a fork's id keeps, before its number
_OPEN: Final = ("running", "paused", "stopped", "cut_off")


async def cancel(call: Call[ThreadArguments], agent: WorldAgent) -> CancelAnswer:
    """Run `cancel`."""
    thread = thread_of(agent, call)
    state = await thread.state()
    if state is not None:
        check_turn(call.caller, state)
        call.noted.turn = state.turn_id or None
    return CancelAnswer(cancelled=await thread.cancel())


async def fork(call: Call[ForkArguments], agent: WorldAgent) -> ForkAnswer:
    """Run `fork`."""
    given, grant, thread = call.given, call.grant, thread_of(agent, call)
    stem = f"{given.thread[:MAX_STEM_CHARACTERS]}."
    if given.to is not None or grant.allows_threads_after(stem):
        if given.to is not None:
            grant.check_thread(given.to)
        made = await thread.fork(at=given.at, to=given.to)
        return ForkAnswer(thread=made.scope.thread or "")
    # The agent could make an id that the token does not reach, so this makes the id and checks it first.
    for number in count(2):
        if not grant.allows_thread(f"{stem}{number}"):
            raise Refused(
                "forbidden",
                "the token does not reach the name that the new thread would get",
                remedy="set `to` to a name that the token reaches",
            )
        with suppress(NameTaken, ThreadBusy):
            made = await thread.fork(at=given.at, to=f"{stem}{number}")
            return ForkAnswer(thread=made.scope.thread or "")
    raise AssertionError("numbers do not end")


async def thread_rename(call: Call[RenameArguments], agent: WorldAgent) -> RenameAnswer:
    """Run `thread_rename`."""
    return RenameAnswer(title=await thread_of(agent, call).rename(call.given.title))


async def thread_role_set(call: Call[RoleSetArguments], agent: WorldAgent) -> RoleSetAnswer:
    """Run `thread_role_set`."""
    role = role_of(call.given.role)
    assert role is not None, "the contract requires a role"
    thread = await _own_thread(call, agent)
    thread.role.set(role, ttl=call.given.ttl)
    held = agent.settings.thread_role_ttl if call.given.ttl is None else call.given.ttl
    call.house.agents.hold_role(call.caller.workspace, held)
    return RoleSetAnswer()


async def thread_role_clear(call: Call[ThreadArguments], agent: WorldAgent) -> RoleClearAnswer:
    """Run `thread_role_clear`."""
    thread = await _own_thread(call, agent)
    return RoleClearAnswer(cleared=thread.role.clear())


async def _own_thread(call: Call[Any], agent: WorldAgent) -> Thread:
    """Return the thread that a call names, if its role cannot reach an open turn of another account.

    Raises:
        Refused: The thread has an open turn of another account.
    """
    thread = thread_of(agent, call)
    state = await thread.state()
    if state is not None and state.status in _OPEN:
        check_turn(call.caller, state)
    return thread


__all__ = ["cancel", "fork", "thread_rename", "thread_role_clear", "thread_role_set"]
