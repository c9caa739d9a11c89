"""Sources of roles: the protocols that an embedder can implement. This module imports no implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from ..core import Scope, Tier
from .role import Role


@runtime_checkable
class RoleSource(Protocol):
    """Returns the role of one tier: `Roles(sources={Tier.CHANNEL: my_source})`."""

    async def __call__(self, scope: Scope, /) -> Role | None:
        """Return the tier's role in `scope`, or None. An exception means that the source is down (R14)."""
        ...


@runtime_checkable
class RoleStore(Protocol):
    """Stores one role per tier and scope: its content, tier and name, nothing else (R9).

    Attributes:
        tiers: The tiers it offers: workspace, account, and channel if the store has channels.
    """

    @property
    def tiers(self) -> frozenset[Tier]: ...

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        """All roles that are set for these scopes, in one round trip."""
        ...

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        """The role of one tier and scope, or None."""
        ...

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        """Set or replace the role.

        Raises:
            RoleNotStorable: The role has `applies_to` or `exclusive`.
            RoleTooLong: Its content is over the limit.
        """
        ...

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        """Clear the role; True if there was one."""
        ...


@runtime_checkable
class RemoteStore(RoleStore, Protocol):
    """A remote `RoleStore`. Its `tiers` are final only once it is connected."""

    async def connect(self) -> None:
        """Connect, if it is not connected.

        Raises:
            HostError: It cannot be reached or used.
        """
        ...

    def on_change(self, callback: Callable[[Tier, str], None], /) -> None:
        """Register a callback. It gets tier and scope when another client changes a role, if the store knows that."""
        ...
