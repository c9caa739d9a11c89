"""An embedder's options for roles, and access to the stored ones (R9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..core import Tier, check_id
from ..core.errors import InvalidArgument, RoleInvalid, UnknownTier
from ..mcp_client import HttpHost, StdioHost
from ..role_resolution import Role, RoleResolver, RoleSource, RoleStore

_SOURCE_TIERS = (Tier.THREAD, Tier.CHANNEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Where roles come from, and how several become one.

    Attributes:
        host: Keeps workspace and account roles, and channel roles if it offers them: a host that is reached over MCP,
            or the embedder's own store. None means the setting `role_host`, else the embedded store.
        sources: Functions that give the thread and channel tiers that the host does not offer.
        policy: `stack` joins all tiers that apply into one text, `block` uses only the highest (R4).
        on_unavailable: `fail` ends a turn before any model call if a source is down, `skip` does without it (R14).
        on_request: How a person's request in words for a role of their thread is handled. `ignore` does nothing; with
            `ask` the conversation can make the message the thread's role, once a person has approved (R10).
    """

    host: HttpHost | StdioHost | RoleStore | None = None
    sources: Mapping[Tier, RoleSource] = field(default_factory=dict)
    policy: Literal["stack", "block"] = "stack"
    on_unavailable: Literal["fail", "skip"] = "fail"
    on_request: Literal["ignore", "ask"] = "ignore"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("policy", self.policy, ("stack", "block")),
            ("on_unavailable", self.on_unavailable, ("fail", "skip")),
            ("on_request", self.on_request, ("ignore", "ask")),
        ):
            if value not in known:
                raise InvalidArgument(f"{name} {value!r} is unknown", remedy=f"use {' or '.join(map(repr, known))}")
        if self.host is not None and not isinstance(self.host, HttpHost | StdioHost | RoleStore):
            raise InvalidArgument(
                f"the role host {type(self.host).__name__!r} is neither HttpHost, StdioHost nor a RoleStore",
                remedy="pass HttpHost(url), StdioHost(argv), or an object with tiers, list, get, put and delete",
            )
        for tier, source in self.sources.items():
            if Tier.parse(tier) not in _SOURCE_TIERS:
                raise UnknownTier(
                    f"the {tier} tier takes no source", remedy="pass sources for the thread or channel tier only"
                )
            if not callable(source):
                raise InvalidArgument(
                    f"the source of the {tier} tier is not callable", remedy="pass an async function of the scope"
                )


class StoredRoles:
    """Read and change the stored roles: `agent.roles`. They are stored at the role host, or in the embedded store.

    Args:
        resolver: Resolves roles from the store.
        workspace: The agent's workspace, used if no scope is given.
    """

    def __init__(self, resolver: RoleResolver, workspace: str) -> None:
        self._store = resolver.store
        self._workspace = workspace

    async def list(self, scope_ids: Mapping[Tier, str] | None = None) -> dict[Tier, Role]:
        """Return all roles that are set for these scopes.

        Args:
            scope_ids: The scope of each tier to look at; None is this workspace alone.

        Raises:
            UnknownTier: A tier is not one that is stored here.
        """
        given = scope_ids if scope_ids is not None else {Tier.WORKSPACE: self._workspace}
        return await self._store.list(dict([await self._scope(tier, scope_id) for tier, scope_id in given.items()]))

    async def get(self, tier: Tier | str, *, scope_id: str | None = None) -> Role | None:
        """Return the role of one tier and scope, or None.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.

        Raises:
            UnknownTier, InvalidArgument: The tier is not stored here, or its scope is missing.
        """
        return await self._store.get(*await self._scope(tier, scope_id))

    async def put(self, tier: Tier | str, role: Role, *, scope_id: str | None = None) -> None:
        """Set or replace the role of one tier and scope.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            role: The role. It must have neither `applies_to` nor `exclusive`.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.

        Raises:
            RoleNotStorable, RoleTooLong, UnknownTier, InvalidArgument: The role or its place is invalid; no change.
        """
        await self._store.put(*await self._scope(tier, scope_id), check_role(role))

    async def delete(self, tier: Tier | str, *, scope_id: str | None = None) -> bool:
        """Clear the role of one tier and scope; returns True if there was one.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.

        Raises:
            UnknownTier, InvalidArgument: The tier is not stored here, or its scope is missing.
        """
        return await self._store.delete(*await self._scope(tier, scope_id))

    async def _scope(self, tier: Tier | str, scope_id: str | None) -> tuple[Tier, str]:
        parsed = Tier.parse(tier)
        if parsed is Tier.CHANNEL and parsed not in self._store.tiers:
            await self._store.connect()  # a host says only once it is connected whether it offers channel roles
        if parsed not in self._store.tiers:
            known = ", ".join(sorted(self._store.tiers))
            raise UnknownTier(f"the {parsed} role is not stored here", remedy=f"use one of {known}")
        if scope_id is None and parsed is Tier.WORKSPACE:
            scope_id = self._workspace
        if scope_id is None:
            raise InvalidArgument(f"the {parsed} role needs a scope", remedy="pass scope_id=, the id of its " + parsed)
        return parsed, check_id(f"{parsed} scope", scope_id)


def check_role(role: object) -> Role:
    """Return `role` if it is a `Role`.

    Raises:
        RoleInvalid: It is of another type; its value is not shown.
    """
    if isinstance(role, Role):
        return role
    raise RoleInvalid(f"`role` must be a Role, got a {type(role).__name__}", remedy="make it with Role(name, content)")
