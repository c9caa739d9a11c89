"""What a server offers and answers, as plain values. `link` reads them from the connection, and imports `mcp`."""

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
        result: The JSON Schema of its structured result, if it has one.
        annotations: The server's hints about its risk.
    """

    name: str
    description: str = ""
    title: str = ""
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything that a server offers.

    Attributes:
        tools: Its tools.
        resources: Whether it has resources.
        invalid_tools: Names of tools whose description violates MCP, and why.
    """

    tools: tuple[ToolSpec, ...] = ()
    resources: bool = False
    invalid_tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of a server for a person during a call.

    Attributes:
        message: The question.
        schema: The JSON Schema of the answer.
        key: The server's key for it, if the server asks by ending the round of the call.
    """

    message: str
    schema: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer of a server to a call.

    Attributes:
        content: Blocks, as JSON.
        structured: The structured result; None if there is none.
        failed: Whether the tool reports that it failed.
        asks: Questions for a person. The call is then made again with the answers and with `state`.
        state: The value to send with the next round.
        beyond: Whether it asks for something other than a person's answer.
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
        progress: Called with the progress of the call.
        answers: A person's answers of the round before, by the server's key of the question; None declines.
        state: The state that the server sent in the round before.
    """

    tool: str
    arguments: Mapping[str, Any]
    progress: Progress | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None
