"""The key of role digests: what a paused turn keeps of its role, and how that is compared (R13)."""

from .key import RoleKey

__all__ = ["RoleKey"]
