"""The tools that change a thread: cancel, fork, its title and role. What begins a turn is in `surfaces`."""

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

_STEM: Final = 180  # letters of a thread's name that a number is put after
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
    stem = f"{given.thread[:_STEM]}."
    if given.to is not None or grant.allows_threads_after(stem):
        if given.to is not None:
            grant.check_thread(given.to)
        made = await thread.fork(at=given.at, to=given.to)
        return ForkAnswer(thread=made.scope.thread or "")
    # A name that the agent makes may be one that the token does not reach: it is made here, and looked at before.
    for number in count(2):
        if not grant.allows_thread(f"{stem}{number}"):
            raise Refused(
                "forbidden",
                "the token reaches no thread with the name that would be made for the new one",
                remedy="give the new thread a name in `to` that it reaches",
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
    assert role is not None, "the contract asks for one"
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
    """The thread that a call names, where no turn of another account is open that its role would reach.

    Raises:
        Refused: There is one.
    """
    thread = thread_of(agent, call)
    state = await thread.state()
    if state is not None and state.status in _OPEN:
        check_turn(call.caller, state)
    return thread


__all__ = ["cancel", "fork", "thread_rename", "thread_role_clear", "thread_role_set"]
