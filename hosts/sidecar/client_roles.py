"""Stored roles that the sidecar's own client keeps. The sidecar requests them over the client's connection (R9).

Such a client is a role host (`docs/reference/role-host.md`). It says so as it connects: `capabilities.experimental` has
`"worldagent/roles": {"contract": 1}`. It adds `"tiers"` if it keeps other tiers than `workspace` and `account`. The
sidecar sends it `tools/call` requests. This requires a connection on which a server can send requests: standard
streams, with a revision before 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolRequestParams, CallToolResult, ServerRequest
from mcp.types import CallToolRequest as ToolRequest
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ...core import STORED_TIERS, Tier
from ...mcp_client.contract import CONTRACT, Answer, Operation
from ...mcp_client.hosts import Failure, Failures
from ...mcp_client.role_store import ContractRoleStore
from ..service.call import Refused

CAPABILITY: Final = "worldagent/roles"
"""The experimental capability with which a client declares that it keeps roles."""

_FAILURES: Final = Failures("the client")
MAX_CONCURRENT_CALLS: Final = 64  # concurrent calls that wait for the client's answer
_DEFAULT: Final = frozenset({Tier.WORKSPACE, Tier.ACCOUNT})

T = TypeVar("T")


class ClientRoles(ContractRoleStore):
    """The roles of a sidecar's single client, as a role store for its agents.

    The first call decides. If its client keeps roles, the sidecar serves no other client, so roles of one client never
    reach turns of another. If it keeps none, the sidecar never requests roles from any client. Pass this to
    `Sidecar(client_roles=)`, and as `Roles(host=)` to the agents that are made while it is `offered`.

    Args:
        timeout: Seconds that the client can take for a call.
    """

    def __init__(self, *, timeout: float = 10.0) -> None:
        super().__init__()
        self._timeout = timeout
        self._session: ServerSession | None = None
        self._offer: frozenset[Tier] | Failure | None = None
        self._decided = False
        self._asking = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    @property
    def offered(self) -> bool:
        """Whether the client has declared that it keeps roles."""
        return self._offer is not None

    def serve(self, session: ServerSession) -> None:
        """Record the client of a call, before the call runs.

        Args:
            session: The session of the call.

        Raises:
            Refused: Another client keeps the roles.
        """
        if not self._decided:
            self._decided, self._offer = True, _offer_of(session)
            self._session = None if self._offer is None else session
        elif self._session is not None and not _same(self._session, session):
            raise Refused(
                "forbidden",
                "the sidecar already uses the roles of another client",
                remedy="start a sidecar for each client that keeps roles",
            )

    async def _reach(self) -> frozenset[Tier]:
        if isinstance(self._offer, Failure):
            raise self._offer.error()
        if self._offer is None:
            raise _gone().error()
        return self._offer

    async def _call(self, operation: Operation[T]) -> T:
        outcome: T | Failure = _gone()
        if self._session is not None:
            async with self._asking:
                outcome = await self._asked(self._session, operation)
        if isinstance(outcome, Failure):
            raise outcome.error()
        return outcome

    async def _asked(self, session: ServerSession, operation: Operation[T]) -> T | Failure:
        request = ToolRequest(params=CallToolRequestParams(name=operation.tool, arguments=operation.arguments()))
        try:
            # The library's types do not allow a server to call a tool; on the wire it is an ordinary request.
            result = await session.send_request(
                cast("ServerRequest", request), CallToolResult, request_read_timeout_seconds=self._timeout
            )
        except MCPError as error:
            return _meaning(error.code, self._timeout)
        except TimeoutError:
            return _gone()
        except ValidationError:
            return _FAILURES.invalid("sent an answer that is not a valid MCP result")
        return operation.read(Answer(cast("object", result.structured_content), bool(result.is_error)), _FAILURES)


def _meaning(code: int, seconds: float) -> Failure:
    """Map the code of an error to a failure. The text of the error is ignored, since it can be a role."""
    if code == REQUEST_TIMEOUT:
        remedy = "find out why it is slow, or raise the setting role_host_timeout"
        return _FAILURES.unavailable(f"did not answer within {seconds:g} s", remedy)
    return _gone() if code == CONNECTION_CLOSED else _FAILURES.of_code(code)


def _gone() -> Failure:
    return _FAILURES.unavailable("is not connected", "connect again and repeat the call")


def _offer_of(session: ServerSession) -> frozenset[Tier] | Failure | None:
    """Return the tiers that a client keeps; None if it keeps no roles or cannot receive requests."""
    capabilities = session.client_capabilities
    offer = ((capabilities.experimental if capabilities else None) or {}).get(CAPABILITY)
    if offer is None or session.protocol_version in MODERN_PROTOCOL_VERSIONS or not session.can_send_request:
        return None
    contract: object = offer.get("contract")
    if type(contract) is not int or contract != CONTRACT:
        return _FAILURES.invalid(f"does not declare version {CONTRACT} of the contract")
    return _tiers_of(offer)


def _tiers_of(offer: Mapping[str, Any]) -> frozenset[Tier] | Failure:
    given: object = offer.get("tiers", [*_DEFAULT])
    if isinstance(given, list) and given and all(isinstance(each, str) and each in STORED_TIERS for each in given):
        return frozenset(Tier(each) for each in given)
    return _FAILURES.invalid("declares tiers that no host can keep")


def _same(one: ServerSession, other: ServerSession) -> bool:
    """Whether two calls came over one connection. All calls of a connection share the object `client_params`."""
    return one is other or (one.client_params is not None and one.client_params is other.client_params)
