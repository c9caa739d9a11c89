"""A web app over all surfaces of the agent, to mount in another app or to run by itself (T4, T10).

Its endpoints take the arguments of the sidecar's tools and answer with the same records; turns come as server-sent
events. `docs/guides/web.md` shows it.
"""

from ..service.call import ANY, Grant
from ..serving import Tokens
from ..sidecar import Limits, read_token_file
from .app import WebApp
from .security import Login

__all__ = ["ANY", "Grant", "Limits", "Login", "Tokens", "WebApp", "read_token_file"]
