"""An MCP server on a transport, for hosts that serve: HTTP with limits, tokens and logs, or standard streams. A leaf.

What is answered is decided in `role_host` and `sidecar`: a `Service`, which `serve_http` and `serve_stdio` take.
"""

from ._address import Address
from ._http import application, serve_http
from ._logs import quiet_logs
from ._options import HttpOptions
from ._requests import RequestLog
from ._schemas import output_schema, wire_schema
from ._service import Operated, Service
from ._stdio import serve_stdio
from ._tokens import Tokens, read_token_file

__all__ = [
    "Address",
    "HttpOptions",
    "Operated",
    "RequestLog",
    "Service",
    "Tokens",
    "application",
    "output_schema",
    "quiet_logs",
    "read_token_file",
    "serve_http",
    "serve_stdio",
    "wire_schema",
]
