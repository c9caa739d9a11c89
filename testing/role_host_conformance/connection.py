"""The points of a check, with the results that they can have, and one connection of `mcp.Client` to a role host.

The connection uses the same transport that an agent uses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from mcp import Client, MCPError
from mcp.client.session import MessageHandlerFnT
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR, Implementation, Request
from pydantic import RootModel, ValidationError

from ...core.errors import WorldAgentError
from ...mcp_client import HttpHost, StdioHost
from ...mcp_client.hosts import Failure, Failures
from ...mcp_client.transports import open_transport

Status = Literal["pass", "warn", "fail", "skip"]
Reason = Literal["", "needs", "write", "other"]
When = Literal["always", "http", "stdio", "--write", "--foreign-scope", "--model"]
Check = Callable[[Any], Awaitable[str | None]]
"""Checks a point; returns a detail or None, or raises a `Finding`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one point.

    Attributes:
        id: The point's stable name, such as `list.answer`.
        title: What the point says, as a short sentence.
        status: `fail` breaks the contract or keeps the package from working, `warn` does neither.
        problem: What is wrong, or why the point was skipped; never the text of a role.
        remedy: What the user can do; empty if nothing is to be done.
        reason: Why the point was skipped: `needs` another point or a tool, `write`, or `other`; empty if it was not.
        detail: A detail of a point that holds, such as a version.
        ms: How long it took.
    """

    id: str
    title: str
    status: Status
    problem: str = ""
    remedy: str = ""
    reason: Reason = ""
    detail: str = ""
    ms: float = 0.0

    def as_object(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {"ms": round(self.ms, 1)}


Tell = Callable[[Result], None]
"""Receives each result as it is known."""


class Finding(Exception):
    """Ends the check of a point. Its texts contain nothing of a host's answer.

    Args:
        problem: What is wrong, or why the point was skipped.
        remedy: What the user can do; empty if nothing is to be done.
    """

    status: Status = "fail"
    reason: Reason = ""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Failed(Finding):
    """The point does not hold."""


class Warned(Finding):
    """The point holds, but the user should see something about it."""

    status = "warn"


class Skipped(Finding):
    """The point could not be checked; `reason` is the kind of reason."""

    status = "skip"

    def __init__(self, problem: str, remedy: str = "", *, reason: Reason = "other") -> None:
        super().__init__(problem, remedy)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to check.

    Attributes:
        id: Its name for programs.
        title: What holds if the point passes; at most 46 characters, so that a line fits a terminal.
        check: Checks the point.
        needs: The points that must pass first.
        when: The hosts, or the option, for which it is checked.
    """

    id: str
    title: str
    check: Check
    needs: tuple[str, ...] = ()
    when: When = "always"


class Points(list[Point]):
    """Points in the order of the check."""

    def add(
        self, id: str, title: str, *, needs: tuple[str, ...] = (), when: When = "always"
    ) -> Callable[[Check], Check]:
        """Decorate the check of the next point; the arguments are those of `Point`."""

        def keep(check: Check) -> Check:
            self.append(Point(id, title, check, needs, when))
            return check

        return keep


async def settle(point: Point, check: Callable[[], Awaitable[str | None]]) -> Result:
    """Check one point. Any failure, except a cancellation, becomes its result.

    Args:
        point: The point.
        check: Checks the point; takes no arguments.
    """
    began = time.perf_counter()
    result = Result(id=point.id, title=point.title, status="pass")
    try:
        result = replace(result, detail=await check() or "")
    except Finding as found:
        result = replace(result, status=found.status, problem=found.problem, remedy=found.remedy, reason=found.reason)
    except WorldAgentError as error:
        result = replace(result, status="fail", problem=error.problem, remedy=error.remedy)
    except Exception as error:  # a host can make libraries fail in ways that no point foresees
        remedy = "see whether the host answers as the contract says; if it does, report this"
        result = replace(result, status="fail", problem=f"the check ended with {type(error).__name__}", remedy=remedy)
    return replace(result, ms=(time.perf_counter() - began) * 1000)


# --- the connection ---------------------------------------------------------------------------------------------------

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
