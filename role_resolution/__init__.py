"""Roles: texts that shape one call. Resolves the roles of all tiers and composes them. No model is called here."""

from .resolver import Resolution, ResolverOptions, RoleExplanation, RoleResolver, TierExplanation
from .role import ECHOES, NO_ROLE, ROLE_LIMIT, Echo, ResolvedRole, Role, RolePart
from .sources import RoleSource, RoleStore, SqliteRoleStore

__all__ = [
    "ECHOES",
    "NO_ROLE",
    "ROLE_LIMIT",
    "Echo",
    "Resolution",
    "ResolvedRole",
    "ResolverOptions",
    "Role",
    "RoleExplanation",
    "RolePart",
    "RoleResolver",
    "RoleSource",
    "RoleStore",
    "SqliteRoleStore",
    "TierExplanation",
]
