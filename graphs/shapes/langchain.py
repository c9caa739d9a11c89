"""What LangChain's parts do inside a graph of the embedder: its chat models count, and its tools call functions."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.runtime import get_runtime

from ...core import ModelUsage
from ...core.errors import BudgetInvalid, BudgetReached, FunctionInvalid, HostError, ModelFacing
from ...core.events import Usage
from ...core.validation import digest
from ...harness import CallContext, Function
from ...harness.journal import Frame
from ...harness.limits.budget import TurnLimitReached
from ..nesting import apart
from ..tasks import TaskContext

_CHARACTERS_PER_TOKEN: Final = 4  # an estimate, for a model that reports no usage


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call of a chat model that runs: the model's name, when it began and how many characters it was sent."""

    model: str
    began: float
    characters: int


class ChatModels(BaseCallbackHandler):
    """Counts the calls of chat models in a graph as the turn's usage, and checks the turn's limits before each.

    Chat models can run on the event loop and on threads.

    Args:
        key: The key of the graph's shape, which the usage names.
        ctx: The task that runs the graph.

    Attributes:
        failure: The error of a limit that ends the turn, even if the graph caught it.
    """

    raise_error = True
    run_inline = True

    def __init__(self, key: str, ctx: TaskContext) -> None:
        # Not the context, which has the role: nodes can reach the handlers in their config.
        self._key, self._task, self._emit = key, ctx.id, ctx.turn.emit
        self._frame, self._budget = ctx.calls.frame, ctx.turn.budget
        self._clock = ctx.turn.services.clock
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._asked: dict[UUID, _Asked] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._refused: BudgetReached | BudgetInvalid | None = None  # the next call
        self.failure: TurnLimitReached | BudgetReached | BudgetInvalid | None = None

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Take note of a call, or refuse it at a limit.

        Raises:
            LimitReached: A limit in tokens or cost, or a budget of members, is reached.
            BudgetInvalid: A budget of members is in dollars.
        """
        self._on_loop(self._frame.mark_model_influenced)  # the answer can influence later calls
        if self._refused is not None:
            self.failure = self._refused
            raise self._refused
        try:
            self._budget.check()
        except TurnLimitReached as error:
            self.failure = error
            raise
        name = (metadata or {}).get("ls_model_name")
        sent = sum(len(message.text) for each in messages for message in each)
        self._asked[run_id] = _Asked(name if isinstance(name, str) else "", self._clock.monotonic(), sent)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: Any) -> None:
        """Count the usage of a call that ended."""
        asked = self._asked.pop(run_id, None)
        if asked is not None:
            made = [each for choices in response.generations for each in choices]
            said = [each.message for each in made if isinstance(each, ChatGeneration)]
            self._on_loop(partial(self._count, asked, said))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """Forget a call that failed."""
        self._asked.pop(run_id, None)

    async def settled(self) -> None:
        """Wait until the usage that limits count is written."""
        await asyncio.gather(*self._writes)

    def _on_loop(self, do: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            do()
        else:
            self._loop.call_soon_threadsafe(do)

    def _count(self, asked: _Asked, said: Sequence[BaseMessage]) -> None:
        used, name = ModelUsage(calls=1, input_tokens=None, output_tokens=None, cost=None), asked.model
        for message in said:
            name = str(message.response_metadata.get("model_name") or name)
            if isinstance(message, AIMessage) and message.usage_metadata is not None:
                used = _usage_of(message.usage_metadata)
        name = name or self._key
        seconds = self._clock.monotonic() - asked.began
        sent = asked.characters // _CHARACTERS_PER_TOKEN if used.input_tokens is None else used.input_tokens
        text = sum(len(message.text) for message in said)
        received = text // _CHARACTERS_PER_TOKEN if used.output_tokens is None else used.output_tokens
        self._budget.spend(name, used, sent + received, 0.0)
        reported = asdict(used)
        del reported["calls"]
        self._emit(Usage, signature=self._key, call_id=self._task, model=name, seconds=seconds, **reported)
        write = asyncio.ensure_future(self._write(sent + received, name))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)

    async def _write(self, tokens: int, model: str) -> None:
        """Write the usage. What such a call can use is not known before it, so budgets of members count it now."""
        await self._budget.settle()
        if self._budget.ledger.purse is not None:
            try:
                await self._budget.ledger.purse.spend(tokens, model=model)
            except (BudgetReached, BudgetInvalid) as error:  # the work can be done with this call
                self._refused = error


def _usage_of(reported: Any) -> ModelUsage:
    sent, received = reported.get("input_token_details") or {}, reported.get("output_token_details") or {}
    return ModelUsage(
        calls=1,
        input_tokens=reported["input_tokens"],
        output_tokens=reported["output_tokens"],
        cached_tokens=sent.get("cache_read") or 0,
        reasoning_tokens=received.get("reasoning") or 0,
        cost=None,
    )


def langchain_tools(*functions: Function) -> list[BaseTool]:
    """Make LangChain tools of functions, for the chat model of a graph with `context_schema=CallContext`.

    A call of such a tool is a call of the graph's task: it passes the gate as a model's, the turn's journal records it,
    and an approval pauses the turn. A call that fails or is refused gives the chat model a text about that.

    Args:
        functions: What `@tool` or `@flow` made. The agent that runs the graph has them in its `tools=`, too.

    Raises:
        FunctionInvalid: One is not a function.
    """
    return [_tool(function) for function in functions]


def _tool(function: Function) -> BaseTool:
    if not isinstance(function, Function):
        raise FunctionInvalid(
            f"langchain_tools takes only functions, got {type(function).__name__!r}",
            remedy="pass what @tool or @flow made",
        )
    name = function.name

    async def run(**arguments: Any) -> Any:
        ctx = _context(name)
        ctx.frame.mark_model_influenced()  # the graph's chat model chose it
        try:
            with apart():
                value = await ctx.call(name, arguments, key=_key(ctx.frame, name, arguments))
        except (ModelFacing, HostError) as error:
            problem = error.for_model
        else:
            return function.result.dump_python(value, mode="json")
        raise ToolException(problem)

    return StructuredTool(
        name=name,
        description=function.description or name,
        args_schema=dict(function.input_schema),
        coroutine=run,
        handle_tool_error=True,
    )


_CALL_COUNTS: Final[WeakKeyDictionary[Frame, Counter[str]]] = WeakKeyDictionary()
"""How often each call was made in the run of a graph."""


def _key(frame: Frame, name: str, arguments: Mapping[str, Any]) -> str | None:
    """Distinguishes equal calls of a run, because a chat model can ask for two of them at the same time."""
    made = _CALL_COUNTS.setdefault(frame, Counter())
    mark = digest([name, arguments], length=12)
    made[mark] += 1
    return None if made[mark] == 1 else f"{mark}-{made[mark]}"


def _context(name: str) -> CallContext:
    """The context of the graph that the tool is called in."""
    try:
        context: object = get_runtime().context
    except (RuntimeError, AttributeError):  # not in a graph
        context = None
    if isinstance(context, CallContext):
        return context
    raise FunctionInvalid(
        f"the tool {name!r} is called where no turn runs it",
        remedy="use it in a graph with context_schema=CallContext that graph_shape() made a shape of",
    )
