"""Images and files of a conversation: references in messages, and content in files of the home by its hash (T4).

No model and no role is used here. `graphs` decides what a model sees of them, and `signatures.media` in which form.
"""

from .sources import Attachment, AttachmentSource, Loaded, attachments_of, check_source, read_references
from .store import (
    ATTACHMENT_TABLES,
    LIMIT,
    READER_TABLES,
    REFERENCES,
    Attachments,
    check_count,
    note_references,
    reader_of,
)

__all__ = [
    "ATTACHMENT_TABLES",
    "LIMIT",
    "READER_TABLES",
    "REFERENCES",
    "Attachment",
    "AttachmentSource",
    "Attachments",
    "Loaded",
    "attachments_of",
    "check_count",
    "check_source",
    "note_references",
    "read_references",
    "reader_of",
]
