"""An agent over a scripted model, for tests that drive the public API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel

from support.shop import Order, Receipt
from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import Thread, ThreadState, Turn, TurnStream
from worldagent.core import events as ev
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Pause
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedCall, ScriptedLM

CRITIC = Worker("critic", "You judge what you are given.", "judges texts")


def scripted_agent(home: Path, lm: Any, *, settings: Mapping[str, Any] | None = None, **more: Any) -> WorldAgent:
    """An agent of the workspace `novel` whose model calls fail at once instead of being tried again."""
    chosen = Settings(model_backoff=0, **{"model_attempts": 1, **(settings or {})})
    return WorldAgent("novel", lm=lm, storage=Storage(home=home), settings=chosen, **more)


async def open_pauses(thread: Thread) -> list[Pause]:
    """The pauses of a thread that have no answer yet."""
    return [pause for pause in await thread.pauses() if not pause.answered]


async def state_of(thread: Thread) -> ThreadState:
    """The state of a thread that has had a turn."""
    state = await thread.state()
    assert state is not None
    return state


def approving(*functions: str, **more: Any) -> Rule:
    """A rule that approves all calls of these functions, however many, and also if the clock jumps."""
    return Rule(decision="approve", function=functions, times=1000, seconds=1e9, **more)


def answering(text: str = "Fine.") -> ScriptedLM:
    """A model that says the same to everything, whatever the Signature asks for."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"result": text} if "request" in call.fields else {"reply": text}

    return ScriptedLM(reply)


def asks_the_critic(call: ScriptedCall) -> dict[str, Any]:
    """A model that has the critic judge once, and answers."""
    if "request" in call.fields:
        return {"result": "It is thin."}
    asked = any("thin" in str(message) for message in call.messages)
    return {"reply": "Well.", "calls": [] if asked else [{"tool": "critic", "arguments": {"request": "Judge it."}}]}


class Thinking:
    """A model that thinks until it may answer.

    Attributes:
        asked: Set once it is asked.
        may: Lets it answer.
    """

    def __init__(self, text: str = "Fine.") -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self.lm, self._answer = ScriptedLM(self._reply), {"reply": text}

    async def _reply(self, call: ScriptedCall) -> dict[str, str]:
        self.asked.set()
        await self.may.wait()
        return self._answer


@asynccontextmanager
async def under_way(home: Path) -> AsyncGenerator[tuple[Thinking, WorldAgent, TurnStream]]:
    """A detached turn `1` of the thread `t` that waits for its model; with its agent and its stream."""
    model = Thinking()
    async with scripted_agent(home, model.lm) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
        yield model, agent, stream


async def taken(events: AsyncIterator[ev.TurnEvent]) -> list[ev.TurnEvent]:
    """All events up to the end."""
    async with asyncio.timeout(20):
        return [event async for event in events]


async def streamed(stream: TurnStream) -> tuple[Turn, list[Any]]:
    """The turn of a stream that is read to its end, and its events."""
    async with stream:
        events = [event async for event in stream]
    return stream.turn, events


def cut(text: str, sizes: list[int]) -> list[str]:
    """A text in pieces of these sizes, and its rest."""
    chunks = []
    for size in [*sizes, len(text)]:
        chunks.append(text[:size])
        text = text[size:]
    return chunks


def standing(events: list[Any]) -> str:
    """What a reader who follows deltas and replacements sees at the end."""
    text = ""
    for event in events:
        if isinstance(event, ev.TextDelta):
            text += event.text
        elif isinstance(event, ev.TextReplaced):
            text = event.text
        elif isinstance(event, ev.StepEnded) and event.interim:
            text = ""
    return text


class Nothing(BaseModel):
    """No params."""


class Said(BaseModel):
    """What a handler gives."""

    text: str


class Muse(dspy.Signature):
    """Think aloud."""

    about: str = dspy.InputField()
    thought: str = dspy.OutputField()


class Ask(dspy.Signature):
    """Answer."""

    message: str = dspy.InputField()
    reply: str = dspy.OutputField()


