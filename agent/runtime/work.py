"""What a runner and a run of a turn work with: the parts of the agent, the turn to begin or resume, and its bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, TypeAdapter

from ...core import Clock, Emitter, Scope, Tier, new_id
from ...core.capability import Hooks, InputField
from ...core.clock import Expiring
from ...core.errors import AgentClosed, TurnTimeout, WorldAgentError
from ...core.events import Deltas, RoleTierSkipped, TurnEnded, TurnStarted
from ...graphs import TurnRequest, TurnRun
from ...harness.inside import Origin
from ...harness.limits import Usage, Use
from ...harness.pipeline import call_alone
from ...harness.trace.tracer import Tracer
from ...memory import TurnRecord, TurnRegister
from ...memory.attachments import Loaded
from ...memory.branches import Branch
from ...memory.conversation import Handed
from ...profiles import Profile
from ...role_resolution import Resolution, ResolvedRole, Role, RoleResolver
from ...storage import Lease, Transaction
from ..recording import Recorder, Recording
from ..requests import OnRoleChange
from ..settings import UNSET, Settings, Unset
from ..stores import Stores
from ..threads import Branching, ThreadRegister
from ..unattended import AccountEvents, Notifier
from ..upkeep import Retention

if TYPE_CHECKING:
    from ...graphs import TurnEngine
    from ...graphs.nesting import NodeView
    from ..queues import Connecting
    from .branches import Again, Edited

POLL_SECONDS: Final = 0.25  # seconds between two polls
MAX_STARTING_TURNS: Final = 16  # one transaction writes all of them; a higher number costs memory and gains no speed


class KeyBegun(Exception):
    """Another process has begun the turn with this key, or resumes it."""


class NotFirst(Exception):
    """The message of an inbox that was to begin a turn was read or withdrawn meanwhile, or another one comes first."""


class Drain:
    """Whether an agent is being drained, and the turns that had not begun when the drain started."""

    def __init__(self) -> None:
        self.begun = False
        self.closed = False
        self._waiting: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Let no further turn begin; turns that wait to begin are refused at once."""
        self.begun = True
        for refuse in self._waiting:
            refuse()

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """Run the block that comes before a turn's first write.

        Raises:
            AgentClosed: The drain has begun, or begins during the block.
        """
        async with interruptible(_closed) as refuse:
            if self.begun:
                raise _closed()
            self._waiting.add(refuse)
            try:
                yield
            finally:
                self._waiting.discard(refuse)


