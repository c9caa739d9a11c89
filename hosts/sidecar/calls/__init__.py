"""The tools of the sidecar. `contract` defines their arguments and answers, and `pauses` asks people for answers."""

from .call import Context, House, Noted
from .tools import call_tool

__all__ = ["Context", "House", "Noted", "call_tool"]
