"""What is done to an agent's database beside its turns: removing, exporting and importing threads, pruning, backing up.

No engine and no model: it loads neither dspy nor langgraph. Where threads stand is `threads`' matter.
"""

from .backup import Backup, back_up
from .exchange import Exported, Imported
from .parts import UpkeepParts
from .removal import Removed
from .retention import AGE_LIMIT, KEEP_LIMIT, Pruned, Retention
from .upkeep import Upkeep

__all__ = [
    "AGE_LIMIT",
    "KEEP_LIMIT",
    "Backup",
    "Exported",
    "Imported",
    "Pruned",
    "Removed",
    "Retention",
    "Upkeep",
    "UpkeepParts",
    "back_up",
]
