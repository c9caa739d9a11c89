"""Converts the answer of a server to the result of a call. Media are stored or described. Nothing is trusted."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from ...core import Scope
from ...core.errors import (
    AttachmentInvalid,
    CallTimeout,
    HostError,
    McpLoginRequired,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    ResultInvalid,
    ToolFailed,
    WorldAgentError,
)
from ...core.events import Risk
from ...harness import Function
from ...harness.function import READ_ONLY
from ...harness.schema import params_of, result_of
from ..hosts import Failure, Failures, StdioHost
from ..logins import LoginStore
from .server import McpServer, ToolAnswer, ToolSpec, name_of

_SAID: Final = 2000  # the limit of characters of a tool's error text


class ServerFailures(Failures):
    """Makes the failures of one MCP server.

    Args:
        name: The name that the agent uses for it.
        program: Whether it is a program that the next call starts again.
        login: What the user can do if it requires a login; empty if it cannot be logged in to.
    """

    PEER = "MCP server"
    UNAVAILABLE = McpServerUnavailable
    FORBIDDEN = McpServerForbidden
    LOGIN = McpLoginRequired
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

    def no_login(self) -> Failure:
        """There is no login, or it is over."""
        return self.of_status(401, None)

    def without_account(self) -> Failure:
        """A call is of no account, and each account has a login of its own."""
        return self.not_logged_in(
            "each account has its own, and this call is of no account", "begin the turn with an account"
        )

    def crowded_by_accounts(self, limit: int) -> Failure:
        """No account can be added, because all are in use."""
        return self.unavailable(f"is used by {limit} accounts at once, which is the limit", "try again later")

    def failed(self, tool: str, text: str) -> Failure:
        """A tool reports that it failed. Its text is untrusted."""
        said = text if len(text) <= _SAID else f"{text[:_SAID]}..."
        problem = f"the tool {tool!r} of {self.name} failed" + (f", and says: {said}" if said else "")
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def refused(self, tool: str, code: int) -> Failure:
        """The server answers a call with a protocol error."""
        problem = f"{self.name} rejected the call of its tool {tool!r} (MCP error {code})"
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def cancelled(self, tool: str) -> Failure:
        """The server has cancelled the task of a call."""
        problem = f"the tool {tool!r} of {self.name} failed, because the server cancelled its task"
        return Failure(ToolFailed, problem, "call it with other arguments, or do without it")

    def task_late(self, tool: str, seconds: float) -> Failure:
        """A task has not ended within the time limit."""
        problem = f"the task of the tool {tool!r} of {self.name} took longer than {seconds:g} s, and is cancelled"
        return Failure(CallTimeout, problem, "ask for less work in one call, or raise task_timeout=")

    def forgets(self) -> Failure:
        """The server does not know its own tasks, though it was called again for one."""
        return self.invalid("must know its tasks until they have ended, and did not know two of one call")

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


def failures_of(name: str, server: McpServer, logins: LoginStore | None, account: str | None = None) -> ServerFailures:
    """What makes the failures of a server, whose login is kept in `logins`, for an account if it is not shared."""
    remedy, login = "", server.login
    if logins is not None and login is not None:
        words = ["worldagent", "mcp", "login", name, "--workspace", logins.workspace]
        words += [] if account is None else ["--account", account]
        remedy = f"run `{shlex.join(words)}`" + (", or pass a token that it accepts" if account is None else "")
        if login.by == "client":
            remedy = "check client_id, client_secret and scope"
    return ServerFailures(name, program=isinstance(server.host, StdioHost), login=remedy)


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

KeepFor = Callable[[Scope | None, bytes, str, str], Awaitable[Mapping[str, Any]]]
"""Like `Keep`, after the ids of the call that gets the media; None if the host does."""

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
    content = decoded(str(data))
    described = {**plain, "type": kind, "media_type": media_type, "bytes": len(content)}
    if keep is not None and content:
        try:
            return {**described, "attachment": dict(await keep(content, media_type, kind))}
        except AttachmentInvalid as error:
            described["left_out"] = error.problem
    return described


def decoded(data: str) -> bytes:
    """Bytes from base64; none if it is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(block["text"]) for block in content if block.get("type") == "text" and "text" in block)


