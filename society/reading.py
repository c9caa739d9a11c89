"""What a member reads of memory: all that is its own, and of the rest what its clearance admits (A1, A11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import ROOT, Scope
from ..core.errors import UnknownMember
from ..core.scope import MEMBER_ACCOUNT
from ..memory.entries import Reader
from .roles import ClearanceProfile

if TYPE_CHECKING:
    from .society import Society


def account_of(workspace: str, role_id: str) -> str:
    """The account of a member: its threads, its memory, its usage and its stored role are under this id.

    It names the workspace, because the stored role of an account is the same in all workspaces, and two of them can
    have members with one id.
    """
    return f"{MEMBER_ACCOUNT}{workspace}/{role_id}"


def workspace_of(account: str) -> str | None:
    """The workspace of the member whose account this is; None for the account of a person."""
    if not account.startswith(MEMBER_ACCOUNT):
        return None
    return account.removeprefix(MEMBER_ACCOUNT).rpartition("/")[0]


def member_of(workspace: str, account: str | None) -> str | None:
    """The member of a workspace whose account this is; None for another account, and for none."""
    own = account_of(workspace, "")
    return account.removeprefix(own) if account is not None and account.startswith(own) else None


def thread_of(role_id: str) -> str:
    """The thread on which a member acts on messages, and answers."""
    return f"member {role_id}"


def scope_of(workspace: str, role_id: str) -> Scope:
    """The scope in which a member acts on messages. The World Agent has a thread for it, and no account."""
    account = None if role_id == ROOT else account_of(workspace, role_id)
    return Scope(workspace=workspace, account=account, thread=thread_of(role_id))


async def reader_of(society: Society, account: str) -> Reader | None:
    """The reader of a member's turns, with its clearance as it is now; None for an account that is no member's.

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


__all__ = ["account_of", "member_of", "reader_of", "scope_of", "thread_of", "workspace_of"]
