"""The sidecar: all surfaces of the agent as an MCP server, for hosts in any language (T4, T10). A leaf.

The contract is written down in `docs/sidecar.md`. A transport is in `serving`; the command line puts both together.
"""

from .access import ANY, EVERYTHING, Grant, read_token_file, tokens_of_setting
from .client_roles import ClientRoles
from .contract import CONTRACT, schemas
from .pool import Limits
from .server import Sidecar

__all__ = [
    "ANY",
    "CONTRACT",
    "EVERYTHING",
    "ClientRoles",
    "Grant",
    "Limits",
    "Sidecar",
    "read_token_file",
    "schemas",
    "tokens_of_setting",
]
