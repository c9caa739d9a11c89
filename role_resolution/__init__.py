"""Roles: what shapes one call, from which tiers it comes and how they become one value. No model is called here."""

from ._compose import NO_ROLE, ResolvedRole
from ._resolver import (
    Resolution,
    ResolverOptions,
    RoleExplanation,
    RoleResolver,
    TierExplanation,
)
from ._role import ROLE_LIMIT, Role
from ._sources import RoleSource, RoleStore
from ._store import SqliteRoleStore

__all__ = [
    "NO_ROLE",
    "ROLE_LIMIT",
    "Resolution",
    "ResolvedRole",
    "ResolverOptions",
    "Role",
    "RoleExplanation",
    "RoleResolver",
    "RoleSource",
    "RoleStore",
    "SqliteRoleStore",
    "TierExplanation",
]
