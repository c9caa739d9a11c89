"""Chat models and tools of LangChain in a graph of the embedder's: tokens, usage, limits, the gate (T3, H3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, PrivateAttr

from support.agents import Said, scripted_agent
from worldagent import Role, WorldAgent
from worldagent.core.errors import FunctionInvalid, HostUnavailable, LimitReached
from worldagent.core.events import CallProgress, CallStarted, TextDelta, Usage
from worldagent.core.pauses import Approve, Reject
from worldagent.graphs.shapes import graph_shape, langchain_tools
from worldagent.harness import CallContext, tool
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T3")

SECRET = "Speak as the ninth keeper of the lighthouse on the western rock."
POEM = AIMessage(
    "O grey sea",
    usage_metadata={
        "input_tokens": 12,
        "output_tokens": 5,
        "total_tokens": 17,
        "input_token_details": {"cache_read": 4},
        "output_token_details": {"reasoning": 2},
    },
    response_metadata={"model_name": "sea-1"},
)


class Writer(GenericFakeChatModel):
    """A chat model that streams words, and then its usage."""

    asked: int = 0
    _last: AIMessage | None = PrivateAttr(None)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> Any:
        self.asked += 1
        made = super()._generate(messages, stop, run_manager, **more)
        last = made.generations[0].message
        assert isinstance(last, AIMessage)
        self._last = last
        return made

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> Iterator[ChatGenerationChunk]:
        yield from super()._stream(messages, stop, run_manager, **more)
        assert self._last is not None
        last = AIMessageChunk(
            content="",
            usage_metadata=self._last.usage_metadata,
            response_metadata=self._last.response_metadata,
            tool_call_chunks=[
                {"name": call["name"], "args": '{"what": "hat"}', "id": call["id"], "index": place}
                for place, call in enumerate(self._last.tool_calls)
            ],
        )
        yield ChatGenerationChunk(message=last)


class Ask(BaseModel):
    messages: list[Any]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    text: str


def write_with(model: BaseChatModel) -> Any:
    """A node that asks the model."""

    async def write(state: State) -> State:
        said = await model.ainvoke(state["messages"])
        return {"messages": [said], "text": str(said.text)}

    return write


def writing(model: BaseChatModel, *, threaded: bool = False) -> Any:
    """A graph that asks the model once."""

    def write_on_a_thread(state: State) -> State:
        said = model.invoke(state["messages"])
        return {"messages": [said], "text": str(said.text)}

    graph: Any = StateGraph(State)
    graph.add_node("write", write_on_a_thread if threaded else write_with(model))
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    return graph.compile()


def agent(home: Path, graph: Any, **more: Any) -> WorldAgent:
    shape = graph_shape("poem", graph, params=Ask, result=Said)
    return scripted_agent(home, ScriptedLM([]), shapes=[shape], **more)


GIVEN = {"messages": [{"role": "user", "content": "Write."}]}


@pytest.mark.parametrize("threaded", [False, True], ids=["loop", "thread"])
async def test_usage_of_a_graphs_chat_model_is_usage_of_the_turn(tmp_path: Path, threaded: bool) -> None:
    async with agent(tmp_path, writing(Writer(messages=iter([POEM])), threaded=threaded)) as poet:
        turn = await poet.thread("t").task("poem", GIVEN)
        assert turn.result == Said(text="O grey sea")
        used = turn.usage
        assert (used.calls, used.input_tokens, used.output_tokens, used.cached_tokens) == (1, 12, 5, 4)
        assert (used.reasoning_tokens, used.cost) == (2, None)
        assert list(turn.usage.models) == ["sea-1"]


@pytest.mark.parametrize("threaded", [False, True], ids=["loop", "thread"])
async def test_text_of_a_graphs_chat_model_streams_as_progress_of_the_task(tmp_path: Path, threaded: bool) -> None:
    graph = writing(Writer(messages=iter([POEM])), threaded=threaded)
    async with agent(tmp_path, graph) as poet, poet.thread("t").stream_task("poem", GIVEN) as stream:
        events = [event async for event in stream]
        turn = await stream.wait()
    told = [event for event in events if isinstance(event, CallProgress)]
    assert "".join(event.message for event in told) == "O grey sea"
    assert len(told) > 2
    assert [event.progress for event in told][-1] == len("O grey sea")
    [used] = [event for event in events if isinstance(event, Usage)]
    assert {event.call_id for event in told} == {used.call_id}
    assert (used.signature, used.model, used.input_tokens) == ("poem", "sea-1", 12)
    assert not any(isinstance(event, TextDelta) for event in events)
    assert turn.usage.input_tokens == 12


async def test_text_of_a_chat_model_that_does_not_stream_arrives_at_once(tmp_path: Path) -> None:
    said = [AIMessage("", tool_calls=[{"name": "look", "args": {"what": "hat"}, "id": "1"}]), AIMessage("O grey sea")]
    model = GenericFakeChatModel(messages=iter(said), disable_streaming=True)

    async def sign(state: State) -> State:
        return {"messages": [AIMessage("signed by no model")]}

    graph: Any = StateGraph(State, context_schema=CallContext)
    graph.add_node("write", write_with(model))
    graph.add_node("tools", ToolNode(langchain_tools(look)))
    graph.add_node("sign", sign)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", tools_condition, {"tools": "tools", END: "sign"})
    graph.add_edge("tools", "write")
    async with (
        agent(tmp_path, graph.compile(), tools=[look]) as poet,
        poet.thread("t").stream_task("poem", GIVEN) as stream,
    ):
        events = [event async for event in stream]
        turn = await stream.wait()
    assert [event.message for event in events if isinstance(event, CallProgress)] == ["O grey sea"]
    assert turn.result == Said(text="O grey sea")


async def test_a_graph_that_the_conversation_calls_streams_apart_from_its_answer(tmp_path: Path) -> None:
    shape = graph_shape(
        "poem", writing(Writer(messages=iter([POEM]))), params=Ask, result=Said, description="writes a poem"
    )
    lm = ScriptedLM([{"calls": [{"tool": "poem", "arguments": {"messages": ["Write."]}}]}, {"reply": "Here it is."}])
    async with (
        scripted_agent(tmp_path, lm, shapes=[shape]) as poet,
        poet.thread("t").stream("A poem!", role=Role("keeper", SECRET)) as stream,
    ):
        events = [event async for event in stream]
        turn = await stream.wait()
    assert "".join(event.message for event in events if isinstance(event, CallProgress)) == "O grey sea"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Here it is."
    assert turn.usage.models["sea-1"].input_tokens == 12
    assert [event.signature for event in events if isinstance(event, Usage)] == ["Converse", "poem", "Converse"]
    assert_no_role_leak([tmp_path, events], SECRET)


async def test_a_limit_in_tokens_stops_a_graph_even_if_it_catches_everything(tmp_path: Path) -> None:
    model = Writer(messages=iter([POEM, POEM]))

    async def write(state: State) -> State:
        text = ""
        for _ in range(2):
            try:
                text = str((await model.ainvoke("Write.")).text)
            except Exception:  # broad: what this test is about
                text = "caught"
        return {"text": text}

    graph: Any = StateGraph(State)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    async with agent(tmp_path, graph.compile(), settings={"turn_tokens": 10}) as poet:
        with pytest.raises(LimitReached, match="limit of 10 tokens"):
            await poet.thread("t").task("poem", GIVEN)
    assert model.asked == 1


async def test_a_model_that_reports_no_usage_counts_an_estimate(tmp_path: Path) -> None:
    model = Writer(messages=iter(["word " * 100, "more"]))
    async with agent(tmp_path, writing(model), settings={"turn_tokens": 50}) as poet:
        turn = await poet.thread("t").task("poem", GIVEN)
        assert (turn.usage.calls, turn.usage.input_tokens) == (1, None)


DONE: list[str] = []


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look at a thing."""
    DONE.append(f"look {what}")
    return f"a {what}"


