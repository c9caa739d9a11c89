"""Role hosts over MCP: how to reach one, and the role store that it is. Tools of MCP servers are not read here.

Importing this folder does not import `mcp`; making a connection does. `role_resolution` says what a role store is.
"""

from .hosts import LONGEST_ANSWER, TOOLS, HttpHost, StdioHost
from .role_store import HostRoleStore

__all__ = ["LONGEST_ANSWER", "TOOLS", "HostRoleStore", "HttpHost", "StdioHost"]
