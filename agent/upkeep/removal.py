"""Removes a thread: its turns, calls, checkpoints and messages in one transaction, then the leftovers in files.

The lines in the chat's history go inside that transaction, so that a killed process still finds the thread next time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...core import Scope
from ...core.errors import StorageInvalid, StorageUnavailable, ThreadPaused
from ...memory import thread_key
from ...memory.kept import KeptMessages
from ...memory.titles import ThreadTitles
from ...memory.turn_log import TurnLog
from ...memory.upkeep import RemovedMessages, portions, remove_messages, sharers
from ...storage import Lease, Transaction
from .parts import UpkeepParts
from .retention import open_turns
from .typed import TypedTexts, forget_typed

RELEASE_WAIT_SECONDS: Final = 1.0  # seconds that an owner can take to release a thread after its turn has ended
_TURNS: Final = "SELECT thread, id FROM wa_turn WHERE thread=?"
# After an edit, the messages in its kept copy belong to turns of this thread, which no turn continues from.
_OTHERS: Final = """SELECT thread, id FROM wa_turn t
                    WHERE id IN ({}) AND thread<>? AND status NOT IN ('running', 'paused', 'stopped')
                      AND id < (SELECT MAX(id) FROM wa_turn WHERE thread=t.thread)"""
_DROP_CALLS: Final = "DELETE FROM wa_call WHERE turn IN ({}) RETURNING decision"
_DROP_SPENT: Final = "DELETE FROM wa_spent WHERE turn IN ({})"
_DROP_BILL: Final = "DELETE FROM wa_bill WHERE turn IN ({})"
_DROP_TURNS: Final = "DELETE FROM wa_turn WHERE id IN ({})"
_NO_NEW_BRANCH: Final = "LOCK TABLE wa_branch IN SHARE ROW EXCLUSIVE MODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The counts of what was removed with a thread.

    Attributes:
        messages: Messages; those that another thread shares are kept.
        turns: Turns.
        calls: Calls of the turns.
        checkpoints: Checkpoints of the turns.
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
        parts: The database and its stores.
        scope: The thread.
        cancel: Whether to cancel a running or resumable turn first.

    Returns:
        The counts of what was removed; None if the thread does not exist.

    Raises:
        ThreadBusy: A turn runs and `cancel` is False, or the turn did not end within `parts.wait`.
        ThreadPaused: A turn can be resumed, and `cancel` is False.
        StorageUnavailable: The database or the chat's history fails, and nothing is removed; or all rows are removed
            and their bytes are still in a file, as the text says.
    """
    key = thread_key(scope)
    latest = await parts.turns.latest(key)
    if cancel and latest is not None:
        await parts.turns.ask_to_cancel(latest.id)
    async with parts.leases.hold(key, wait=parts.wait if cancel else RELEASE_WAIT_SECONDS, last=True) as lease:
        if not cancel:
            await _check_over(parts, key)
        async with parts.traces() as traces:  # first, since nothing finds them once the thread is gone
            await traces.forget(scope.workspace, scope.thread or "")
        ends = await _ends(parts, await parts.database.read(lambda tx: sharers(tx, key)))
        removed = await parts.database.transact(lambda tx: _remove(tx, lease, parts, ends))
    if removed is None:
        return None
    parts.removed(scope.thread or "", "" if latest is None else latest.id)
    try:
        dropped = await parts.attachments.drop_unreferenced()
    finally:  # each cleans up what it can, even if the other fails
        await _scrub(parts, key)
    return replace(removed, attachments=len(dropped))


async def _check_over(parts: UpkeepParts, key: str) -> None:
    for turn, status in await parts.database.read(lambda tx: open_turns(tx, key)):
        state = "was interrupted" if status == "running" else f"is {status}"
        raise ThreadPaused(
            f"the turn {turn!r} of thread {key!r} {state} and can be resumed",
            remedy="resume it, or cancel it as well: upkeep.remove(..., cancel=True), `threads rm --cancel`",
        )


async def _ends(parts: UpkeepParts, threads: Iterable[str]) -> dict[str, str | None]:
    """Return the heads of threads without those that cannot be read, so that nothing they may need is removed."""
    found: dict[str, str | None] = {}
    for thread in threads:
        with contextlib.suppress(StorageInvalid):
            found[thread] = (await parts.position(thread)).head
    return found


def _remove(
    transaction: Transaction, lease: Lease, parts: UpkeepParts, ends: Mapping[str, str | None]
) -> Removed | None:
    key = lease.key
    lease.retire(transaction)
    if parts.checkpoints.postgres:
        transaction.execute(_NO_NEW_BRANCH)  # no branch may begin at a message that is being removed
    branched = bool(transaction.execute("SELECT 1 FROM wa_branch WHERE thread=?", (key,)))
    messages = remove_messages(transaction, key, ends)
    KeptMessages.drop(transaction, key)
    turns = _turns(transaction, key, messages)
    decisions = _drop_turns(transaction, [turn for some in turns.values() for turn in some])
    ThreadTitles.drop(transaction, key)  # after the turns: a concurrent rename locks one of them
    checkpoints = parts.checkpoints.remove(transaction, key) + sum(
        parts.checkpoints.forget(transaction, thread, some) for thread, some in turns.items() if thread != key
    )
    forget_typed(parts.storage.typed, _typed_texts(key, messages, turns, decisions))
    if not (branched or messages.count or turns or checkpoints):
        return None
    count = sum(len(some) for some in turns.values())
    return Removed(messages=messages.count, turns=count, calls=len(decisions), checkpoints=checkpoints)


def _typed_texts(
    key: str, messages: RemovedMessages, turns: Iterable[str], decisions: Iterable[str | None]
) -> TypedTexts:
    given = [json.loads(decision) for decision in decisions if decision is not None]
    answers = [answer for one in given for answer in (one.get("value"), one.get("reason"))]
    texts = {answer for answer in answers if isinstance(answer, str)}
    values = [answer for answer in answers if answer is not None and not isinstance(answer, str)]
    return TypedTexts(thread=key, threads=messages.threads.union(turns), texts=messages.said | texts, values=values)


def _turns(transaction: Transaction, key: str, messages: RemovedMessages) -> dict[str, list[str]]:
    """Return the turns to remove with a thread, by the keys of their threads."""
    found = transaction.execute(_TURNS, (key,))
    for marks, some in portions(sorted(messages.turns)):
        found += transaction.execute(_OTHERS.format(marks), (*some, key))
    turns: dict[str, list[str]] = {}
    for thread, turn in found:
        turns.setdefault(thread, []).append(turn)
    return turns


def _drop_turns(transaction: Transaction, turns: Sequence[str]) -> list[str | None]:
    """Delete turns with their calls; returns a person's decision on each call, if any."""
    decisions: list[str | None] = []
    for marks, some in portions(turns):
        decisions += [row[0] for row in transaction.execute(_DROP_CALLS.format(marks), some)]
        transaction.execute(_DROP_SPENT.format(marks), some)
        transaction.execute(_DROP_BILL.format(marks), some)
        TurnLog.remove(transaction, marks, some)
        transaction.execute(_DROP_TURNS.format(marks), some)
    return decisions


async def _scrub(parts: UpkeepParts, key: str) -> None:
    try:
        await parts.database.scrub()
        async with parts.traces() as traces:
            await traces.scrub()
    except StorageUnavailable as error:
        problem = error.problem
    else:
        return
    raise StorageUnavailable(
        f"all rows of the thread {key!r} are removed, but their bytes may still be in a file: {problem}",
        remedy="run `worldagent threads prune` once the other processes are done; it clears them",
    )


__all__ = ["Removed", "remove"]
