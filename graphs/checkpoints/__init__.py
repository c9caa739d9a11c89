"""Checkpoints of graphs in the agent's own database, and the one function that runs graphs with them."""

from .saver import DURABILITY, CheckpointSaver, run_graph
from .tables import Key, Rows, Statements

__all__ = ["DURABILITY", "CheckpointSaver", "Key", "Rows", "Statements", "run_graph"]
