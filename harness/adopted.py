"""Tools of other libraries as parts of a `Function`: `dspy.Tool`, and tools of LangChain.

A tool of either kind can only be there once its library is imported, so nothing is imported here before that.
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
class Adopted:
    """A tool of another library.

    Attributes:
        name: Its name.
        description: What it does.
        params: The model of its arguments.
        run: Calls it with them by name.
        is_async: Whether `run` gives a coroutine.
    """

    name: str
    description: str
    params: type[BaseModel]
    run: Callable[..., Any]
    is_async: bool


def adopted(given: object) -> Adopted | None:
    """Return what a tool of another library comes to; None where `given` is none.

    Args:
        given: A `dspy.Tool`, a LangChain `BaseTool`, or anything else.

    Raises:
        FunctionInvalid: It takes what no model can give, or its arguments have no JSON Schema.
    """
    for library, kind, read in (("dspy", "Tool", _of_dspy), ("langchain_core.tools", "BaseTool", _of_langchain)):
        known = getattr(sys.modules.get(library), kind, None)
        if known is not None and isinstance(given, known):
            return read(given)
    return None


def _of_dspy(given: Any) -> Adopted:
    from inspect import iscoroutinefunction

    schema: dict[str, Any] = {
        "type": "object",
        "properties": given.args,
        "required": [name for name, one in given.args.items() if "default" not in one],
        "additionalProperties": bool(given.has_kwargs),
    }
    is_async = iscoroutinefunction(given.func) or iscoroutinefunction(getattr(given.func, "__call__", None))  # noqa: B004
    return Adopted(
        given.name, _first(given.desc), params_of(given.name, schema), given.acall if is_async else given, is_async
    )


def _of_langchain(given: Any) -> Adopted:
    shown = given.tool_call_schema
    schema = dict(shown) if isinstance(shown, dict) else shown.model_json_schema()
    whole = given.args_schema
    if isinstance(whole, type) and issubclass(whole, BaseModel):
        needed = {name for name, field in whole.model_fields.items() if field.is_required()}
        if injected := sorted(needed - schema.get("properties", {}).keys()):
            raise FunctionInvalid(
                f"the tool {given.name!r} needs {injected[0]!r}, which only LangGraph's own tool node gives",
                remedy="pass a tool whose arguments a model can give",
            )
    # A class with neither a coroutine nor an `_arun` of its own would run on the event loop's own threads.
    is_async = getattr(given, "coroutine", None) is not None or not type(given)._arun.__module__.startswith(
        "langchain_core.tools"
    )

    def run(**arguments: Any) -> Any:
        return given.invoke(arguments, config={"callbacks": []})

    async def arun(**arguments: Any) -> Any:
        return await given.ainvoke(arguments, config={"callbacks": []})

    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return Adopted(
        given.name, _first(given.description), params_of(given.name, schema), arun if is_async else run, is_async
    )


def _first(text: str | None) -> str:
    """The first paragraph, on one line."""
    return " ".join((text or "").strip().split("\n\n", 1)[0].split())


__all__ = ["Adopted", "adopted"]
