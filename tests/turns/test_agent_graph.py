"""`agent.graph()`: an agent as a LangGraph graph that runs by itself."""

import asyncio
import gc
import itertools
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from support import drawing
from support.agents import Thinking, answering, calls, scripted_agent
from support.databases import contents_of
from support.leaks import canary
from support.outer_graph import CONFIG, ROLE, approvals, asked_in, outer_of
from support.subgraphs import STEP, Counted, Tree, step_agent
from worldagent import Role, Shape, Tier, Worker, WorldAgent, tool
from worldagent.agent import GraphContext
from worldagent.core.errors import (
    AgentClosed,
    FunctionInvalid,
    InvalidArgument,
    RoleInvalid,
    ThreadPaused,
)
from worldagent.core.pauses import Approve
from worldagent.graphs.shapes import graph_shape
from worldagent.harness import CallContext, Trace
from worldagent.signatures import Converse
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T19")

HI: Any = {"messages": [("user", "Hi")]}
MODES: Any = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]


class Text(BaseModel):
    text: str


class State(TypedDict, total=False):
    text: str


@tool(risk="read_only")
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is grey"


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


CRITIC = Worker("critic", "You find faults.", description="Finds faults.", tools=("look",))


def offer() -> Shape[Any, Any]:
    graph: Any = StateGraph(State, context_schema=CallContext)
    graph.add_node("write", lambda state: {"text": f"An offer for {state['text']}"})
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    return graph_shape("offer", graph.compile(), params=Text, result=Text, description="Writes an offer.")


