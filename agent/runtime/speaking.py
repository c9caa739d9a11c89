"""Handing a conversation to a member and back, and who speaks in a turn of it (A21).

A member gets the person's conversation and nothing of the person's rights: each call must be allowed to both, approvals
are the person's, and what the member is shown is within its clearance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core import ROOT, Scope, check_id
from ...core.errors import InvalidArgument, LifecycleError, UnknownMember
from ...core.scope import account_of
from ...graphs import TurnRequest
from ...graphs.speaking import AFTER, Speaker
from ...memory.conversation import GIVEN_BACK, SPEAKER, Handed
from ...memory.entries import Reader
from ...memory.inbox import InboxRow
from ..threads.handing import Shown, check_handing, hand
from .work import RunnerParts


async def hand_over(parts: RunnerParts, scope: Scope, member: str, messages: Shown) -> None:
    """Let a member speak in a conversation from the next turn on; see `Thread.hand_over`."""
    check_id("member", member)
    check_handing(scope, messages)
    if not parts.hooks.speaking:
        raise InvalidArgument(
            "the agent has no members to hand the conversation to",
            remedy="pass WorldAgent(society=WorkspaceConfig(...))",
        )
    if await speaker_of(parts, Handed(member=member)) is None:
        raise UnknownMember(
            f"the workspace has no member {member!r} that is not terminated",
            remedy="see the members with `worldagent society members`",
        )
    await hand(parts.stores, scope, member, messages)


# --- in turns ---------------------------------------------------------------------------------------------------------


async def speaker_of(parts: RunnerParts, handed: Handed) -> Speaker | None:
    """The member that a conversation was handed to, with what it may know now; None if it is gone.

    Raises:
        LifecycleError: It is a draft, or suspended.
    """
    for each in parts.hooks.speaking:
        reader = await each(handed.member)
        if reader is not None:
            return Speaker(member=handed.member, reader=reader, after=handed.after)
    return None


async def with_speaker(
    parts: RunnerParts, request: TurnRequest, handed: Handed | None
) -> tuple[TurnRequest, Handed | None]:
    """Let the member speak in a turn that begins, and return who speaks after it.

    Only what a person says, or a schedule, is answered by the member: tasks and skills are calls of the host, and
    messages of members are not a conversation of the person.

    Raises:
        LifecycleError: The member cannot speak now.
    """
    left = {name: value for name, value in request.body.items() if name not in (SPEAKER, AFTER, GIVEN_BACK)}
    request = request if len(left) == len(request.body) else replace(request, body=left)
    if handed is None or request.kind in ("task", "skill"):
        return request, handed
    if request.sender is not None or request.on_behalf_of not in (ROOT, handed.member):
        return request, handed
    speaker = await speaker_of(parts, handed)
    if speaker is None:
        return replace(request, body={**left, GIVEN_BACK: handed.member}), None
    marks = {*left.get("untrusted", ()), *(mark for of in parts.hooks.marks for mark in of(handed.member))}
    body = {**left, **speaker.body, **({"untrusted": sorted(marks)} if marks else {})}
    return replace(request, on_behalf_of=handed.member, body=body, speaker=speaker), handed


async def speaker_in(parts: RunnerParts, scope: Scope, body: Mapping[str, Any], kind: str) -> Speaker | None:
    """The member that speaks in a turn that resumes, from the message that began it; None is the World Agent.

    A member that was suspended meanwhile ends what it is in the middle of, and one that is gone sees what is public.

    Args:
        parts: What the agent works with.
        scope: The ids that the turn runs under.
        body: The body of the message.
        kind: Its kind.
    """
    if SPEAKER not in body or kind in ("task", "skill"):
        return None
    member, workspace = str(body[SPEAKER]), scope.workspace
    reader: Reader | None = None
    for each in parts.hooks.readers:
        reader = reader or await each(account_of(workspace, member))
    reader = reader or Reader(workspace=workspace, clearance="public")
    return Speaker(member=member, reader=reader, after=int(body.get(AFTER, -1)))


async def admitted(parts: RunnerParts, rows: Sequence[InboxRow], handed: Handed | None) -> Sequence[InboxRow]:
    """The messages of an inbox that the next turn can read: a report that its speaker may not see waits.

    Args:
        parts: What the agent works with.
        rows: The messages.
        handed: Who speaks next.
    """
    if handed is None or all(row.kind != "report" for row in rows):
        return rows
    try:
        speaker = await speaker_of(parts, handed)
    except LifecycleError:  # it cannot speak now, so its turn cannot begin either
        return [row for row in rows if row.kind != "report"]
    if speaker is None:
        return rows
    return [row for row in rows if row.kind != "report" or speaker.admits(row.marks)]


__all__ = ["admitted", "hand_over", "speaker_in", "with_speaker"]
