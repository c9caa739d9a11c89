"""Exports a member of a society, and removes it with all that is its alone (C2)."""

from __future__ import annotations

import sys
from typing import Any, Final

from ...agent.stores import Stores
from ...agent.upkeep import RemovedAccount, Upkeep
from ...agent.upkeep.accounts import check_over_account, remove_account
from ...core import Tier, check_id
from ...core.checks import to_json
from ...core.errors import UnknownMember
from ...core.scope import account_of
from ...memory.entries import Entry, EntryFilter, Reader
from ..data.roles import USER, RoleStatus
from ..data.workspace import WorkspaceConfig
from ..society import Society

_PAGE: Final = 1000


async def export_member(upkeep: Upkeep, member: str) -> dict[str, Any]:
    """All that is stored of a member of the society, as JSON (C2).

    It has the member itself with its life, its contacts and who has it as one, the messages that it sent and
    received, the newest 1,000 briefs that it has and gave, and its memory entries. Its conversations are threads: see
    `export`.

    Args:
        upkeep: The upkeep of the workspace, such as `agent.upkeep`.
        member: The member's id.

    Raises:
        UnknownMember: There is no such member.
        StorageUnavailable: The database fails.
    """
    stores, workspace = upkeep.stores, upkeep.workspace
    society = _society(stores, workspace)
    found = await society.members.member(workspace, member)
    known = [{"owner": owner, **to_json(each)} for owner, each in await society.contacts.every() if each.id == member]
    return {
        "member": {"id": member, **to_json(found)},
        "steps": to_json(await society.steps(member)),
        "contacts": to_json(await society.contacts.list(member)),
        "known_by": known,
        "messages": [
            {**each.message.to_json(), "state": each.state} for each in await society.mail.of(member, most=sys.maxsize)
        ],
        "briefs": to_json(
            [*await society.board.of(member, limit=_PAGE), *await society.board.given_by(member, limit=_PAGE)]
        ),
        "memory": [each.to_json() for each in await _entries(stores, workspace, account_of(workspace, member))],
    }


async def remove_member(upkeep: Upkeep, member: str, *, cancel: bool = False) -> RemovedAccount:
    """Remove a member of the society: its definition and life, contacts, messages, threads, memory and stored role.

    One that lives is terminated first, and its descendants with it; they are not removed, and its memory goes to no
    other member. What others did with its messages in their turns stays in their conversations. The stored role is
    that of the account `member:WORKSPACE/ID`.

    Args:
        upkeep: The upkeep of the workspace, such as `agent.upkeep`.
        member: The member's id.
        cancel: Whether to cancel its running or resumable turns first.

    Returns:
        The counts of what was removed of its account. Repeating the call removes what an interrupted one left.

    Raises:
        UnknownMember: There is no such member.
        ThreadBusy, ThreadPaused, StorageUnavailable: As for `remove_account`.
        RoleSourceUnavailable: The store of its role cannot be reached. The member is terminated, and the rest is
            kept.
    """
    stores, workspace, roles = upkeep.stores, upkeep.workspace, upkeep.roles
    check_id("member", member)
    society, account = _society(stores, workspace), account_of(workspace, member)
    if not cancel:
        await check_over_account(stores, workspace, account)
    try:
        status, missing = (await society.members.member(workspace, member)).life.status, None
        if status is not RoleStatus.TERMINATED:
            await society.terminate(member)
    except UnknownMember as unknown:  # what an interrupted removal left is still removed
        missing = unknown
    if roles is not None:
        await roles.delete(Tier.ACCOUNT, account)
    await society.members.remove(workspace, member)
    removed = await remove_account(stores, workspace, account, cancel=True)
    if missing is not None and removed == RemovedAccount(threads=0, messages=0, turns=0, entries=0, schedules=0):
        raise missing
    return removed


async def _entries(stores: Stores, workspace: str, account: str) -> list[Entry]:
    reader, found = Reader(workspace=workspace, account=account), list[Entry]()
    while page := await stores.entries.list(
        reader, EntryFilter(), limit=_PAGE, before=found[-1] if found else None, replaced=True
    ):
        found += page
    return [each for each in found if each.account == account]


def _society(stores: Stores, workspace: str) -> Society:
    return Society(WorkspaceConfig(id=workspace, owner=USER), stores.database, stores.clock)
