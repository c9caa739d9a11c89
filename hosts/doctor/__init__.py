"""Two checks, point by point: of a role host in any language over the wire, and of an installation. A leaf.

What a host must do is written in `docs/role-host.md`; a client that works with it is `mcp_client`, which forgives more
than a check may. Printing is the command line's matter.
"""

from ._host import HostCheckOptions, check_host
from ._outcomes import Result, Status
from ._points import HOST_POINTS, INSTALLATION_POINTS, Point
from .check import check_installation
from .keys import KeyState, look_at_key, make_key
from .options import InstallationOptions

__all__ = [
    "HOST_POINTS",
    "INSTALLATION_POINTS",
    "HostCheckOptions",
    "InstallationOptions",
    "KeyState",
    "Point",
    "Result",
    "Status",
    "check_host",
    "check_installation",
    "look_at_key",
    "make_key",
]
