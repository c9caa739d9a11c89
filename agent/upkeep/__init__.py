"""What is done to an agent's database beside its turns: removing, exporting and importing threads, pruning, backing up.

No engine and no model: it loads neither dspy nor langgraph. Where threads stand is `threads`' matter.
"""

from ._backup import Backup, back_up
from ._parts import UpkeepParts
from ._removal import Removed
from ._retention import AGE_LIMIT, KEEP_LIMIT, Pruned, Retention
from ._upkeep import Upkeep
from .exchange import Exported, Imported

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
