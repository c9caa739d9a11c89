"""`thread.role`: the thread's own role, for as long as the process holds it (R10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core import Scope
from ..role_resolution import Role
from .roles import check_role
from .runtime import TurnRunner


@dataclass(frozen=True, slots=True)
class ThreadRole:
    """Sets and clears the role of one thread. It is held in memory alone; the conversation keeps that it changed.

    Attributes:
        scope: Workspace, account, channel and thread.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope

    def set(self, role: Role, *, ttl: float | None = None) -> None:
        """Set or replace it; it counts from the next turn on, over a thread source of the embedder's.

        Args:
            role: How to go about the turns of this thread.
            ttl: Seconds after which it ends; None is the setting `thread_role_ttl`.

        Raises:
            RoleInvalid, RoleTooLong, InvalidArgument: It is no role, too long, or `ttl` is no time.
            AgentClosed: The agent is not open.
        """
        parts = self._runner.parts
        parts.resolver.threads.set(self._thread, check_role(role), parts.thread_role_ttl if ttl is None else ttl)

    def get(self) -> Role | None:
        """The role that counts for the thread's next turn, where this process has set one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.get(self.scope)

    def clear(self) -> bool:
        """Take it away; True if there was one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.clear(self._thread)

    @property
    def _thread(self) -> str:
        assert self.scope.thread is not None
        return self.scope.thread
