"""One connection to a host in one revision of MCP, opened and closed by a task of its own.

Not `mcp_client`: that one forgives what an agent can live with. Results come out as the host wrote them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from mcp import MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientSession
from mcp.types import CONNECTION_CLOSED, Implementation, Request
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from ....mcp_client import HttpHost, StdioHost
from ._options import HostCheckOptions
from ._streams import Intake, Listener, over_http, over_stdio

REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The current ones. The newest comes last and is the one that is used where a host speaks both."""

CLIENT: Final = Implementation(name="worldagent-doctor", version="1")
_CLOSING: Final = 10.0  # seconds; a child that does not end is killed within them
_GRACE: Final = 2.0  # of them, before it is killed
_LESS: Final = "let it answer with roles and no more, and not packed"


class _Raw(RootModel[dict[str, Any]]):
    """A result as it came."""


class WireError(Exception):
    """No answer, or none that can be read.

    Attributes:
        problem: What happened, with the host as its subject.
        remedy: What can be done.
        heard: Whether the host answered anything at all.
    """

    def __init__(self, problem: str, remedy: str, *, heard: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.heard = heard


class Wire:
    """A connection. Open it, send requests from any task of the same loop, close it.

    Args:
        host: The host.
        revision: The revision of MCP to speak.
        limits: How long connecting may take, and the end of a child.
        intake: Counts what the host sends.
    """

    def __init__(self, host: HttpHost | StdioHost, revision: str, limits: HostCheckOptions, intake: Intake) -> None:
        self.revision = revision
        self.garbled = 0
        self.lost = False
        self._host = host
        self._limits = limits
        self._listener = Listener(intake)
        self._session: ClientSession | None = None
        self._error: BaseException | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @property
    def session(self) -> ClientSession:
        """The session of the MCP library."""
        assert self._session is not None, "it is open"
        return self._session

    async def open(self) -> None:
        """Connect.

        Raises:
            WireError: The host cannot be reached, or does not speak this revision.
        """
        self._owner = asyncio.create_task(self._own(), name=f"doctor of {self._host.label}")
        late = False
        try:
            async with asyncio.timeout(self._limits.timeout):
                await self._settled.wait()
        except TimeoutError:
            late = True
        if late:
            heard = self._listener.status is not None
            raise WireError(
                f"it did not answer within {self._limits.timeout:g} s" + _noise(self.garbled),
                "see what keeps it, or give --timeout",
                heard=heard,
            )
        if self._session is None:
            raise self._why_not()

    async def send(self, request: Request[Any, Any], limit: float) -> dict[str, Any] | MCPError:
        """Send one request; the result as it came, or the host's error of the protocol.

        Raises:
            WireError: No answer within `limit` seconds, or none of MCP.
        """
        try:
            async with asyncio.timeout(limit):
                return (await self.session.send_request(request, _Raw)).root
        except MCPError as error:
            excess = self._listener.excess
            if error.code != CONNECTION_CLOSED and not excess:
                return error
            self.lost = True
            failure = (
                WireError(excess, _LESS)
                if excess
                else WireError("the connection ended in the middle of a call", "see what the host itself reports")
            )
        except TimeoutError:
            self.lost = True  # what it still sends is nobody's answer
            failure = WireError(
                f"it did not answer within {limit:g} s" + _noise(self.garbled), "see what keeps it, or give --timeout"
            )
        except ValidationError:
            failure = WireError(
                f"it answered with something that MCP {self.revision} does not have",
                "let it answer as this revision says",
            )
        raise failure

    async def aclose(self) -> None:
        """End the connection; a child is gone afterwards. Bounded."""
        owner, self._owner = self._owner, None
        self.lost = True
        if owner is None:
            return
        self._stop.set()
        if not self._settled.is_set():
            owner.cancel()
        done, _ = await asyncio.wait({owner}, timeout=_CLOSING)
        if not done:
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSING)

    async def _own(self) -> None:
        try:
            async with (
                self._streams() as (read, write),
                ClientSession(read, write, client_info=CLIENT, message_handler=self._noticed) as session,
            ):
                if self.revision in MODERN_PROTOCOL_VERSIONS:
                    await session.discover()
                else:
                    await session.initialize()
                if session.protocol_version == self.revision:
                    self._session = session
                    self._settled.set()
                    await self._stop.wait()
        except Exception as error:  # of whatever kind: `_why_not` tells them apart
            self._error = error
        finally:
            self.lost = True
            self._settled.set()

    async def _noticed(self, message: object) -> None:
        self.garbled += isinstance(message, Exception)

    def _why_not(self) -> WireError:
        error = self._error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        status = self._listener.status
        if self._listener.excess:
            return WireError(self._listener.excess, _LESS)
        if status in (401, 403):
            return WireError(f"it refused access (HTTP {status})", "give a token that it accepts: --token-file")
        if status is not None and (status == 404 or status >= 500):
            return WireError(f"it answered HTTP {status}", "give the address of its MCP endpoint")
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            return WireError("it ended at once", "see what the host itself reports")
        if error is None or isinstance(error, MCPError | RuntimeError | ValidationError):
            return WireError(
                f"it does not speak MCP {self.revision}", f"let it speak {' or '.join(REVISIONS)}", heard=True
            )
        return WireError(f"it could not be reached ({type(error).__name__})", "start it, or correct how it is reached")

    def _streams(self) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
        if isinstance(self._host, HttpHost):
            return over_http(self._host, self._listener, self._limits.timeout)
        return over_stdio(self._host, self._listener, min(_GRACE, self._limits.ending))


def _noise(garbled: int) -> str:
    return ", and wrote something that is no MCP message" if garbled else ""


__all__ = ["CLIENT", "REVISIONS", "Wire", "WireError"]
