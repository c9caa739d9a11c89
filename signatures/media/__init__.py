"""Images and files as models take them: dspy's own types, and the parts of a message that stand for them.

Not the store of attachments (`memory.attachments`), and not what of a conversation is shown (`graphs`).
"""

from .media import MEDIA_FIELDS, Media, MediaKind
from .typed import as_dspy, parts_of

__all__ = ["MEDIA_FIELDS", "Media", "MediaKind", "as_dspy", "parts_of"]
