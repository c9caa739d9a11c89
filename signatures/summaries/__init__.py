"""The Signatures that shorten texts: the beginning of a conversation, the result of a task. They have no role."""

from .scrub import ask_without_role, scrubbed
from .signatures import COMPACT, SUMMARISE

__all__ = ["COMPACT", "SUMMARISE", "ask_without_role", "scrubbed"]
