"""Reads tools of other libraries, `dspy.Tool` and LangChain tools, for a `Function`.

This module never imports those libraries: a caller that passes such a tool has already imported its library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ..core.errors import FunctionInvalid
from .schema import params_of


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A tool of another library.

    Attributes:
        name: Its name.
        description: What it does.
        params: The model of its arguments.
        run: Calls the tool with keyword arguments.
        is_async: Whether `run` returns a coroutine.
    """

    name: str
    description: str
    params: type[BaseModel]
    run: Callable[..., Any]
    is_async: bool


def adopted(given: object) -> ForeignTool | None:
    """Read a tool of another library.

    Args:
        given: A `dspy.Tool`, a LangChain `BaseTool`, or anything else.

    Returns:
        The tool, or None if `given` is not a tool of another library.

    Raises:
        FunctionInvalid: It requires an argument that a model cannot supply, or its arguments have no JSON Schema.
    """
    for library, kind, read in (("dspy", "Tool", _of_dspy), ("langchain_core.tools", "BaseTool", _of_langchain)):
        known = getattr(sys.modules.get(library), kind, None)
        if known is not None and isinstance(given, known):
            return read(given)
    return None


def _of_dspy(given: Any) -> ForeignTool:
    from inspect import iscoroutinefunction

    schema: dict[str, Any] = {
        "type": "object",
        "properties": given.args,
        "required": [name for name, one in given.args.items() if "default" not in one],
        "additionalProperties": bool(given.has_kwargs),
    }
    is_async = iscoroutinefunction(given.func) or iscoroutinefunction(getattr(given.func, "__call__", None))  # noqa: B004
    return ForeignTool(
        given.name, _first(given.desc), params_of(given.name, schema), given.acall if is_async else given, is_async
    )


def _of_langchain(given: Any) -> ForeignTool:
    shown = given.tool_call_schema
    schema = dict(shown) if isinstance(shown, dict) else shown.model_json_schema()
    args_model = given.args_schema
    if isinstance(args_model, type) and issubclass(args_model, BaseModel):
        needed = {name for name, field in args_model.model_fields.items() if field.is_required()}
        if injected := sorted(needed - schema.get("properties", {}).keys()):
            raise FunctionInvalid(
                f"the tool {given.name!r} requires {injected[0]!r}, which only LangGraph's own tool node supplies",
                remedy="pass a tool whose arguments a model can supply",
            )
    # A class without a coroutine or its own `_arun` would run on the event loop's default threads.
    is_async = getattr(given, "coroutine", None) is not None or not type(given)._arun.__module__.startswith(
        "langchain_core.tools"
    )

    def run(**arguments: Any) -> Any:
        return given.invoke(arguments, config={"callbacks": []})

    async def arun(**arguments: Any) -> Any:
        return await given.ainvoke(arguments, config={"callbacks": []})

    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return ForeignTool(
        given.name, _first(given.description), params_of(given.name, schema), arun if is_async else run, is_async
    )


def _first(text: str | None) -> str:
    """The first paragraph, on one line."""
    return " ".join((text or "").strip().split("\n\n", 1)[0].split())


__all__ = ["ForeignTool", "adopted"]
