"""The roles of a host as a role store (R9). What it keeps in memory, if anything, is `role_resolution`'s matter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..core import Clock, SystemClock, Tier
from ..core.errors import RoleNotStorable, UnknownTier
from ..role_resolution import Role
from .connection import Connection
from .contract import STORED_TIERS, DeleteRole, GetRole, ListRoles, Operation, PutRole
from .failures import Failures
from .hosts import Host, StdioHost

if TYPE_CHECKING:
    from .role_link import RoleLink

T = TypeVar("T")


class ContractRoleStore(ABC):
    """`RoleStore` over the contract of role hosts, whatever carries it.

    A call's and a thread's roles have no way to the host: no method takes them.
    """

    def __init__(self) -> None:
        self._tiers = frozenset({Tier.WORKSPACE, Tier.ACCOUNT})
        self._told: list[Callable[[Tier, str], None]] = []

    @abstractmethod
    async def _reach(self) -> frozenset[Tier]:
        """Connect, if it is not connected; give the tiers that the host offers."""

    @abstractmethod
    async def _call(self, operation: Operation[T]) -> T:
        """Make one call."""

    def _watch(self, scope_ids: dict[Tier, str]) -> None:  # noqa: B027 -- not every host can tell of changes
        """Ask to be told of changes in these scopes, where the host can tell."""

    @property
    def tiers(self) -> frozenset[Tier]:
        """What the host offers, as it said when it was last connected; before that, what every host offers."""
        return self._tiers

    def on_change(self, told: Callable[[Tier, str], None]) -> None:
        """Have `told` called with the tier and scope of each role that the host says has changed."""
        self._told.append(told)

    async def connect(self) -> None:
        """Connect, if it is not connected; then `tiers` is what the host offers.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: The host cannot be reached or used.
            AgentClosed: It is closed, or another event loop uses it.
        """
        self._tiers = await self._reach()

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        """All roles that are set for these scopes, in one round trip; a tier that the host does not offer has none.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: There is no usable answer.
            UnknownTier: A tier is one that is never stored.
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
        """The role of one tier and scope, or None.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: There is no usable answer.
            UnknownTier: The host does not offer the tier.
        """
        await self._connected(tier)
        return await self._call(GetRole(tier, scope_id))

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        """Set or replace it.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: There is no usable answer; the role may be set or not.
            RoleNotStorable: The role has `applies_to` or `exclusive`; nothing was sent.
            RoleTooLong, RoleInvalid: The host refused it.
            UnknownTier: The host does not offer the tier.
        """
        _check_stored(tier)
        if role.applies_to or role.exclusive:
            raise RoleNotStorable(
                f"the {tier} role {role.name!r} has applies_to or exclusive, and a stored role keeps neither",
                remedy="store it without them, or pass it with the call",
            )
        await self._connected(tier)
        await self._call(PutRole(tier, scope_id, role))

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        """Clear it; True if there was one.

        Raises:
            HostUnavailable, HostForbidden, RoleSourceInvalid: There is no usable answer; the role may be gone or not.
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
        for told in self._told:
            told(tier, scope_id)


class HostRoleStore(ContractRoleStore):
    """A role store behind a connection of its own. Making one connects to nothing; the first call does.

    It belongs to the event loop of its first call. Once it is closed there, or that loop is, another loop may use it;
    before that, every method is `AgentClosed` in another loop.

    Args:
        host: Where it is.
        clock: What waits between attempts to connect.
    """

    def __init__(self, host: Host, *, clock: Clock | None = None) -> None:
        super().__init__()
        self._host = host
        self._clock = clock or SystemClock()
        self._failures = Failures(host.label, program=isinstance(host, StdioHost))
        self._connection = Connection(self._link, self._failures, clock=self._clock)

    async def aclose(self) -> None:
        """End the connection, from any task. Calling it again does nothing.

        Raises:
            AgentClosed: Another event loop uses it.
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
        # Here, because the MCP library is loaded only where a host is used.
        from .role_link import RoleLink

        return RoleLink(self._host, self._failures, delay=delay, clock=self._clock, on_change=self._changed)


def _check_stored(tier: Tier) -> None:
    if tier not in STORED_TIERS:
        known = ", ".join(sorted(STORED_TIERS))
        raise UnknownTier(f"the {tier} role cannot be stored", remedy=f"use one of {known}, or pass it to the call")
