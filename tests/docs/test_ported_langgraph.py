"""Pages and tests of LangGraph and LangChain, ported in about ten lines each.

The docstrings name the repository, the commit and the file that was opened. Chat models answer by what they are shown.
"""

import operator
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt
from langgraph.warnings import LangGraphDeprecatedSinceV10
from pydantic import BaseModel

from support.agents import calls
from worldagent import Answer, Approve, Policy, Reject, Role, Rule, Storage, WorldAgent, flow, tool
from worldagent.core.errors import FunctionInvalid
from worldagent.core.events import CallProgress
from worldagent.graphs.shapes import graph_shape, langchain_tools
from worldagent.harness import CallContext, Function, ToolContext
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T3")


class Shown(BaseChatModel):
    """A chat model that answers by the messages that it is shown.

    Attributes:
        answer: What it says to them.
    """

    answer: Callable[[Sequence[BaseMessage]], AIMessage]

    @property
    def _llm_type(self) -> str:
        return "shown"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


def asks(*wanted: tuple[str, dict[str, Any]]) -> AIMessage:
    """A message that calls tools."""
    made = [{"name": name, "args": args, "id": f"{name}-{place}"} for place, (name, args) in enumerate(wanted)]
    return AIMessage("", tool_calls=made)


def results(messages: Sequence[BaseMessage]) -> list[str]:
    """What the tools gave, in their order."""
    return [str(message.text) for message in messages if message.type == "tool"]


def react_agent(answer: Callable[[Sequence[BaseMessage]], AIMessage], *tools: Function) -> Any:
    """The agent of langgraph.prebuilt, which works and warns that langchain has its successor."""
    prebuilt: Any = import_module("langgraph.prebuilt")  # type checkers refuse what is deprecated
    with pytest.warns(LangGraphDeprecatedSinceV10):
        return prebuilt.create_react_agent(Shown(answer=answer), langchain_tools(*tools), context_schema=CallContext)


class Asked(BaseModel):
    messages: list[Any]


class Answered(BaseModel):
    messages: list[Any]


def answer_of(turn: Any) -> str:
    return str(turn.result.messages[-1]["content"])


def agent(home: Path, key: str, graph: Any, tools: Sequence[Function], **more: Any) -> WorldAgent:
    """An agent with a graph of messages."""
    shape = graph_shape(key, graph, params=Asked, result=Answered)
    storage = Storage(home=home)
    return WorldAgent("ported", lm=ScriptedLM([]), shapes=[shape], tools=tools, storage=storage, **more)


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


# --- a person in the graph --------------------------------------------------------------------------------------------


class Draft(TypedDict, total=False):
    llm_output: str
    decision: str


class Nothing(BaseModel):
    pass


class Decided(BaseModel):
    decision: str


Approval = Command[Literal["approved_path", "rejected_path"]]


async def decide(state: Draft, runtime: Runtime[CallContext]) -> Approval:
    question = f"Do you approve the following output? {state['llm_output']}"
    decision = await runtime.context.ask_person(question, ["approve", "reject"])
    path: Any = "approved_path" if decision == "approve" else "rejected_path"
    return Command(goto=path)


async def decide_by_interrupt(state: Draft) -> Approval:
    path: Any = "approved_path" if interrupt(state["llm_output"]) == "approve" else "rejected_path"
    return Command(goto=path)


def approval_graph(human_approval: Any, context: Any = None, saver: Any = None) -> Any:
    graph: Any = StateGraph(Draft, context_schema=context)
    graph.add_node("generate", lambda state: {"llm_output": "This is the generated output."})
    graph.add_node("human_approval", human_approval)
    graph.add_node("approved_path", lambda state: {"decision": "approved"})
    graph.add_node("rejected_path", lambda state: {"decision": "rejected"})
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "human_approval")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize(("answer", "decision"), [("approve", "approved"), ("reject", "rejected")])
async def test_a_person_approves_or_rejects_what_a_graph_wrote(tmp_path: Path, answer: str, decision: str) -> None:
    """langchain-ai/docs at 7df7f307, src/oss/add-human-in-the-loop.mdx, "Approve or reject".

    `ask_person` is in the place of `interrupt`. It writes the question and the answer into the turn, so a host shows it
    as all other pauses, and the answer is checked.
    """

    def made() -> WorldAgent:
        shape = graph_shape("draft", approval_graph(decide, CallContext), params=Nothing, result=Decided)
        return WorldAgent("ported", lm=ScriptedLM([]), shapes=[shape], storage=Storage(home=tmp_path))

    async with made() as drafts:
        turn = await drafts.thread("t1").task("draft", {})
        assert (turn.pauses[0].kind, turn.pauses[0].options) == ("question", ("approve", "reject"))
        assert "This is the generated output." in str(turn.pauses[0].question)
    async with made() as drafts:
        turn = await drafts.thread("t1").resume({turn.pauses[0].id: Answer(answer)})
    assert turn.result == Decided(decision=decision)


