"""What the tools of the sidecar do. How arguments and answers look is in `_contract`, what is asked in `_pauses`."""

from ._call import Context, House, Noted
from ._tools import call_tool

__all__ = ["Context", "House", "Noted", "call_tool"]
