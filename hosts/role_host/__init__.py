"""The reference role host: an MCP face on a `RoleStore`, over stdio or streamable HTTP (R9). A leaf.

The contract is written down in `docs/role-host.md`; a client of it is `mcp_client`. A host in another language needs
none of this. What it logs is the business of whoever embeds it; the command line keeps texts out (`quiet_logs`).
"""

from ..serving import Address, Tokens, quiet_logs
from .access import EVERYTHING, Grant, read_token_file
from .contract import CONTRACT, schemas
from .server import RoleHost
from .serving import serve_http, serve_stdio

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
