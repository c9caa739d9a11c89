"""The sidecar: all surfaces of the agent as an MCP server, for hosts in any language (T4, T10).

`docs/reference/sidecar.md` specifies the contract. `serving` has the transports, and the command line combines the two.
"""

from ..service.arguments import CONTRACT
from ..service.call import ANY, Grant
from ..service.pool import Limits
from .client_roles import ClientRoles
from .server import EVERYTHING, Sidecar, read_token_file, tokens_of_setting
from .tools import schemas

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
