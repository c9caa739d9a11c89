"""The resource `role://{tier}/{scope_id}`: reading it, and being told when the role behind it changes.

Changes are told to streams of `subscriptions/listen` (revision 2026-07-28), and only those that came through this
host: another process on the same file is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ResourceTemplate,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from ...core import Tier, check_id
from ...core.errors import WorldAgentError
from .access import Grant
from .contract import CONTRACT, Code, offered

TEMPLATE = ResourceTemplate(
    name="role",
    uri_template="role://{tier}/{scope_id}",
    mime_type="application/json",
    description="The role of one tier and scope. The id is percent-encoded but for A-Z, a-z, 0-9 and -._~",
)


class Changes:
    """Tells whoever listens which role has changed.

    Args:
        grant: What the caller of the request at hand may use.
    """

    def __init__(self, grant: Callable[[], Grant]) -> None:
        self._grant = grant
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)

    async def tell(self, tier: Tier, scope_id: str) -> None:
        """Say that this role was set, replaced or cleared."""
        await self._bus.publish(ResourceUpdated(uri=role_uri(tier, scope_id)))

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of changes, if all that it asks for may be used by its caller."""
        for uri in params.notifications.resource_subscriptions or ():
            self.allowed(uri)
        return await self._listeners(ctx, params)

    def allowed(self, uri: str) -> tuple[Tier, str]:
        """The tier and scope that `uri` names.

        Raises:
            MCPError: It names none, or one that the caller may not use.
        """
        place = parse_role_uri(uri)
        if place is None:
            raise refusal("invalid", "the address is not role://{tier}/{scope_id}, percent-encoded")
        if not self._grant().allows(*place):
            raise refusal("forbidden", "the token does not reach this scope")
        return place

    def end(self) -> None:
        """End every stream, after what it still has to tell."""
        self._listeners.close()


def role_uri(tier: Tier, scope_id: str) -> str:
    """The address of a role; there is one spelling for each."""
    return f"role://{tier.value}/{quote(scope_id, safe='')}"


def parse_role_uri(uri: str) -> tuple[Tier, str] | None:
    """The tier and scope that `uri` names, or None where it is not spelled as `role_uri` does."""
    tier, _, scope_id = uri.removeprefix("role://").partition("/")
    try:
        place = (Tier.parse(tier), check_id("scope", unquote(scope_id)))
    except WorldAgentError:
        return None
    return place if place[0] in offered() and role_uri(*place) == uri else None


def refusal(code: Code, text: str) -> MCPError:
    """An error of the protocol that carries a code of the contract."""
    return MCPError(INVALID_PARAMS, f"{code}: {text}", {"contract": CONTRACT, "code": code})


__all__ = ["TEMPLATE", "Changes", "parse_role_uri", "refusal", "role_uri"]
