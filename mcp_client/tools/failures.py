"""What went wrong with an MCP server: what `mcp_client.failures` says of a role host, and what a call can end with."""

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

_SAID: Final = 2000  # characters of what a tool says of its failure


class ServerFailures(Failures):
    """Makes the failures of one MCP server.

    Args:
        name: What the agent calls it.
        program: Whether it is a program that the next call starts again.
    """

    PEER = "MCP server"
    UNAVAILABLE = McpServerUnavailable
    FORBIDDEN = McpServerForbidden
    INVALID = McpServerInvalid
    ANSWER = "use a server that answers as MCP says"
    LONGER = "see what keeps it, or give it longer by timeout="
    SHORTER = "ask it for less"
    TOKEN = "give a token that it accepts"

    def absent(self, function: str, why: WorldAgentError | None) -> WorldAgentError:
        """A Function is asked for whose server was never reached."""
        problem = f"the tools of {self.name} are not known, {function!r} among them"
        if why is None:
            return McpServerUnavailable(problem, remedy="it is being connected to; try again")
        return type(why)(f"{problem}: {why.problem}", remedy=why.remedy)

    def failed(self, tool: str, text: str) -> Failure:
        """A tool says that it failed. What it says is a stranger's."""
        said = text if len(text) <= _SAID else f"{text[:_SAID]}..."
        problem = f"the tool {tool!r} of {self.name} failed" + (f", and says: {said}" if said else "")
        return Failure(ToolFailed, problem, "call it otherwise, or do without it")

    def refused(self, tool: str, code: int) -> Failure:
        """The server answers a call with an error of the protocol."""
        problem = f"{self.name} did not take the call of its tool {tool!r} (MCP error {code})"
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def asking(self, tool: str) -> Failure:
        """The server wants something in the middle of a call that it does not get."""
        return Failure(
            ToolFailed,
            f"the tool {tool!r} of {self.name} asks for something in the middle of the call that it does not get",
            "do without it; elicitation=True lets a server ask a person, and nothing lets it ask a model",
        )

    def too_long(self, tool: str, size: int, limit: int) -> Failure:
        """A result is longer than is wanted."""
        problem = f"the result of the tool {tool!r} of {self.name} has {size} characters, and {limit} is the limit"
        return Failure(ResultInvalid, problem, "ask for less, or raise result_limit")


@contextlib.contextmanager
def made_by(call_id: str) -> Generator[None]:
    """Say in an error that comes before anything was sent whose call it was, so that it is simply made again."""
    try:
        yield
    except HostError as error:
        if error.unsent is not None:
            error.unsent = call_id
        raise


__all__ = ["ServerFailures", "made_by"]
