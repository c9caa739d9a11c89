"""Messages that a person marked as kept. The model sees them word for word, however long the thread becomes."""

from .kept import KEPT_TABLES, MOST, KeptMessages

__all__ = ["KEPT_TABLES", "MOST", "KeptMessages"]
