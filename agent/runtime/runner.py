"""The running turns of an agent, and their streams. Every surface starts turns here; `run` runs one.

`RunningTurn.next` decides where the events of a stream come from: a queue of its own or, for a recorded turn, the
follower that all readers of the turn use. All other ways to run a turn read such a stream to its end (T10).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pydantic import TypeAdapter

from ...core import ROOT, Emitter, Scope, check_id, new_id
from ...core.errors import AgentClosed, InvalidArgument, WorldAgentError
from ...core.events import Deltas, PauseNotified, TurnEvent, TurnStarted
from ...graphs import TurnRequest
from ...harness.inside import Inside, Origin
from ...memory import TurnRegister, thread_key
from ...memory.inbox import STEERABLE, InboxRow
from ...memory.turn_log import RecordedTurn
from ...role_resolution import Role
from ...role_resolution.role import check_role
from ..choices import read_output
from ..following import EventFollower
from ..recording import Recording
from ..requests import Replay
from ..turns import RunningTurn, Turn, cancel_once
from .branches import Again, Edited, run_again
from .keys import KeyedStarts, request_digest
from .pending import INBOX_KEY, Pending
from .resume import resumable, take_answers
from .run import TurnPath
from .work import NewTurn, ResumedTurn, Resumption, RunnerParts

T = TypeVar("T")


CANCEL_POLL_SECONDS: Final = 0.25  # seconds between two checks for cancellations from other processes
RECANCEL_SECONDS: Final = 10.0  # seconds after which a task that has not ended is cancelled again

Sink = Callable[[TurnEvent], None]

_INSIDE: ContextVar[tuple[object, ...]] = ContextVar("worldagent_inside", default=())


Enter = Callable[[], Coroutine[Any, Any, RunningTurn]]


class TurnStream:
    """An async context manager and iterator over the events of one turn.

    The turn starts on entering the `async with`. Leaving it cancels the turn, unless the turn has ended, `detach` is
    set, or another stream holds it by its key; a detached turn continues until the agent closes. Iterating raises the
    turn's error after its last event.

    Args:
        turn_id: The turn's id. It is empty until the stream is entered if the turn is resumed or replayed. With a key
            it can change when the stream is entered, to the id of the turn that has this key.
        enter: Starts the turn.
        detach: Whether the turn continues after the block is left.
        output: Reads the turn's result, if that is not a shape's.
    """

    def __init__(
        self, turn_id: str, enter: Enter, *, detach: bool = False, output: TypeAdapter[Any] | None = None
    ) -> None:
        self._output = output
        self._turn_id = turn_id
        self._enter: Enter | None = enter
        self._detach = detach
        self._running: RunningTurn | None = None
        self._ended = False
        self._raised = False

    @property
    def turn_id(self) -> str:
        """The turn's id. It can change until the turn begins, if another turn of the thread begins first."""
        return self._turn_id if self._running is None else self._running.named()

    @property
    def turn(self) -> Turn:
        """The turn, after its end.

        Raises:
            AgentClosed: The stream was not entered, or the turn has not ended.
            WorldAgentError: The error that the turn failed with.
        """
        if self._running is None or not self._running.task.done():
            raise AgentClosed("the turn has not ended", remedy="iterate over the stream to its end first")
        self._raised = True
        return self._outcome(self._running.task)

    @property
    def behind(self) -> int:
        """The number of events that have not been taken from the stream yet."""
        return 0 if self._running is None else self._running.behind()

    @property
    def recorded(self) -> bool:
        """Whether the turn's events are stored (`ThreadState.recorded`), so that a slow reader costs no memory.

        False until the stream is entered.
        """
        return self._running is not None and self._running.recorded

    async def __aenter__(self) -> Self:
        # `enter` holds the call's role, so it is dropped as soon as the turn has the role.
        enter, self._enter = self._enter, None
        if enter is None:
            raise AgentClosed("a stream can be entered once", remedy="start another turn")
        entering = enter()
        del enter
        self._running = await entering
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is None:
            return
        task = self._running.task
        if self._running.leave() and not task.done() and not self._detach:
            cancel_once(task)
            await asyncio.wait({task})
        if task.done() and not task.cancelled() and task.exception() is not None and error is None and not self._raised:
            self._raised = True
            task.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TurnEvent:
        held = self._entered()
        event = None if self._ended else await held.next()
        if event is None:
            self._ended = True
            await asyncio.wait({held.task})
            if not self._raised:
                self._raised = True
                self._outcome(held.task)
            raise StopAsyncIteration
        return event

    async def wait(self) -> Turn:
        """Wait for the turn's end without looking at its events.

        Raises:
            AgentClosed: The stream was not entered.
            WorldAgentError: The error that the turn failed with.
        """
        await asyncio.wait({self._entered().task})
        return self.turn

    async def cancel(self) -> bool:
        """Cancel the turn, even if the stream is detached, and wait for its end; see `thread.cancel()`.

        Returns:
            False if there was nothing to cancel.

        Raises:
            AgentClosed: The stream was not entered.
        """
        held = self._entered()
        cancelled = await held.end()
        await asyncio.wait({held.task})
        return cancelled

    def _entered(self) -> RunningTurn:
        if self._running is None:
            raise AgentClosed("the stream was not entered", remedy="use 'async with thread.stream(...) as stream:'")
        return self._running

    def _outcome(self, task: asyncio.Task[Turn]) -> Turn:
        if not task.cancelled():
            turn = task.result()
            if self._output is None or turn.result is None:
                return turn
            return replace(turn, result=read_output(self._output, turn.result))
        return Turn(id=self.turn_id, thread=self._entered().thread, status="cancelled")


