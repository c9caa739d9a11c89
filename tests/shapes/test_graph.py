"""A compiled LangGraph graph of the embedder's as a shape: what it gets, what it cannot see, how it resumes (T3)."""

import contextlib
import contextvars
import sqlite3
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel

from support.agents import Said, scripted_agent
from worldagent import Role, WorldAgent
from worldagent.core.errors import (
    FunctionInvalid,
    HostUnavailable,
    InvalidArgument,
    ParamsInvalid,
    ResultInvalid,
    TaskFailed,
)
from worldagent.core.pauses import Approve
from worldagent.graphs.shapes import graph_shape
from worldagent.harness import CallContext, Function, tool
from worldagent.profiles import Profile
from worldagent.testing import ScriptedLM, scan_for_roles

pytestmark = pytest.mark.requirement("T3")

ROLE = Role("quiet", "Speak as the ninth keeper of the lighthouse on the western rock.")


class Draft(BaseModel):
    topic: str


class State(TypedDict):
    topic: str
    lines: NotRequired[list[str]]
    text: NotRequired[str]


async def bind_lines(state: State) -> dict[str, Any]:
    return {"text": " / ".join(state.get("lines", []))}


def compiled(
    write: Any, bind: Any = bind_lines, *, saver: Any = None, context: Any = None, **more: Any
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph of two nodes: `write` gives the lines, and `bind` makes a text of them."""
    graph: Any = StateGraph(State, context_schema=context)
    graph.add_node("write", write)
    graph.add_node("bind", bind)
    graph.add_edge(START, "write")
    graph.add_edge("write", "bind")
    graph.add_edge("bind", END)
    made: CompiledStateGraph[Any, Any, Any, Any] = graph.compile(checkpointer=saver, **more)
    return made


async def two_lines(state: State) -> dict[str, Any]:
    return {"lines": [f"O {state['topic']},", "you end."]}


def agent(home: Path, graph: Any, lm: Any = None, tools: list[Function] | None = None, **more: Any) -> WorldAgent:
    shape = graph_shape("poem", graph, params=Draft, result=Said, **more)
    return scripted_agent(home, lm or ScriptedLM([]), shapes=[shape], tools=tools or [])


def test_a_graph_in_the_place_of_a_shape_is_refused_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(
        FunctionInvalid,
        match=r"only shapes, got a 'CompiledStateGraph'; write shapes=\[graph_shape\(KEY, graph, params=PARAMS, "
        r"result=RESULT\)\], with `from worldagent\.graphs\.shapes import graph_shape`",
    ):
        scripted_agent(
            tmp_path, ScriptedLM([]), shapes=[compiled(two_lines)], profile=Profile("narrow", tools=("poem",))
        )


async def test_a_graph_takes_the_params_and_gives_the_result(tmp_path: Path) -> None:
    async with agent(tmp_path, compiled(two_lines)) as poet:
        assert (await poet.thread("t").task("poem", {"topic": "sea"})).result == Said(text="O sea, / you end.")
        with pytest.raises(ParamsInvalid, match=r"'poem'.*topic"):
            await poet.thread("t").task("poem", {"subject": "sea"})


async def test_what_does_not_fit_the_result_and_what_a_node_raises_are_typed_errors(tmp_path: Path) -> None:
    async def nothing(state: State) -> dict[str, Any]:
        return {"lines": []}

    async def broken(state: State) -> dict[str, Any]:
        raise RuntimeError("a text that nobody is told")

    async with agent(tmp_path / "a", compiled(nothing, nothing)) as poet:
        with pytest.raises(ResultInvalid, match=r"'poem'.*text: Field required"):
            await poet.thread("t").task("poem", {"topic": "sea"})
    async with agent(tmp_path / "b", compiled(broken)) as poet:
        with pytest.raises(TaskFailed, match="RuntimeError") as failed:
            await poet.thread("t").task("poem", {"topic": "sea"})
    assert "nobody" not in str(failed.value)


async def test_graph_sees_no_role_and_writes_no_checkpoint_of_ours(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def look(state: State, config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
        around = {variable.name: value for variable, value in contextvars.copy_context().items()}
        seen.extend([state, dict(config), runtime.context, get_runtime().context, around])
        assert runtime.context is None
        assert "novel/t" not in str(config["configurable"]), "it could use the checkpoints of the turn"
        return await two_lines(state)

    async with agent(tmp_path, compiled(look)) as poet:
        turn = await poet.thread("t").task("poem", {"topic": "sea"}, role=ROLE)
    with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchall() == [("novel/t",)]
    assert turn.status == "done"
    assert len(seen) == 5
    assert scan_for_roles([*seen, tmp_path], ROLE.content).findings == ()


def shop(done: list[str]) -> list[Function]:
    @tool(risk="read_only")
    async def look(what: str) -> str:
        done.append(f"look {what}")
        return f"a {what}"

    async def pay(what: str) -> str:
        done.append(f"pay {what}")
        return f"paid for {what}"

    return [look, tool(approval=True)(pay)]


@pytest.mark.requirement("T4")
async def test_calls_of_nodes_are_journaled_and_require_approval(tmp_path: Path) -> None:
    done: list[str] = []

    async def buy(state: State, runtime: Runtime[CallContext]) -> dict[str, Any]:
        seen = await runtime.context.call("look", {"what": state["topic"]})
        colour = await runtime.context.ask_person("Which colour?", ["red", "blue"])
        paid = await runtime.context.call("pay", {"what": f"{colour} {state['topic']}"})
        return {"lines": [seen, paid]}

    graph = compiled(buy, context=CallContext)
    async with agent(tmp_path, graph, tools=shop(done)) as poet:
        turn = await poet.thread("t").task("poem", {"topic": "hat"})
        assert (turn.status, turn.pauses[0].question) == ("paused", "Which colour?")
    async with agent(tmp_path, graph, tools=shop(done)) as poet:
        turn = await poet.thread("t").resume({turn.pauses[0].id: "red"})
        assert (turn.status, turn.pauses[0].function) == ("paused", "pay")
        turn = await poet.thread("t").resume({turn.pauses[0].id: Approve()})
    assert turn.result == Said(text="a hat / paid for red hat")
    assert done == ["look hat", "pay red hat"]


@pytest.mark.requirement("T5")
async def test_graph_with_its_own_checkpointer_resumes_there(tmp_path: Path) -> None:
    saver, wrote, broken = InMemorySaver(), list[str](), [True]

    async def write(state: State) -> dict[str, Any]:
        wrote.append(state["topic"])
        return await two_lines(state)

    async def bind(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        if broken[0]:
            raise HostUnavailable("the library is shut", remedy="try again")
        return {"text": " ".join(state.get("lines", []))}

    async with agent(tmp_path, compiled(write, bind, saver=saver)) as poet:
        thread = poet.thread("t")
        with pytest.raises(HostUnavailable):
            await thread.task("poem", {"topic": "sea"})
        broken[0] = False
        turn = await thread.resume()
        assert turn.result == Said(text="O sea, you end.")
        assert wrote == ["sea"]
        turn = await thread.task("poem", {"topic": "fog"})
        assert turn.result == Said(text="O fog, you end.")


async def test_an_interrupt_of_the_graph_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    async def wait(state: State) -> dict[str, Any]:
        return {"lines": [interrupt("Which?")]}

    async with agent(tmp_path, compiled(wait, saver=InMemorySaver())) as poet:
        with pytest.raises(FunctionInvalid, match=r"'poem' stopped at an interrupt.*ask_person"):
            await poet.thread("t").task("poem", {"topic": "sea"})


def test_unusable_graph_is_refused() -> None:
    def make(graph: Any, **more: Any) -> None:
        graph_shape("poem", graph, params=Draft, result=Said, **more)

    with pytest.raises(FunctionInvalid, match=r"'poem'.*StateGraph"):
        make(StateGraph(State))
    with pytest.raises(FunctionInvalid, match="checkpointer=True"):
        make(compiled(two_lines, saver=True))
    with pytest.raises(FunctionInvalid, match="compile it without"):
        make(compiled(two_lines, saver=InMemorySaver(), context=CallContext))
    for stops in ({"interrupt_before": ["write"]}, {"interrupt_after": "*"}):
        with pytest.raises(FunctionInvalid, match="stop before or after a node"):
            make(compiled(two_lines, **stops))
    with pytest.raises(InvalidArgument, match="recursion_limit"):
        make(compiled(two_lines), recursion_limit=0)
