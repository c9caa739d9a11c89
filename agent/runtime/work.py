"""The data that a runner and a run of a turn work with. `run` runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from ...core import Clock, Scope, Tier
from ...core.pauses import UnattendedMode
from ...graphs import TurnRequest, TurnRun
from ...harness.inside import Origin
from ...harness.journal import Journal
from ...harness.limits import Usage, Use
from ...harness.trace.tracer import Tracer
from ...mcp_client.tools import McpSources
from ...memory import TurnRecord, TurnRegister
from ...memory.attachments import Attachments, Loaded
from ...memory.branches import Branches
from ...memory.titles import ThreadSearch, ThreadTitles
from ...profiles import Profile
from ...role_resolution import Role, RoleResolver
from ...storage import Lease, Leases
from ..recording import Recorder, Recording
from ..threads import Branching, ThreadRegister
from ..unattended import AccountEvents, Notifier
from ..unset import UNSET, Unset
from ..upkeep import Retention, UpkeepParts
from .limits import Drain, StartQueue
from .pins import Pins

if TYPE_CHECKING:
    from ...graphs import TurnEngine
    from .branching import Again, Edit

OnRoleChange = Literal["fail", "refresh", "pin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """The parts that a runner works with once the agent is started."""

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
    unattended: UnattendedMode
    notifier: Notifier | None
    account_events: AccountEvents
    tracer: Tracer
    drain: Drain = field(default_factory=Drain)
    starts: StartQueue = field(default_factory=StartQueue)

    @property
    def threads(self) -> ThreadRegister:
        """The register of threads."""
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
        """Creates branches of threads."""
        return Branching(self.leases, self.branches, self.engine.heads, self.engine.services.log)


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to resume a turn.

    Attributes:
        role: The call's role; None resumes without one on purpose.
        on_role_change: What happens if the role differs from the one that the turn began with (R13).
        prompt: The skill's prompt, again.
        output: Reads the turn's result, again.
    """

    role: Role | Unset | None = field(default=UNSET, repr=False)
    on_role_change: OnRoleChange = "fail"
    prompt: str | None = field(default=None, repr=False)
    output: TypeAdapter[Any] | None = None


@dataclass(slots=True)
class NewTurn:
    """A turn to begin, and its recording, if it is recorded.

    It drops the call's role once that is resolved, and its `loaded` attachments once they are stored.
    """

    request: TurnRequest
    role: Role | None = field(repr=False)
    branch: Again | Edit | None = None
    recording: Recording | None = None
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
    """A turn to resume, the answered pauses, the call that resumes it, and its recording.

    With `by_key` another process may resume it instead.
    """

    record: TurnRecord
    how: Resumption
    answered: tuple[str, ...] = ()
    origin: Origin | None = None
    recording: Recording | None = None
    by_key: bool = False

    @property
    def scope(self) -> Scope:
        """The ids that it runs under."""
        return self.record.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A turn that is in the log and in the register, and whose graph can run.

    Attributes:
        record: The turn in the register.
        request: The request.
        run: The state of this run.
        lease: The ownership of the thread.
        use: The usage that counts against its limits, and where it is stored.
        skipped: The tiers that its role does without.
        resumed: Whether it ran before.
        kept_as: The id of the thread that keeps the messages from before an edit; empty if nothing was edited.
        announced: The pauses that an earlier run has notified a person of.
        cancelled: Whether it was cancelled while its begin was written.
    """

    record: TurnRecord
    request: TurnRequest
    run: TurnRun = field(repr=False)
    lease: Lease
    use: Use
    skipped: tuple[Tier, ...] = ()
    resumed: bool = False
    kept_as: str = ""
    announced: frozenset[str] = frozenset()
    cancelled: bool = False
