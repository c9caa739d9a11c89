"""Removes a thread: its turns, calls, checkpoints and messages in one transaction, then the leftovers in files.

The lines in the chat's history go inside that transaction, so that a killed process still finds the thread next time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ...core import Clock, Scope
from ...core.errors import InvalidArgument, StorageInvalid, StorageUnavailable, ThreadBusy, ThreadPaused
from ...core.files import replace_file, storage_errors
from ...memory import thread_key
from ...memory.branches import Branches
from ...memory.conversation import KeptMessages
from ...memory.entries import remove_of_thread
from ...memory.examples import Examples
from ...memory.inbox import Inbox
from ...memory.owned import remove_owned
from ...memory.titles import ThreadTitles
from ...memory.turn_log import TurnLog
from ...memory.turns import keys_of, name_of
from ...memory.upkeep import RemovedMessages, remove_messages, sharers
from ...storage import Lease, Transaction, portions
from ..stores import CheckpointRows, Stores

_NAMING: Final = ("/thread", "/fork", "/new")  # commands that take a thread's name


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTexts:
    """The messages and answers of persons on a removed thread.

    Attributes:
        thread: The thread's key.
        threads: The keys of the threads that they were typed on.
        texts: Messages, and answers that are strings.
        values: Other answers, such as the fields of a form.
    """

    thread: str
    threads: AbstractSet[str]
    texts: AbstractSet[str]
    values: Sequence[Any]


def forget_typed(file: Path, said: TypedTexts) -> None:
    """Rewrite the file without the lines that were typed on a thread.

    Args:
        file: The file; it need not exist.
        said: The messages and answers on the thread.

    Raises:
        StorageUnavailable: The file cannot be read or written; it is unchanged.
    """
    problem = f"nothing is removed: {str(file)!r} can contain messages of the thread and cannot be changed"
    remedy = "make it writable for this user, or delete it, and remove the thread again"
    with storage_errors(problem, remedy=remedy), contextlib.suppress(FileNotFoundError):
        lines = file.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if not _holds(line, said)]
        if len(left) < len(lines):
            replace_file(file, b"".join(left))


def _holds(line: bytes, said: TypedTexts) -> bool:
    thread, typed = _read(line)
    if thread == said.thread:
        return True
    workspace, _, name = said.thread.partition("/")
    command, _, given = typed.strip().partition(" ")
    if command in _NAMING and given.strip() == unquote(name):
        return thread is None or thread.partition("/")[0] == workspace
    return (thread is None or thread in said.threads) and _matches_text(typed, said)


def _read(line: bytes) -> tuple[str | None, str]:
    """Return the thread that a line was typed on, if it is known, and the typed text."""
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
    match found:
        case {"thread": str(thread), "text": str(text)}:
            return thread, text
        case str(text):
            return None, text
        case _:
            return None, ""


def _matches_text(typed: str, said: TypedTexts) -> bool:
    # The message can follow a command, such as /edit or no; a doubled slash is an escaped one.
    _, _, given = typed.strip().partition(" ")
    message = typed[1:] if typed.startswith("//") else typed
    if not said.texts.isdisjoint({typed, typed.strip(), message.strip(), given.strip()} - {""}):
        return True
    return any(_matches_value(part, value) for value in said.values for part in (typed, given))


def _matches_value(typed: str, value: Any) -> bool:
    """Whether the typed text gives this value: as JSON, or each of its fields."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(typed) == value)
    if not isinstance(value, dict) or not value:
        return False
    parts = [f"{name}=" for name in value] + [entry for entry in value.values() if isinstance(entry, str)]
    return all(part in typed or json.dumps(part, ensure_ascii=False)[1:-1] in typed for part in parts)


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


