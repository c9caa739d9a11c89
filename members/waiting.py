"""What waits in a workspace: questions of members to people, and what waits for a member (A12)."""

from __future__ import annotations

from dataclasses import dataclass

from ..agent.threads import ThreadRegister
from ..core import Scope
from ..core.pauses import Pause
from ..core.scope import member_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPause:
    """A question of a member's turn that waits for a person.

    Answer it with `agent.thread(found.thread, account=found.account).resume({found.pause.id: answer})`.

    Attributes:
        member: The member.
        thread: The thread of the turn.
        account: The account of the member.
        pause: The question.
    """

    member: str
    thread: str
    account: str
    pause: Pause


async def member_pauses(threads: ThreadRegister, workspace: str) -> tuple[MemberPause, ...]:
    """The questions of all members of a workspace, the longest waiting first."""
    found: list[MemberPause] = []
    for state in (await threads.with_pauses(workspace))[0]:
        member = member_of(workspace, state.account)
        if member is None or state.account is None or not state.pauses:
            continue
        scope = Scope(workspace=workspace, account=state.account, channel=state.channel, thread=state.thread)
        for pause in await threads.pauses(scope):
            if not pause.answered and pause.kind != "reply":
                found.append(MemberPause(member=member, thread=state.thread, account=state.account, pause=pause))
    return tuple(sorted(found, key=lambda each: (each.pause.since, each.pause.id)))
