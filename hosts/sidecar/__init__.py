"""The sidecar: all surfaces of the agent as an MCP server, for hosts in any language (T4, T10). A leaf.

The contract is written down in `docs/sidecar.md`. A transport is in `serving`; the command line puts both together.
"""

from ._access import ANY, EVERYTHING, Grant, read_token_file, tokens_of_setting
from ._client_roles import ClientRoles
from ._contract import CONTRACT, schemas
from ._pool import Limits
from ._server import Sidecar

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