async def remove(stores: Stores, scope: Scope, *, cancel: bool) -> Removed | None:
    """Remove a thread from every table and file.

    Args:
        stores: The database and its stores.
        scope: The thread.
        cancel: Whether to cancel a running or resumable turn first.

    Returns:
        The counts of what was removed; None if neither the thread nor work of it exists.

    Raises:
        ThreadBusy: A turn runs and `cancel` is False, or the turn did not end within `stores.wait`.
        ThreadPaused: A turn can be resumed, and `cancel` is False.
        StorageUnavailable: The database or the chat's history fails, and nothing is removed; or all rows are removed
            and their bytes are still in a file, as the text says.
    """
    removed = await remove_without_scrub(stores, scope, cancel=cancel)
    if removed is None:
        return None
    try:
        dropped = await stores.attachments.drop_unreferenced()
    finally:  # each cleans up what it can, even if the other fails
        await _scrub(stores, thread_key(scope))
    return replace(removed, attachments=len(dropped))


async def remove_without_scrub(stores: Stores, scope: Scope, *, cancel: bool) -> Removed | None:
    """As `remove`, but leave attachments, and what remains in files, to the caller.

    The work in the background of the thread goes with it, and its threads.
    """
    key = thread_key(scope)
    latest = await stores.turns.latest(key)
    if cancel:
        await stores.inbox.clear(key)  # first, so that no queued message begins another turn
    if cancel and latest is not None:
        await stores.turns.ask_to_cancel(latest.id)
    async with stores.leases.hold(key, wait=stores.wait if cancel else RELEASE_WAIT_SECONDS, last=True) as lease:
        if not cancel:
            await check_over(stores, key)
        tasks = await stores.background.of(scope)
        removed = await remove_rows(stores, scope, lease, "" if latest is None else latest.id)
    for task in tasks:
        with contextlib.suppress(ThreadBusy):  # it was asked to end, and reports to nobody
            gone = await remove_without_scrub(stores, task.scope, cancel=True)
            removed = removed or gone  # a conversation that has said nothing can have work
    return removed


async def remove_rows(stores: Stores, scope: Scope, lease: Lease, latest: str) -> Removed | None:
    """Remove a thread's rows and traces. Its attachments, and what remains in files, are left to the caller.

    Args:
        stores: The database and its stores.
        scope: The thread.
        lease: Its lease.
        latest: The id of its newest turn.

    Returns:
        The counts of what was removed; None if neither the thread nor work of it exists.
    """
    async with stores.traces() as traces:  # first, since nothing finds them once the thread is gone
        await traces.forget(scope.workspace, scope.thread or "")
    ends = await _ends(stores, await stores.database.read(lambda tx: sharers(tx, lease.key)))
    removed = await stores.database.transact(lambda tx: _remove(tx, lease, stores, ends))
    if removed is not None:
        stores.removed(scope.thread or "", latest)
    return removed


async def check_over(stores: Stores, key: str) -> None:
    """Refuse to remove a thread with a turn that can be resumed.

    Raises:
        ThreadPaused: It has one.
    """
    for turn, status in await stores.database.read(lambda tx: open_turns(tx, key)):
        state = "was interrupted" if status == "running" else f"is {status}"
        raise ThreadPaused(
            f"the turn {turn!r} of thread {key!r} {state} and can be resumed",
            remedy="resume it, or cancel it as well: cancel=True in code, --cancel on the command line",
        )


async def _ends(stores: Stores, threads: Iterable[str]) -> dict[str, str | None]:
    """Return the heads of threads without those that cannot be read, so that nothing they may need is removed."""
    found: dict[str, str | None] = {}
    for thread in threads:
        with contextlib.suppress(StorageInvalid):
            found[thread] = (await stores.position(thread)).head
    return found


