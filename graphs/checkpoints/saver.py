"""LangGraph's checkpoints in the agent's own database. The thread's lease fences writes, and reads are checked.

`Heads` reads the last message of a thread from its newest checkpoint and the row of its branch.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR
from pydantic import ValidationError

from ...core.errors import StorageInvalid
from ...core.validation import describe_failure
from ...memory.branches import Branch, Branches
from ...memory.log import words_after
from ...storage import Database, Known, Lease, Transaction, from_sqlite
from ..nesting import LEASE
from .tables import CheckpointTables, Key, KnownTypes, Rows, Statements, check, without_retired

T = TypeVar("T")

_UNWRITTEN: Final = "the input checkpoint"
"""The key in `Lease.known` of a run's first checkpoint, which is not written. It holds its parent and its versions."""


class CheckpointSaver(BaseCheckpointSaver[str]):
    """A checkpointer over `storage.Database`, in the tables of LangGraph's own savers. Call `create_tables` before use.

    Writes of a turn join the batch of its lease, which verifies the epoch. Otherwise the checkpoint of a late writer
    would be the newest one and move the thread's head back (T4). A turn's first checkpoint stays in memory until the
    next one.

    Args:
        database: The database of the checkpoints; it must stay open as long as the saver is used.
        known_only: Whether it reads only what the graphs here write; tests of LangGraph's contract turn this off.
    """

    def __init__(self, database: Database, *, known_only: bool = True) -> None:
        super().__init__(serde=KnownTypes() if known_only else JsonPlusSerializer())
        self.database = database
        self.tables = CheckpointTables.of(database, self.serde)
        self._known_only = known_only

    async def create_tables(self) -> Self:
        """Create missing tables, and return this saver.

        Raises:
            StorageUnavailable, StorageInvalid: The database cannot be used.
        """
        if not await self.database.read(self._typed(self.tables.exist)):  # no wait for a writer if nothing is missing
            await self._write([(statement, ()) for statement in self.tables.CREATE], None)
        return self

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """Read the checkpoint that `config` names, or the newest of its thread.

        Raises:
            StorageInvalid: The checkpoint is not one that the graphs here write. No code in it was run.
        """
        key, lease = _key(config), _lease(config)
        if lease is not None and not key.id and CheckpointSaver in lease.known:
            known: CheckpointTuple | None = lease.known[CheckpointSaver]
            return None if known is None else _copy(known)
        return await self.database.read(lambda tx: self._get(tx, key))

    async def channels(self, thread: str, *, lease: Lease | None = None) -> Mapping[str, Any] | None:
        """The channels of a thread's newest checkpoint; None if it has none."""
        found = await self.aget_tuple({"configurable": {"thread_id": thread, LEASE: lease}})
        return None if found is None else found.checkpoint["channel_values"]

    def read(self, transaction: Transaction, thread: str) -> tuple[Known, Mapping[str, Any] | None]:
        """The same in a transaction, with the values for `Lease.known`."""
        found = self._get(transaction, Key(thread, ""))
        return {CheckpointSaver: found}, None if found is None else found.checkpoint["channel_values"]

    def _get(self, transaction: Transaction, key: Key) -> CheckpointTuple | None:
        rows = self._typed(lambda tx: self.tables.get(tx, key))(transaction)
        return None if rows is None else self.decoded(rows)

    async def alist(
        self, config: Any, *, filter: dict[str, Any] | None = None, before: Any = None, limit: int | None = None
    ) -> AsyncIterator[CheckpointTuple]:
        """Read the checkpoints of a thread, newest first; of all threads if `config` is None."""
        given = {} if config is None else config["configurable"]
        where = {name: str(given[name]) for name in ("thread_id", "checkpoint_ns", "checkpoint_id") if given.get(name)}
        if given.get("checkpoint_ns") is not None:
            where["checkpoint_ns"] = given["checkpoint_ns"]
        above = None if before is None else get_checkpoint_id(before)

        def work(transaction: Transaction) -> list[Rows | None]:
            keys = self.tables.keys(transaction, where, above)
            return [self.tables.get(transaction, key) for key in (keys if filter else keys[:limit])]

        found = 0
        for rows in [each for each in await self.database.read(self._typed(work)) if each is not None]:
            decoded = self.decoded(rows)
            metadata: Any = decoded.metadata
            if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                if limit is not None and found >= limit:
                    return
                found += 1
                yield decoded

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Write a checkpoint as child of the one that `config` names, and return the config of the new one."""
        before, lease = _key(config), _lease(config)
        key = before._replace(id=checkpoint["id"])
        about = get_serializable_checkpoint_metadata(config, metadata)
        unwritten = None if lease is None else lease.known.pop(_UNWRITTEN, None)
        if unwritten is not None:
            parent, versions = unwritten
            before, new_versions = before._replace(id=parent), {**versions, **new_versions}
        newest = CheckpointTuple(_config(key), checkpoint, about, _config(before) if before.id else None, [])
        if lease is not None and metadata.get("source") == "input":
            # Not written: the next one, which contains all of it, comes before any node runs.
            lease.known |= {CheckpointSaver: _copy(newest), _UNWRITTEN: (before.id, new_versions)}
            return _config(key)
        statements = self.tables.put(key, before.id or None, checkpoint, about, new_versions)
        await self._write(statements, lease, newest)
        if lease is not None and unwritten is not None:
            # From now on the thread ends with the turn's message, even if the turn fails.
            await lease.flush()
        return _config(key)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task for the checkpoint that it began at."""
        lease = _lease(config)
        if lease is not None and _is_passing(writes):
            return
        placed = [(WRITES_IDX_MAP.get(channel, place), channel, value) for place, (channel, value) in enumerate(writes)]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        statements = self.tables.put_writes(_key(config), placed, task=task_id, path=task_path, replace=replace)
        found: CheckpointTuple | None = None if lease is None else lease.known.get(CheckpointSaver)
        if found is not None:
            found = found._replace(
                pending_writes=[*(found.pending_writes or ()), *((task_id, *write) for write in writes)]
            )
        await self._write(statements, lease, found)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread."""
        await self._write(self.tables.delete(str(thread_id)), None)

    def get_next_version(self, current: Any, channel: None) -> str:
        """The next version of a channel: an increasing number and a random part, as LangGraph's own savers make it."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """Return this saver: it restricts what it reads in any case."""
        return self

    async def _write(self, statements: Statements, lease: Lease | None, newest: CheckpointTuple | None = None) -> None:
        """Write with the next batch of the turn that holds the lease, or in a new transaction if no turn runs.

        Args:
            statements: The SQL to run.
            lease: The turn's lease; None outside a turn.
            newest: The thread's newest checkpoint after the write, if it is known.
        """

        def work(transaction: Transaction) -> None:
            for sql, params in statements:
                transaction.execute(sql, params)

        if lease is None:
            await self.database.transact(self._typed(work))
            return
        lease.enqueue(self._typed(work))
        if newest is not None:
            lease.known[CheckpointSaver] = _copy(newest)

    def _typed(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Wrap `work`, so that SQLite's errors about these tables become `StorageInvalid`.

        The database does this only for the tables in its schemas, and these tables are LangGraph's.
        """

        @wraps(work)
        def typed(transaction: Transaction) -> T:
            try:
                return work(transaction)
            except sqlite3.Error as error:
                if from_sqlite(error, Path(self.database.name)) is not None:  # the error is not about the tables
                    raise
                raise StorageInvalid(
                    f"the checkpoints in {self.database.name!r} are not in the form of LangGraph ({error})",
                    remedy="restore the file from a copy, move it away, or use another home",
                ) from error

        return typed

    def decoded(self, rows: Rows) -> CheckpointTuple:
        """Decode a checkpoint into LangGraph's form.

        Raises:
            StorageInvalid: The checkpoint cannot be read.
        """
        try:
            checkpoint, metadata = self.tables.decoded(rows)
            parent = None if rows.parent is None else _config(rows.key._replace(id=rows.parent))
            writes = [
                (task, channel, self.serde.loads_typed((kind, value)))
                for task, channel, kind, value, *_ in rows.writes_in_order()
            ]
            found = CheckpointTuple(_config(rows.key), checkpoint, metadata, parent, writes)
            if self._known_only:
                check(found)
                without_retired(found.checkpoint)
            return found
        except ValidationError as error:
            unreadable = describe_failure(error)
        except Exception as error:
            # Any exception: LangGraph's serializer documents none, and bytes of another program can make it raise any.
            # Only the type is reported, because the text can quote the bytes.
            unreadable = type(error).__name__
        raise StorageInvalid(
            f"the checkpoint of thread {rows.key.thread!r} in {self.database.name!r} cannot be read ({unreadable})",
            remedy="restore the database from a copy, or use another thread",
        )


def _is_passing(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether these writes of a node need not be stored, because the next checkpoint contains them.

    If the nodes of a step do not all end, they all run again, and the journal has what they did. So does a node that
    failed. A cancelled turn would store one error for each of its tasks. Interrupts are stored, because no checkpoint
    follows them.
    """
    return all(channel == ERROR or channel not in WRITES_IDX_MAP for channel, _ in writes)


def _copy(found: CheckpointTuple) -> CheckpointTuple:
    """Copy a checkpoint, because LangGraph can change the one it gets."""
    checkpoint: Any = {
        **found.checkpoint,
        "channel_values": dict(found.checkpoint["channel_values"]),
        "channel_versions": dict(found.checkpoint["channel_versions"]),
        "versions_seen": {name: dict(seen) for name, seen in found.checkpoint["versions_seen"].items()},
    }
    return found._replace(
        checkpoint=checkpoint, metadata={**found.metadata}, pending_writes=list(found.pending_writes or ())
    )


def _key(config: Any) -> Key:
    given = config["configurable"]
    return Key(str(given["thread_id"]), given.get("checkpoint_ns") or "", get_checkpoint_id(config) or "")


def _config(key: Key) -> Any:
    return {"configurable": {"thread_id": key.thread, "checkpoint_ns": key.namespace, "checkpoint_id": key.id}}


def _lease(config: Any) -> Lease | None:
    found: Lease | None = config["configurable"].get(LEASE)
    return found


Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""


class Position(NamedTuple):
    """The position of a thread.

    Attributes:
        head: The last message of its conversation; None if it is empty.
        turn: The turn of its newest checkpoint; empty if it has none.
        open: Whether the head is of that turn, and it has not come to its end with it.
    """

    head: str | None
    turn: str
    open: bool = False


class Heads:
    """The heads of threads.

    Args:
        saver: The checkpoints; None if there are none.
        branches: The rows of branches; None if there are none.
    """

    def __init__(self, saver: CheckpointSaver | None, branches: Branches | None) -> None:
        self._saver = saver
        self._branches = branches

    @staticmethod
    async def open(database: Database, branches: Branches) -> Heads:
        """The heads in a database, for a caller that runs no turn.

        Raises:
            StorageUnavailable, StorageInvalid: The database cannot be used.
        """
        return Heads(await CheckpointSaver(database).create_tables(), branches)

    async def position(self, thread: str, *, lease: Lease | None = None) -> Position:
        """The position of a thread.

        Args:
            thread: Its key.
            lease: Its ownership, which can cache the position.

        Raises:
            StorageInvalid: The stored position cannot be read.
        """
        values = await self.values(thread, lease=lease)
        if lease is not None and Branch in lease.known:
            branch = lease.known[Branch]
        else:
            branch = None if self._branches is None else await self._branches.get(thread)
        found = _position(values, branch)
        if self._saver is None or not found.open:  # its turn can have read messages after it
            return found
        return await self._saver.database.read(lambda tx: _with_words(tx, found))

    async def values(self, thread: str, *, lease: Lease | None = None) -> Mapping[str, Any] | None:
        """The channels of a thread's newest checkpoint; None if it has none."""
        return None if self._saver is None else await self._saver.channels(thread, lease=lease)

    def read(self, transaction: Transaction, thread: str) -> tuple[Known, str | None]:
        """The values of `Lease.known` for the position of a thread, and the thread's head."""
        known, values = (Known(), None) if self._saver is None else self._saver.read(transaction, thread)
        branch = None if self._branches is None else self._branches.row_of(transaction, thread)
        found = _position(values, branch)
        if found.open:
            found = _with_words(transaction, found)
        return {**known, Branch: branch}, found.head


def _position(values: Mapping[str, Any] | None, branch: Branch | None) -> Position:
    """The newest checkpoint has the head, unless a branch set one after that."""
    found = values or {}
    turn: str = found.get("turn") or ""
    head = branch.head if branch is not None and branch.after == turn else found.get("head")
    return Position(head, turn, bool(found) and found.get("status") != "done" and head == found.get("head"))


def _with_words(transaction: Transaction, found: Position) -> Position:
    return found if found.head is None else found._replace(head=words_after(transaction, found.head, found.turn))


CHECKPOINT_TABLES: Final = ("checkpoints", "writes", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")
"""LangGraph's tables on both engines."""

_BATCH: Final = 100
_KEYS: Final = "thread_id, checkpoint_ns, checkpoint_id"


class Kept(NamedTuple):
    """A checkpoint that was read: its rows and their decoded content."""

    rows: Rows
    found: CheckpointTuple


class Checkpoints:
    """The checkpoints of two databases; a `Part`. Use `open` to make it."""

    name = "checkpoints"

    def __init__(self, target: CheckpointSaver) -> None:
        self._tables = target.tables

    @classmethod
    async def open(cls, source: Database, target: Database) -> Self:
        """Create the tables in a database that lacks them.

        Raises:
            StorageUnavailable, StorageInvalid: One of the databases cannot be used.
        """
        await CheckpointSaver(source).create_tables()
        return cls(await CheckpointSaver(target).create_tables())

    async def batches(self, database: Database) -> AsyncGenerator[Sequence[Kept]]:
        """See `Part.batches`.

        Raises:
            StorageInvalid: A checkpoint cannot be read.
        """
        saver, last = CheckpointSaver(database), tuple[str, ...]()
        while True:
            after = f"WHERE ({_KEYS}) > (?, ?, ?)" if last else ""
            statement = f"SELECT {_KEYS} FROM checkpoints {after} ORDER BY {_KEYS} LIMIT {_BATCH}"

            def work(transaction: Transaction) -> list[Rows | None]:
                keys = transaction.execute(statement, last)  # noqa: B023 -- awaited at once
                return [saver.tables.get(transaction, Key(*key)) for key in keys]

            batch = [Kept(rows, saver.decoded(rows)) for rows in await database.read(work) if rows is not None]
            if not batch:
                return
            yield batch
            last = tuple(batch[-1].rows.key)

    def statements(self, batch: Sequence[Kept]) -> Iterable[tuple[str, Sequence[object]]]:
        """See `Part.statements`."""
        for rows, found in batch:
            versions = found.checkpoint["channel_versions"]
            yield from self._tables.put(rows.key, rows.parent, found.checkpoint, found.metadata, versions)
            for row, (task, channel, value) in zip(rows.writes_in_order(), found.pending_writes or (), strict=True):
                placed = [(row[5], channel, value)]
                yield from self._tables.put_writes(rows.key, placed, task=task, path=row[4], replace=False)

    def text(self, item: Kept) -> str:
        """See `Part.text`."""
        rows, found = item
        paths = {row[0]: row[4] for row in rows.writes}
        writes = sorted(found.pending_writes or (), key=lambda write: write[0])
        parts = (rows.key, rows.parent, found.checkpoint, found.metadata, paths, writes)
        return repr([_plain(part) for part in parts])


def _plain(value: Any) -> Any:
    """A value whose `repr` does not depend on the order of its mappings."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
