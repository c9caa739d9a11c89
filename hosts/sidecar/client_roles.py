"""Stored roles that the sidecar's own client keeps: it is asked over the connection that it made (R9).

The client is a role host then (`docs/role-host.md`), and says so when it connects: `capabilities.experimental` has
`"worldagent/roles": {"contract": 1}`, with `"tiers"` where it keeps others than `workspace` and `account`. It is sent
`tools/call` requests. That takes a connection on which a server may ask: standard streams, and an earlier revision than
2026-07-28.
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

from ...core import Tier
from ...mcp_client.contract import CONTRACT, STORED_TIERS, Answer, Operation
from ...mcp_client.failures import Failure, Failures
from ...mcp_client.role_store import ContractRoleStore
from .ports import Refused

CAPABILITY: Final = "worldagent/roles"
"""What a client declares among its experimental capabilities to be asked for roles."""

_FAILURES: Final = Failures("the client")
_AT_ONCE: Final = 64  # calls that wait for the client's answer
_DEFAULT: Final = frozenset({Tier.WORKSPACE, Tier.ACCOUNT})

T = TypeVar("T")


class ClientRoles(ContractRoleStore):
    """The roles of the one client of a sidecar, as a role store for its agents.

    The first call decides. If its client keeps roles, no other one is served: roles of one client never reach turns of
    another. If it keeps none, nobody is ever asked for roles. Give it to `Sidecar(client_roles=)`, and as
    `Roles(host=)` to the agents that are made while it is `offered`.

    Args:
        timeout: Seconds that the client may take for a call.
    """

    def __init__(self, *, timeout: float = 10.0) -> None:
        super().__init__()
        self._timeout = timeout
        self._session: ServerSession | None = None
        self._offer: frozenset[Tier] | Failure | None = None
        self._decided = False
        self._asking = asyncio.Semaphore(_AT_ONCE)

    @property
    def offered(self) -> bool:
        """Whether the client that is served has said that it keeps roles."""
        return self._offer is not None

    def serve(self, session: ServerSession) -> None:
        """Note who makes a call, before anything is done for it.

        Args:
            session: The call's.

        Raises:
            Refused: It is not the client whose roles these are.
        """
        if not self._decided:
            self._decided, self._offer = True, _offer_of(session)
            self._session = None if self._offer is None else session
        elif self._session is not None and not _same(self._session, session):
            raise Refused(
                "forbidden",
                "the sidecar keeps to the roles of another client",
                remedy="start a sidecar for each client that keeps roles",
            )

    async def _reach(self) -> frozenset[Tier]:
        if isinstance(self._offer, Failure):
            raise self._offer.error()
        if self._offer is None:
            raise _gone().error()
        return self._offer

    async def _call(self, operation: Operation[T]) -> T:
        outcome = await self._asked(operation)
        if isinstance(outcome, Failure):
            raise outcome.error()
        return outcome

    async def _asked(self, operation: Operation[T]) -> T | Failure:
        session = self._session
        if session is None:
            return _gone()
        # The library's types know no server that calls a tool; on the wire it is a request as any other.
        async with self._asking:
            try:
                result = await session.send_request(
                    cast("ServerRequest", _request(operation)),
                    CallToolResult,
                    request_read_timeout_seconds=self._timeout,
                )
            except MCPError as error:
                return _meaning(error.code, self._timeout)
            except TimeoutError:
                return _gone()
            except ValidationError:
                return _FAILURES.invalid("answered something that is no MCP message of its kind")
        return operation.read(Answer(cast("object", result.structured_content), bool(result.is_error)), _FAILURES)


def _request(operation: Operation[Any]) -> ToolRequest:
    return ToolRequest(params=CallToolRequestParams(name=operation.tool, arguments=operation.arguments()))


def _meaning(code: int, seconds: float) -> Failure:
    """What an error means, whatever its text says: that may be a role."""
    if code == REQUEST_TIMEOUT:
        remedy = "see what keeps it, or give it longer by the setting role_host_timeout"
        return _FAILURES.unavailable(f"did not answer within {seconds:g} s", remedy)
    return _gone() if code == CONNECTION_CLOSED else _FAILURES.of_code(code)


def _gone() -> Failure:
    return _FAILURES.unavailable("is not connected", "connect again, and repeat the call")


def _offer_of(session: ServerSession) -> frozenset[Tier] | Failure | None:
    """The tiers that a client keeps; None where it keeps no roles, or cannot be asked."""
    capabilities = session.client_capabilities
    offer = ((capabilities.experimental if capabilities else None) or {}).get(CAPABILITY)
    if offer is None or session.protocol_version in MODERN_PROTOCOL_VERSIONS or not session.can_send_request:
        return None
    contract: object = offer.get("contract")
    if type(contract) is not int or contract != CONTRACT:
        return _FAILURES.invalid(f"does not say that it speaks version {CONTRACT} of the contract")
    return _tiers_of(offer)


def _tiers_of(offer: Mapping[str, Any]) -> frozenset[Tier] | Failure:
    given: object = offer.get("tiers", [*_DEFAULT])
    if isinstance(given, list) and given and all(isinstance(each, str) and each in STORED_TIERS for each in given):
        return frozenset(Tier(each) for each in given)
    return _FAILURES.invalid("says that it keeps tiers that no host can keep")


def _same(one: ServerSession, other: ServerSession) -> bool:
    """Whether two calls came over one connection: a connection has one object for what its client said at its start."""
    return one is other or (one.client_params is not None and one.client_params is other.client_params)


__all__ = ["CAPABILITY", "ClientRoles"]
