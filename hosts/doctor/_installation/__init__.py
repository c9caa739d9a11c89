"""The check of an installation. The points are in `_points`."""

from ._check import CHECKS, check_installation
from ._keys import KeyState, look_at_key, make_key
from ._options import InstallationOptions

__all__ = ["CHECKS", "InstallationOptions", "KeyState", "check_installation", "look_at_key", "make_key"]
