"""Images and files for models: dspy's own types, and the message parts for them.

`memory.attachments` stores attachments, and `graphs` decides what of a conversation is shown.
"""

from .media import MEDIA_FIELDS, Media, MediaKind
from .typed import as_dspy, parts_of

__all__ = ["MEDIA_FIELDS", "Media", "MediaKind", "as_dspy", "parts_of"]