@tool(risk="write")
async def pay(what: str) -> str:
    """Pay for a thing."""
    DONE.append(f"pay {what}")
    return f"paid for the {what}"


def buying(model: BaseChatModel) -> Any:
    """An agent as LangGraph's pages write it: a chat model and its tools, until it answers."""
    graph: Any = StateGraph(State, context_schema=CallContext)
    graph.add_node("think", write_with(model))
    graph.add_node("tools", ToolNode(langchain_tools(look, pay)))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


def calls(*names: str) -> AIMessage:
    asked = [{"name": name, "args": {"what": "hat"}, "id": f"{name}{place}"} for place, name in enumerate(names)]
    return AIMessage("", tool_calls=asked)


@pytest.mark.requirement("T4")
async def test_a_graphs_tools_pass_the_gate_and_a_resumed_turn_repeats_none(tmp_path: Path) -> None:
    DONE.clear()
    said = [calls("look", "look"), calls("pay", "pay"), AIMessage("Yours.")]
    async with agent(tmp_path, buying(Writer(messages=iter(said))), tools=[look, pay]) as shop:
        turn = await shop.thread("t").task("poem", GIVEN, role=Role("keeper", SECRET))
        assert (turn.status, [pause.function for pause in turn.pauses]) == ("paused", ["pay", "pay"])
        assert DONE == ["look hat", "look hat"]
    answers = {pause.id: Approve() for pause in turn.pauses}
    async with (
        agent(tmp_path, buying(Writer(messages=iter(said))), tools=[look, pay]) as shop,
        shop.thread("t").stream_resume(answers, role=Role("keeper", SECRET)) as stream,
    ):
        events = [event async for event in stream]
        turn = await stream.wait()
    assert turn.result == Said(text="Yours.")
    assert DONE == ["look hat", "look hat", "pay hat", "pay hat"]
    assert {event.gate for event in events if isinstance(event, CallStarted) and event.function == "pay"} == {"person"}
    assert_no_role_leak([tmp_path, turn], SECRET)