async def test_an_interrupt_of_a_graph_says_what_to_write_instead(tmp_path: Path) -> None:
    """The same page, unchanged: `interrupt()` is refused, because a turn records what goes through its context."""
    graph = approval_graph(decide_by_interrupt, saver=InMemorySaver())
    shape = graph_shape("draft", graph, params=Nothing, result=Decided)
    async with WorldAgent("ported", lm=ScriptedLM([]), shapes=[shape], storage=Storage(home=tmp_path)) as drafts:
        with pytest.raises(FunctionInvalid, match=r"ask with runtime\.context\.ask_person\(\)"):
            await drafts.thread("t1").task("draft", {})


async def test_a_person_reviews_the_call_of_a_tool(tmp_path: Path) -> None:
    """langchain-ai/docs at 7df7f307, src/oss/add-human-in-the-loop.mdx, "Review tool calls".

    The page's tool calls `interrupt()` and reads "accept" or "edit" from the answer. Here the gate asks, and the tool
    only books.
    """

    @tool(risk="write")
    def book_hotel(hotel_name: str) -> str:
        """Book a hotel"""
        return f"Successfully booked a stay at {hotel_name}."

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        booked = results(messages)
        return AIMessage(booked[0]) if booked else asks(("book_hotel", {"hotel_name": "McKittrick"}))

    async with agent(tmp_path, "hotels", react_agent(answer, book_hotel), [book_hotel]) as hotels:
        for thread, edited in {"t1": None, "t2": {"hotel_name": "McKittrick Hotel"}}.items():
            turn = await hotels.thread(thread).task("hotels", said("book a stay at McKittrick hotel"))
            [pause] = turn.pauses
            assert (pause.function, pause.arguments) == ("book_hotel", {"hotel_name": "McKittrick"})
            turn = await hotels.thread(thread).resume({pause.id: Approve(arguments=edited)})
            name = edited["hotel_name"] if edited else "McKittrick"
            assert answer_of(turn) == f"Successfully booked a stay at {name}."


# --- tools ------------------------------------------------------------------------------------------------------------


@tool(risk="read_only")
def get_weather(location: str) -> str:
    """Call to get the current weather."""
    return "It's 60 degrees and foggy." if location == "sf" else "It's 90 degrees and sunny."


