"""Runs turns: ownership, role, graph, events, in this order (design 3). Every surface comes through here."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from ..core import Clock, Emitter, Scope, Tier, new_id
from ..core.errors import AgentClosed, StorageUnavailable, WorldAgentError
from ..core.events import Event, RoleTierSkipped, TextReplaced, TurnEnded, TurnKind, TurnStarted
from ..graphs import TurnEngine, TurnRequest
from ..memory import Message
from ..role_resolution import Resolution, Role, RoleExplanation, RoleResolver
from ..storage import Leases
from ._roles import check_role
from ._stream import TurnStream
from ._turns import Turn, TurnUsage

T = TypeVar("T")

Sink = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a surface hands over.

    Attributes:
        kind: Which surface.
        scope: The ids the turn runs under.
        body: What goes into the log.
        work: The checked task of a task or skill turn.
        prompt: A skill's prompt.
    """

    kind: TurnKind
    scope: Scope
    body: Mapping[str, Any]
    work: Any = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """What a runner works with, once the agent is started."""

    engine: TurnEngine
    resolver: RoleResolver
    leases: Leases
    clock: Clock
    thread_wait: float


class TurnRunner:
    """Runs the turns of one agent and knows which are under way."""

    def __init__(self) -> None:
        self._parts: RunnerParts | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def parts(self) -> RunnerParts:
        """What it works with.

        Raises:
            AgentClosed: The agent is not started, or closed.
        """
        if self._parts is None:
            raise AgentClosed("the agent is not open", remedy="use 'async with agent:' or 'await agent.start()'")
        return self._parts

    def open(self, parts: RunnerParts) -> None:
        """Accept turns from now on."""
        self._parts = parts

    async def close(self) -> None:
        """Accept none, cancel those under way and wait for their end."""
        self._parts = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def own(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for something outside any turn, which the agent's end cancels as it cancels turns.

        Raises:
            AgentClosed: The agent was closed meanwhile.
        """
        parts, task = self.parts, asyncio.ensure_future(call)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled() and self._parts is not parts:
            raise AgentClosed("the agent was closed meanwhile", remedy="call it again once the agent is open")
        return task.result()

    def work(self, shape: str, params: Mapping[str, Any] | BaseModel) -> Any:
        """Check a task before a turn is made for it."""
        return self.parts.engine.work(shape, params)

    async def run(self, ask: Ask, role: Role | None) -> Turn:
        """Run one turn to its end; nobody wants its deltas."""
        async with self._stream(ask, role, deltas=False, detach=False) as stream:
            return await stream.wait()

    def stream(self, ask: Ask, role: Role | None, *, detach: bool) -> TurnStream:
        """One turn as a stream of events."""
        return self._stream(ask, role, deltas=True, detach=detach)

    async def history(self, scope: Scope, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """A page of a thread's log."""
        return await self.parts.engine.history(thread_key(scope), before=before, limit=limit)

    async def explain(self, scope: Scope, role: Role | None) -> RoleExplanation:
        """What would be active in a conversation turn of this scope."""
        entry, others = self.parts.engine.signatures(None)
        call = check_role(role) if role is not None else None
        return await self.parts.resolver.explain(scope, call=call, entry=entry, signatures=others)

    def _stream(self, ask: Ask, role: Role | None, *, deltas: bool, detach: bool) -> TurnStream:
        parts = self.parts
        call = check_role(role) if role is not None else None
        turn_id = new_id("turn")

        def run(sink: Sink) -> Awaitable[Turn]:
            if self.parts is not parts:
                raise AgentClosed("the agent was closed since", remedy="start the turn with the agent that is open now")
            return _Run(parts, turn_id, ask, call, Emitter(turn_id, parts.clock, sink), deltas)()

        return TurnStream(turn_id, run, self._spawn, detach=detach)

    def _spawn(self, turn: Awaitable[Turn]) -> asyncio.Task[Turn]:
        task = asyncio.ensure_future(turn)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a detached turn's error was told by its last event; asyncio need not warn of it


@dataclass(slots=True)
class _Run:
    """One turn under way. It lets go of the call's role as soon as that is resolved."""

    parts: RunnerParts
    turn_id: str
    ask: Ask
    role: Role | None = field(repr=False)
    emit: Emitter
    deltas: bool

    async def __call__(self) -> Turn:
        failure: WorldAgentError
        try:
            turn = await self._owned()
        except asyncio.CancelledError as error:
            clear_frames(error.__traceback__)
            self._end("cancelled")
            raise
        except WorldAgentError as error:
            failure = error
        except (sqlite3.Error, OSError) as error:
            failure = StorageUnavailable(
                f"the agent's database failed with {type(error).__name__}", remedy="look after the disk and try again"
            )
        except BaseException:  # whatever it is, a reader of the events learns that the turn is over
            self._end("failed", "internal")
            raise
        else:
            self.emit(TurnEnded, status="done", text=turn.text)
            return turn
        # Whoever keeps the error keeps its frames, and what they held of the turn with them.
        clear_frames(failure.__traceback__)
        failure.turn_id = self.turn_id
        self._end("failed", failure.code)
        raise failure

    def _end(self, status: str, code: str | None = None) -> None:
        """Say that there is no answer; what was streamed of one does not stand."""
        if self.emit.standing:
            self.emit(TextReplaced, text="")
        self.emit(TurnEnded, status=status, code=code)

    async def _owned(self) -> Turn:
        key = thread_key(self.ask.scope)
        async with self.parts.leases.hold(key, wait=self.parts.thread_wait) as lease:
            resolution = await self._resolve()
            outcome = await self.parts.engine.run(
                TurnRequest(
                    turn_id=self.turn_id,
                    kind=self.ask.kind,
                    thread_key=key,
                    scope=self.ask.scope,
                    author=self.ask.scope.account or "user",
                    body=self.ask.body,
                    work=self.ask.work,
                    prompt=self.ask.prompt,
                ),
                role=resolution.role,
                emit=self.emit,
                lease=lease,
                stream=self.deltas,
            )
        usage = outcome.usage
        return Turn(
            id=self.turn_id,
            status="done",
            text=outcome.text if outcome.result is None else outcome.result.model_dump_json(),
            result=outcome.result,
            role_tiers=resolution.role.tiers,
            skipped_tiers=tuple(tier for tier in reversed(Tier) if tier in resolution.skipped),
            usage=TurnUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, calls=usage.calls),
        )

    async def _resolve(self) -> Resolution:
        """Resolve the role before anything is written or sent (R3)."""
        entry, others = self.parts.engine.signatures(self.ask.work)
        call, self.role = self.role, None
        resolution = await self.parts.resolver.resolve(self.ask.scope, call=call, entry=entry, signatures=others)
        assert self.ask.scope.thread is not None
        self.emit(TurnStarted, thread=self.ask.scope.thread, kind=self.ask.kind, role_tiers=resolution.role.tiers)
        for tier, code in resolution.skipped.items():
            self.emit(RoleTierSkipped, tier=tier, code=code)
        return resolution


def thread_key(scope: Scope) -> str:
    """The id of the checkpointed thread: workspace and thread, so that no two workspaces ever share one."""
    return f"{quote(scope.workspace, safe='')}/{quote(scope.thread or '', safe='')}"
