"""What a member reads of memory: all that is its own, and of the rest what its clearance admits (A1, A11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import ROOT, Scope
from ...core.errors import UnknownMember
from ...core.scope import account_of, member_of
from ...memory.entries import Reader
from .roles import ClearanceProfile

if TYPE_CHECKING:
    from ..society import Society


def on_messages(scope: Scope, role_id: str) -> bool:
    """Whether a turn is one in which a member acts on messages, and not that of a person on the same thread."""
    return (scope.account, scope.thread) == (scope_of(scope.workspace, role_id).account, thread_of(role_id))


_EVENT_THREAD, _EVENT_CASE = "event ", "event."


def thread_of(role_id: str) -> str:
    """The thread on which a member acts on messages, and answers."""
    return f"member {role_id}"


def scope_of(workspace: str, role_id: str) -> Scope:
    """The scope in which a member acts on messages. The World Agent has a thread for it, and no account."""
    account = None if role_id == ROOT else account_of(workspace, role_id)
    return Scope(workspace=workspace, account=account, thread=thread_of(role_id))


def case_of_turn(scope: Scope, member: str, turn_id: str) -> str:
    """The case of what a turn sends; empty if it is that of the message that its member handles.

    Args:
        scope: The scope of the turn.
        member: The member that it runs for, or the World Agent.
        turn_id: Its id.
    """
    thread = scope.thread or ""
    if on_messages(scope, member):
        return ""
    if member != ROOT and thread.startswith(_EVENT_THREAD):
        return _EVENT_CASE + thread.removeprefix(_EVENT_THREAD)
    return turn_id


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
