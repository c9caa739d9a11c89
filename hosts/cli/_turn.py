"""For `_chat`, which still imports this name; see `turn`."""

from .turn import DRAIN, as_said_here, pauses_text, resume_command

__all__ = ["DRAIN", "as_said_here", "pauses_text", "resume_command"]
