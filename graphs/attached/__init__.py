"""What the model is shown of the attachments of a conversation."""

from .shown import Shown, check_taken, room_of, size_of, texts_of

__all__ = ["Shown", "check_taken", "room_of", "size_of", "texts_of"]
