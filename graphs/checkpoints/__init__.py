"""Checkpoints of graphs in the agent's own database, and the heads of threads that they hold."""

from .saver import DURABILITY, CheckpointSaver
from .tables import Key, Rows, Statements

__all__ = ["DURABILITY", "CheckpointSaver", "Key", "Rows", "Statements"]
