"""What waits in a workspace: questions of members to people, and what waits for a member (A12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


class Threads(Protocol):
    """The threads of a database, with what they wait for; `agent.threads.ThreadRegister` is one."""

    async def with_pauses(self, workspace: str, /) -> tuple[Sequence[Any], Sequence[Any]]: ...

    async def pauses(self, scope: Scope, /) -> tuple[Pause, ...]: ...


async def member_pauses(threads: Threads, workspace: str) -> tuple[MemberPause, ...]:
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
