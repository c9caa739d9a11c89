"""The roles of a host as a role store (R9). `role_resolution` decides what is cached in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..core import STORED_TIERS, Clock, SystemClock, Tier
from ..core.errors import UnknownTier
from ..role_resolution import Role
from ..role_resolution.sources import check_fields
from .connection import Connection
from .contract import DeleteRole, GetRole, ListRoles, Operation, PutRole
from .hosts import Failures, Host, StdioHost

if TYPE_CHECKING:
    from .link import RoleLink

T = TypeVar("T")


class ContractRoleStore(ABC):
    """A `RoleStore` over the contract of role hosts. It does not depend on the transport.

    Roles of a call or a thread are never sent to the host: no method accepts them.
    """

    def __init__(self) -> None:
        self._tiers = frozenset({Tier.WORKSPACE, Tier.ACCOUNT})
        self._callbacks: list[Callable[[Tier, str], None]] = []

    @abstractmethod
    async def _reach(self) -> frozenset[Tier]:
        """Connect if needed, and return the tiers that the host offers."""

    @abstractmethod
    async def _call(self, operation: Operation[T]) -> T:
        """Make one call."""

    def _watch(self, scope_ids: dict[Tier, str]) -> None:  # noqa: B027 -- not every host reports changes
        """Subscribe to changes in these scopes, if the host reports them."""

    @property
    def tiers(self) -> frozenset[Tier]:
        """The tiers that the host offered when it was last connected.

        Before the first connection, these are the tiers of every host.
        """
        return self._tiers

    def on_change(self, callback: Callable[[Tier, str], None]) -> None:
        """Call `callback` with the tier and scope of each role that the host reports as changed."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect if needed. Afterwards `tiers` holds what the host offers.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host cannot be reached or used.
            AgentClosed: The store is closed, or another event loop uses it.
        """
        self._tiers = await self._reach()

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        """All roles that are set for these scopes, in one round trip. A tier that the host does not offer has no role.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host gave no usable answer.
            UnknownTier: Roles of this tier are never stored.
        """
        for tier in scope_ids:
            _check_stored(tier)
        await self.connect()
        wanted = {tier: scope_id for tier, scope_id in scope_ids.items() if tier in self._tiers}
        if not wanted:
            return {}
        found = await self._call(ListRoles(wanted))
        self._watch(wanted)
        return found

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        """The role of one tier and scope, or None if there is none.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host gave no usable answer.
            UnknownTier: The host does not offer the tier.
        """
        await self._connected(tier)
        return await self._call(GetRole(tier, scope_id))

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        """Set or replace a role.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host gave no usable answer. It is unknown whether the
                role is set.
            RoleNotStorable: The role has `applies_to`, `exclusive` or `echo`. Nothing was sent.
            RoleTooLong, RoleInvalid: The host refused the role.
            UnknownTier: The host does not offer the tier.
        """
        _check_stored(tier)
        check_fields(tier, role)
        await self._connected(tier)
        await self._call(PutRole(tier, scope_id, role))

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        """Clear a role. Return True if there was one.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host gave no usable answer. It is unknown whether the
                role is cleared.
            UnknownTier: The host does not offer the tier.
        """
        await self._connected(tier)
        return await self._call(DeleteRole(tier, scope_id))

    async def _connected(self, tier: Tier) -> None:
        _check_stored(tier)
        await self.connect()
        if tier not in self._tiers:
            known = ", ".join(sorted(self._tiers))
            raise UnknownTier(f"the {tier} role is not kept by this host", remedy=f"use one of {known}")

    def _changed(self, tier: Tier, scope_id: str) -> None:
        for callback in self._callbacks:
            callback(tier, scope_id)


class HostRoleStore(ContractRoleStore):
    """A role store with its own connection. The first call connects.

    The store belongs to the event loop of its first call. Another loop can use it after it is closed there, or after
    that loop is closed. Before that, every method raises `AgentClosed` in another loop.

    Args:
        host: Where the host is.
        clock: Waits between attempts to connect.
    """

    def __init__(self, host: Host, *, clock: Clock | None = None) -> None:
        super().__init__()
        self._host = host
        self._clock = clock or SystemClock()
        self._failures = Failures(host.label, program=isinstance(host, StdioHost))
        self._connection = Connection(self._link, self._failures, clock=self._clock)

    async def aclose(self) -> None:
        """End the connection. Any task can do this. A second call does nothing.

        Raises:
            AgentClosed: Another event loop uses the store.
        """
        await self._connection.aclose()

    async def _reach(self) -> frozenset[Tier]:
        return (await self._connection.connect()).tiers

    async def _call(self, operation: Operation[T]) -> T:
        return await self._connection.call(lambda link: link.ask(operation), self._host.timeout)

    def _watch(self, scope_ids: dict[Tier, str]) -> None:
        if self._connection.link is not None:
            self._connection.link.watch(scope_ids)

    def _link(self, delay: float) -> RoleLink:
        # Imported here, so that the MCP library is loaded only if a host is used.
        from .link import RoleLink

        return RoleLink(self._host, self._failures, delay=delay, clock=self._clock, on_change=self._changed)


def _check_stored(tier: Tier) -> None:
    if tier not in STORED_TIERS:
        known = ", ".join(sorted(STORED_TIERS))
        raise UnknownTier(f"the {tier} role cannot be stored", remedy=f"use one of {known}, or pass it to the call")
