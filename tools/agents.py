"""The tools that need an agent: exploring with tools that only read, concurrent calls, and the to-do list.

The first two obey the whitelist like any other tool: their calls are looked up in the same registry.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..core.errors import HostError, InvalidArgument, ModelFacing, ToolFailed
from ..core.validation import json_of_value
from ..harness import CallContext, Function, Worker, flow, tool
from ..harness.journal import ABOUT_THE_TURN
from .builtin import EXPLORE, EXPLORED_WITH

MAX_CALLS: Final = 10
_NAME: Final = "parallel_execution"


class ToolCall(BaseModel):
    """One call.

    Attributes:
        tool: The name of what is called.
        arguments: Its params.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tool: str = Field(min_length=1, max_length=64, description="the tool's name")
    arguments: dict[str, Any] = Field(default_factory=dict, description="its params")


class ToolOutcome(BaseModel):
    """The outcome of one call: `result`, or `error` where it failed.

    Attributes:
        tool: What was called.
        result: What it gave, as JSON.
        error: Why it failed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    result: Any = None
    error: str | None = None


@flow(name=_NAME)
async def _parallel(
    ctx: CallContext,
    calls: Annotated[list[ToolCall], Field(min_length=1, max_length=MAX_CALLS, description="the calls, in any order")],
) -> list[ToolOutcome]:
    """Make up to ten calls of tools side by side, each of which asks for approval by itself where it needs any."""
    if any(each.tool == _NAME for each in calls):
        raise ToolFailed(f"{_NAME!r} cannot call itself", remedy="put all calls into one list")
    return list(await asyncio.gather(*(_outcome(ctx, each, str(place)) for place, each in enumerate(calls))))


async def _outcome(ctx: CallContext, call: ToolCall, key: str) -> ToolOutcome:
    try:
        function = ctx.registry.function(call.tool)
        given = await ctx.call(call.tool, call.arguments, key=key)
    except ABOUT_THE_TURN:
        raise
    except (ModelFacing, HostError) as error:  # the other calls continue
        return ToolOutcome(tool=call.tool, error=f"{error.code}: {error.for_model}")
    result = json_of_value(function.result, given, what=f"the result of {call.tool!r}", error=InvalidArgument)
    return ToolOutcome(tool=call.tool, result=result)


PARALLEL: Final[Function] = replace(_parallel, calls_as_caller=True)
"""Makes several concurrent calls, under the name and within the tools of its caller."""

EXPLORER: Final = Worker(
    EXPLORE,
    "You explore files and pages to answer a question about them, and change nothing. Look where the answer is most "
    "likely first, read only what you need, and follow what you find. Answer with what you found, with paths and line "
    "numbers or addresses, and say what you could not find.",
    description="answers a question about files or pages by looking through them, and tells what it found",
    tools=EXPLORED_WITH,
    max_steps=30,
)
"""Looks through files and pages."""


# --- the to-do list ---------------------------------------------------------------------------------------------------

MAX_ITEMS: Final = 100
_MARKS: Final = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoItem(BaseModel):
    """One thing to do.

    Attributes:
        content: What.
        status: Whether it is to be done, is being done, or is done.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    content: str = Field(min_length=1, max_length=500, description="what is to be done, in a few words")
    status: Literal["pending", "in_progress", "completed"] = "pending"


@tool(risk="read_only")
async def manage_todo_list(
    items: Annotated[
        list[TodoItem], Field(max_length=MAX_ITEMS, description="the full list, also what did not change")
    ],
) -> str:
    """Write the to-do list of this conversation: give all items each time, with one `in_progress` at most."""
    seen = Counter(item.content.strip() for item in items)
    twice = next((content for content, count in seen.items() if count > 1), None)
    if twice is not None:
        raise ToolFailed(f"{twice[:80]!r} is in the list twice", remedy="give each item once")
    if sum(item.status == "in_progress" for item in items) > 1:
        raise ToolFailed("more than one item is in_progress", remedy="finish one before the next")
    done = sum(item.status == "completed" for item in items)
    lines = [f"{_MARKS[item.status]} {' '.join(item.content.split())}" for item in items]
    return "\n".join([*lines, f"{done} of {len(items)} done"]) if items else "the list is empty"
