"""What went wrong with an MCP server: what `mcp_client._failures` says of a host, said of a server by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace
from typing import Final

from ...core.errors import (
    HostError,
    HostForbidden,
    HostUnavailable,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    ResultInvalid,
    RoleSourceInvalid,
    ToolFailed,
    WorldAgentError,
)
from .. import _failures as failures
from .._failures import Failure
from .._hosts import Host

_KINDS: Final[dict[type[WorldAgentError], type[WorldAgentError]]] = {
    HostUnavailable: McpServerUnavailable,
    HostForbidden: McpServerForbidden,
    RoleSourceInvalid: McpServerInvalid,
}
_REMEDIES: Final = {
    failures.CONTRACT: "use a server that answers as MCP says",
    failures.LONGER: "see what keeps it, or give it longer by timeout=",
    failures.SHORTER: "ask it for less",
    failures.TOKEN: "give a token that it accepts",
}
_SAID: Final = 2000  # characters of what a tool says of its failure


def of_server(failure: Failure, name: str, host: Host) -> Failure:
    """The failure of a host, said of the server that is called `name`."""
    return replace(
        failure,
        kind=_KINDS.get(failure.kind, failure.kind),
        problem=failure.problem.replace(failures.named(host.label), f"MCP server {name!r}"),
        remedy=_REMEDIES.get(failure.remedy, failure.remedy),
    )


@contextlib.contextmanager
def made_by(call_id: str) -> Generator[None]:
    """Say in an error that comes before anything was sent whose call it was, so that it is simply made again."""
    try:
        yield
    except HostError as error:
        if error.unsent is not None:
            error.unsent = call_id
        raise


def absent(name: str, function: str, why: WorldAgentError | None) -> WorldAgentError:
    """A Function is asked for whose server was never reached."""
    problem = f"the tools of MCP server {name!r} are not known, {function!r} among them"
    if why is None:
        return McpServerUnavailable(problem, remedy="it is being connected to; try again")
    return type(why)(f"{problem}: {why.problem}", remedy=why.remedy)


def failed(tool: str, name: str, text: str) -> Failure:
    """A tool says that it failed. What it says is a stranger's."""
    said = text if len(text) <= _SAID else f"{text[:_SAID]}..."
    return Failure(
        ToolFailed,
        f"the tool {tool!r} of MCP server {name!r} failed" + (f", and says: {said}" if said else ""),
        "call it otherwise, or do without it",
    )


def refused(tool: str, name: str, code: int) -> Failure:
    """The server answers a call with an error of the protocol."""
    return Failure(
        ToolFailed,
        f"MCP server {name!r} did not take the call of its tool {tool!r} (MCP error {code})",
        "call it with other arguments, or do without it",
    )


def asking(tool: str, name: str) -> Failure:
    """The server wants something in the middle of a call that it does not get."""
    return Failure(
        ToolFailed,
        f"the tool {tool!r} of MCP server {name!r} asks for something in the middle of the call that it does not get",
        "do without it; elicitation=True lets a server ask a person, and nothing lets it ask a model",
    )


def oversized(tool: str, name: str, size: int, limit: int) -> Failure:
    """A result is longer than is wanted."""
    return Failure(
        ResultInvalid,
        f"the result of the tool {tool!r} of MCP server {name!r} has {size} characters, and {limit} is the limit",
        "ask for less, or raise result_limit",
    )


__all__ = ["absent", "asking", "failed", "made_by", "of_server", "oversized", "refused"]