def calling(*made: tuple[str, dict[str, Any]]) -> Callable[[ScriptedCall], dict[str, Any]]:
    """A model that makes these calls and then answers; its worker looks at something first."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "It is dull."} if call.steps else calls(("look", {"at": "the hat"}))
        return {"reply": "It is done."} if call.steps else {"reply": "One moment.", **calls(*made)}

    return reply


def shop(home: Path, *made: tuple[str, dict[str, Any]], **more: Any) -> WorldAgent:
    lm = ScriptedLM(calling(*made), form="native")
    return scripted_agent(home, lm, tools=[look, buy], workers=[CRITIC], shapes=[offer()], **more)


def said(state: Any) -> list[str]:
    return [message.text for message in state["messages"]]


# --- a program that a reader of LangGraph's pages would write ---------------------------------------------------------


async def test_the_graph_is_drawn_runs_is_interrupted_and_resumes(tmp_path: Path) -> None:
    async with shop(tmp_path, ("buy", {"item": "hat"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        assert graph.name == "novel"
        assert dict(graph.get_subgraphs(recurse=True)).keys() == {
            "converse",
            "converse|subagent",
            "converse|offer",
        }
        drawn = graph.get_graph(xray=True).draw_mermaid()
        for node in ("converse", "think", "act", "subagent", "offer", "write"):
            assert node in drawn
        state = await graph.ainvoke({"messages": [("user", "Buy a hat.")]}, CONFIG)
        [pause] = state["__interrupt__"][0].value["pauses"]
        assert (pause["function"], pause["arguments"]) == ("buy", {"item": "hat"})
        assert (await graph.aget_state(CONFIG, subgraphs=True)).next == ("converse",)
        state = await graph.ainvoke(Command(resume={pause["id"]: {"approve": {}}}), CONFIG)
        assert said(state) == ["Buy a hat.", "It is done."]
        state = await graph.ainvoke({"messages": [("user", "Again?")]}, CONFIG)
        log = await agent.thread("t").history()
    assert [message.body["text"] for message in log if message.kind == "message"] == ["Buy a hat.", "Again?"]
    assert said(state)[2:] == ["Again?"]  # it asks again


async def test_the_schemas_are_of_messages_a_channel_and_inputs(tmp_path: Path) -> None:
    async with shop(tmp_path) as agent:
        graph = agent.graph()
        assert set((graph.get_context_jsonschema() or {})["properties"]) == {"channel", "inputs"}
        assert set(graph.get_input_jsonschema()["properties"]) == {"messages"}
        for _, subgraph in graph.get_subgraphs(recurse=True):
            assert subgraph.get_input_jsonschema()
            assert subgraph.get_output_jsonschema()


async def test_account_channel_and_role_come_from_the_context(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        seen = [word for word in ("workspace", "ana", "web", "call") if f"role of {word}." in (call.role or "")]
        return {"reply": ", ".join(seen)}

    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("w", "The role of workspace."))
        await agent.roles.put(Tier.ACCOUNT, Role("a", "The role of ana."), scope_id="ana")
        await agent.roles.put(Tier.CHANNEL, Role("c", "The role of web."), scope_id="web")
        graph, fixed = agent.graph(), agent.graph(account="ana")
        role = Role("r", "The role of call.")
        contexts: list[tuple[Any, Any, str]] = [
            (graph, None, "workspace"),
            (graph, GraphContext(account="ana", channel="web", role=role), "workspace, ana, web, call"),
            (graph, {"account": "ana", "role": role}, "workspace, ana, call"),
            (fixed, None, "workspace, ana"),
            (fixed, GraphContext(account="bo"), "workspace"),
        ]
        for place, (each, context, seen) in enumerate(contexts):
            config: Any = {"configurable": {"thread_id": f"t{place}"}}
            state = await each.ainvoke({"messages": [("user", "Hi")]}, config, context=context)
            assert said(state)[-1] == seen
        threads = {each.thread: (each.account, each.channel) for each in await agent.threads()}
    assert threads["t1"] == ("ana", "web")
    assert threads["t3"] == ("ana", None)


@dataclass
class Theirs:
    """The context of a graph of somebody else."""

    account: str = "ana"
    role: Role | None = None
    tenant: int = 7


@pytest.mark.parametrize(
    ("schema", "context", "seen"),
    [
        (None, {"account": "ana"}, ("ana", None, False)),
        (dict, {"account": "ana", "channel": "web", "role": ROLE}, ("ana", "web", True)),
        (GraphContext, GraphContext(account="ana", role=ROLE), ("ana", None, True)),
        (Theirs, Theirs(role=ROLE), ("ana", None, True)),
        (Role, ROLE, (None, None, True)),
        (Tier, Tier.CALL, (None, None, False)),
        (None, None, (None, None, False)),
    ],
    ids=["mapping", "dict", "own", "object", "role", "nothing in it", "none"],
)
async def test_as_a_subgraph_it_takes_from_any_context_what_is_there(
    tmp_path: Path, schema: Any, context: Any, seen: tuple[str | None, str | None, bool]
) -> None:
    lm = answering("Fine.")
    async with scripted_agent(tmp_path, lm) as agent:
        state = await outer_of(agent.graph(), None, context=schema).ainvoke(HI, CONFIG, context=context)
        [found] = await agent.threads()
    assert said(state) == ["Hi", "Fine."]
    assert (found.account, found.channel, bool(lm.calls[0].role)) == seen


async def test_the_graph_itself_can_have_a_bare_role_as_its_context(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.graph().ainvoke(HI, CONFIG, context=ROLE)
    assert lm.calls[0].role


async def test_inputs_come_from_the_context_and_outputs_are_in_the_answer(tmp_path: Path) -> None:
    class Moody(Converse):
        weather: str = dspy.InputField()
        mood: Literal["glad", "sour"] = dspy.OutputField()

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if not call.steps:
            return {"reply": "", "mood": "sour", **calls(("buy", {"item": call.fields["weather"]}))}
        return {"reply": "Fine.", "calls": [], "mood": "glad"}

    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, converse=Moody, tools=[buy]) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        context = GraphContext(inputs={"weather": "rain"})
        waiting = await graph.ainvoke(HI, CONFIG, context=context)
        assert asked_in(waiting)["pauses"][0]["arguments"] == {"item": "rain"}
        with pytest.raises(InvalidArgument, match="another account, channel, inputs"):
            await graph.ainvoke(approvals(waiting), CONFIG, context={"inputs": {"weather": "sun"}})
        state = await graph.ainvoke(None, CONFIG, context=context)
    answer = state["messages"][-1]
    assert (answer.text, answer.additional_kwargs) == ("Fine.", {"outputs": {"mood": "glad"}})
    assert answer.usage_metadata["total_tokens"] > 0


# --- streams and callbacks --------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7", "T8")
@pytest.mark.on_every_database(soak=True)
@pytest.mark.parametrize("length", [12, 2000])
async def test_every_stream_mode_shows_the_turn_and_its_tasks_and_never_a_role(tmp_path: Path, length: int) -> None:
    role, tree, saver, work = Role("r", canary(length)), Tree(), InMemorySaver(), Counted()
    home = tmp_path / "home"
    async with step_agent(home, work) as agent:
        graph = agent.graph(checkpointer=saver)
        given: Any = {"messages": [("user", "Go.")]}
        config: Any = {**CONFIG, "callbacks": [tree], "metadata": {"of": "the outer graph"}}
        context = GraphContext(account="ana", role=role)
        stream = graph.astream(given, config, context=context, stream_mode=MODES, subgraphs=True)
        chunks: list[Any] = [chunk async for chunk in stream]
    assert work.done == dict.fromkeys(STEP, 1)
    places = {("|".join(part.split(":")[0] for part in ns), mode) for ns, mode, _ in chunks}
    assert {("", mode) for mode in MODES} <= places
    for place in ("converse", "converse|subagent", "converse|skill_composer", "converse|offer"):
        assert {(place, mode) for mode in ("updates", "tasks", "debug", "values")} <= places
    assert ("converse", "checkpoints") not in places  # they are the turn's own
    top = "novel > converse > turn"
    assert {line for line in tree.lines if line.startswith(top)} >= {
        *(f"{top} > {node}" for node in ("think", "act", "order")),
        *(f"{top} > subagent > helper > {node}" for node in ("think", "act")),
        *(f"{top} > skill_composer > skill_composer > {node}" for node in ("compose", "think", "act")),
        f"{top} > offer > offer > quote",
    }
    assert {line.split(" > ")[0] for line in tree.lines} == {"novel"}  # one tree
    inner = [each["metadata"]["thread_id"] for line in tree.lines for each in tree.metadata(line)]
    assert set(inner) == {"t"}  # by which LangSmith groups them
    stored = [saver.storage, saver.blobs, saver.writes]
    assert_no_role_leak([chunks, tree.seen, stored, *contents_of(home).values()], role.content, skip=Role)
    assert_no_role_leak([*contents_of(home).values()], "the outer graph")


async def test_each_step_is_a_message_whose_pieces_come_once(tmp_path: Path) -> None:
    async with shop(tmp_path, ("critic", {"request": "The hat."}), ("look", {"at": "the sky"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        given: Any = {"messages": [("user", "A text, please.")]}
        texts: dict[str, str] = {}
        interim: dict[str, bool] = {}
        stream: Any = graph.astream(given, CONFIG, stream_mode="messages")
        async for message, metadata in stream:
            assert metadata["langgraph_node"] == "converse"
            texts[message.id] = texts.get(message.id, "") + message.content
            interim[message.id] = "interim" in message.additional_kwargs
        state = await graph.aget_state(CONFIG)
        unheard = await agent.graph().ainvoke(given, {"configurable": {"thread_id": "t2"}})
    assert list(texts.values()) == ["One moment.", "It is done."]
    assert list(interim.values()) == [True, False]  # as their last pieces say
    assert state.values["messages"][-1].id == list(texts)[-1]
    assert unheard["messages"][-1].id.split(".")[1:] == list(texts)[-1].split(".")[1:]  # the same whoever listens


async def test_what_workers_say_is_in_custom_if_the_client_follows_subgraphs(tmp_path: Path) -> None:
    async with shop(tmp_path, ("critic", {"request": "It."})) as agent:
        seen: list[set[str]] = []
        for subgraphs in (True, False):
            config: Any = {"configurable": {"thread_id": f"t{subgraphs}"}}
            stream = agent.graph().astream(HI, config, stream_mode=["custom"], subgraphs=subgraphs)
            chunks: list[Any] = [chunk async for chunk in stream]
            seen.append({chunk[-1]["type"] for chunk in chunks})
    assert seen[0] - seen[1] == {"task_text_delta", "task_arguments_delta"}


@pytest.mark.parametrize("mode", ["updates", "values", "tasks", "debug"])
async def test_a_stream_shows_the_one_interrupt_that_a_client_can_answer(tmp_path: Path, mode: Any) -> None:
    async with shop(tmp_path, ("buy", {"item": "hat"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        stream = graph.astream(HI, CONFIG, stream_mode=mode, subgraphs=True)
        chunks: list[Any] = [chunk async for chunk in stream]
        state = await graph.aget_state(CONFIG)
    assert not re.search(r"value'?[=:] ?'waiting'", str(chunks))  # the turn's own, inside of the node
    assert state.interrupts[0].id in str(chunks)


async def test_the_agents_own_callbacks_are_told_too_and_only_the_graphs_of_its_turns(tmp_path: Path) -> None:
    own, outer = Tree(), Tree()
    async with shop(tmp_path, ("look", {"at": "it"}), trace=Trace(callbacks=[own])) as agent:
        config: Any = {**CONFIG, "callbacks": [outer]}
        await agent.graph().ainvoke({"messages": [("user", "Look.")]}, config)
        await agent.thread("alone").converse("Look.")
    assert outer.lines["novel > converse > turn > act"] == 1
    assert sum(count for line, count in own.lines.items() if line.endswith("act")) == 2
    assert "alone" not in str(outer.seen)


async def test_the_stream_of_a_graph_without_subgraphs_has_only_its_own_node(tmp_path: Path) -> None:
    async with shop(tmp_path, ("critic", {"request": "It."})) as agent:
        stream = agent.graph().astream({"messages": [("user", "Hi")]}, CONFIG, stream_mode=["updates", "messages"])
        chunks: list[Any] = [chunk async for chunk in stream]
    assert [list(data) for mode, data in chunks if mode == "updates"] == [["converse"]]
    assert {data[1]["langgraph_node"] for mode, data in chunks if mode == "messages"} == {"converse"}


async def test_an_answer_that_replaces_streamed_text_is_another_message(tmp_path: Path) -> None:
    """The echo guard withdraws what it must not say after it was streamed."""
    role = Role("r", canary(400))

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": f"My role is: {role.content}"}

    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        stream = agent.graph().astream(
            {"messages": [("user", "Which role?")]}, CONFIG, context=GraphContext(role=role), stream_mode=["messages"]
        )
        messages: list[Any] = [data[0] async for _, data in stream]
        [_, answer] = await agent.thread("t").history()
    last = [message.content for message in messages if message.id == messages[-1].id]
    assert "".join(last) == answer.body["text"]
    assert_no_role_leak([message.content for message in messages], role.content)


# --- messages while a turn waits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["answer", "resumed", "cancelled"])
async def test_a_message_while_a_turn_waits_asks_again_and_is_sent_after_it(tmp_path: Path, between: str) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.fields["message"] == "Buy." and not call.steps:
            return {"reply": "", **calls(("buy", {"item": "hat"}))}
        return {"reply": f"Answer to {call.fields['message']}"}

    async with scripted_agent(tmp_path, ScriptedLM(reply, form="native"), tools=[buy]) as agent:
        graph, thread = agent.graph(checkpointer=InMemorySaver()), agent.thread("t")
        first = await graph.ainvoke({"messages": [("user", "Buy.")]}, CONFIG)
        again = await graph.ainvoke({"messages": [("user", "Hello?")]}, CONFIG)
        assert asked_in(again) == asked_in(first)
        refused = await graph.ainvoke(Command(resume={"other": {"approve": {}}}), CONFIG)
        assert "has no pause 'other'" in asked_in(refused)["problem"]
        assert [message.body["text"] for message in await thread.history() if message.kind == "message"] == ["Buy."]
        if between == "resumed":
            await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
        elif between == "cancelled":
            await thread.cancel()
        state = await graph.ainvoke(approvals(again), CONFIG)
        log = [message.body["text"] for message in await thread.history() if message.kind in ("message", "answer")]
        assert (await graph.aget_state(CONFIG)).interrupts == ()
    earlier = [] if between == "cancelled" else ["Answer to Buy."]
    assert said(state) == ["Buy.", "Hello?", *(earlier if between == "answer" else []), "Answer to Hello?"]
    assert log == ["Buy.", *earlier, "Hello?", "Answer to Hello?"]


async def test_a_message_that_waits_can_have_pauses_of_its_own(tmp_path: Path) -> None:
    async with shop(tmp_path, ("buy", {"item": "hat"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        await graph.ainvoke(HI, CONFIG)
        state = await graph.ainvoke(HI, CONFIG)
        turns = []
        while "__interrupt__" in state:
            turns.append(asked_in(state)["turn"])
            state = await graph.ainvoke(approvals(state), CONFIG)
    assert len(turns) == len(set(turns)) == 2
    assert said(state)[-1] == "It is done."


async def test_another_account_is_not_asked_what_a_turn_asks(tmp_path: Path) -> None:
    async with shop(tmp_path, ("buy", {"item": "hat"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        await graph.ainvoke(HI, CONFIG, context={"account": "ana"})
        with pytest.raises(ThreadPaused):
            await graph.ainvoke(HI, CONFIG, context={"account": "bo"})


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [None, {"account": "bo"}, {"account": "ana", "channel": "web"}])
async def test_a_resume_under_another_account_or_channel_is_refused_and_can_be_repeated(
    tmp_path: Path, context: Any
) -> None:
    async with shop(tmp_path, ("buy", {"item": "hat"})) as agent:
        graph = agent.graph(checkpointer=InMemorySaver())
        waiting = await graph.ainvoke(HI, CONFIG, context={"account": "ana"})
        says = (
            "run again with another account, channel, inputs or message .*; run it again with None as its input and the"
        )
        with pytest.raises(InvalidArgument, match=says) as caught:
            await graph.ainvoke(approvals(waiting), CONFIG, context=context)
        assert asked_in(waiting)["turn"] not in str(caught.value)
        assert caught.value.turn_id is None
        state = await graph.ainvoke(None, CONFIG, context={"account": "ana"})
    assert said(state)[-1] == "It is done."


async def test_a_graph_needs_an_open_agent_a_thread_and_a_role_of_the_right_type(tmp_path: Path) -> None:
    agent = shop(tmp_path)
    with pytest.raises(AgentClosed, match="use 'async with agent:'"):
        agent.graph()
    async with agent:
        with pytest.raises(InvalidArgument, match="account"):
            agent.graph(account="")
        graph, given = agent.graph(), {"messages": [("user", "Hi")]}
        with pytest.raises(InvalidArgument, match="account"):  # and not the account of runs that name none
            await agent.graph(account="ana").ainvoke(given, CONFIG, context=GraphContext(account=""))
        with pytest.raises(InvalidArgument, match="run it with config="):
            await graph.ainvoke(given)
        with pytest.raises(RoleInvalid, match=r"got a dict; make it with Role\("):
            await graph.ainvoke(given, CONFIG, context={"role": {"name": "r", "content": "Be brief."}})
        turn: Any = dict(graph.get_subgraphs())["converse"]
        with pytest.raises(FunctionInvalid, match=r"runs only in a turn of an agent; run agent\.graph\(\)"):
            await turn.ainvoke({})
    with pytest.raises(AgentClosed):
        await graph.ainvoke(given, CONFIG)


# --- on a server ------------------------------------------------------------------------------------------------------


class User:
    """A user as LangGraph's server gives it."""

    identity, display_name, is_authenticated, permissions = "ana", "Ana", True, ()

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)


