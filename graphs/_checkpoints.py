"""LangGraph's saver, wrapped so that writes are whole and the thread's owner's, and the one way graphs are run.

What is read is restricted: plain values and LangGraph's interrupts, in the channels that the graphs here have. Bytes
that want anything else made or called are refused before that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import aiosqlite
import ormsgpack
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import NodeCancelledError
from langgraph.types import Interrupt
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError

from ..core.errors import AgentClosed, ModelUnavailable, StorageInvalid, WorldAgentError
from ..core.events import TurnKind
from ..core.validation import describe_failure
from ..storage import Lease, from_sqlite
from ._context import TurnContext

T = TypeVar("T")

Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""

LEASE: ContextVar[Lease | None] = ContextVar("worldagent_lease", default=None)
"""The ownership of the thread whose turn is running, which every write of a checkpoint verifies."""


class _KnownTypes(JsonPlusSerializer):
    """Writes as LangGraph does; reads plain values and interrupts alone, whatever the environment allows elsewhere."""

    def __init__(self) -> None:
        super().__init__(__unpack_ext_hook__=_interrupt)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in ("null", "msgpack"):
            raise ValueError("a kind of value that no graph here writes")
        return super().loads_typed(data)


def _interrupt(code: int, data: bytes) -> Interrupt[Any]:
    """Read the one thing beside plain values that is in a checkpoint: that a graph was left before its end."""
    found = ormsgpack.unpackb(data) if code == EXT_CONSTRUCTOR_KW_ARGS else None
    match found:
        case ["langgraph.types", "Interrupt", {"value": str(value), "id": str(key)}]:
            return Interrupt(value=value, id=key)
        case _:
            pass
    raise ValueError("a value of a type that no graph here writes")


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class _Work(_Strict):
    to: str
    shape: str
    params: dict[str, Any]


class TurnChannels(_Strict):
    """A turn's state as it is stored. A channel that is added gets a default: older threads do not have it."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    work: list[_Work]
    rejections: int
    fault: str | None
    status: Literal["open", "done"]
    role: str | None


class WorkerChannels(_Strict):
    """A worker's state as it is stored."""

    worker: str
    request: str
    text: str = ""


_Version = Annotated[str, Field(pattern=r"^\d+\.")]  # as the saver numbers them


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


_INPUT, _GOTO = "__start__", "branch:to:"
_WRITES: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(field.rebuild_annotation(), config=ConfigDict(strict=True, hide_input_in_errors=True))
    for channels in (TurnChannels, WorkerChannels)
    for name, field in channels.model_fields.items()
} | {"__error__": TypeAdapter(str), "__interrupt__": TypeAdapter(list[InstanceOf[Interrupt[Any]]])}


def _check(found: CheckpointTuple) -> None:
    """Compare what was read with what the graphs here write.

    Raises:
        ValidationError, ValueError: It is something else.
    """
    _Metadata.model_validate(found.metadata)
    values = _Checkpoint.model_validate(found.checkpoint).channel_values
    state = values.get(_INPUT, values)
    (WorkerChannels if "worker" in state else TurnChannels).model_validate(state)
    for _, channel, value in found.pending_writes or ():
        if channel in _WRITES:
            _WRITES[channel].validate_python(value)
        elif value is not None or not channel.startswith(_GOTO):
            raise ValueError("a write that no graph here makes")


