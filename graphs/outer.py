"""What an agent needs of the graph that it is a node of, and of LangChain; `agent/outer.py` runs its turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self, TypeAlias

from langchain_core.callbacks import AsyncCallbackManager, AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.tools import StructuredTool, ToolException
from langgraph.config import get_config
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from ..core import ModelUsage, digest
from ..core.errors import FunctionInvalid, InvalidArgument, ThreadPaused
from ..core.events import StepEnded, TextDelta, TextReplaced, TurnEvent
from .loop.graph import LoopGraph
from .nesting import STREAM, NodeView, view_of
from .nesting import apart as apart
from .nesting import has_checkpointer as has_checkpointer

OuterRuntime: TypeAlias = Runtime[Any]
LangChainTool: TypeAlias = StructuredTool
MessagesGraph: TypeAlias = CompiledStateGraph[MessagesState, Any, Any, Any]  # the input is what turns into messages

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
            "the graph runs without a thread_id, so there is no thread for the turn",
            remedy="run it with config={'configurable': {'thread_id': ...}}, or pass as_node(thread=...) in a graph of "
            "your own",
        )
    return str(info.thread_id)


def server_user(runtime: OuterRuntime) -> str | None:
    """Return the id of the user that a LangGraph server has authenticated; None if it authenticates nobody."""
    user = None if runtime.server_info is None else runtime.server_info.user
    return None if user is None else str(user.identity)


def messages_graph(
    node: str, run: Callable[[Any], Awaitable[Any]], turn: LoopGraph, context: type, *, name: str, checkpointer: Any
) -> MessagesGraph:
    """Compile a graph of messages with one node.

    Args:
        node: The node's name.
        run: Its function.
        turn: The graph of a turn, which is shown as the node's subgraph; `run` makes turns run in it.
        context: The type of the graph's context.
        name: The graph's name in drawings and traces.
        checkpointer: The graph's checkpointer.
    """
    shown: LoopGraph = turn.copy({"checkpointer": None})  # nobody reads the agent's checkpoints through it

    async def converse(state: MessagesState) -> Any:
        assert shown is not None, "LangGraph finds the subgraph of a node in the closure of its function"
        return await run(state)

    builder = StateGraph[MessagesState, Any, Any, Any](MessagesState, context_schema=context)
    builder.add_node(node, converse)
    builder.add_edge(START, node)
    builder.add_edge(node, END)
    return builder.compile(checkpointer=checkpointer, name=name)


class AnswerPieces:
    """Reports the answer of a turn to the callbacks of a node in pieces, as a chat model does.

    `stream_mode="messages"` and traces are made of these callbacks. Each step of the conversation is a message of its
    own, because the text of a step that ends in calls is not the answer. Use it as a context manager: a message that is
    not complete at its end has failed.

    Args:
        view: What the turn gets of the node.
        asked: The person's message.

    Attributes:
        message_id: The id of the answer; None if no piece of it was reported.
    """

    def __init__(self, view: NodeView, asked: str) -> None:
        manager = view.get("callbacks")
        self._manager = manager if isinstance(manager, AsyncCallbackManager) and manager.handlers else None
        self._asked = asked
        self._run: AsyncCallbackManagerForLLMRun | None = None
        self._text = ""
        self._step = self._replaced = 0
        self.message_id: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._run is not None:
            await self._run.on_llm_error(error)
        else:
            await self._end()

    async def take(self, event: TurnEvent) -> None:
        """Report one event of the turn."""
        match event:
            case TextDelta(text=text, step=step):
                self._step = step
                await self._add(event.turn_id, text)
            case TextReplaced(text=text, step=step):  # pieces cannot be taken back, so another message begins
                self._text = text
                await self._end(interim=True)
                self._step, self._replaced = self._step if step is None else step, self._replaced + 1
                if text:
                    await self._add(event.turn_id, text)
            case StepEnded(interim=interim):
                await self._end(interim=interim)
                self.message_id = None if interim else self.message_id
            case _:
                pass

    async def _add(self, turn_id: str, text: str) -> None:
        self.message_id = f"{turn_id}.{self._step}.{self._replaced}"  # the same for each listener
        if self._manager is None:
            return
        if self._run is None:
            asked: list[list[BaseMessage]] = [[HumanMessage(self._asked)]]
            [self._run] = await self._manager.on_chat_model_start({"name": "answer"}, asked, name="answer")
            self._text = ""
        self._text += text
        await self._say(self._run, text)

    async def _say(self, run: AsyncCallbackManagerForLLMRun, text: str, **marks: Any) -> None:
        message = AIMessageChunk(content=text, id=self.message_id, additional_kwargs=marks)
        await run.on_llm_new_token(text, chunk=ChatGenerationChunk(message=message))

    async def _end(self, *, interim: bool = False) -> None:
        run, self._run = self._run, None
        if run is not None:
            marks = {"interim": True} if interim else {}
            if interim:
                await self._say(run, "", **marks)
            message = AIMessage(content=self._text, id=self.message_id, additional_kwargs=marks)
            await run.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]))


def view_of_node() -> NodeView:
    """What a turn gets of the node that runs this code, whose graph shows it as a subgraph."""
    return view_of(get_config())


def shows_tasks(view: NodeView) -> bool:
    """Whether the client of a node's graph follows the tasks of a turn, and reads its events."""
    stream = view.get("configurable", {}).get(STREAM)
    return stream is not None and "custom" in stream.modes


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
            remedy="begin the graph with one, or in a graph of your own pass as_node(message=...), a key of a text or "
            "a function of the state",
        )
    parts = found.content if isinstance(found.content, list) else []
    if any(isinstance(part, dict) and part.get("type") != "text" for part in parts):
        raise InvalidArgument(
            f"the last human message in {key!r} has parts that are not text",
            remedy="send only text, or in a graph of your own pass as_node(message=...), a function that returns the "
            "text",
        )
    return str(found.text)


def _messages(value: Any) -> list[Any]:
    try:
        return list(convert_to_messages(value))
    except (NotImplementedError, TypeError, ValueError):  # not a list of messages; the text would have the value
        return []


def answer_message(text: str, message_id: str, facts: Mapping[str, Any], usage: ModelUsage) -> AIMessage:
    """Return the answer of a turn as a message.

    Args:
        text: The answer.
        message_id: The id of the message, so that the same turn never adds a second one.
        facts: The turn as JSON, of which the message has the further outputs, and what was withheld.
        usage: The usage of the turn.
    """
    counted = None
    if usage.input_tokens is not None and usage.output_tokens is not None and usage.calls:
        total = usage.input_tokens + usage.output_tokens
        counted = UsageMetadata(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=total)
    more = {name: facts[name] for name in ("outputs", "withheld") if name in facts}
    return AIMessage(content=text, id=message_id, additional_kwargs=more, usage_metadata=counted)


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
