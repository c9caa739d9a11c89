"""What the capabilities of this package use of an agent, besides what `core.capability.Runtime` offers to all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...core import Clock
from ...core.capability import Hooks, Runtime
from ...core.errors import AgentClosed
from ...graphs import Shape
from ...harness import Registry
from ...memory.attachments import Attachments
from ...memory.entries import Recall
from ...storage import Database, Storage
from .pending import Pending
from .work import RunnerParts

T = TypeVar("T")

if TYPE_CHECKING:
    from ...role_resolution import RoleResolver
    from ..assembly import AgentSpec
    from ..stores import Stores
    from .runner import TurnRunner


class AgentRuntime(Runtime):
    """The runtime of an agent, which its assembly fills while the agent opens.

    Attributes:
        spec: What the agent is made of.
        opened: What each capability yielded, by its name.
        shapes: Shapes that a capability found while it opened, such as those of hosted skills.
        recall: What turns recall, if a capability brings a memory.
        operators: Whether a capability runs operators of members.
        pending: The messages that wait on its threads.
    """

    spec: AgentSpec
    pending: Pending

    def __init__(self, workspace: str) -> None:
        super().__init__(workspace)
        self.clear()

    def clear(self) -> None:
        """Forget all that belongs to an open agent."""
        self.hooks = Hooks()
        self.opened: dict[str, Any] = {}
        self.shapes: list[Shape[Any, Any]] = []
        self.recall: Recall | None = None
        self.operators = False
        self._ready: tuple[Stores, RoleResolver] | None = None
        self._parts: RunnerParts | None = None
        self._runner: TurnRunner | None = None

    def ready(self, stores: Stores, resolver: RoleResolver) -> None:
        """Offer the stores; the capabilities open now."""
        self._ready = stores, resolver

    def complete(self, parts: RunnerParts, runner: TurnRunner) -> None:
        """Offer all parts; the capabilities start now."""
        self._parts, self._runner = parts, runner

    def ended(self) -> None:
        """Tell the capabilities that a turn has ended without its result, or that its thread was removed."""
        for tell in self.hooks.ended:
            tell()

    @property
    def runner(self) -> TurnRunner:
        """Runs the turns of the agent.

        Raises:
            AgentClosed: The agent is not open.
        """
        return _checked(self._runner)

    @property
    def parts(self) -> RunnerParts:
        """All parts of the agent.

        Raises:
            AgentClosed: The agent is not open.
        """
        return _checked(self._parts)

    @property
    def stores(self) -> Stores:
        """The stores of its database."""
        return _checked(self._ready)[0] if self._parts is None else self._parts.stores

    @property
    def resolver(self) -> RoleResolver:
        """Resolves roles."""
        return _checked(self._ready)[1]

    @property
    def database(self) -> Database:
        return self.stores.database

    @property
    def storage(self) -> Storage:
        return self.spec.storage

    @property
    def clock(self) -> Clock:
        return self.spec.clock

    @property
    def registry(self) -> Registry:
        return self.spec.registry

    @property
    def attachments(self) -> Attachments:
        return self.stores.attachments


def inside(of: object) -> AgentRuntime:
    """The runtime of an agent, for code of this package; nothing outside of it can rely on what is in there.

    Args:
        of: A `Runtime` of an agent, or a `WorldAgent`, which this module does not name: it is a part of it.
    """
    if isinstance(of, AgentRuntime):
        return of
    found = getattr(of, "_runtime", None)
    assert isinstance(found, AgentRuntime), "it is the runtime of an agent, or an agent"
    return found


def _checked(value: T | None) -> T:
    if value is None:
        raise AgentClosed("the agent is not open", remedy="use 'async with agent:' or 'await agent.start()'")
    return value


__all__ = ["AgentRuntime", "inside"]
