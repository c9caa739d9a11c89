"""Which scopes a bearer token grants, and the token file of a role host. `serving` verifies tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, ResourceTemplate, SubscriptionsListenRequestParams, SubscriptionsListenResult

from ...core import Tier, check_id
from ...core.errors import WorldAgentError
from ..serving import Tokens
from ..serving import read_token_file as read_tokens
from .contract import CONTRACT, Code, offered

ANY = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """The scopes that a caller can use.

    Attributes:
        scopes: The ids of each tier; `*` among them means every id. A tier that is left out is refused.
    """

    scopes: Mapping[Tier, frozenset[str]]

    def __post_init__(self) -> None:
        for tier, ids in self.scopes.items():
            for scope_id in ids:
                check_id(f"{tier} scope", scope_id)

    def allows(self, tier: Tier, scope_id: str) -> bool:
        """Whether the caller can read and change the role of this tier and scope."""
        return not self.scopes.get(tier, frozenset()).isdisjoint((scope_id, ANY))


EVERYTHING = Grant({tier: frozenset({ANY}) for tier in offered()})
NOTHING = Grant({})


def read_token_file(path: Path, grant: Grant) -> Tokens[Grant]:
    """Read the tokens of a host from a file.

    A file whose name ends in `.toml` has tokens with their scopes. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    example = '[[token]], token = "..." and lists such as workspace = ["novel"], account = ["*"]'
    return read_tokens(path, grant, entry=_granted, example=example)


def _granted(table: dict[str, Any]) -> Grant:
    names = {tier.value for tier in offered()}
    if not table.keys() <= names:
        raise ValueError(f"must have only the keys token, {', '.join(sorted(names))}")
    scopes: dict[Tier, frozenset[str]] = {}
    for name, ids in table.items():
        if not isinstance(ids, list) or not all(isinstance(scope_id, str) for scope_id in ids):
            raise ValueError(f"must have a list of ids as {name}")
        scopes[Tier(name)] = frozenset(ids)
    return Grant(scopes)


TEMPLATE = ResourceTemplate(
    name="role",
    uri_template="role://{tier}/{scope_id}",
    mime_type="application/json",
    description="The role of one tier and scope. The id is percent-encoded but for A-Z, a-z, 0-9 and -._~",
)


class Changes:
    """Notifies the listening clients which role has changed.

    Args:
        grant: Returns the grant of the current request's caller.
    """

    def __init__(self, grant: Callable[[], Grant]) -> None:
        self._grant = grant
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)

    async def notify(self, tier: Tier, scope_id: str) -> None:
        """Send a notification that this role was set, replaced or cleared."""
        await self._bus.publish(ResourceUpdated(uri=role_uri(tier, scope_id)))

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of changes, if the caller can use all roles that it subscribes to."""
        for uri in params.notifications.resource_subscriptions or ():
            self.check_uri(uri)
        return await self._listeners(ctx, params)

    def check_uri(self, uri: str) -> tuple[Tier, str]:
        """Return the tier and scope that `uri` names.

        Raises:
            MCPError: The URI is invalid, or names a role that the caller cannot use.
        """
        place = parse_role_uri(uri)
        if place is None:
            raise refusal("invalid", "the URI must be role://{tier}/{scope_id}, percent-encoded")
        if not self._grant().allows(*place):
            raise refusal("forbidden", "the token does not reach this scope")
        return place

    def end(self) -> None:
        """End every stream after its pending notifications."""
        self._listeners.close()


def role_uri(tier: Tier, scope_id: str) -> str:
    """Return the URI of a role. Each role has exactly one spelling."""
    return f"role://{tier.value}/{quote(scope_id, safe='')}"


def parse_role_uri(uri: str) -> tuple[Tier, str] | None:
    """Return the tier and scope that `uri` names, or None if its spelling differs from that of `role_uri`."""
    tier, _, scope_id = uri.removeprefix("role://").partition("/")
    try:
        place = (Tier.parse(tier), check_id("scope", unquote(scope_id)))
    except WorldAgentError:
        return None
    return place if place[0] in offered() and role_uri(*place) == uri else None


def refusal(code: Code, text: str) -> MCPError:
    """Return an error of the protocol that carries a code of the contract."""
    return MCPError(INVALID_PARAMS, f"{code}: {text}", {"contract": CONTRACT, "code": code})
