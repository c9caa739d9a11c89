"""LangGraph's checkpoint tables on either database engine, as rows: statements that write, and reads in a transaction.

These are the tables of LangGraph's own savers, so LangGraph's tools can read these rows, and the other way round.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.types import Interrupt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from ...core.events import TurnKind
from ...storage import Database, Transaction

Statements = list[tuple[str, Sequence[object]]]
"""SQL and its params. They are made before the transaction, which can run them again from the start."""

Json = Mapping[str, Any]


class Key(NamedTuple):
    """The key of a checkpoint. Without an id it means the newest one of its thread and namespace."""

    thread: str
    namespace: str
    id: str = ""


class Rows(NamedTuple):
    """The stored values of one checkpoint, not yet decoded."""

    key: Key
    parent: str | None
    kind: str | None
    checkpoint: Any
    metadata: Any
    writes: list[tuple[Any, ...]]
    blobs: list[tuple[Any, ...]]

    def writes_in_order(self) -> list[tuple[Any, ...]]:
        """The writes of its tasks in the order in which LangGraph applies them.

        Each has a task, channel, kind, value, path and index.
        """
        return sorted(self.writes, key=lambda row: writes_sort_key(row[4], row[0], row[5]))


class CheckpointTables(ABC):
    """The tables of one engine.

    Args:
        serde: Converts values to bytes and back.
    """

    NAMES: ClassVar[tuple[str, ...]]
    """The names of the tables."""

    CREATE: ClassVar[tuple[str, ...]]
    """Statements that create missing tables."""

    WRITES: ClassVar[str]
    """The table of the writes of tasks, and its value column."""

    VALUE: ClassVar[str]

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    @staticmethod
    def of(database: Database, serde: SerializerProtocol) -> CheckpointTables:
        """The tables for a database's engine."""
        return (SqliteTables if database.engine == "sqlite" else PostgresTables)(serde)

    @abstractmethod
    def exist(self, transaction: Transaction) -> bool:
        """Whether they exist, in their current form."""

    @abstractmethod
    def put(self, key: Key, parent: str | None, checkpoint: Json, metadata: Json, versions: Json) -> Statements:
        """Statements that write a checkpoint.

        Args:
            key: Its key, with an id.
            parent: The id of its parent.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            versions: The new versions of the channels that it changed.
        """

    @abstractmethod
    def decoded(self, rows: Rows) -> tuple[Any, Any]:
        """A checkpoint and its metadata."""

    def put_writes(
        self, key: Key, writes: Sequence[tuple[int, str, Any]], *, task: str, path: str, replace: bool
    ) -> Statements:
        """Statements that write the values of a task, each with its index and channel.

        An existing one is kept or replaced.
        """
        then = "NOTHING"
        if replace:
            then = f"UPDATE SET channel=excluded.channel, type=excluded.type, {self.VALUE}=excluded.{self.VALUE}"
        sql = f"""INSERT INTO {self.WRITES}(thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx,
                    channel, type, {self.VALUE}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)
                  ON CONFLICT(thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO {then}"""
        return [
            (sql, (*key, task, path, place, channel, *self.serde.dumps_typed(value)))
            for place, channel, value in writes
        ]

    def get(self, transaction: Transaction, key: Key) -> Rows | None:
        """The stored values of a checkpoint."""
        which = "AND checkpoint_id=?" if key.id else "ORDER BY checkpoint_id DESC LIMIT 1"
        found = transaction.execute(
            f"""SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
                FROM checkpoints WHERE thread_id=? AND checkpoint_ns=? {which}""",
            key if key.id else key[:2],
        )
        if not found:
            return None
        [(thread, namespace, name, parent, kind, checkpoint, metadata)] = found
        key = Key(thread, namespace, name)
        writes = transaction.execute(
            f"""SELECT task_id, channel, type, {self.VALUE}, task_path, idx FROM {self.WRITES}
                WHERE thread_id=? AND checkpoint_ns=? AND checkpoint_id=?""",
            key,
        )
        return Rows(key, parent, kind, checkpoint, metadata, writes, self._blobs(transaction, key, checkpoint))

    def keys(self, transaction: Transaction, where: Mapping[str, str], before: str | None) -> list[Key]:
        """The keys of checkpoints, the newest first.

        Args:
            transaction: The transaction to read in.
            where: Values that columns must have.
            before: An id that all returned ids must be less than; None is unlimited.
        """
        terms = [f"{column}=?" for column in where] + ["checkpoint_id < ?"] * (before is not None)
        chosen = f"WHERE {' AND '.join(terms)}" if terms else ""
        found = transaction.execute(
            f"SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints {chosen} ORDER BY checkpoint_id DESC",
            [*where.values(), *([before] if before is not None else ())],
        )
        return [Key(*row) for row in found]

    def delete(self, thread: str) -> Statements:
        """Statements that delete all checkpoints of a thread."""
        return [(f"DELETE FROM {name} WHERE thread_id=?", (thread,)) for name in self.NAMES]

    def _blobs(self, transaction: Transaction, key: Key, checkpoint: Any) -> list[tuple[Any, ...]]:
        """The values that are stored in a separate table."""
        return []


