"""Under which account and on which thread a member acts, and which case a turn belongs to (A11, A17)."""

from __future__ import annotations

from ...core import ROOT, Scope
from ...core.scope import account_of


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
