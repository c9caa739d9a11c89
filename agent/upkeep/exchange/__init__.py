"""A thread's conversation to a file and back: `agent.upkeep.export(...)` and `import_thread(...)`.

A conversation is what was said, with its attachments and marks. Turns, calls and checkpoints stay behind, and there is
no role in any of it.
"""

from .exporting import Exported, export
from .importing import Imported, import_thread
from .places import readable

__all__ = ["Exported", "Imported", "export", "import_thread", "readable"]
