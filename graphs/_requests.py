"""What goes into an engine, what a surface asks of it, and what comes out: values only. `_engine` works with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from ..core import Clock, Emitter, ModelUsage, Scope, SystemClock
from ..core.events import TurnKind
from ..core.pauses import Pause, UnattendedMode
from ..harness import CONVERSATION, Policy, Registry
from ..harness.gate import CODE, Approver, Caller
from ..harness.inside import Origin
from ..harness.journal import Journal
from ..harness.limits import Use
from ..harness.running import OnError
from ..memory import ConversationStore
from ..memory.attachments import Attachments
from ..memory.branches import Branch, Branches
from ..memory.kept import KeptMessages
from ..role_resolution import ResolvedRole, RoleResolver
from ..signatures import ModelCaller
from ..signatures.models import Models
from ..storage import Lease
from ._context import GraphOptions
from ._shape import Shape, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a surface asks for.

    Attributes:
        turn_id: The new turn's id.
        kind: Which surface.
        thread_key: The id of the checkpointed thread.
        scope: The ids the turn runs under.
        author: Who asks.
        body: What goes into the log as the turn's first message.
        work: The task that a task or skill turn runs.
        branch: Where the thread is set to as the turn begins, if it is.
        model: The names of its own model and of those tried after it; empty is the agent's.
        origin: The call that it was begun or resumed from, if there is one.
        role_key: The id of the key that the turn's role was noted with; empty is the present one.
        unattended: What happens where a person would be asked; None asks them.
        output: Reads the answer where `body` has the schema of one; left out, the schema alone counts.
    """

    turn_id: str
    kind: TurnKind
    thread_key: str
    scope: Scope
    author: str
    body: Mapping[str, Any]
    work: Work | None = None
    branch: Branch | None = None
    model: tuple[str, ...] = ()
    origin: Origin | None = None
    role_key: str = ""
    unattended: UnattendedMode | None = None
    output: TypeAdapter[Any] | None = None

    @property
    def caller(self) -> Caller:
        """Who dispatches its tasks: the conversation, the host's own code, or a call that a model had a say in."""
        workers = () if self.origin is None else self.origin.workers
        if self.kind not in ("task", "skill"):
            return Caller(CONVERSATION, modelled=True, workers=workers)
        if self.origin is None or not self.origin.modelled:
            return CODE
        return Caller(self.origin.caller, modelled=True, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What a turn gave.

    Attributes:
        status: `done`, `paused` where a person is asked, `stopped` where it was to stop and can go on later.
        text: The answer; empty for a task.
        result: A task's result; of a message whose answer has a schema, the answer as JSON.
        usage: What its model calls used, by the model's name.
        pauses: What is asked.
    """

    status: Literal["done", "paused", "stopped"] = "done"
    text: str = ""
    result: Any = None
    usage: Mapping[str, ModelUsage] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRun:
    """What one owner's run at a turn works with.

    Attributes:
        role: The turn's resolved role.
        emit: Where events go.
        lease: The ownership of the thread.
        stream: Whether anybody wants deltas.
        prompt: A skill's prompt.
        refreshed: Whether the turn may go on under another role than it began with.
        use: What it may use, and where that is written down; None is anything, and nowhere.
    """

    role: ResolvedRole = field(repr=False)
    emit: Emitter
    lease: Lease | None
    stream: bool = False
    prompt: str | None = field(default=None, repr=False)
    refreshed: bool = False
    use: Use | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is made of, besides its checkpoints."""

    caller: ModelCaller
    models: Models | None = None
    registry: Registry
    shapes: Iterable[Shape[Any, Any]]
    resolver: RoleResolver
    log: ConversationStore
    identity: str | None = None
    prompt: str | None = None
    options: Callable[[ModelCaller], GraphOptions] = lambda _: GraphOptions()
    programs: Mapping[str, Any] = field(default_factory=dict)
    on_error: OnError | None = None
    journal: Journal | None = None
    branches: Branches | None = None
    kept: KeptMessages | None = None
    attachments: Attachments | None = None
    policy: Policy = field(default_factory=Policy)
    approver: Approver | None = None
    clock: Clock = field(default_factory=SystemClock)


__all__ = ["EngineParts", "TurnOutcome", "TurnRequest", "TurnRun"]
