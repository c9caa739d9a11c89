"""Converts the answer of a server to the result of a call. Media are stored or described. Nothing is trusted."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final

from ...core.errors import (
    AttachmentInvalid,
    HostError,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    ResultInvalid,
    ToolFailed,
    WorldAgentError,
)
from ..failures import Failure, Failures
from .listed import ToolAnswer, ToolSpec

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


Keep = Callable[[bytes, str, str], Awaitable[Mapping[str, Any]]]
"""Stores media: content, media type and name. Returns a reference as JSON, or raises `AttachmentInvalid`."""

CONTENT: Final[Mapping[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
    "description": "a text, or blocks of text, media and links",
}
"""The schema of the result of a tool that declares none."""


async def result_of_answer(
    spec: ToolSpec, answer: ToolAnswer, *, failures: ServerFailures, limit: int, keep: Keep | None
) -> Any | Failure:
    """Return the result for the caller.

    Args:
        spec: The tool.
        answer: The answer of the server.
        failures: Makes the failures of the server.
        limit: The limit of characters of the result as JSON.
        keep: Stores media; without it they are only described.
    """
    if answer.asks or answer.beyond or answer.state is not None:
        return failures.asking(spec.name)
    if answer.failed:
        return failures.failed(spec.name, _text(answer.content))
    if spec.result is not None or (not answer.content and answer.structured is not None):
        value: Any = answer.structured
    else:
        value = await blocks_of(answer.content, keep)
        if all(block.keys() == {"type", "text"} for block in value):
            value = _text(value)
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= limit else failures.too_long(spec.name, size, limit)


async def blocks_of(content: Sequence[Mapping[str, Any]], keep: Keep | None) -> list[dict[str, Any]]:
    """Convert content blocks for the caller: text unchanged, media as references."""
    return [await _block(block, keep) for block in content]


async def _block(block: Mapping[str, Any], keep: Keep | None) -> dict[str, Any]:
    plain = {name: value for name, value in block.items() if name not in ("_meta", "annotations")}
    if plain.get("type") == "resource" and isinstance(plain.get("resource"), Mapping):
        return {"type": "resource", **await _block(plain["resource"], keep)}
    data = plain.pop("data", None) or plain.pop("blob", None)
    if data is None:
        return plain
    media_type, kind = str(plain.pop("mimeType", "application/octet-stream")), str(plain.get("type", "file"))
    content = _decoded(str(data))
    described = {**plain, "type": kind, "media_type": media_type, "bytes": len(content)}
    if keep is not None and content:
        try:
            return {**described, "attachment": dict(await keep(content, media_type, kind))}
        except AttachmentInvalid as error:
            described["left_out"] = error.problem
    return described


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(block["text"]) for block in content if block.get("type") == "text" and "text" in block)
