"""Runs an MCP server over HTTP, with limits, tokens and logs, or over standard streams.

`role_host` and `sidecar` decide what to answer. Each of them is a `Service`, which `serve_http` and `serve_stdio` take.
`exchange_messages` is what `serve_stdio` has in common with `acp`, whose protocol is not MCP.
"""

from ..service.spec import ToolSpec
from .address import PATH, Address, HttpOptions
from .http_server import accepted_names, application, serve_http, serving_pages
from .logs import RequestLog, quiet_logs
from .service import Operated, Service, Session, Tokens, id_lists, listed_tools, read_token_file, tool_schemas
from .stdio_server import Received, Sent, exchange_messages, serve_stdio

__all__ = [
    "PATH",
    "Address",
    "HttpOptions",
    "Operated",
    "Received",
    "RequestLog",
    "Sent",
    "Service",
    "Session",
    "Tokens",
    "ToolSpec",
    "accepted_names",
    "application",
    "exchange_messages",
    "id_lists",
    "listed_tools",
    "quiet_logs",
    "read_token_file",
    "serve_http",
    "serve_stdio",
    "serving_pages",
    "tool_schemas",
]
