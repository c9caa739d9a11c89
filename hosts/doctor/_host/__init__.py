"""The check of a role host over the wire. The points are in `_points`; the contract is in `docs/role-host.md`."""

from ._check import CHECKS, check_host
from ._options import HostCheckOptions

__all__ = ["CHECKS", "HostCheckOptions", "check_host"]
