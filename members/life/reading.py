"""What a member reads of memory: all that is its own, and of the rest what its clearance admits (A1, A11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import UnknownMember
from ...core.scope import account_of, member_of
from ...memory.entries import Reader
from ..data.roles import ClearanceProfile

if TYPE_CHECKING:
    from ..society import Society


async def reader_of(society: Society, account: str) -> Reader | None:
    """The reader of a member's turns, with its clearance as it is now; None for an account that is not a member's.

    An account of a member that does not exist sees what is public.

    Args:
        society: The members.
        account: The account of a turn or a call.
    """
    workspace = society.config.id
    role_id = member_of(workspace, account)
    if role_id is None:
        return None
    try:
        member = await society.members.member(workspace, role_id)
    except UnknownMember:
        return Reader(workspace=workspace, account=account, clearance="public")
    clearance, others = member.spec.clearance or ClearanceProfile(), tuple[str, ...]()
    if society.config.policy.memory_isolation == "shared_read":
        others = tuple(account_of(workspace, each) for each in await society.members.ids(workspace) if each != role_id)
    return Reader(
        workspace=workspace, account=account, clearance=clearance.default, domains=clearance.domains, others=others
    )