async def test_on_a_server_the_account_is_the_authenticated_user(tmp_path: Path) -> None:
    threads = (f"t{place}" for place in itertools.count())

    def config(**more: Any) -> Any:
        return {"configurable": {"thread_id": next(threads), "graph_id": "shop", **more}}

    async with scripted_agent(tmp_path, answering()) as agent:
        graph, given = agent.graph(account="nobody"), {"messages": [("user", "Hi")]}
        await graph.ainvoke(given, config(langgraph_auth_user=User()), context={"channel": "web"})
        await graph.ainvoke(given, config(langgraph_auth_user=None))
        with pytest.raises(InvalidArgument, match="the account is the user that the server has authenticated"):
            await graph.ainvoke(given, config(langgraph_auth_user=User()), context={"account": "bo"})
        sent: Any = {"role": {"name": "r", "content": "Be the night ferryman."}}
        with pytest.raises(RoleInvalid, match="which stores that context; delete the run") as raised:
            await graph.ainvoke(given, config(), context=sent)
        found = {each.thread: (each.account, each.channel) for each in await agent.threads()}
    assert found == {"t0": ("ana", "web"), "t1": ("nobody", None)}
    assert "ferryman" not in str(raised.value)


# --- the README -------------------------------------------------------------------------------------------------------


async def test_the_drawing_of_the_readme_is_that_of_the_graph() -> None:
    hint = "run PYTHONPATH=.dev:tests .venv/bin/python -P tests/support/golden.py"
    assert drawing.shown() == await drawing.drawing(), hint


@pytest.mark.requirement("R3", "R7")
async def test_a_turn_does_not_hold_the_context_of_the_graph_that_it_outlives(tmp_path: Path) -> None:
    class Context(GraphContext):
        """It can be referred to weakly."""

    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        context = Context(account="ana", role=Role("r", "Be harsh."))
        held = weakref.ref(context)
        given: Any = {"messages": [("user", "Go.")]}
        stream = agent.graph().astream(given, CONFIG, context=context, stream_mode="messages", subgraphs=True)
        running = asyncio.ensure_future(anext(stream))
        del context
        await asyncio.wait_for(model.asked.wait(), 20)
        running.cancel()
        await asyncio.wait({running}, timeout=20)
        del stream, running
        for _ in range(5):  # frames of what was cancelled are freed at the next steps of the loop
            await asyncio.sleep(0.01)
            gc.collect()
        assert held() is None
        model.may.set()
        assert (await agent.thread("t").converse("And now?")).text == "Fine."  # it waits for the end of that turn