def _remove(transaction: Transaction, lease: Lease, stores: Stores, ends: Mapping[str, str | None]) -> Removed | None:
    key = lease.key
    lease.retire(transaction)
    if stores.checkpoints.postgres:
        transaction.execute(_NO_NEW_BRANCH)  # no branch may begin at a message that is being removed
    branched = bool(transaction.execute("SELECT 1 FROM wa_branch WHERE thread=?", (key,)))
    messages = remove_messages(transaction, key, ends)
    KeptMessages.drop(transaction, key)
    stores.background.silenced(transaction, Scope(workspace=unquote(key.partition("/")[0]), thread=name_of(key)))
    queued = Inbox.drop(transaction, key)
    turns = _turns(transaction, key, messages)
    for thread, some in sorted(turns.items()):
        if thread != key:
            remove_of_thread(transaction, thread, some)
    decisions = _drop_turns(transaction, [turn for some in turns.values() for turn in some])
    # After the turns, of which a concurrent rename and a transaction that writes notes lock one.
    ThreadTitles.drop(transaction, key)
    remove_of_thread(transaction, key)
    workspace, server = unquote(key.partition("/")[0]), stores.checkpoints.postgres
    remove_owned(transaction, workspace, server=server, thread=name_of(key))
    checkpoints = stores.checkpoints.remove(transaction, key) + sum(
        stores.checkpoints.forget(transaction, thread, some) for thread, some in turns.items() if thread != key
    )
    messages.said.update(queued)
    forget_typed(stores.storage.typed, _typed_texts(key, messages, turns, decisions))
    if not (branched or messages.count or turns or checkpoints or queued):
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
        Examples.drop(transaction, marks, some)
        transaction.execute(_DROP_TURNS.format(marks), some)
    return decisions


async def _scrub(stores: Stores, key: str) -> None:
    try:
        await stores.entries.scrub()
        async with stores.traces() as traces:
            await traces.scrub()
    except StorageUnavailable as error:
        problem = error.problem
    else:
        return
    raise StorageUnavailable(
        f"all rows of the thread {key!r} are removed, but their bytes may still be in a file: {problem}",
        remedy="run `worldagent threads prune` once the other processes are done; it clears them",
    )


KEEP_LIMIT: Final = 1_000_000_000
"""The maximum number of checkpoints of a thread that can be kept."""

AGE_LIMIT: Final = 315_360_000
"""The maximum seconds that checkpoints and traces can be kept: ten years."""

_SLACK: Final = 4  # deleting costs a turn half as many page writes again, so a quarter of `keep` goes at once

_KEYS: Final = "SELECT DISTINCT thread FROM wa_turn WHERE thread >= ? AND thread < ? ORDER BY thread"
# A turn that waited for its thread can begin after one with a newer id. A failed turn can resume while it is newest.
_OPEN: Final = """SELECT id, status FROM wa_turn
                  WHERE thread=? AND (status IN ('running', 'paused', 'stopped')
                    OR (status='failed' AND id=(SELECT MAX(id) FROM wa_turn WHERE thread=?)))
                  ORDER BY id"""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints are kept.

    Attributes:
        rows: The tables.
        clock: Source of time.
        keep: How many of the newest of each thread, 1 to `KEEP_LIMIT`; None sets no count.
        age: How many seconds, 0 to `AGE_LIMIT`; None means no limit. The newest one is kept.

    Raises:
        InvalidArgument: A number is out of bounds.
    """

    rows: CheckpointRows
    clock: Clock
    keep: int | None = None
    age: float | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and not (_is_a(int, self.keep) and 1 <= self.keep <= KEEP_LIMIT):
            raise InvalidArgument("`keep` is out of bounds", remedy=f"pass keep= 1 to {KEEP_LIMIT}, or None")
        if self.age is not None and not (_is_a((int, float), self.age) and 0 <= self.age <= AGE_LIMIT):
            raise InvalidArgument("`age` is out of bounds", remedy=f"pass age= in seconds, 0 to {AGE_LIMIT}, or None")

    def __call__(self, transaction: Transaction, thread: str, *, exactly: bool = False) -> int:
        """Prune a thread whose turn is over, once several turns' checkpoints are due; returns how many went.

        Args:
            transaction: The transaction.
            thread: The thread's key.
            exactly: Whether to prune all checkpoints that are due, even if they are few.
        """
        if self.keep is None and self.age is None:
            return 0
        before = None if self.age is None else self.clock.now() - timedelta(seconds=self.age)
        slack = 0 if exactly else (self.keep or 0) // _SLACK
        return self.rows.prune(transaction, thread, keep=self.keep, before=before, slack=slack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The result of pruning all threads.

    Attributes:
        threads: How many threads lost checkpoints.
        checkpoints: How many checkpoints they lost.
        left: How many threads were skipped because their turn is running or can be resumed.
        attachments: How many images and files without a message were removed.
        events: How many events of members that are over were removed, with the threads of their turns.
        messages: How many messages between members and people.
        outcomes: How many notes of what members did.
        steps: How many steps of the lives of members.
        briefs: How many task briefs of members that are over.
    """

    threads: int
    checkpoints: int
    left: int
    attachments: int
    events: int = 0
    messages: int = 0
    outcomes: int = 0
    steps: int = 0
    briefs: int = 0