def weather_graph() -> Any:
    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        seen = results(messages)
        return AIMessage(f"I read: {seen[0]}") if seen else asks(("get_weather", {"location": "sf"}))

    tools = langchain_tools(get_weather)
    model = Shown(answer=answer).bind_tools(tools)
    graph: Any = StateGraph(MessagesState, context_schema=CallContext)
    graph.add_node("call_model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "call_model")
    graph.add_conditional_edges("call_model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "call_model")
    return graph.compile()


async def test_a_graph_of_a_model_and_a_tool_node_passes_the_gate(tmp_path: Path) -> None:
    """langchain-ai/docs at 7df7f307, src/oss/call-tools.mdx, "Use in a tool-calling agent", under two policies."""
    question = said("what's the weather in sf?")
    async with (
        agent(tmp_path, "weather", weather_graph(), [get_weather]) as open_agent,
        open_agent.thread("t1").stream_task("weather", question) as stream,
    ):
        told = [event.message async for event in stream if isinstance(event, CallProgress)]
    assert told == ["I read: It's 60 degrees and foggy."] == [answer_of(stream.turn)]
    policy = Policy(rules=(Rule(decision="ask", function="get_weather"),))
    async with agent(tmp_path, "weather", weather_graph(), [get_weather], policy=policy) as careful:
        turn = await careful.thread("t2").task("weather", question)
        assert (turn.status, turn.pauses[0].function) == ("paused", "get_weather")
        turn = await careful.thread("t2").resume({turn.pauses[0].id: Reject("the sensor is broken")})
    assert "the sensor is broken" in answer_of(turn)


async def test_calls_at_the_same_time_wait_for_a_person_and_run_once(tmp_path: Path) -> None:
    """langchain-ai/langgraph at f09cfe8f, libs/prebuilt/tests/: `test_react_agent_parallel_tool_calls`."""
    looked: list[str] = []

    @flow
    async def human_assistance(ctx: CallContext, query: str) -> str:
        """Request assistance from a human."""
        return await ctx.ask_person(query)

    @tool(risk="read_only")
    def get_weather(location: str) -> str:
        """Use this tool to get the weather."""
        looked.append(location)
        return "It's sunny!"

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        wanted = ("get_weather", {"location": "sf"}), ("human_assistance", {"query": "request help"})
        return AIMessage("-".join(results(messages))) if results(messages) else asks(*wanted)

    tools = [human_assistance, get_weather]
    async with agent(tmp_path, "help", react_agent(answer, *tools), tools) as helper:
        turn = await helper.thread("t1").task("help", said("Get user assistance and also check the weather"))
        assert turn.pauses[0].question == "request help"
        turn = await helper.thread("t1").resume({turn.pauses[0].id: Answer("Hello")})
    assert [message["type"] for message in turn.result.messages] == ["human", "ai", "tool", "tool", "ai"]
    assert answer_of(turn) == "It's sunny!-Hello"
    assert looked == ["sf"]


# --- map and reduce ---------------------------------------------------------------------------------------------------


class Subjects(BaseModel):
    subjects: list[str]


class Joke(BaseModel):
    joke: str


class BestJoke(BaseModel):
    id: int


class Overall(TypedDict, total=False):
    topic: str
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best_selected_joke: str


class Topic(BaseModel):
    topic: str


class Best(BaseModel):
    best_selected_joke: str
    jokes: list[str]


def tell(messages: Sequence[BaseMessage]) -> AIMessage:
    """A model that lists animals, jokes about one, and prefers the longest joke."""
    prompt = str(messages[-1].text)
    if prompt.startswith("List"):
        made: BaseModel = Subjects(subjects=["lions", "elephants", "penguins"])
    elif prompt.startswith("Joke"):
        made = Joke(joke=f"Why do {prompt.split()[-1]} laugh?")
    else:
        jokes = prompt.splitlines()[1:]
        made = BestJoke(id=jokes.index(max(jokes, key=len)))
    return AIMessage(made.model_dump_json())


def jokes_graph() -> Any:
    model = Shown(answer=tell)

    async def generate_topics(state: Overall) -> Overall:
        made = await (model | PydanticOutputParser(pydantic_object=Subjects)).ainvoke(f"List {state['topic']}")
        return {"subjects": made.subjects}

    async def generate_joke(state: Any) -> Overall:
        made = await (model | PydanticOutputParser(pydantic_object=Joke)).ainvoke(f"Joke about {state['subject']}")
        return {"jokes": [made.joke]}

    async def best_joke(state: Overall) -> Overall:
        prompt = "\n".join(["Which is the best?", *state["jokes"]])
        made = await (model | PydanticOutputParser(pydantic_object=BestJoke)).ainvoke(prompt)
        return {"best_selected_joke": state["jokes"][made.id]}

    def continue_to_jokes(state: Overall) -> list[Send]:
        return [Send("generate_joke", {"subject": each}) for each in state["subjects"]]

    graph: Any = StateGraph(Overall)
    for node in (generate_topics, generate_joke, best_joke):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "generate_topics")
    graph.add_conditional_edges("generate_topics", continue_to_jokes, ["generate_joke"])
    graph.add_edge("generate_joke", "best_joke")
    graph.add_edge("best_joke", END)
    return graph.compile()


async def test_a_graph_maps_a_chat_model_over_what_it_listed(tmp_path: Path) -> None:
    """langchain-ai/langgraph at 002503ca, docs/docs/how-tos/map-reduce.ipynb: a chat model in each node, and `Send`.

    The conversation calls the graph, and the calls of its chat model are usage of the turn.
    """
    shape = graph_shape("jokes", jokes_graph(), params=Topic, result=Best, description="the best joke on a topic")
    lm = ScriptedLM(lambda call: {"reply": call.steps[0]} if call.steps else calls(("jokes", {"topic": "animals"})))
    async with WorldAgent("fun", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as fun:
        turn = await fun.thread("t1").task("jokes", {"topic": "animals"})
        assert (turn.result.best_selected_joke, len(turn.result.jokes)) == ("Why do elephants laugh?", 3)
        assert turn.usage.calls == 5
        turn = await fun.thread("t2").converse("A joke on animals, please.")
    assert "Why do elephants laugh?" in turn.text
    assert turn.usage.calls == 7


# --- LangChain: its agents are a conversation here --------------------------------------------------------------------


async def test_some_calls_of_a_step_are_approved_and_others_are_not(tmp_path: Path) -> None:
    """langchain-ai/langchain at 01876ec0: `test_human_in_the_loop_middleware_multiple_tools_mixed_responses`.

    In libs/langchain_v1/tests/unit_tests/agents/middleware/implementations/test_human_in_the_loop.py.
    """

    @tool(risk="write")
    def get_forecast(location: str) -> str:
        """Get the forecast."""
        return f"rain in {location}"

    @tool(risk="write")
    def get_temperature(location: str) -> str:
        """Get the temperature."""
        return f"20 degrees in {location}"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.steps:
            return {"reply": " / ".join(call.steps)}
        where = {"location": "San Francisco"}
        return calls(("get_forecast", where), ("get_temperature", where))

    tools, storage = [get_forecast, get_temperature], Storage(home=tmp_path)
    async with WorldAgent("weather", lm=ScriptedLM(reply), tools=tools, storage=storage) as weather:
        turn = await weather.thread("t1").converse("What's the weather?")
        first, second = turn.pauses
        rejected = Reject("User rejected this tool call")
        turn = await weather.thread("t1").resume({first.id: Approve(), second.id: rejected})
    forecast, temperature = turn.text.split(" / ")
    assert "rain in San Francisco" in forecast
    assert "User rejected this tool call" in temperature


class ResponseFormat(BaseModel):
    punny_response: str
    weather_conditions: str | None = None


@tool(risk="read_only")
def get_weather_for_location(city: str) -> str:
    """Get weather for a given city."""
    return f"It's always sunny in {city}!"


@tool(risk="read_only")
def get_user_location(ctx: ToolContext) -> str:
    """Retrieve where the user is."""
    return "Florida" if ctx.scope.account == "1" else "SF"


def forecast(call: ScriptedCall) -> dict[str, Any]:
    """A model that asks for the place, then for its weather, and then answers."""
    if "thank you" in call.fields["message"]:
        return {"reply": {"punny_response": "Have a sun-sational day!"}}
    if not call.steps:
        return calls(("get_user_location", {}))
    if len(call.steps) == 1:
        return calls(("get_weather_for_location", {"city": call.steps[0].splitlines()[-1]}))
    weather = call.steps[1].splitlines()[-1]
    return {"reply": {"punny_response": "Sun-derful!", "weather_conditions": weather}}


async def test_the_real_world_agent_of_langchains_quickstart(tmp_path: Path) -> None:
    """langchain-ai/docs at 0140e109, src/oss/langchain/quickstart.mdx, "Build a real-world agent".

    Its context with the user is the account of the thread, and how it speaks is a role.
    """
    lm, tools = ScriptedLM(forecast), [get_user_location, get_weather_for_location]
    puns = Role("puns", "Speak in puns.")
    identity, storage = "You are an expert weather forecaster.", Storage(home=tmp_path)
    async with WorldAgent("weather", identity=identity, lm=lm, tools=tools, storage=storage) as weather:
        thread = weather.thread("1", account="1")
        turn = await thread.converse("what is the weather outside?", output=ResponseFormat, role=puns)
        assert turn.result.weather_conditions == "It's always sunny in Florida!"
        turn = await thread.converse("thank you!", output=ResponseFormat, role=puns)
    assert turn.result == ResponseFormat(punny_response="Have a sun-sational day!")
    assert "what is the weather outside?" in lm.calls[-1].text
    assert "You are an expert weather forecaster." in lm.calls[0].system