class SqliteTables(CheckpointTables):
    """Two tables: a checkpoint is one row with all its values."""

    NAMES = ("checkpoints", "writes")
    WRITES, VALUE = "writes", "value"
    CREATE = (
        """CREATE TABLE IF NOT EXISTS checkpoints (
             thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
             parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
             PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))""",
        """CREATE TABLE IF NOT EXISTS writes (
             thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
             task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL,
             type TEXT, value BLOB,
             PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))""",
    )
    PUT: ClassVar = """INSERT OR REPLACE INTO checkpoints(thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
                         type, checkpoint, metadata) VALUES(?, ?, ?, ?, ?, ?, ?)"""

    def exist(self, transaction: Transaction) -> bool:
        return len(transaction.execute("SELECT 1 FROM sqlite_master WHERE name IN ('checkpoints', 'writes')")) == 2

    def put(self, key: Key, parent: str | None, checkpoint: Json, metadata: Json, versions: Json) -> Statements:
        about = json.dumps(metadata, ensure_ascii=False).encode("utf-8", "ignore")
        return [(self.PUT, (*key, parent, *self.serde.dumps_typed(checkpoint), about))]

    def decoded(self, rows: Rows) -> tuple[Any, Any]:
        return self.serde.loads_typed((rows.kind or "", rows.checkpoint)), json.loads(rows.metadata or "{}")


class PostgresTables(CheckpointTables):
    """Three tables: plain values are in the checkpoint's JSON, others in rows that checkpoints share by version."""

    NAMES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    WRITES, VALUE = "checkpoint_writes", "blob"
    CREATE = (
        "SELECT pg_advisory_xact_lock(hashtextextended('worldagent checkpoints', 0))",
        """CREATE TABLE IF NOT EXISTS checkpoints (
             thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
             parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB NOT NULL DEFAULT '{}',
             PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))""",
        """CREATE TABLE IF NOT EXISTS checkpoint_blobs (
             thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
             version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA,
             PRIMARY KEY (thread_id, checkpoint_ns, channel, version))""",
        """CREATE TABLE IF NOT EXISTS checkpoint_writes (
             thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
             task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, blob BYTEA NOT NULL,
             task_path TEXT NOT NULL DEFAULT '',
             PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))""",
        # Keys of workers begin with the key of their thread, and the primary key sorts by the locale of the server.
        """CREATE INDEX IF NOT EXISTS wa_checkpoints_thread
             ON checkpoints(thread_id text_pattern_ops, checkpoint_id)""",
    )
    PUT: ClassVar = """INSERT INTO checkpoints(thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
                         checkpoint, metadata) VALUES(?, ?, ?, ?, CAST(? AS JSONB), CAST(? AS JSONB))
                       ON CONFLICT(thread_id, checkpoint_ns, checkpoint_id)
                       DO UPDATE SET checkpoint=excluded.checkpoint, metadata=excluded.metadata"""
    PUT_BLOB: ClassVar = """INSERT INTO checkpoint_blobs(thread_id, checkpoint_ns, channel, version, type, blob)
                            VALUES(?, ?, ?, ?, ?, ?)
                            ON CONFLICT(thread_id, checkpoint_ns, channel, version) DO NOTHING"""
    BLOBS: ClassVar = """SELECT channel, type, blob FROM checkpoint_blobs WHERE thread_id=? AND checkpoint_ns=?
                         AND (channel, version) IN (SELECT key, value FROM jsonb_each_text(CAST(? AS JSONB)))"""

    def exist(self, transaction: Transaction) -> bool:
        [(found,)] = transaction.execute("SELECT to_regclass('wa_checkpoints_thread')")
        return found is not None  # the index is created last

    def put(self, key: Key, parent: str | None, checkpoint: Json, metadata: Json, versions: Json) -> Statements:
        values = checkpoint["channel_values"]
        plain = {name: value for name, value in values.items() if value is None or isinstance(value, str | int | float)}
        blobs: Statements = [
            (self.PUT_BLOB, (*key[:2], name, str(version), *self.serde.dumps_typed(values[name])))
            for name, version in versions.items()
            if name in values.keys() - plain.keys()
        ]
        row = json.dumps({**checkpoint, "channel_values": plain})
        return [*blobs, (self.PUT, (*key, parent, row, json.dumps(metadata)))]

    def decoded(self, rows: Rows) -> tuple[Any, Any]:
        # `empty` is LangGraph's mark for a channel without a value
        apart = {name: self.serde.loads_typed((kind, blob)) for name, kind, blob in rows.blobs if kind != "empty"}
        return {**rows.checkpoint, "channel_values": {**rows.checkpoint["channel_values"], **apart}}, rows.metadata

    def _blobs(self, transaction: Transaction, key: Key, checkpoint: Any) -> list[tuple[Any, ...]]:
        match checkpoint:
            case {"channel_versions": dict(versions), "channel_values": dict(values)}:
                apart = {name: version for name, version in versions.items() if name not in values}
            case _:  # not written by this package; decoding reports it
                apart = {}
        return transaction.execute(self.BLOBS, (*key[:2], json.dumps(apart))) if apart else []


