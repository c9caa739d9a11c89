"""Failures of an MCP server: those that `mcp_client.failures` makes for a role host, and those of a tool call."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Final

from ...core.errors import (
    HostError,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    ResultInvalid,
    ToolFailed,
    WorldAgentError,
)
from ..failures import Failure, Failures

_SAID: Final = 2000  # the limit of characters of a tool's error text


class ServerFailures(Failures):
    """Makes the failures of one MCP server.

    Args:
        name: The name that the agent uses for it.
        program: Whether it is a program that the next call starts again.
    """

    PEER = "MCP server"
    UNAVAILABLE = McpServerUnavailable
    FORBIDDEN = McpServerForbidden
    INVALID = McpServerInvalid
    ANSWER = "use a server that follows the MCP specification"
    LONGER = "find out why it is slow, or raise timeout="
    SHORTER = "request less from it"
    TOKEN = "pass a token that it accepts"

    def absent(self, function: str, why: WorldAgentError | None) -> WorldAgentError:
        """A call names a Function whose server was never reached."""
        problem = f"the tools of {self.name}, such as {function!r}, are not known yet"
        if why is None:
            return McpServerUnavailable(problem, remedy="try again; the connection is being opened")
        return type(why)(f"{problem}: {why.problem}", remedy=why.remedy)

    def failed(self, tool: str, text: str) -> Failure:
        """A tool reports that it failed. Its text is untrusted."""
        said = text if len(text) <= _SAID else f"{text[:_SAID]}..."
        problem = f"the tool {tool!r} of {self.name} failed" + (f", and says: {said}" if said else "")
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def refused(self, tool: str, code: int) -> Failure:
        """The server answers a call with a protocol error."""
        problem = f"{self.name} rejected the call of its tool {tool!r} (MCP error {code})"
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def asking(self, tool: str) -> Failure:
        """The server asks for something during a call that it cannot get."""
        return Failure(
            ToolFailed,
            f"the tool {tool!r} of {self.name} asks for something during the call that it cannot get",
            "do without it; elicitation=True lets a server ask a person, but a server can never ask a model",
        )

    def too_long(self, tool: str, size: int, limit: int) -> Failure:
        """A result is longer than the limit."""
        problem = f"the result of the tool {tool!r} of {self.name} must have at most {limit} characters, got {size}"
        return Failure(ResultInvalid, problem, "request less, or raise result_limit")


@contextlib.contextmanager
def made_by(call_id: str) -> Generator[None]:
    """Add the call to an error that is raised before anything was sent, so that the call is simply repeated."""
    try:
        yield
    except HostError as error:
        if error.unsent is not None:
            error.unsent = call_id
        raise


__all__ = ["ServerFailures", "made_by"]
