"""Where roles come from: the protocols an embedder may implement. No implementation is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from ..core import Scope, Tier
from .role import Role


@runtime_checkable
class RoleSource(Protocol):
    """Gives the role of one tier: `Roles(sources={Tier.CHANNEL: my_source})`."""

    async def __call__(self, scope: Scope, /) -> Role | None:
        """Return the tier's role in `scope`, or None where none is set. Raising means that the source is down (R14)."""
        ...


@runtime_checkable
class RoleStore(Protocol):
    """Keeps one role per tier and scope: content, tier and name, nothing else (R9).

    Attributes:
        tiers: The tiers it offers: workspace and account, and channel where it has them.
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
        """Set or replace it.

        Raises:
            RoleNotStorable: The role has `applies_to` or `exclusive`.
            RoleTooLong: Its content is over the limit.
        """
        ...

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        """Clear it; True if there was one."""
        ...


@runtime_checkable
class RemoteStore(RoleStore, Protocol):
    """A `RoleStore` behind a wire, whose `tiers` are known for sure once it is connected."""

    async def connect(self) -> None:
        """Connect, if it is not connected.

        Raises:
            HostError: It cannot be reached or used.
        """
        ...

    def on_change(self, told: Callable[[Tier, str], None], /) -> None:
        """Have `told` called with tier and scope where a role was changed elsewhere; never, where that is not known."""
        ...
