"""Branches: threads whose head was set explicitly by a fork, a replay or an edit. Each has one row and no messages."""

from .branches import BRANCH_TABLES, Branch, Branches, head_of

__all__ = ["BRANCH_TABLES", "Branch", "Branches", "head_of"]
