"""Public examples of dspy, LangGraph and LangChain, ported in about ten lines each.

Above each agent is what the original has, unchanged where it can be. The names of the pages are in the docstrings.
"""

import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import dspy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send
from pydantic import BaseModel

from support.agents import calls
from worldagent import Role, Storage, WorldAgent, tool
from worldagent.core.pauses import Approve
from worldagent.graphs.shapes import graph_shape, module_shape
from worldagent.testing import ScriptedCall, ScriptedLM

# --- dspy -------------------------------------------------------------------------------------------------------------


class AirlineService(dspy.Signature):
    """You are an airline customer service agent. You are given tools to handle the request of a person."""

    user_request: str = dspy.InputField()
    process_result: str = dspy.OutputField(desc="what was done, with the numbers that a person needs")


def fetch_flight_info(date: str, origin: str, destination: str) -> list[dict[str, Any]]:
    """Fetch flights from origin to destination on a date."""
    return [{"flight_id": "DA123", "date": date, "origin": origin, "destination": destination, "price": 200}]


class Request(BaseModel):
    user_request: str


class Done(BaseModel):
    process_result: str


async def test_a_react_agent_of_dspy(tmp_path: Path) -> None:
    """dspy.ai/tutorials/customer_service_agent: `dspy.ReAct` with tools, as a task of an agent, under a role."""
    steps = iter(["fetch_flight_info", "finish"])
    flight = {"date": "2026-09-01", "origin": "SFO", "destination": "JFK"}

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "next_tool_name" not in call.system:
            return {"reasoning": "One fits.", "process_result": "Flight DA123, 200 euros."}
        name = next(steps)
        arguments = flight if name == "fetch_flight_info" else {}
        return {"next_thought": "Look.", "next_tool_name": name, "next_tool_args": arguments}

    react = dspy.ReAct(AirlineService, tools=[fetch_flight_info])
    shape = module_shape("airline", react, params=Request, result=Done, entry=AirlineService)
    lm = ScriptedLM(reply)
    async with WorldAgent("airline", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        request = {"user_request": "Book a flight from SFO to JFK on 2026-09-01."}
        turn = await agent.thread("t1").task("airline", request, role=Role("brief", "Answer in one line."))
    assert turn.result == Done(process_result="Flight DA123, 200 euros.")
    assert "Answer in one line." in lm.calls[-1].text
    assert turn.usage.calls == 3


class Emotion(dspy.Signature):
    """Classify emotion."""

    sentence: str = dspy.InputField()
    sentiment: Literal["sadness", "joy", "love", "anger", "fear", "surprise"] = dspy.OutputField()


class Sentence(BaseModel):
    sentence: str


class Sentiment(BaseModel):
    sentiment: str


async def test_a_classification_of_dspy_with_its_optimiser(tmp_path: Path) -> None:
    """dspy.ai/learn/programming/signatures, "Classification", compiled with BootstrapFewShot as in the tutorials."""
    truth = {"I miss her.": "sadness", "What a day!": "joy", "Get out!": "anger", "Who is there?": "fear"}

    def reply(call: ScriptedCall) -> dict[str, Any]:
        knows = len(call.messages) > 1 or call.index <= len(truth)  # demonstrations come as earlier messages
        return {"sentiment": truth[call.fields["sentence"]] if knows else "love"}

    trainset = [dspy.Example(sentence=text, sentiment=label).with_inputs("sentence") for text, label in truth.items()]
    optimiser = dspy.BootstrapFewShot(metric=lambda example, made, trace=None: example.sentiment == made.sentiment)
    with dspy.context(lm=ScriptedLM(reply)):
        compiled = optimiser.compile(dspy.Predict(Emotion), trainset=trainset[:3])
    shape = module_shape("classify", compiled, params=Sentence, result=Sentiment, entry=Emotion)
    lm = ScriptedLM(lambda call: {"sentiment": truth[call.fields["sentence"]] if len(call.messages) > 1 else "love"})
    async with WorldAgent("mail", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        turn = await agent.thread("t1").task("classify", {"sentence": "Who is there?"}, role=Role("x", "Be kind."))
    assert turn.result == Sentiment(sentiment="fear")


# --- LangGraph --------------------------------------------------------------------------------------------------------


async def test_the_human_in_the_loop_of_langgraph(tmp_path: Path) -> None:
    """LangGraph how-to "human in the loop, review tool calls": a booking that a person accepts or edits."""
    booked: list[str] = []

    @tool(risk="write")
    def book_hotel(hotel_name: str) -> str:
        """Book a hotel."""
        booked.append(hotel_name)
        return f"Successfully booked a stay at {hotel_name}."

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": call.steps[-1]} if call.steps else calls(("book_hotel", {"hotel_name": "McKittrick"}))

    async with WorldAgent("hotels", lm=ScriptedLM(reply), tools=[book_hotel], storage=Storage(home=tmp_path)) as agent:
        turn = await agent.thread("t1").converse("Book a stay at the McKittrick hotel.")
        [pause] = turn.pauses
        turn = await agent.thread("t1").resume({pause.id: Approve()})
        assert "Successfully booked a stay at McKittrick." in turn.text
        turn = await agent.thread("t2").converse("Book a stay at the McKittrick hotel.")
        [pause] = turn.pauses
        await agent.thread("t2").resume({pause.id: Approve(arguments={"hotel_name": "Ritz"})})
    assert booked == ["McKittrick", "Ritz"]


class Overall(TypedDict, total=False):
    topic: str
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


class One(TypedDict):
    subject: str


class Topic(BaseModel):
    topic: str


class Best(BaseModel):
    best: str
    jokes: list[str]


def jokes_graph() -> Any:
    """The graph of the how-to, with functions in place of its model."""
    graph: Any = StateGraph(Overall)
    graph.add_node("generate_topics", lambda state: {"subjects": ["lions", "elephants", "penguins"]})
    graph.add_node("generate_joke", lambda state: {"jokes": [f"A joke about {state['subject']}"]})
    graph.add_node("best_joke", lambda state: {"best": max(state["jokes"], key=len)})
    graph.add_edge(START, "generate_topics")
    graph.add_conditional_edges(
        "generate_topics",
        lambda state: [Send("generate_joke", {"subject": each}) for each in state["subjects"]],
        ["generate_joke"],
    )
    graph.add_edge("generate_joke", "best_joke")
    graph.add_edge("best_joke", END)
    return graph.compile()


async def test_the_map_reduce_of_langgraph(tmp_path: Path) -> None:
    """LangGraph how-to "map-reduce": the graph with its `Send` is unchanged, and the conversation can call it."""
    shape = graph_shape("jokes", jokes_graph(), params=Topic, result=Best, description="the best joke on a topic")
    lm = ScriptedLM(lambda call: {"reply": "Here."} if call.steps else calls(("jokes", {"topic": "animals"})))
    async with WorldAgent("fun", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        turn = await agent.thread("t1").task("jokes", {"topic": "animals"})
        assert (turn.result.best, len(turn.result.jokes)) == ("A joke about elephants", 3)
        assert (await agent.thread("t2").converse("A joke on animals, please.")).text == "Here."


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Asked(BaseModel):
    messages: list[Any]


class Answered(BaseModel):
    messages: list[Any]


async def test_the_chatbot_with_tools_of_langgraph(tmp_path: Path) -> None:
    """LangGraph tutorial "add tools": its graph of a chat model, a ToolNode and `tools_condition`, unchanged."""

    @langchain_tool
    def search(query: str) -> str:
        """Search the web."""
        return f"All about {query}."

    wanted = {"name": "search", "args": {"query": "nodes"}, "id": "1"}
    llm = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=[wanted]), AIMessage("A node is a step.")]))
    graph: Any = StateGraph(Chat)
    graph.add_node("chatbot", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([search]))
    graph.add_conditional_edges("chatbot", tools_condition)
    graph.add_edge("tools", "chatbot")
    graph.add_edge(START, "chatbot")
    shape = graph_shape("chatbot", graph.compile(), params=Asked, result=Answered)
    async with WorldAgent("web", lm=ScriptedLM([]), shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        messages = [{"role": "user", "content": "What is a node?"}]
        turn = await agent.thread("t1").task("chatbot", {"messages": messages})
    assert turn.result.messages[-1]["content"] == "A node is a step."
    assert "All about nodes." in str(turn.result.messages)
    assert turn.usage.calls == 2


# --- LangChain --------------------------------------------------------------------------------------------------------


async def test_the_agent_of_langchains_quickstart(tmp_path: Path) -> None:
    """docs.langchain.com, quickstart: `create_agent(model, tools=[get_weather], system_prompt=...)`."""

    def get_weather(city: str) -> str:
        """Get weather for a given city."""
        return f"It is always sunny in {city}!"

    lm = ScriptedLM(lambda call: {"reply": call.steps[-1]} if call.steps else calls(("get_weather", {"city": "SF"})))
    storage = Storage(home=tmp_path)
    async with WorldAgent(
        "weather", lm=lm, tools=[tool(risk="read_only")(get_weather)], identity="You are helpful.", storage=storage
    ) as agent:
        turn = await agent.thread("t1").converse("what is the weather in sf")
    assert "It is always sunny in SF!" in turn.text
    assert "You are helpful." in lm.calls[0].system
