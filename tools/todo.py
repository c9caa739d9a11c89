"""The to-do list of a conversation: the list that was given last.

Only the log holds it, as a call with its result. So it is forked, exported, resumed and removed with the
conversation.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..core.errors import ToolFailed
from ..harness import tool

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


__all__ = ["TodoItem", "manage_todo_list"]
