"""The check of an installation. The points are in `_points`."""

from ._check import CHECKS, check_installation
from ._options import InstallationOptions

__all__ = ["CHECKS", "InstallationOptions", "check_installation"]
