"""The Signatures that make long texts short: the beginning of a conversation, the result of a task. No role."""

from .scrub import ask_without_role, scrubbed
from .signatures import COMPACT, SUMMARISE

__all__ = ["COMPACT", "SUMMARISE", "ask_without_role", "scrubbed"]