def _is_a(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def open_turns(transaction: Transaction, thread: str) -> list[tuple[str, str]]:
    """Return the running and resumable turns of a thread, with their status."""
    return [(row[0], row[1]) for row in transaction.execute(_OPEN, (thread, thread))]


_NO_THREAD: Final = """NOT EXISTS (SELECT 1 FROM wa_turn t WHERE t.thread=wa_epoch.key)
                       AND NOT EXISTS (SELECT 1 FROM wa_branch b WHERE b.thread=wa_epoch.key)"""
_UNUSED: Final = f"SELECT key FROM wa_epoch WHERE key >= ? AND key < ? AND {_NO_THREAD}"


async def forget_unused(stores: Stores, workspace: str) -> int:
    """Remove the locks of threads that never began, because their first turn was refused; returns how many.

    Args:
        stores: The database and its stores.
        workspace: The workspace's id.
    """
    keys = [str(key) for (key,) in await stores.database.read(lambda tx: tx.execute(_UNUSED, keys_of(workspace)))]
    return sum([await _forgotten(stores, key) for key in keys])


async def _forgotten(stores: Stores, key: str) -> bool:
    def work(transaction: Transaction) -> bool:
        unused = not Branches.is_taken(transaction, key)
        if unused:
            lease.retire(transaction)
        return unused

    try:
        async with stores.leases.hold(key, wait=0, last=True) as lease:  # its file is made again when it is needed
            return await stores.database.transact(work)
    except ThreadBusy:
        return False


async def prune(stores: Stores, workspace: str, retention: Retention) -> Pruned:
    """Apply a retention to all threads of a workspace, one transaction each; then remove unreferenced attachments.

    Args:
        stores: The database and its stores.
        workspace: The workspace's id.
        retention: Which checkpoints are kept.

    Raises:
        StorageUnavailable: The database fails, or another process kept it locked.
    """
    keys = [row[0] for row in await stores.database.read(lambda tx: tx.execute(_KEYS, keys_of(workspace)))]
    threads = checkpoints = left = 0
    for key in keys:
        gone = await _pruned(stores, key, retention)
        left += gone is None
        threads += bool(gone)
        checkpoints += gone or 0
    await forget_unused(stores, workspace)
    dropped = await stores.attachments.drop_unreferenced()
    await stores.examples.drop_unfinished(workspace)
    await stores.entries.delete_expired()
    await stores.entries.scrub()
    async with stores.traces() as traces:
        await traces.scrub()
    return Pruned(threads=threads, checkpoints=checkpoints, left=left, attachments=len(dropped))


async def _pruned(stores: Stores, key: str, retention: Retention) -> int | None:
    """Prune a thread; returns how many checkpoints are gone, or None if it has an open turn."""

    def work(transaction: Transaction) -> int | None:
        lease.verify(transaction)
        if open_turns(transaction, key) or not retention.rows.made(transaction):
            return None
        age, now = retention.age, retention.clock.now().timestamp()
        before = None if age is None else now - age
        TurnLog.keep_last(transaction, key, keep=retention.keep, before=before)
        return retention(transaction, key, exactly=True)

    try:
        async with stores.leases.hold(key, wait=0) as lease:
            return await stores.database.transact(work)
    except ThreadBusy:
        return None
