"""What a run at a turn is handed: values only. `_running` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core import Clock, Scope
from ...core.events import TurnKind
from ...graphs import TurnEngine
from ...harness.journal import Journal
from ...memory import TurnRecord, TurnRegister
from ...role_resolution import Role, RoleResolver
from ...storage import Leases
from .._unset import UNSET, Unset
from ..threads import ThreadRegister
from ._limits import Drain
from ._pins import Pins

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
    journal: Journal
    turns: TurnRegister
    clock: Clock
    thread_wait: float
    turn_timeout: float | None
    pins: Pins
    thread_role_ttl: float
    drain: Drain = field(default_factory=Drain)

    @property
    def threads(self) -> ThreadRegister:
        """Where the threads stand."""
        return ThreadRegister(self.turns, self.journal, self.leases)


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a turn goes on.

    Attributes:
        role: The call's role; None goes on without one on purpose.
        on_role_change: What happens where another role resolves than the turn began with (R13).
        prompt: A skill's prompt, again.
    """

    role: Role | Unset | None = field(default=UNSET, repr=False)
    on_role_change: OnRoleChange = "fail"
    prompt: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class NewTurn:
    """A turn to begin. It lets go of the call's role as soon as that is resolved."""

    ask: Ask
    role: Role | None = field(repr=False)

    @property
    def scope(self) -> Scope:
        return self.ask.scope


@dataclass(slots=True)
class ResumedTurn:
    """A turn to go on with, and the pauses that were answered."""

    record: TurnRecord
    how: Resumption
    answered: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return self.record.scope
