"""A thread's conversation to a file and back: `agent.upkeep.export(...)` and `import_thread(...)`.

A conversation is its messages with their attachments and marks. Turns, calls, checkpoints and roles are not part of it.
"""

from .exporting import Exported, export
from .importing import Imported, import_thread
from .places import readable

__all__ = ["Exported", "Imported", "export", "import_thread", "readable"]
