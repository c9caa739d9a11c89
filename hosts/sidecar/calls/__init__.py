"""The tools of the sidecar. `contract` defines their arguments and answers, and `pauses` asks people for answers."""

from .call import CallFacts, Context, SidecarParts
from .tools import call_tool

__all__ = ["CallFacts", "Context", "SidecarParts", "call_tool"]
