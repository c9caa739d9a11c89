"""Maintenance of an agent's database: remove, export and import threads, prune checkpoints, make backups.

It needs no engine and no model, and loads neither dspy nor langgraph. `threads` has the state of threads.
"""

from .accounts import RemovedAccount
from .backup import Backup, back_up
from .by_age import PrunedByAge
from .exchange import Exported, Imported
from .removal import AGE_LIMIT, KEEP_LIMIT, Pruned, Removed, Retention
from .upkeep import Upkeep

__all__ = [
    "AGE_LIMIT",
    "KEEP_LIMIT",
    "Backup",
    "Exported",
    "Imported",
    "Pruned",
    "PrunedByAge",
    "Removed",
    "RemovedAccount",
    "Retention",
    "Upkeep",
    "back_up",
]
