"""Cancels the turn of a message, in whatever process it runs (A22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...agent.runtime.inside import inside
from ...memory import thread_key
from ..data.accounts import scope_of

if TYPE_CHECKING:
    from ...agent import WorldAgent


async def cancel_turn(agent: WorldAgent, member: str, message_id: str) -> bool:
    """Cancel the turn that a message began; returns False if there is none, or it is over.

    Args:
        agent: An open agent with a society.
        member: The member that the message is to.
        message_id: The message.
    """
    scope, runtime = scope_of(agent.workspace, member), inside(agent)
    found = await runtime.stores.events.find(thread_key(scope), message_id)
    return found is not None and await runtime.runner.cancel_turn(runtime.parts, found.turn, scope)
