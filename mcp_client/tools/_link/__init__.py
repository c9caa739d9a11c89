"""One life of a connection to an MCP server: its list of tools, its calls, its questions. It loads `mcp`."""

from ._link import Elicit, ToolLink

__all__ = ["Elicit", "ToolLink"]