class WholeSaver(AsyncSqliteSaver):
    """`AsyncSqliteSaver` whose writes are whole, fenced and fail with typed errors, and whose reads are restricted.

    Whole: a write cut between INSERT and COMMIT would leave a transaction open, and every other connection locked out.
    Fenced: a late writer's checkpoint would be the newest and move the thread's head back (T4).
    """

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        super().__init__(connection, serde=_KnownTypes())
        self._path = path
        self._closed = False
        # A read under way on the connection would keep its older snapshot, and a write could not begin on it.
        self._one = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> WholeSaver:
        """Open the checkpoint tables in the database at `path`.

        Raises:
            StorageUnavailable, StorageInvalid: The file cannot be used.
        """
        connecting = aiosqlite.connect(path, timeout=30)
        # An agent that nobody closed must not keep its process from ending.
        thread: Any = getattr(connecting, "_thread", connecting)
        thread.daemon = True
        connection = await connecting
        try:
            saver = cls(connection, path)
            with saver._translated():
                await saver.setup()
        except BaseException:  # cancelled, too: the connection has a thread
            await connection.close()
            raise
        return saver

    async def aclose(self) -> None:
        """Close the connection and join its thread."""
        self._closed = True
        await self.conn.close()

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        unreadable = None
        async with self._one:
            with self._translated():
                try:
                    found = await super().aget_tuple(config)
                    if found is not None:
                        _check(found)
                    return found
                except (sqlite3.Error, WorldAgentError):
                    raise
                except ValidationError as error:
                    unreadable = describe_failure(error)
                except Exception as error:  # bytes of strangers can fail to decode in any way
                    unreadable = type(error).__name__
        if self._closed:
            raise self._closed_error()
        raise StorageInvalid(
            f"the checkpoint of thread {config['configurable']['thread_id']!r} in {str(self._path)!r} cannot be read"
            f" ({unreadable})",
            remedy="restore the file from a copy, or go on with another thread",
        )

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """This saver: what it reads is restricted in any case, and a copy would not know when it is closed."""
        return self

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        put = super().aput
        return await _whole(self._write(lambda: put(*args, **kwargs)))

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        put = super().aput_writes
        await _whole(self._write(lambda: put(*args, **kwargs)))

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        lease = LEASE.get()
        async with self._one:
            if self._closed:
                raise self._closed_error()
            with self._translated():
                await self.conn.execute("BEGIN IMMEDIATE")
                try:
                    if lease is not None:
                        lease.check(await self.conn.execute_fetchall(lease.QUERY, (lease.key,)))
                    return await write()
                except BaseException:  # cancelled, too: no transaction stays open
                    await self.conn.rollback()
                    raise

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            failure = from_sqlite(error, self._path)
            raise failure or StorageInvalid(
                f"the checkpoints in {str(self._path)!r} are not as LangGraph keeps them ({error})",
                remedy="restore the file from a copy, move it away, or use another home",
            ) from error

    def _closed_error(self) -> AgentClosed:
        return AgentClosed(f"the checkpoints in {str(self._path)!r} are closed", remedy="start the agent again")


async def _whole(write: Awaitable[T]) -> T:
    """Finish `write` before letting a cancellation through."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def run_graph(graph: Any, state: Any, *, turn: TurnContext, suffix: str | None = None) -> dict[str, Any]:
    """Run a compiled graph to its end: start and recovery are this one function (D8).

    Args:
        graph: The compiled graph.
        state: Its input; None goes on where the thread stands.
        turn: The turn it runs for, which is its context.
        suffix: Names a child thread of the turn's thread.
    """
    thread = turn.thread_key if suffix is None else f"{turn.thread_key}#{suffix}"
    config = {
        "configurable": {"thread_id": thread},
        "recursion_limit": 3 * turn.services.options.max_rounds + 10,
    }
    extra = {"durability": DURABILITY.get()} if turn.services.saver is not None else {}
    # An agent may be used inside somebody's own graph: their callbacks and checkpoints are not for ours.
    outer = var_child_runnable_config.set(None)
    owner = LEASE.set(turn.lease)
    try:
        result: dict[str, Any] = await graph.ainvoke(state, config, context=turn, **extra)
        return result
    except NodeCancelledError:
        pass  # nobody cancels the turn: what a node waited for was cancelled, and tasks have said so themselves
    finally:
        LEASE.reset(owner)
        var_child_runnable_config.reset(outer)
    raise ModelUnavailable(
        f"a call of the model {turn.services.caller.connection.name!r} was cancelled from inside", remedy="try again"
    )