class TurnRunner:
    """Runs the turns of one agent and knows which are running.

    Args:
        begin: Returns the stream that begins the turn of a message of an inbox, with its key and its call role.
    """

    def __init__(self, begin: Callable[[TurnRunner, InboxRow, str, Role | None], TurnStream]) -> None:
        self._parts: RunnerParts | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns: dict[str, set[asyncio.Task[Turn]]] = {}  # one turn can be resumed twice at the same time
        self._poll_timer: asyncio.TimerHandle | None = None
        self._keyed = KeyedStarts(self)
        self.pending = Pending(self, partial(begin, self))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mark = object()  # identifies this runner where a reference would keep it alive

    @property
    def parts(self) -> RunnerParts:
        """The parts of the started agent.

        Raises:
            AgentClosed: The agent is not started, or closed.
        """
        if self._parts is None:
            raise AgentClosed("the agent is not open", remedy="use 'async with agent:' or 'await agent.start()'")
        return self._parts

    @property
    def is_open(self) -> bool:
        """Whether it accepts turns."""
        return self._parts is not None

    def open(self, parts: RunnerParts) -> None:
        """Accept turns in this event loop."""
        self._parts, self._loop = parts, asyncio.get_running_loop()

    async def close(self) -> None:
        """Accept no further turns, cancel the running ones and wait for their end."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.drain.closed = True
        for task in self._tasks:
            cancel_once(task)
        while self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=RECANCEL_SECONDS)
            for task in left:  # code that it waited for has swallowed the cancellation
                task.cancel()

    async def drain(self, seconds: float) -> None:
        """Accept no further turns, let running ones stop where they can resume, and cancel the rest after `seconds`."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.drain.begin()
            parts.engine.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        await self.close()

    def inside(self) -> bool:
        """Whether the calling code runs in a turn of this agent."""
        return self._mark in _INSIDE.get()

    async def own(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for work without a turn; closing the agent cancels it as it cancels turns.

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
            raise AgentClosed("the agent was closed during the call", remedy="call it again once the agent is open")
        return task.result()

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that ends with the agent, outside of the turn that starts it."""
        task = Context().run(asyncio.ensure_future, work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def begin(
        self,
        request: TurnRequest,
        role: Role | None,
        *,
        deltas: Deltas,
        detach: bool = False,
        key: str | None = None,
        edited: Edited | None = None,
        inbox: str = "",
        interrupt: bool = False,
    ) -> TurnStream:
        """Return a stream that begins a turn once it is entered.

        Args:
            request: The request.
            role: The call's role.
            deltas: What the caller wants in parts.
            detach: Whether the turn continues after the stream is left.
            key: The idempotency key of the start.
            edited: The message of the thread to edit.
            inbox: The message of an inbox that begins it, if one does.
            interrupt: Whether the running turn of the thread is cancelled at its next safe point.
        """
        work = self._new(request, check_role(role) if role is not None else None, edited, deltas)
        work.inbox = inbox
        turn = RecordedTurn(turn=new_id("turn"), thread=request.thread_key)
        if key is not None:
            turn = replace(turn, key=check_id("key", key), asked=request_digest(request))
            if key.startswith(INBOX_KEY) and not inbox:
                raise InvalidArgument(
                    f"keys that begin with {INBOX_KEY!r} are those of queued messages", remedy="use another key"
                )
        if detach or key is not None:
            work.recording = Recording(self.parts.recorder, turn)
        enter = partial(self._started, self.parts, turn.turn, work, detach=detach, interrupt=interrupt)
        return TurnStream(turn.turn, enter, detach=detach, output=request.output)

    def resume(
        self, scope: Scope, answers: Mapping[str, object], how: Resumption, *, deltas: Deltas, detach: bool = False
    ) -> TurnStream:
        """Return a stream that takes a person's answers and resumes the turn once it is entered."""
        parts = self.parts
        enter = partial(self._resumed, parts, scope, answers, how, deltas=deltas, detach=detach)
        return TurnStream("", enter, detach=detach, output=how.output)

    async def _resumed(
        self,
        parts: RunnerParts,
        scope: Scope,
        answers: Mapping[str, object],
        how: Resumption,
        *,
        deltas: Deltas,
        detach: bool,
    ) -> RunningTurn:
        """Take a person's answers and start the run.

        Raises:
            AgentClosed: The agent was closed since the stream was made.
            NothingToResume: The thread has no turn that can be resumed.
            UnknownPause, AlreadyAnswered, AnswerInvalid: An answer is not accepted; none is stored.
        """
        self._check_open(parts)
        record = await resumable(parts, scope, answers)
        taken = await take_answers(parts, record, answers, how, account=scope.account)
        recorded = detach or await parts.recorder.log.last(record.id) is not None
        turn = RecordedTurn(turn=record.id, thread=record.thread)
        recording = Recording(parts.recorder, turn, again=True) if recorded else None
        work = ResumedTurn(record, how, taken, _origin(), recording, deltas)
        del how
        return await self._started(parts, record.id, work, detach=detach)

    async def repeats(self, scope: Scope, key: str) -> bool:
        """Whether a start on a thread with this key returns an existing turn."""
        return await self._keyed.repeats(self.parts, thread_key(scope), check_id("key", key))

    def replay(self, scope: Scope, asked: Replay, *, deltas: Deltas) -> TurnStream:
        """Return a stream that runs a turn again from its message, on a new thread, once it is entered."""
        parts, call = self.parts, None if asked.role is None else check_role(asked.role)
        asked = replace(asked, role=None)

        async def enter() -> RunningTurn:
            nonlocal call
            self._check_open(parts)
            request, branch = await run_again(parts, scope, asked)
            work, call = self._new(request, call, branch, deltas), None
            return await self._started(parts, new_id("turn"), work, detach=False)

        return TurnStream("", enter)

    async def cancel(self, scope: Scope) -> bool:
        """Cancel the thread's turn, in whatever process it runs or while it waits; returns False if there is none."""
        found = await self.parts.threads.cancel(scope, self._cancel)
        self.pending.wake(scope)  # a turn that waited ends without a run
        return found

    async def interrupt(self, scope: Scope, only: str | None = None) -> bool:
        """Cancel the thread's turn at its next safe point; returns False if none runs or waits.

        Args:
            scope: The thread.
            only: The turn to cancel, if it is still the thread's newest one; None is whichever that is.
        """
        parts = self.parts
        latest = await parts.stores.turns.latest(thread_key(scope))
        if latest is None or latest.status not in STEERABLE:
            return False
        if only not in (None, latest.id):
            return False
        asked = await parts.stores.turns.ask_to_cancel(latest.id, gently=True)
        if latest.id in self._turns:
            self._cancel(latest.id, gently=True)
        elif asked:
            await parts.threads.end_waiting(scope, latest.id)
            self.pending.wake(scope)  # it ends without a run
        return asked

    async def _is_repeated(self, parts: RunnerParts, work: NewTurn | ResumedTurn) -> bool:
        turn = None if work.recording is None else work.recording.turn
        return turn is not None and turn.key is not None and await self.repeats(work.scope, turn.key)

    def _new(self, request: TurnRequest, call: Role | None, branch: Again | Edited | None, deltas: Deltas) -> NewTurn:
        if request.model:
            self.parts.engine.check_model(request.model, who="the turn")
        example = request.example or self.parts.settings.examples == "all"
        inside, origin, member = Inside.now(), request.origin, request.on_behalf_of
        if inside is not None:
            origin = Origin.both(origin, inside.origin)
            member = inside.on_behalf_of if member == ROOT else member
        request = replace(request, origin=origin, example=example, on_behalf_of=member)
        if origin is not None and origin.marks and (request.guard or request.kind not in ("task", "skill")):
            marks = sorted({*request.body.get("untrusted", ()), *origin.marks})  # for guarded turns that read it later
            request = replace(request, body={**request.body, "untrusted": marks})
        return NewTurn(request, call, branch, deltas=deltas)

    async def _started(
        self,
        parts: RunnerParts,
        turn_id: str,
        work: NewTurn | ResumedTurn,
        *,
        detach: bool,
        interrupt: bool = False,
    ) -> RunningTurn:
        self._check_open(parts)
        if interrupt and not await self._is_repeated(parts, work):
            await self.interrupt(work.scope)
            self._check_open(parts)
        if isinstance(work, NewTurn) and work.by_key:
            return await self._keyed.hold(parts, work, detach=detach)
        return self._start(parts, turn_id, work)

    def _check_open(self, parts: RunnerParts) -> None:
        if self.parts is not parts:
            raise AgentClosed("the agent was closed meanwhile", remedy="start the turn with the agent that is open now")
        if asyncio.get_running_loop() is not self._loop:
            raise AgentClosed(
                "the agent was started in another event loop",
                remedy="run its turns in that loop, for example with asyncio.run_coroutine_threadsafe(), or make "
                "an agent for each loop",
            )

    def _start(self, parts: RunnerParts, turn_id: str, work: NewTurn | ResumedTurn) -> RunningTurn:
        """Start a run of a turn; its events come from a queue, or from its recording."""
        names = [turn_id]  # not the path, which keeps what the turn works with

        def named() -> str:
            return names[-1]

        async def end() -> bool:
            return await self.cancel_turn(parts, named(), work.scope)

        recording, thread = work.recording, work.scope.thread or ""
        if recording is None:
            queue = asyncio.Queue[TurnEvent | None]()
            task = self.spawn(turn_id, self._path(parts, turn_id, work, queue.put_nowait, names.append).follow())
            task.add_done_callback(lambda _: queue.put_nowait(None))
            return RunningTurn(named, thread, task, queue.get, end, queue.qsize, recorded=False)
        recording.expect()
        workspace, run = work.scope.workspace, recording.channel
        follower = EventFollower(parts.recorder, turn_id, workspace=workspace, after=None, run=run, deltas=work.deltas)

        def renamed(turn_id: str) -> None:
            names.append(turn_id)
            follower.turn_id = turn_id

        task = self.spawn(turn_id, self._path(parts, turn_id, work, recording.take, renamed).follow())
        task.add_done_callback(lambda _: recording.close())
        return RunningTurn(named, thread, task, follower.next, end, lambda: follower.behind, recorded=True)

    def _path(
        self,
        parts: RunnerParts,
        turn_id: str,
        work: NewTurn | ResumedTurn,
        sink: Sink,
        renamed: Callable[[str], object] = lambda turn_id: None,
    ) -> TurnPath:
        tap = parts.tracer.tap(work.scope)
        if work.recording is not None and work.deltas == "none":
            work.deltas = "answer"  # others can follow the turn

        begun = isinstance(work, ResumedTurn)

        def sending(event: TurnEvent) -> None:
            nonlocal begun
            begun = begun or isinstance(event, TurnStarted)
            sink(event)
            if begun:  # a turn that is refused has no trace
                tap(event)
            if isinstance(event, PauseNotified):
                parts.account_events.publish(work.scope, event)

        def enlist(turn_id: str) -> None:
            if (task := asyncio.current_task()) is not None:
                self.enlist(turn_id, task)
            renamed(turn_id)

        return TurnPath(parts, turn_id, work, Emitter(turn_id, parts.stores.clock, sending, tap), enlist)

    async def running(
        self, parts: RunnerParts, turn_id: str, work: NewTurn | ResumedTurn, begun: Callable[[], None]
    ) -> Turn:
        """Run a recorded turn inside an existing task; `begun` is called once the turn exists."""
        recording = work.recording
        assert recording is not None, "a follower of the turn reads its recording"
        recording.on_begun = begun
        recording.expect()
        try:
            return await self._path(parts, turn_id, work, recording.take).follow()
        finally:
            recording.close()

    async def cancel_turn(self, parts: RunnerParts, turn_id: str, scope: Scope) -> bool:
        """Cancel one turn, in whatever process it runs or while it waits; returns False if it is over."""
        asked, here = await parts.stores.turns.ask_to_cancel(turn_id), turn_id in self._turns
        self._cancel(turn_id)
        if asked and not here:
            await parts.threads.end_waiting(scope, turn_id)
        return asked or here

    def spawn(self, turn_id: str, turn: Awaitable[Turn]) -> asyncio.Task[Turn]:
        """Run a turn in a task that ends with the agent."""
        context = copy_context()
        context.run(_INSIDE.set, (*_INSIDE.get(), self._mark))
        task = context.run(asyncio.ensure_future, turn)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        self.enlist(turn_id, task)
        return task

    def enlist(self, turn_id: str, task: asyncio.Task[Turn]) -> None:
        """Add a task that runs a turn; cancelling the turn cancels the task."""
        self._turns.setdefault(turn_id, set()).add(task)
        task.add_done_callback(lambda done: self._over(turn_id, done))
        if self._poll_timer is None:
            self._schedule_poll()

    def _over(self, turn_id: str, task: asyncio.Task[Turn]) -> None:
        tasks = self._turns.get(turn_id, set())
        tasks.discard(task)
        if not tasks:
            self._turns.pop(turn_id, None)
        if not self._turns and self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None

    def _schedule_poll(self) -> None:
        """Check regularly for cancellations from other processes while turns are running.

        This is a timer and not a task, so that an agent that is dropped without a close can be freed.
        """
        self._poll_timer = asyncio.get_running_loop().call_later(CANCEL_POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        if self._parts is not None:
            looking = asyncio.ensure_future(self._cancel_requested_turns(self._parts.stores.turns))
            self._tasks.add(looking)
            looking.add_done_callback(self._forget)
        self._schedule_poll()

    async def _cancel_requested_turns(self, turns: TurnRegister) -> None:
        with contextlib.suppress(WorldAgentError):  # the turns themselves report a database that is down
            for turn_id, gently in await turns.cancel_requested():
                self._cancel(turn_id, gently=gently)

    def _cancel(self, turn_id: str, *, gently: bool = False) -> None:
        if gently and self._parts is not None and self._parts.engine.interrupt(turn_id):
            return  # calls are under way, and it ends after them
        for task in self._turns.get(turn_id, ()):
            cancel_once(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a detached turn reports its error in its last event; asyncio must not warn of it


def _origin() -> Origin | None:
    """Return the call whose body begins or resumes a turn here; None for the host's own code."""
    inside = Inside.now()
    return None if inside is None else inside.origin