async def test_a_refused_call_of_a_tool_is_a_text_for_the_graphs_chat_model(tmp_path: Path) -> None:
    DONE.clear()
    read: list[str] = []

    class Reader(Writer):
        def _generate(self, messages: Any, *more: Any, **others: Any) -> Any:
            read.extend(str(each.text) for each in messages if isinstance(each, ToolMessage))
            return super()._generate(messages, *more, **others)

    def model() -> Reader:
        return Reader(messages=iter([calls("pay"), AIMessage("Then not.")]))

    async with agent(tmp_path, buying(model()), tools=[look, pay]) as shop:
        turn = await shop.thread("t").task("poem", GIVEN)
    async with agent(tmp_path, buying(model()), tools=[look, pay]) as shop:
        turn = await shop.thread("t").resume({turn.pauses[0].id: Reject("too dear")})
    assert turn.result == Said(text="Then not.")
    assert DONE == []
    assert any("too dear" in text for text in read)


async def test_a_graph_with_a_checkpointer_does_not_ask_its_chat_model_again(tmp_path: Path) -> None:
    model, broken, saver = Writer(messages=iter([POEM])), [True], InMemorySaver()

    async def write(state: State) -> State:
        return {"text": str((await model.ainvoke("Write.")).text)}

    async def check(state: State) -> State:
        if broken[0]:
            raise HostUnavailable("the library is shut", remedy="try again")
        return {}

    graph: Any = StateGraph(State)
    graph.add_sequence([("write", write), ("check", check)])
    graph.add_edge(START, "write")
    async with agent(tmp_path, graph.compile(checkpointer=saver)) as poet:
        with pytest.raises(HostUnavailable):
            await poet.thread("t").task("poem", GIVEN)
        broken[0] = False
        turn = await poet.thread("t").resume()
    assert turn.result == Said(text="O grey sea")
    assert model.asked == 1


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(FunctionInvalid, match=r"langchain_tools takes only functions, got 'function'; pass what @tool"):
        langchain_tools(lambda: None)  # type: ignore[arg-type]  # what this test is about


async def test_a_tool_outside_of_a_turn_is_refused() -> None:
    [made] = langchain_tools(look)
    with pytest.raises(FunctionInvalid, match="'look' is called where no turn runs it"):
        await made.ainvoke({"what": "hat"})
