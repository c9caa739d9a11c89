"""What hosts do for the members of an agent's society."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ...core.errors import InvalidArgument, UnknownMember

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...society import Society

_ACCOUNT: Final = "member:"


def society_of(agent: WorldAgent) -> Society | None:
    """The society of an open agent; None if it has none."""
    with suppress(InvalidArgument):
        return agent.society
    return None


async def enlist_member(agent: WorldAgent, account: str | None) -> None:
    """Give a member its worker before a turn of its account resumes here: without it, the gate refuses all its calls.

    Args:
        agent: An open agent.
        account: The account of the turn.
    """
    if account is None or not account.startswith(_ACCOUNT) or society_of(agent) is None:
        return
    from ...autonomy import Gateway

    with suppress(UnknownMember):
        await Gateway(agent).enlist(account.removeprefix(_ACCOUNT))


__all__ = ["enlist_member", "society_of"]