def shape(handler: Callable[[TaskContext], Awaitable[str]], key: str = "job", **more: Any) -> Shape[Any, Any]:
    """A shape whose handler gives a text."""

    async def run(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await handler(ctx))

    return Shape(key, Nothing, Said, run, **more)


async def which(ctx: TaskContext) -> str:
    """A handler that asks a person."""
    return str(await ctx.calls.ask_person("Which?"))


class Gate:
    """A shape whose handlers wait for the test.

    Attributes:
        begun: Set once one waits.
        open: Lets them end.
    """

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()

    async def run(self, params: Nothing, ctx: TaskContext) -> Said:
        self.begun.set()
        await self.open.wait()
        return Said(text="through")


class Writing:
    """A function that writes and one that waits until it may.

    Attributes:
        done: What was written.
        waits: Set once something waits.
        go: Lets it go on.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def held(self) -> None:
        """Wait until it may go on."""
        self.waits.set()
        await self.go.wait()

    @property
    def functions(self) -> list[Function]:
        """`write` and `slow`."""

        async def write(what: str) -> str:
            self.done.append(what)
            return what

        async def slow(what: str) -> str:
            await self.held()
            return await write(what)

        return [tool(write), tool(slow)]


SHOPPER = Worker("shopper", "You find prices.", "finds prices", tools=("price", "stock", "pay"))


@tool(risk="read_only")
async def price(what: str) -> int:
    """Look a price up.

    Args:
        what: The article.
    """
    return len(what)


@tool(risk="read_only")
async def stock(what: str) -> dict[str, Any]:
    """Say what is in stock."""
    return {"left": what.upper()}


def paying(done: list[str]) -> Function:
    """A tool that asks before it pays, and notes that it did."""

    @tool(name="pay", risk="write")
    async def pay(what: str) -> str:
        done.append(what)
        return f"paid {what}"

    made: Function = pay
    return made


def calls(*asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """An answer that calls tools."""
    return {"calls": [{"tool": name, "arguments": arguments} for name, arguments in asked]}


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """An answer that calls one tool."""
    return calls((name, arguments))


def to(worker: str, request: str = "Go.") -> dict[str, Any]:
    """A plan that asks a worker."""
    return {"reply": "", "calls": [{"tool": worker, "arguments": {"request": request}}]}


def told(call: Any) -> list[str]:
    """What the model got of its calls, and of what it gave last."""
    return list(call.steps)


async def failure(running: Awaitable[Any]) -> WorldAgentError:
    """The error that a call raises."""
    try:
        value = await running
    except WorldAgentError as error:
        return error
    raise AssertionError(f"it gave {value!r}")


def refused(make: Callable[[], Any], kind: type[WorldAgentError] = WorldAgentError) -> WorldAgentError:
    """The error of a kind that making something raises."""
    try:
        value = make()
    except kind as error:
        return error
    raise AssertionError(f"it gave {value!r}")


def pay(done: list[str], **more: Any) -> Function:
    async def pay(what: str) -> str:
        done.append(what)
        return f"paid for the {what}"

    made: Function = tool(approval=True, **more)(pay)
    return made


async def buy(ctx: TaskContext) -> str:
    return str(await ctx.call("pay", {"what": "hat"}))


def shop(home: Path, done: list[str], **more: Any) -> WorldAgent:
    given: dict[str, Any] = {"tools": [pay(done)], "shapes": [shape(buy, entry=Muse)], **more}
    return scripted_agent(home, answering(), **given)


@tool(name="pay", approval=True)
async def _pay_in_colour(what: str, colour: str) -> str:
    """Pay for something."""
    return f"paid for the {colour} {what}"


async def _buy_in_colour(order: Order, ctx: TaskContext) -> Receipt:
    colour = await ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"])
    return Receipt(text=await ctx.call("pay", {"what": order.what, "colour": colour}))


def asking_shop(home: Path, **more: Any) -> WorldAgent:
    """An agent of the workspace `novel` whose shape `buy` waits for a person twice."""
    return scripted_agent(
        home, answering(), tools=[_pay_in_colour], shapes=[Shape("buy", Order, Receipt, _buy_in_colour)], **more
    )
