"""Exports a member of a society, and removes it with all that is its alone (C2)."""

from __future__ import annotations

import sys
from typing import Any, Final

from ...core import Tier
from ...core.checks import to_json
from ...core.errors import UnknownMember
from ...memory.entries import Entry, EntryFilter, Reader
from ...role_resolution import RoleStore
from ...society import Society, WorkspaceConfig
from ...society.reading import account_of
from ...society.roles import USER, RoleStatus
from ..stores import Stores
from .accounts import RemovedAccount, check_over_account, remove_account

_PAGE: Final = 1000


async def export_member(stores: Stores, workspace: str, member: str) -> dict[str, Any]:
    """All that is stored of a member, as JSON. See `Upkeep.export_member`."""
    society = _society(stores, workspace)
    found = await society.members.member(workspace, member)
    known = [{"owner": owner, **to_json(each)} for owner, each in await society.contacts.every() if each.id == member]
    return {
        "member": {"id": member, **to_json(found)},
        "steps": to_json(await society.steps(member)),
        "contacts": to_json(await society.contacts.list(member)),
        "known_by": known,
        "messages": [
            {**each.message.to_json(), "state": each.state} for each in await society.mail_of(member, most=sys.maxsize)
        ],
        "memory": [each.to_json() for each in await _entries(stores, workspace, account_of(workspace, member))],
    }


async def remove_member(
    stores: Stores, workspace: str, member: str, *, cancel: bool, roles: RoleStore | None
) -> RemovedAccount:
    """Remove a member with all that is its alone. See `Upkeep.remove_member`."""
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


__all__ = ["export_member", "remove_member"]
