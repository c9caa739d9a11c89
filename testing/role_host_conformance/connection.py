"""One connection of `mcp.Client` to a role host, over the same transport that an agent uses.

The transport limits what a host can send: 8 MiB for a message, nothing compressed, 1,000 lines in a row that are not
messages. Results are returned as the host wrote them; the transport drops the text of protocol errors.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from mcp import Client, MCPError
from mcp.client.session import MessageHandlerFnT
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR, Implementation, Request
from pydantic import RootModel, ValidationError

from ...mcp_client import HttpHost, StdioHost
from ...mcp_client.failures import Failure, Failures
from ...mcp_client.transports import open_transport
from .points import Failed

REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The current revisions, the newest last."""

Mode = Literal["legacy", "auto", "2026-07-28"]
"""`legacy` shakes hands in 2025-11-25, `auto` does as an agent; `2026-07-28` sends its first call without that."""

_CLIENT: Final = Implementation(name="worldagent-doctor", version="1")
_CLOSING: Final = 10.0  # seconds; a program that does not end is killed within them
_REPORTED: Final = "see what the host itself reports"


class _Raw(RootModel[dict[str, Any]]):
    """A result as it was received."""


class Unanswered(Failed):
    """No answer, or no readable one.

    Args:
        problem: What happened, with the host as its subject.
        remedy: What the user can do.
        reached: Whether the host answered anything at all.
        http_status: The HTTP status of its refusal; None if there is none.
    """

    def __init__(self, problem: str, remedy: str, *, reached: bool = False, http_status: int | None = None) -> None:
        super().__init__(problem, remedy)
        self.reached = reached
        self.http_status = http_status


class Connection:
    """A connection. Open it, send requests from any task of the same loop, close it.

    A separate task enters and leaves the client, because the library can cancel that task once the host is lost.

    Args:
        host: The host.
        mode: The revisions of MCP to speak.
        limit: Seconds that connecting, and each request, can take.
        notice: Receives each notification, and an exception for each line that is not a message.
    """

    client: Client

    def __init__(self, host: HttpHost | StdioHost, mode: Mode, limit: float, notice: MessageHandlerFnT) -> None:
        self.lost = False
        self._host = host
        self._limit = limit
        self._why: Failure | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._failures = Failures(host.label, program=isinstance(host, StdioHost))
        transport = open_transport(host, self._failures, self._lose)
        client = Client(transport, mode=mode, cache=None, client_info=_CLIENT, message_handler=notice)
        self._owner = asyncio.create_task(self._own(client))

    async def open(self) -> None:
        """Wait until requests can be sent.

        Raises:
            Unanswered: The host cannot be reached, or does not speak these revisions.
        """
        failure: Unanswered | None = self._late()
        try:
            async with asyncio.timeout(self._limit):
                await self._settled.wait()
                failure = await self._owner if self._owner.done() else None
        except TimeoutError:
            pass
        if failure is not None:
            raise failure

    async def send(self, request: Request[Any, Any]) -> dict[str, Any] | MCPError:
        """Send one request; returns the result as it was received, or the host's protocol error.

        Raises:
            Unanswered: The host did not answer within `limit`, or not in MCP.
        """
        try:
            async with asyncio.timeout(self._limit):
                return (await self.client.session.send_request(request, _Raw)).root
        except MCPError as error:
            # The transport drops the text of the host's own errors, and only of those.
            if not error.message and self._why is None:
                return error
            self.lost = self.lost or error.code == CONNECTION_CLOSED
            failure = self._refused(error.code)
        except TimeoutError:
            self.lost = True  # a later answer would belong to no call
            failure = self._late()
        except ValidationError:
            revision = self.client.session.protocol_version
            failure = Unanswered(
                f"it answered with something that MCP {revision} does not have", "answer as this revision says"
            )
        raise failure

    async def aclose(self) -> None:
        """End the connection; a program has ended afterwards. This takes a bounded time."""
        self.lost = True
        self._stop.set()
        if not self._settled.is_set():
            self._owner.cancel()
        for _ in range(2):
            await asyncio.wait({self._owner}, timeout=_CLOSING)
            self._owner.cancel()

    async def _own(self, client: Client) -> Unanswered | None:
        try:
            async with client as self.client:
                self._settled.set()
                await self._stop.wait()
        except Exception as error:  # of any kind: the host decides what the library raises
            return self._unopened(error)
        finally:
            self.lost = True
            self._settled.set()
        return None

    def _lose(self, why: Failure | None) -> None:
        self.lost = True
        self._why = self._why or why

    def _late(self) -> Unanswered:
        return Unanswered(f"it did not answer within {self._limit:g} s", "see what delays it, or pass --timeout")

    def _unopened(self, error: BaseException) -> Unanswered:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self._why is not None or (isinstance(error, MCPError) and error.message):
            return self._refused(error.code if isinstance(error, MCPError) else CONNECTION_CLOSED)
        if isinstance(error, MCPError | RuntimeError | ValidationError):
            known = " or ".join(REVISIONS)
            return Unanswered(f"it does not speak MCP {known}", f"let it speak {known}", reached=True)
        failure = self._failures.unopened(error)
        return Unanswered(failure.problem, failure.remedy)

    def _refused(self, code: int) -> Unanswered:
        """Return what an error means that the transport made instead of an answer."""
        if self._why is not None:
            return Unanswered(self._why.problem, self._why.remedy)
        if code in (401, 403):
            problem, remedy = f"it refused access (HTTP {code})", "pass a token that it accepts: --token-file"
            return Unanswered(problem, remedy, http_status=code)
        if code == PARSE_ERROR:
            return Unanswered("it sent a compressed answer, which can be of any length", "answer without compression")
        if code == CONNECTION_CLOSED:
            return Unanswered("it ended at once, or in the middle of a call", _REPORTED)
        return Unanswered(
            f"it answered HTTP {code}", f"pass the address of its endpoint, or {_REPORTED}", http_status=code
        )


__all__ = ["REVISIONS", "Connection", "Mode", "Unanswered"]
