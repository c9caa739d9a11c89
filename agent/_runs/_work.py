"""What a run at a turn is handed: values only. `_running` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from ...core import Clock, Scope
from ...core.events import TurnKind
from ...core.pauses import UnattendedMode
from ...graphs import TurnEngine
from ...harness.inside import Origin
from ...harness.journal import Journal
from ...harness.limits import Usage
from ...harness.trace.running import Tracer
from ...mcp_client.tools import McpSources
from ...memory import TurnRecord, TurnRegister
from ...memory.attachments import Attachments, AttachmentSource
from ...memory.branches import Branches
from ...memory.titles import ThreadSearch, ThreadTitles
from ...profiles import Profile
from ...role_resolution import Role, RoleResolver
from ...storage import Leases
from .._unattended import AccountEvents, Notifier
from .._unset import UNSET, Unset
from ..events import Recorder, Recording
from ..threads import Branching, ThreadRegister
from ..upkeep import Retention, UpkeepParts
from ._limits import Drain
from ._pins import Pins

if TYPE_CHECKING:
    from ._branching import Again, Edit

OnRoleChange = Literal["fail", "refresh", "pin"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a surface hands over.

    Attributes:
        kind: Which surface.
        scope: The ids the turn runs under.
        body: What goes into the log.
        work: The checked task of a task or skill turn.
        prompt: A skill's prompt.
        attached: What is to be attached to the message; it is read once the turn owns its thread.
        model: The names of the turn's own model and of those tried after it; empty is the agent's.
        origin: The call that it is begun from, if code does that which a call runs.
        unattended: What happens where a person would be asked; None asks them.
        output: Reads the answer of a message, whose body has its schema.
    """

    kind: TurnKind
    scope: Scope
    body: Mapping[str, Any]
    work: Any = None
    prompt: str | None = None
    attached: tuple[AttachmentSource, ...] = field(default=(), repr=False)
    model: tuple[str, ...] = ()
    origin: Origin | None = None
    unattended: UnattendedMode | None = None
    output: TypeAdapter[Any] | None = None

    @property
    def author(self) -> str:
        """Who asks."""
        return self.scope.account or "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """What a runner works with, once the agent is started."""

    engine: TurnEngine
    resolver: RoleResolver
    leases: Leases
    journal: Journal
    turns: TurnRegister
    branches: Branches
    attachments: Attachments
    clock: Clock
    thread_wait: float
    turn_timeout: float | None
    pins: Pins
    thread_role_ttl: float
    upkeep: UpkeepParts
    retention: Retention
    usage: Usage
    mcp: McpSources
    profile: Profile
    recorder: Recorder
    unattended: UnattendedMode = "refuse"
    notifier: Notifier | None = None
    account_events: AccountEvents = field(default_factory=AccountEvents)
    drain: Drain = field(default_factory=Drain)
    tracer: Tracer = field(default_factory=Tracer)

    @property
    def threads(self) -> ThreadRegister:
        """Where the threads stand."""
        database = self.upkeep.database
        return ThreadRegister(
            self.turns,
            self.journal,
            self.leases,
            self.branches,
            self.recorder.log,
            ThreadTitles(database),
            ThreadSearch(database),
        )

    @property
    def branching(self) -> Branching:
        """Branches threads off."""
        return Branching(self.leases, self.branches, self.engine.heads, self.engine.services.log)


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a turn goes on.

    Attributes:
        role: The call's role; None goes on without one on purpose.
        on_role_change: What happens where another role resolves than the turn began with (R13).
        prompt: A skill's prompt, again.
        output: Reads the turn's result, again.
    """

    role: Role | Unset | None = field(default=UNSET, repr=False)
    on_role_change: OnRoleChange = "fail"
    prompt: str | None = field(default=None, repr=False)
    output: TypeAdapter[Any] | None = None


@dataclass(slots=True)
class NewTurn:
    """A turn to begin, and what records it, if it is recorded. It lets go of the call's role once that is resolved."""

    ask: Ask
    role: Role | None = field(repr=False)
    branch: Again | Edit | None = None
    recording: Recording | None = None

    @property
    def scope(self) -> Scope:
        return self.ask.scope

    @property
    def by_key(self) -> bool:
        """Whether it has a key, so that somebody else may begin it meanwhile."""
        return self.recording is not None and self.recording.turn.key is not None


@dataclass(slots=True)
class ResumedTurn:
    """A turn to go on with, the pauses that were answered, the call that it is resumed from, and what records it.

    With `by_key` somebody else who goes on with it meanwhile is as good.
    """

    record: TurnRecord
    how: Resumption
    answered: tuple[str, ...] = ()
    origin: Origin | None = None
    recording: Recording | None = None
    by_key: bool = False

    @property
    def scope(self) -> Scope:
        return self.record.scope
