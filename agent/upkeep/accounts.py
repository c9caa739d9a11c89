"""Removes what a workspace holds of an account: its schedules, its threads as `removal` does, and its memory (M4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...core import Scope
from ...core.errors import ThreadBusy
from ...mcp_client.logins import LoginStore
from ...memory import thread_key
from ...memory.owned import remove_owned
from ...memory.turns import keys_of
from ..stores import Stores
from ..threads import ThreadFilters, ThreadRegister, ThreadState
from .removal import Removed, check_over, remove_without_scrub

_PAGE: Final = 1000
_OTHERS: Final = "SELECT DISTINCT name FROM wa_turn WHERE thread >= ? AND thread < ? AND account<>?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedAccount:
    """What was removed of an account.

    Attributes:
        threads: How many threads.
        messages: Messages of these threads; those that another thread shares are kept.
        turns: Turns of these threads.
        entries: Memory entries of the account.
        schedules: Schedules of the account.
        logins: Logins of the account to MCP servers, as far as this machine has them.
        rows: Rows of the account in tables of capabilities; those that went with its threads are not counted.
        shared: The ids of threads that are kept, because another account has a turn on them.
    """

    threads: int
    messages: int
    turns: int
    entries: int
    schedules: int
    logins: int = 0
    rows: int = 0
    shared: tuple[str, ...] = ()


async def remove_account(stores: Stores, workspace: str, account: str, *, cancel: bool) -> RemovedAccount:
    """Remove an account's schedules, threads, memory entries and logins. See `Upkeep.remove_account`."""
    if not cancel:
        await check_over_account(stores, workspace, account)
    states, shared = await _threads(stores, workspace, account), await _shared(stores, workspace, account)
    schedules = [each.id for each in await stores.schedules.list(workspace) if each.body.get("account") == account]
    for schedule in schedules:  # first, so that no schedule begins another turn
        await stores.schedules.remove(workspace, schedule)
    await stores.inbox.forget_account(workspace, account)
    removed: list[Removed] = []
    for state in states:
        scope = Scope(workspace=workspace, account=account, thread=state.thread)
        if state.thread not in shared:
            found = await remove_without_scrub(stores, scope, cancel=cancel)
            removed += [] if found is None else [found]
        elif cancel and state.account == account:
            await ThreadRegister(stores).cancel(scope)
    await stores.attachments.forget_reader(workspace, account)
    await stores.attachments.drop_unreferenced()
    server = stores.checkpoints.postgres
    rows = await stores.database.transact(lambda tx: remove_owned(tx, workspace, server=server, account=account))
    # This also rewrites SQLite's file, once for all that was removed before.
    entries = await stores.entries.forget_account(workspace, account)
    async with stores.traces() as traces:
        await traces.scrub()
    return RemovedAccount(
        threads=len(removed),
        messages=sum(each.messages for each in removed),
        turns=sum(each.turns for each in removed),
        entries=entries,
        schedules=len(schedules),
        logins=await LoginStore(stores.storage.resolve(), workspace).remove_account(account),
        rows=rows,
        shared=tuple(sorted(state.thread for state in states if state.thread in shared)),
    )


async def check_over_account(stores: Stores, workspace: str, account: str) -> None:
    """Refuse to remove anything while the account has a turn that runs or can be resumed.

    Raises:
        ThreadBusy: A turn runs.
        ThreadPaused: A turn can be resumed.
    """
    shared = await _shared(stores, workspace, account)
    states = await _threads(stores, workspace, account)
    await _check_over(
        stores, workspace, [each for each in states if each.thread not in shared or each.account == account]
    )


async def _shared(stores: Stores, workspace: str, account: str) -> set[str]:
    """The threads on which another account has a turn."""
    rows = await stores.database.read(lambda tx: tx.execute(_OTHERS, (*keys_of(workspace), account)))
    return {name for (name,) in rows}


async def _threads(stores: Stores, workspace: str, account: str) -> list[ThreadState]:
    """The threads with a turn of the account, and those without a turn that have a message of it."""
    found: list[ThreadState] = []
    before: str | None = None
    while True:
        wanted = ThreadFilters.of(limit=_PAGE, account=account, archived=None, before=before)
        page = await ThreadRegister(stores).list(workspace, wanted)
        found += page
        if len(page) < _PAGE:
            return found
        before = page[-1].page_key


async def _check_over(stores: Stores, workspace: str, states: list[ThreadState]) -> None:
    """Refuse to remove anything while one of the threads has a turn that runs or can be resumed."""
    for state in states:
        if state.status == "running":
            raise ThreadBusy(
                f"a turn runs on the thread {state.thread!r}",
                remedy="wait for it, or cancel it as well: remove_account(..., cancel=True), `accounts rm --cancel`",
            )
        await check_over(stores, thread_key(Scope(workspace=workspace, thread=state.thread)))
