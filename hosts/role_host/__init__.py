"""The reference role host: serves a `RoleStore` over MCP, by stdio or streamable HTTP (R9).

`docs/reference/role-host.md` specifies the contract, and `mcp_client` is a client of it. A host in another language
needs nothing from this package. The embedding program configures logging; the command line keeps texts out of logs
(`quiet_logs`).
"""

from ..serving import Address, Tokens, quiet_logs
from .contract import CONTRACT, schemas
from .server import RoleHost, serve_http, serve_stdio
from .tools import EVERYTHING, Grant, read_token_file

__all__ = [
    "CONTRACT",
    "EVERYTHING",
    "Address",
    "Grant",
    "RoleHost",
    "Tokens",
    "quiet_logs",
    "read_token_file",
    "schemas",
    "serve_http",
    "serve_stdio",
]
