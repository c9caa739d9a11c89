"""Runs an MCP server over HTTP, with limits, tokens and logs, or over standard streams.

`role_host` and `sidecar` decide what to answer. Each of them is a `Service`, which `serve_http` and `serve_stdio` take.
"""

from .address import Address, HttpOptions, check_limits
from .http_server import application, serve_http, serving_pages
from .logs import RequestLog, quiet_logs
from .service import Operated, Service, Tokens, ToolSpec, id_lists, listed_tools, read_token_file, tool_schemas
from .stdio_server import serve_stdio

__all__ = [
    "Address",
    "HttpOptions",
    "Operated",
    "RequestLog",
    "Service",
    "Tokens",
    "ToolSpec",
    "application",
    "check_limits",
    "id_lists",
    "listed_tools",
    "quiet_logs",
    "read_token_file",
    "serve_http",
    "serve_stdio",
    "serving_pages",
    "tool_schemas",
]
