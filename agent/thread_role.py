"""`thread.role`: the thread's own role, which this process holds in memory (R10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core import Scope
from ..role_resolution import Role
from .roles import check_role
from .runtime import TurnRunner


@dataclass(frozen=True, slots=True)
class ThreadRole:
    """Sets and clears the role of one thread. Only memory holds it; the conversation records that it changed.

    Attributes:
        scope: Workspace, account, channel and thread.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope

    def set(self, role: Role, *, ttl: float | None = None) -> None:
        """Set or replace the role. It applies from the next turn on and overrides the embedder's thread source.

        Args:
            role: The role for the turns of this thread.
            ttl: Seconds after which it expires; None is the setting `thread_role_ttl`.

        Raises:
            RoleInvalid, RoleTooLong, InvalidArgument: `role` is invalid or too long, or `ttl` is invalid.
            AgentClosed: The agent is not open.
        """
        parts = self._runner.parts
        parts.resolver.threads.set(self._thread, check_role(role), parts.thread_role_ttl if ttl is None else ttl)

    def get(self) -> Role | None:
        """Return the role that applies to the thread's next turn, if this process has set one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.get(self.scope)

    def clear(self) -> bool:
        """Remove the role; returns True if there was one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.clear(self._thread)

    @property
    def _thread(self) -> str:
        assert self.scope.thread is not None
        return self.scope.thread