class StartQueue:
    """Limits how many turns begin at the same time; the others wait in line.

    A turn that begins builds a graph, a model call and thousands of objects. When a thousand turns arrive at once, each
    of them would otherwise get that far before the first one reaches its model: that takes memory, and the garbage
    collector goes through all of it again and again. A turn leaves the line before it waits for a model or a function.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_STARTING_TURNS)
        self._beginning: set[str] = set()

    async def enter(self, turn_id: str) -> None:
        """Wait in line until this turn may begin."""
        await self._free.acquire()
        self._beginning.add(turn_id)

    def leave(self, turn_id: str) -> None:
        """Let the next turn begin; does nothing if this one has already left or never entered."""
        if turn_id in self._beginning:
            self._beginning.remove(turn_id)
            self._free.release()


@asynccontextmanager
async def unless_begun(begun: Callable[[], Awaitable[bool]]) -> AsyncGenerator[None]:
    """Wait in this block for the thread of a turn with a key.

    Args:
        begun: Checks whether another process has begun or resumed the turn.

    Raises:
        KeyBegun: Another process has.
    """
    async with interruptible(KeyBegun) as stop:
        looking = asyncio.ensure_future(_look(begun, stop))
        try:
            yield
        finally:
            looking.cancel()


@asynccontextmanager
async def limited(seconds: float | None, clock: Clock, stop: Callable[[], None]) -> AsyncGenerator[None]:
    """Run the block for at most `seconds` of the clock's time; None means no limit.

    Args:
        seconds: The limit.
        clock: Measures it.
        stop: Is called at the limit, before the block is cancelled.

    Raises:
        TurnTimeout: The block takes longer; it is cancelled and has ended.
    """
    if seconds is None:
        yield
        return

    def too_long() -> TurnTimeout:
        return TurnTimeout(
            f"the turn ran for longer than {seconds:g} s",
            remedy="resume the turn, or raise the setting turn_timeout",
        )

    async with interruptible(too_long) as expire:

        def late() -> None:
            stop()
            expire()

        watch = asyncio.ensure_future(clock.sleep(seconds))
        watch.add_done_callback(lambda done: None if done.cancelled() else late())
        try:
            yield
        finally:
            watch.cancel()


@asynccontextmanager
async def interruptible(error: Callable[[], Exception]) -> AsyncGenerator[Callable[[], None]]:
    """Run a block that can be interrupted: calling the yielded function cancels it and raises `error()` at its end."""
    limit, inside = asyncio.timeout(None), True

    def interrupt() -> None:
        if inside and limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            try:
                yield interrupt
            finally:
                inside = False
        return
    except TimeoutError:
        if not limit.expired():
            raise
    raise error()  # outside the handler, so that the error has no `__context__`


async def _look(begun: Callable[[], Awaitable[bool]], stop: Callable[[], None]) -> None:
    found = False
    while not found:
        await asyncio.sleep(POLL_SECONDS)
        with contextlib.suppress(WorldAgentError):  # the turn itself reports a database that is down
            found = await begun()
    stop()


def _closed() -> AgentClosed:
    return AgentClosed(
        "the agent was closed before the turn could begin; nothing of the turn is written",
        remedy="start it again once the agent is open",
    )


async def call_without_turn(parts: RunnerParts, scope: Scope, name: str, input: Mapping[str, Any] | BaseModel) -> Any:
    """Call a function, worker or shape by name; see `WorldAgent.call`."""
    path, tap = new_id("call"), parts.tracer.tap(scope)
    emit = Emitter(path, parts.stores.clock, tap, tap)
    use = await parts.usage.open(path, scope)
    emit(TurnStarted, thread="", kind="call")
    status, code = "cancelled", None
    try:
        async with parts.around(scope.account):
            value = await call_alone(name, input, parts.engine.root(path, scope, emit, use))
        status = "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        emit(TurnEnded, status=status, code=code)
        await use.close()
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """The parts that a runner works with once the agent is started."""

    engine: TurnEngine
    resolver: RoleResolver
    stores: Stores
    settings: Settings
    pins: Expiring[ResolvedRole]
    retention: Retention
    usage: Usage
    hooks: Hooks
    fields: tuple[InputField, ...]
    profile: Profile
    recorder: Recorder
    notifier: Notifier | None
    account_events: AccountEvents
    tracer: Tracer
    queue: Connecting | None
    drain: Drain = field(default_factory=Drain)
    starts: StartQueue = field(default_factory=StartQueue)
    unread: Callable[[Scope], object] = lambda scope: None

    @asynccontextmanager
    async def around(self, account: str | None) -> AsyncGenerator[None]:
        """Enter what capabilities put around each run of a turn, and each call without one."""
        async with AsyncExitStack() as entered:
            for enter in self.hooks.around:
                await entered.enter_async_context(enter(account))
            yield

    @property
    def threads(self) -> ThreadRegister:
        """The register of threads."""
        return ThreadRegister(self.stores)

    @property
    def branching(self) -> Branching:
        """Creates branches of threads."""
        return Branching(self.stores, self.usage)


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to resume a turn.

    Attributes:
        role: The call's role; None resumes without one on purpose.
        on_role_change: What happens if the role differs from the one that the turn began with (R13).
        prompt: The skill's prompt, or the message's context as JSON, again.
        output: Reads the turn's result, again.
        view: What this run gets of the node whose graph shows it as a subgraph, if one resumes it.
    """

    role: Role | Unset | None = field(default=UNSET, repr=False)
    on_role_change: OnRoleChange = "fail"
    prompt: str | None = field(default=None, repr=False)
    output: TypeAdapter[Any] | None = None
    view: NodeView | None = field(default=None, repr=False)


