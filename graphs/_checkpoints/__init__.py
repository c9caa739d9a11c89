"""Checkpoints of graphs in the agent's own database, and the one way graphs are run over them."""

from ._run import DURABILITY, run_graph
from ._saver import CheckpointSaver
from ._tables import Key, Rows, Statements

__all__ = ["DURABILITY", "CheckpointSaver", "Key", "Rows", "Statements", "run_graph"]
