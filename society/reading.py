"""What a member reads of memory: all that is its own, and of the rest what its clearance admits (A1, A11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..core.errors import UnknownMember
from ..memory.entries import Reader
from .roles import ClearanceProfile

if TYPE_CHECKING:
    from .society import Society

_ACCOUNT: Final = "member:"
"""Stands before the id of a member in the name of its account."""


def account_of(role_id: str) -> str:
    """The account of a member: its threads, its memory, its usage and its stored role are under this id."""
    return f"{_ACCOUNT}{role_id}"


def member_of(account: str | None) -> str | None:
    """The member whose account this is; None for another account, and for none."""
    return account.removeprefix(_ACCOUNT) if account is not None and account.startswith(_ACCOUNT) else None


def thread_of(role_id: str) -> str:
    """The thread on which a member acts on messages, and answers."""
    return f"member {role_id}"


async def reader_of(society: Society, account: str) -> Reader | None:
    """The reader of a member's turns, with its clearance as it is now; None for an account that is no member's.

    An account of a member that does not exist sees what is public.

    Args:
        society: The members.
        account: The account of a turn or a call.
    """
    workspace, role_id = society.config.id, member_of(account)
    if role_id is None:
        return None
    try:
        member = await society.members.member(workspace, role_id)
    except UnknownMember:
        return Reader(workspace=workspace, account=account, clearance="public")
    clearance, others = member.spec.clearance or ClearanceProfile(), tuple[str, ...]()
    if society.config.policy.memory_isolation == "shared_read":
        others = tuple(account_of(each) for each in await society.members.ids(workspace) if each != role_id)
    return Reader(
        workspace=workspace, account=account, clearance=clearance.default, domains=clearance.domains, others=others
    )


__all__ = ["account_of", "member_of", "reader_of", "thread_of"]
