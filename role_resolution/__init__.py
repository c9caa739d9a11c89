"""Roles: texts that shape one call. Resolves the roles of all tiers and composes them. No model is called here."""

from .resolver import Resolution, ResolverOptions, RoleExplanation, RoleResolver, TierExplanation
from .role import NO_ROLE, ROLE_LIMIT, ResolvedRole, Role
from .sources import RoleSource, RoleStore, SqliteRoleStore

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
