"""The check of an installation, point by point: whether agents can run here. A leaf package.

`testing.role_host_conformance` checks a role host. The command line prints the results.
"""

from ...testing.role_host_conformance import Result
from .check import INSTALLATION_POINTS, check_installation
from .installation import InstallationOptions
from .keys import KeyState, look_at_key, make_key

__all__ = [
    "INSTALLATION_POINTS",
    "InstallationOptions",
    "KeyState",
    "Result",
    "check_installation",
    "look_at_key",
    "make_key",
]
