"""One life of a connection to a host: it connects, serves calls and change notices, and ends. It loads `mcp`.

`_connection`, one folder up, makes the next link when one is over; how messages get to a host is `_transports`' matter.
"""

from ._link import Link
from ._roles import RoleLink

__all__ = ["Link", "RoleLink"]
