"""What a server offers and answers, as plain values. `link` reads them off the wire, and loads `mcp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as its server describes it.

    Attributes:
        name: The server's own name for it.
        description: What it does, as the server says.
        title: Its name for people, as the server says.
        params: The JSON Schema of its arguments.
        result: The JSON Schema of its structured result, where it has one.
        annotations: What the server says of its risk: hints.
    """

    name: str
    description: str = ""
    title: str = ""
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All that a server offers.

    Attributes:
        tools: Its tools.
        resources: Whether it has resources.
        misfits: Names of tools whose description is none of MCP, and why.
    """

    tools: tuple[ToolSpec, ...] = ()
    resources: bool = False
    misfits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Something that a server asks a person in the middle of a call.

    Attributes:
        message: What it asks.
        schema: The JSON Schema of the answer.
        key: What the server calls it, where it asks by ending the call's round.
    """

    message: str
    schema: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What a server answers a call.

    Attributes:
        content: Blocks, as JSON.
        structured: The structured result; None where there is none.
        failed: Whether it says that it failed.
        asks: What a person is asked first; then the call is made again with the answers, and with `state`.
        state: What goes along with the next round.
        beyond: Whether it asks for something else than a person's answer.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    structured: Any = None
    failed: bool = False
    asks: tuple[Asked, ...] = ()
    state: str | None = None
    beyond: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """One round of a call.

    Attributes:
        tool: The server's name of the tool.
        arguments: Its arguments.
        progress: Told how far it is.
        answers: What a person answered in the round before, by what the server calls the questions; None is no.
        state: What the server gave in the round before.
    """

    tool: str
    arguments: Mapping[str, Any]
    progress: Progress | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None


__all__ = [
    "Asked",
    "CallTool",
    "Listed",
    "Progress",
    "ToolAnswer",
    "ToolSpec",
]
