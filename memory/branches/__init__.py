"""Branches: threads whose head was set by hand, as a fork, a replay or an edit does. One row a thread, no message."""

from .branches import BRANCH_TABLES, Branch, Branches, head_of

__all__ = ["BRANCH_TABLES", "Branch", "Branches", "head_of"]
