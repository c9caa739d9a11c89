"""Role hosts over MCP: how to reach one, and how to use it as a role store. Tools of MCP servers are in `tools`.

Importing this folder does not import `mcp`; making a connection does. `role_resolution` says what a role store is.
"""

from .hosts import LONGEST_ANSWER, TOOLS, HttpHost, StdioHost
from .role_store import HostRoleStore

__all__ = ["LONGEST_ANSWER", "TOOLS", "HostRoleStore", "HttpHost", "StdioHost"]
