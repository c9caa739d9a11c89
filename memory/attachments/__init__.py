"""Images and files of a conversation: references in messages, content by its hash in files of the home (T4).

No model and no role. What of them a model is shown is decided in `graphs`, and how in `signatures.media`.
"""

from .attachment import Attachment, attachments_of, read_references
from .references import ATTACHMENT_TABLES, note_references
from .sources import AttachmentSource, Loaded, check_source
from .store import LIMIT, Attachments, check_count

__all__ = [
    "ATTACHMENT_TABLES",
    "LIMIT",
    "Attachment",
    "AttachmentSource",
    "Attachments",
    "Loaded",
    "attachments_of",
    "check_count",
    "check_source",
    "note_references",
    "read_references",
]
