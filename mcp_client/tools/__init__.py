"""MCP servers as sources of Functions: how to reach a server, what it offers, and its resources (H2).

Importing this folder does not import `mcp`; connecting does. `harness.gate` decides who can call a Function.
"""

from ..logins import Login
from .capability import Mcp
from .server import McpEntry, McpResource, McpServer
from .source import McpSource
from .sources import McpSources, check_prefixes

__all__ = ["Login", "Mcp", "McpEntry", "McpResource", "McpServer", "McpSource", "McpSources", "check_prefixes"]
