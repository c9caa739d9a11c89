"""Removing a thread: its turns, calls, checkpoints and messages in one transaction, then what the files still hold."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ...core import Scope
from ...core.errors import StorageInvalid, StorageUnavailable, ThreadPaused
from ...memory import thread_key
from ...memory.kept import KeptMessages
from ...memory.upkeep import remove_messages, sharers
from ...storage import Lease, Transaction
from ._parts import UpkeepParts
from ._retention import open_turns
from ._typed import forget_typed

_LET_GO: Final = 1.0  # seconds that an owner may take to let go of a thread whose turn has come to its end
_TURNS: Final = "SELECT COUNT(*) FROM wa_turn WHERE thread=?"
_CALLS: Final = "SELECT COUNT(*) FROM wa_call WHERE turn IN (SELECT id FROM wa_turn WHERE thread=?)"
_DECISIONS: Final = """SELECT decision FROM wa_call
                       WHERE turn IN (SELECT id FROM wa_turn WHERE thread=?) AND decision IS NOT NULL"""
_DROP_CALLS: Final = "DELETE FROM wa_call WHERE turn IN (SELECT id FROM wa_turn WHERE thread=?)"
_DROP_TURNS: Final = "DELETE FROM wa_turn WHERE thread=?"
_NO_NEW_BRANCH: Final = "LOCK TABLE wa_branch IN SHARE ROW EXCLUSIVE MODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed with a thread.

    Attributes:
        messages: Messages; those that another thread stands on stay.
        turns: Turns.
        calls: What they called.
        checkpoints: Where they stood.
        attachments: Images and files that no message refers to any more.
    """

    messages: int
    turns: int
    calls: int
    checkpoints: int
    attachments: int = 0


async def remove(parts: UpkeepParts, scope: Scope, *, cancel: bool) -> Removed | None:
    """Remove a thread from every table and file.

    Args:
        parts: The database and what belongs to it.
        scope: Names the thread.
        cancel: Whether a turn that is under way or can go on is cancelled first.

    Returns:
        What was removed; None where there is no such thread.

    Raises:
        ThreadBusy: A turn runs, and `cancel` is False, or it did not end in time.
        ThreadPaused: A turn can go on, and `cancel` is False.
        StorageUnavailable: The database fails; or all rows are gone and their bytes are still in a file, as it says.
    """
    key = thread_key(scope)
    latest = await parts.turns.latest(key)
    if cancel and latest is not None:
        await parts.turns.ask_to_cancel(latest.id)
    async with parts.leases.hold(key, wait=parts.wait if cancel else _LET_GO, last=True) as lease:
        if not cancel:
            await _check_over(parts, key)
        ends = await _ends(parts, await parts.database.read(lambda tx: sharers(tx, key)))
        removed, said = await parts.database.transact(lambda tx: _remove(tx, lease, parts, ends))
    if removed is None:
        return None
    parts.removed(scope.thread or "", "" if latest is None else latest.id)
    try:
        await asyncio.to_thread(forget_typed, parts.storage.typed, said)
    finally:  # each clears what it can, whatever becomes of the others
        dropped = await parts.attachments.drop_unreferenced()
        await _scrub(parts, key)
    return Removed(
        messages=removed.messages,
        turns=removed.turns,
        calls=removed.calls,
        checkpoints=removed.checkpoints,
        attachments=len(dropped),
    )


async def _check_over(parts: UpkeepParts, key: str) -> None:
    for turn, status in await parts.database.read(lambda tx: open_turns(tx, key)):
        stands = "was cut off" if status == "running" else f"is {status}"
        raise ThreadPaused(
            f"the turn {turn!r} of thread {key!r} {stands} and can go on",
            remedy="go on with it, or cancel it along: upkeep.remove(..., cancel=True), `threads rm --cancel`",
        )


async def _ends(parts: UpkeepParts, threads: Iterable[str]) -> dict[str, str | None]:
    """The heads of threads; one that cannot be read is left out, so that nothing goes that the thread may need."""
    found: dict[str, str | None] = {}
    for thread in threads:
        with contextlib.suppress(StorageInvalid):
            found[thread] = (await parts.position(thread)).head
    return found


def _remove(
    transaction: Transaction, lease: Lease, parts: UpkeepParts, ends: Mapping[str, str | None]
) -> tuple[Removed | None, frozenset[str]]:
    key = lease.key
    lease.retire(transaction)
    if parts.checkpoints.postgres:
        transaction.execute(_NO_NEW_BRANCH)  # one of a message that goes
    branched = bool(transaction.execute("SELECT 1 FROM wa_branch WHERE thread=?", (key,)))
    messages, said = remove_messages(transaction, key, ends)
    said |= {text for (decision,) in transaction.execute(_DECISIONS, (key,)) for text in _answers(decision)}
    KeptMessages.drop(transaction, key)
    [(turns,)], [(calls,)] = transaction.execute(_TURNS, (key,)), transaction.execute(_CALLS, (key,))
    transaction.execute(_DROP_CALLS, (key,))
    transaction.execute(_DROP_TURNS, (key,))
    checkpoints = parts.checkpoints.remove(transaction, key)
    if not (branched or messages or turns or checkpoints):
        return None, said
    return Removed(messages=messages, turns=turns, calls=calls, checkpoints=checkpoints), said


def _answers(decision: str) -> Iterator[str]:
    """What a person wrote to a call that asked, and the fields of a form as they are typed."""
    given = json.loads(decision)
    for value in (given.get("value"), given.get("reason")):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from (f"{name}={entry}" for name, entry in value.items())


async def _scrub(parts: UpkeepParts, key: str) -> None:
    try:
        await parts.database.scrub()
    except StorageUnavailable as error:
        problem = error.problem
    else:
        return
    raise StorageUnavailable(
        f"all rows of the thread {key!r} are gone, and their bytes may still be in a file: {problem}",
        remedy="run `worldagent threads prune` once the other processes are done, which clears them",
    )


__all__ = ["Removed", "remove"]
