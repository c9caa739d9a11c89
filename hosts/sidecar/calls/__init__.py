"""What the tools of the sidecar do. How arguments and answers look is in `contract`, what is asked in `pauses`."""

from .call import Context, House, Noted
from .tools import call_tool

__all__ = ["Context", "House", "Noted", "call_tool"]