class KnownTypes(JsonPlusSerializer):
    """Writes as LangGraph does, but reads only plain values and interrupts, whatever LangGraph's own settings allow."""

    def __init__(self) -> None:
        super().__init__(__unpack_ext_hook__=_interrupt)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in ("null", "msgpack"):
            raise ValueError("this kind of value is not written by any graph of the agent")
        return super().loads_typed(data)


def _interrupt(code: int, data: bytes) -> Interrupt[Any]:
    """Read an interrupt, which marks a run that stopped before its end.

    Nothing else but plain values is in a checkpoint.
    """
    found = ormsgpack.unpackb(data) if code == EXT_CONSTRUCTOR_KW_ARGS else None
    match found:
        case ["langgraph.types", "Interrupt", {"value": str(value), "id": str(key)}]:
            return Interrupt(value=value, id=key)
        case _:
            pass
    raise ValueError("this type of value is not written by any graph of the agent")


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class _Work(_Strict):
    to: str
    shape: str
    params: dict[str, Any]


class TurnChannels(_Strict):
    """A turn's state as it is stored. A new channel needs a default, because older threads do not have it."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    step: int = 0
    work: list[_Work]
    rejections: int = 0
    fault: str | None
    status: Literal["open", "done"]
    role: str | None = None  # until 0.1.0, a keyed digest that the turn's row has too; see `without_retired`


class WorkerChannels(_Strict):
    """A worker's state as it is stored."""

    worker: str
    round: int = 0
    status: Literal["think", "act", "waiting", "done"] = "think"
    request: str = ""  # only in older versions
    text: str = ""


_Version = Annotated[str, Field(pattern=r"^\d+\.")]  # the form in which the saver numbers them


class _Checkpoint(_Strict):
    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, _Version]
    versions_seen: dict[str, dict[str, _Version]]
    updated_channels: list[str] | None = None


class _Metadata(_Strict):
    source: str
    step: int
    parents: dict[str, str]


def _an_interrupt(value: object) -> object:
    # Not `InstanceOf[Interrupt[Any]]`: the oldest langgraph that is allowed has no type parameters there.
    if not isinstance(value, Interrupt):
        raise ValueError("it must be an interrupt")
    return value


_INPUT, _GOTO = "__start__", "branch:to:"
_WRITES: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(field.rebuild_annotation(), config=ConfigDict(strict=True, hide_input_in_errors=True))
    for channels in (TurnChannels, WorkerChannels)
    for name, field in channels.model_fields.items()
} | {"__error__": TypeAdapter(str), "__interrupt__": TypeAdapter(list[Annotated[Any, AfterValidator(_an_interrupt)]])}


_RETIRED: Final = ("role",)
"""Channels that earlier versions had. A thread that continues does not carry them on (R19)."""


def without_retired(checkpoint: Any) -> None:
    """Remove the channels that no graph has any more from a checkpoint."""
    for part in ("channel_values", "channel_versions"):
        for name in _RETIRED:
            checkpoint[part].pop(name, None)


def next_nodes(values: Mapping[str, Any]) -> frozenset[str]:
    """The nodes that a run continues with from these channel values."""
    return frozenset(name.removeprefix(_GOTO) for name in values if name.startswith(_GOTO))


def check(found: CheckpointTuple) -> None:
    """Check that a checkpoint is one that the graphs here write.

    Raises:
        ValidationError, ValueError: It is not.
    """
    _Metadata.model_validate(found.metadata)
    values = _Checkpoint.model_validate(found.checkpoint).channel_values
    state = values.get(_INPUT, values)
    (WorkerChannels if "worker" in state else TurnChannels).model_validate(state)
    for _, channel, value in found.pending_writes or ():
        if channel in _WRITES:
            _WRITES[channel].validate_python(value)
        elif value is not None or not channel.startswith(_GOTO):
            raise ValueError("this write is not made by any graph of the agent")