_TITLE: Final = 100  # the limit of characters of a tool's title
_DESCRIPTION: Final = 4000  # the limit of characters of a tool's description
_UNKNOWN: Final[tuple[Risk, ...]] = ("write", "network")
_HINTS: Final = {
    ("readOnlyHint", True): "reads only",
    ("destructiveHint", True): "destroys",
    ("destructiveHint", False): "destroys nothing",
    ("idempotentHint", True): "can be repeated",
    ("openWorldHint", True): "reaches out",
    ("openWorldHint", False): "stays inside",
}

READ_RESOURCE: Final = "read_resource"
"""The name of the Function that reads resources, after the prefix."""

LOG_IN: Final = "log_in"
"""The name of the Function that asks a person to log in, after the prefix."""


def function_of(
    spec: ToolSpec, server: McpServer, *, prefix: str, body: Any, kind: Literal["leaf", "flow"] = "leaf"
) -> Function:
    """Make the Function of a tool. Its result is untrusted, and the server alone does not decide its risk.

    Args:
        spec: The tool.
        server: Defines how far the tool is trusted.
        prefix: The beginning of the name.
        body: Makes a call: it gets the context, and the arguments by name.
        kind: `flow` if it can ask a person during a call, else `leaf`.

    Raises:
        FunctionInvalid: One of its schemas is not a JSON Schema.
    """
    name = name_of(prefix, spec.name)
    return Function(
        name,
        body,
        params_of(name, spec.params),
        result_of(name, CONTENT if spec.result is None else spec.result),
        _description(spec),
        kind,
        idempotent=kind == "flow" or can_repeat(spec, server),
        risk=_risk(spec, server),
        untrusted=True,
        fields=server.fields_of(spec.name),
        readers=server.readers_of(spec.name),
        approval=server.approval,
        offered=server.offered,
        context=kind == "leaf",
        title=" ".join(spec.title.split())[:_TITLE],
    )


def can_repeat(spec: ToolSpec, server: McpServer) -> bool:
    """Whether a call that was interrupted can run again: it only reads, or a trusted hint says so."""
    hinted = server.trust_annotations and spec.annotations.get("idempotentHint") is True
    return hinted or _risk(spec, server) == READ_ONLY


def _risk(spec: ToolSpec, server: McpServer) -> tuple[Risk, ...]:
    return server.risk_of(spec.name) or (_declared_risk(spec.annotations) if server.trust_annotations else _UNKNOWN)


def resource_function(
    server: McpServer, *, name: str, prefix: str, body: Any, kind: Literal["leaf", "flow"] = "leaf"
) -> Function:
    """Make the Function that reads a resource of a server called `name`; see `function_of`."""
    params = {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "the resource's address"}},
        "required": ["uri"],
        "additionalProperties": False,
    }
    spec = ToolSpec(
        name=READ_RESOURCE,
        description=f"Reads a resource of the MCP server {name!r}.",
        params=params,
        result={"type": "array", "items": {"type": "object"}},
    )
    made = function_of(spec, server, prefix=prefix, body=body, kind=kind)
    return replace(made, risk=server.risk_of(READ_RESOURCE) or ("network",), idempotent=True)


def login_function(name: str, *, prefix: str, body: Any) -> Function:
    """Make the Function that asks a person to log in to a server called `name`."""
    called = name_of(prefix, LOG_IN)
    return Function(
        called,
        body,
        params_of(called, {"type": "object", "properties": {}, "additionalProperties": False}),
        result_of(called, {"type": "string"}),
        f"Asks the person to log in to {name!r}. Its tools can be called afterwards.",
        "flow",
        risk=READ_ONLY,
        idempotent=True,
    )


def _description(spec: ToolSpec) -> str:
    hints = [text for (hint, value), text in _HINTS.items() if spec.annotations.get(hint) is value]
    text = " ".join(spec.description.split())[:_DESCRIPTION]
    return f"{text} (Its server says: {', '.join(hints)}.)".strip() if hints else text


def _declared_risk(hints: Mapping[str, Any]) -> tuple[Risk, ...]:
    """The risk that a server declares, with the defaults of MCP for missing hints; unknown without hints."""
    if not hints.keys() & {"readOnlyHint", "destructiveHint", "openWorldHint"}:
        return _UNKNOWN
    if hints.get("readOnlyHint") is True:
        return READ_ONLY
    found: list[Risk] = ["write"]
    if hints.get("openWorldHint") is not False:
        found.append("network")
    if hints.get("destructiveHint") is not False:
        found.append("destructive")
    return tuple(found)
