"""Checks a role host, in any programming language, against its contract, over the wire.

A program that keeps roles for agents runs these checks in its own tests. `worldagent doctor --role-host` runs the same
checks. The contract is in `docs/reference/role-host.md`; `docs/guides/testing.md` shows how a test calls them.
"""

from .check import HOST_POINTS, assert_conforms, check_host
from .kit import HostCheckOptions
from .points import Failed, Point, Points, Result, Skipped, Status, Tell, Warned, settle

__all__ = [
    "HOST_POINTS",
    "Failed",
    "HostCheckOptions",
    "Point",
    "Points",
    "Result",
    "Skipped",
    "Status",
    "Tell",
    "Warned",
    "assert_conforms",
    "check_host",
    "settle",
]
