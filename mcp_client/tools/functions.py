"""A tool of a server as a `Function`: its name, its schemas, its risk. The caller passes the code that calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ...core.events import Risk
from ...harness import Function
from ...harness.schema import params_of, result_of
from .listed import ToolSpec
from .results import CONTENT
from .server import McpServer, name_of

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
        idempotent=kind == "flow" or (server.trust_annotations and spec.annotations.get("idempotentHint") is True),
        risk=server.risk_of(spec.name) or (_declared_risk(spec.annotations) if server.trust_annotations else _UNKNOWN),
        untrusted=True,
        approval=server.approval,
        offered=server.offered,
        context=kind == "leaf",
        title=" ".join(spec.title.split())[:_TITLE],
    )


def resource_function(server: McpServer, *, name: str, prefix: str, body: Any) -> Function:
    """Make the Function that reads a resource of a server called `name`."""
    called = name_of(prefix, READ_RESOURCE)
    params = {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "the resource's address"}},
        "required": ["uri"],
        "additionalProperties": False,
    }
    return Function(
        called,
        body,
        params_of(called, params),
        result_of(called, {"type": "array", "items": {"type": "object"}}),
        f"Reads a resource of the MCP server {name!r}.",
        risk=server.risk_of(READ_RESOURCE) or ("network",),
        untrusted=True,
        approval=server.approval,
        offered=server.offered,
        idempotent=True,
        context=True,
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
        return ("read_only",)
    found: list[Risk] = ["write"]
    if hints.get("openWorldHint") is not False:
        found.append("network")
    if hints.get("destructiveHint") is not False:
        found.append("destructive")
    return tuple(found)


__all__ = ["READ_RESOURCE", "function_of", "resource_function"]
