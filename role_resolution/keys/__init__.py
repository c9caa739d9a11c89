"""The key of role digests, which a paused turn stores instead of its role (R13)."""

from .key import RoleKey

__all__ = ["RoleKey"]
