"""Checkpoints as a part of a copy from one database to another."""

from ._checkpoints import CHECKPOINT_TABLES, CheckpointCopy

__all__ = ["CHECKPOINT_TABLES", "CheckpointCopy"]
