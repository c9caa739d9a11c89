"""What an agent needs of the graph that it is a node of, and of LangChain; `agent/outer.py` runs its turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages
from langchain_core.tools import StructuredTool, ToolException
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from ..core import digest
from ..core.errors import FunctionInvalid, InvalidArgument, ThreadPaused
from .nesting import apart, has_checkpointer

OuterRuntime: TypeAlias = Runtime[Any]
LangChainTool: TypeAlias = StructuredTool

MESSAGES: Final = "messages"
"""The key of the state whose value is a list of messages."""


class _Input(BaseModel):
    text: str = Field(description="The message. It must contain all that the agent has to know.")


def outer_runtime() -> OuterRuntime | None:
    """Return the runtime of the graph whose node runs this code; None if no graph runs it."""
    try:
        runtime = get_runtime()
    except (KeyError, RuntimeError):  # no runnable runs this code, or one that is not in a graph
        return None
    return None if runtime is None or runtime.execution_info is None else runtime


def node_runtime() -> OuterRuntime:
    """Return the runtime of the graph whose node runs this code.

    Raises:
        FunctionInvalid: No graph runs it.
    """
    runtime = outer_runtime()
    if runtime is None:
        raise FunctionInvalid(
            "a node that `as_node()` returns was called outside of a graph",
            remedy="add it to a StateGraph with add_node(), and run the compiled graph with ainvoke() or astream()",
        )
    return runtime


def task_key(runtime: OuterRuntime) -> str:
    """Return a key that is the same whenever the graph runs the same task: at a retry, after a pause, after a kill."""
    info = runtime.execution_info
    assert info is not None, "see `outer_runtime`"
    thread = None if info.thread_id is None else str(info.thread_id)  # some pass a UUID
    return f"node {digest([thread, info.checkpoint_ns, info.task_id])}"


def outer_thread_id(runtime: OuterRuntime) -> str:
    """Return the id of the graph's thread.

    Raises:
        InvalidArgument: The graph runs without one.
    """
    info = runtime.execution_info
    if info is None or info.thread_id is None:
        raise InvalidArgument(
            "the graph runs without a thread_id, so the node has no thread for its turn",
            remedy="run it with config={'configurable': {'thread_id': ...}}, or pass as_node(thread=...)",
        )
    return str(info.thread_id)


def ask(payload: Mapping[str, Any]) -> Any:
    """Interrupt the graph, or return what it was resumed with."""
    return interrupt(dict(payload))


def message_text(state: object, key: str) -> str:
    """Return the text under a key of the state, or of the last human message there.

    Args:
        state: The state of the graph: a mapping, or an object with attributes.
        key: The key.

    Raises:
        InvalidArgument: The state has no such text.
    """
    value = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    if isinstance(value, str):
        return value
    found = next((message for message in reversed(_messages(value)) if isinstance(message, HumanMessage)), None)
    if found is None:
        raise InvalidArgument(
            f"the state has no human message in {key!r}",
            remedy="begin the graph with one, or pass as_node(message=...), a key of a text or a function of the state",
        )
    parts = found.content if isinstance(found.content, list) else []
    if any(isinstance(part, dict) and part.get("type") != "text" for part in parts):
        raise InvalidArgument(
            f"the last human message in {key!r} has parts that are not text",
            remedy="pass as_node(message=...), a function that returns the text",
        )
    return str(found.text)


def _messages(value: Any) -> list[Any]:
    try:
        return list(convert_to_messages(value))
    except (NotImplementedError, TypeError, ValueError):  # not a list of messages; the text would have the value
        return []


def answer_update(key: str, text: str, turn_id: str) -> dict[str, Any]:
    """Return an update of the state: a message of the agent for `messages`, the text for another key.

    Args:
        key: The key.
        text: The answer.
        turn_id: The id of the message, so that the same turn never adds a second one.
    """
    return {key: [AIMessage(content=text, id=turn_id)] if key == MESSAGES else text}


class ToolWaits(ThreadPaused, ToolException):
    """The turn of a call of the tool waits for a person."""


def langchain_tool(name: str, description: str, run: Callable[[str], Awaitable[str]]) -> LangChainTool:
    """Return a tool of LangChain with one text as its input. The model that calls it reads a `ToolWaits`.

    Raises:
        InvalidArgument: LangChain does not accept the name or the description.
    """

    async def call(text: str) -> str:
        return await run(text)

    return StructuredTool.from_function(
        coroutine=call, name=name, description=description, args_schema=_Input, handle_tool_error=True
    )


__all__ = [
    "MESSAGES",
    "LangChainTool",
    "OuterRuntime",
    "ToolWaits",
    "answer_update",
    "apart",
    "ask",
    "has_checkpointer",
    "langchain_tool",
    "message_text",
    "node_runtime",
    "outer_runtime",
    "outer_thread_id",
    "task_key",
]
