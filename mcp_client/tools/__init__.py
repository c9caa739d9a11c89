"""MCP servers as sources of Functions: how to reach one, what of it is offered, and its resources (H2).

Importing this folder does not import `mcp`; connecting does. Who may call a Function is `harness.gate`'s matter.
"""

from .entries import McpEntry
from .resources import McpResource
from .server import McpServer
from .source import McpSource
from .sources import McpSources, check_prefixes

__all__ = ["McpEntry", "McpResource", "McpServer", "McpSource", "McpSources", "check_prefixes"]