@dataclass(slots=True)
class NewTurn:
    """A turn to begin, its recording, if it is recorded, what its stream wants in parts, and its message of an inbox.

    It drops the call's role once that is resolved, and its `loaded` attachments once they are stored.
    """

    request: TurnRequest
    role: Role | None = field(repr=False)
    branch: Again | Edited | None = None
    recording: Recording | None = None
    deltas: Deltas = "none"
    inbox: str = ""
    loaded: tuple[Loaded, ...] = field(default=(), repr=False)

    @property
    def scope(self) -> Scope:
        """The ids that it runs under."""
        return self.request.scope

    @property
    def by_key(self) -> bool:
        """Whether it has a key, so that another process can begin it meanwhile."""
        return self.recording is not None and self.recording.turn.key is not None


@dataclass(slots=True)
class ResumedTurn:
    """A turn to resume, the answered pauses, the call that resumes it, its recording, and what its stream wants.

    With `by_key` another process may resume it instead.
    """

    record: TurnRecord
    how: Resumption
    answered: tuple[str, ...] = ()
    origin: Origin | None = None
    recording: Recording | None = None
    deltas: Deltas = "none"
    by_key: bool = False

    @property
    def scope(self) -> Scope:
        """The ids that it runs under."""
        return self.record.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(TurnRun):
    """A run of a turn that is in the log and in the register, and whose graph can run.

    Attributes:
        record: The turn in the register.
        request: The request.
        skipped: The tiers that its role does without.
        resumed: Whether it ran before.
        kept_as: The id of the thread that keeps the messages from before an edit; empty if nothing was edited.
        announced: The pauses that an earlier run has notified a person of.
        cancelled: Whether it was cancelled while its begin was written.
    """

    lease: Lease
    use: Use
    record: TurnRecord
    request: TurnRequest
    skipped: tuple[Tier, ...] = ()
    resumed: bool = False
    kept_as: str = ""
    announced: frozenset[str] = frozenset()
    cancelled: bool = False

    @property
    def sent_tiers(self) -> tuple[Tier, ...]:
        """The tiers whose roles reached a model in this run or in an earlier one, lowest precedence first."""
        if not self.resumed:
            return self.role.sent
        sent = {*self.role.sent, *self.record.sent_tiers}
        return tuple(tier for tier in reversed(Tier) if tier in sent)

    @property
    def sent_role(self) -> Mapping[str, Any] | None:
        """What to store about its role; None if that is stored already."""
        sent = self.sent_tiers
        return None if sent == self.record.sent_tiers else {**self.record.role, "sent": list(sent)}

    def note(self, transaction: Transaction) -> None:
        """Write the tiers that reached a model, next to the record of its call: a kill loses neither or both."""
        role = self.sent_role
        if role is not None:
            TurnRegister.note_role(transaction, self.record.id, role)


def handed_by(lease: Lease) -> Handed | None:
    """Who speaks in the next turn of a thread that is owned, without a query; None is the World Agent."""
    latest: TurnRecord | None = lease.known.get(TurnRecord)
    branch: Branch | None = lease.known.get(Branch)
    found = branch if latest is None else latest
    return None if found is None else found.handed


def emit_started(
    emit: Emitter, turn: TurnRequest | TurnRecord, resolution: Resolution, *, resumed: bool = False
) -> None:
    """Emit that a run has begun, and which tiers its role does without."""
    emit(
        TurnStarted,
        thread=turn.scope.thread or "",
        kind=turn.kind,
        role_tiers=resolution.role.tiers,
        resumed=resumed,
        on_behalf_of=turn.on_behalf_of,
    )
    for tier, code in resolution.skipped.items():
        emit(RoleTierSkipped, tier=tier, code=code)
