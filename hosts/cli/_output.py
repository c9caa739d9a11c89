"""For `_chat`, which still imports this name; see `output`."""

from .output import WANTING, Form, Output, table, waiting_text

__all__ = ["WANTING", "Form", "Output", "table", "waiting_text"]
