"""A LangGraph graph with an agent as its node, in a process that can be killed (see tests/turns/test_outer_graph.py).

The agent pays once a person has approved. An order is done in a process of its own: `begin`, `resume` with an approval,
or `again` without an input, and the place where the process is killed: in the model call for the `plan`, in `paying`,
after the effect `paid`, or in the model call for the `answer`.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from support.agents import scripted_agent
from support.processes import add, be_program
from worldagent import Role, WorldAgent, tool
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def outer_of(node: Any, saver: BaseCheckpointSaver[str] | None, **more: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph with this node alone."""
    graph: Any = StateGraph(more.pop("state", MessagesState), context_schema=more.pop("context", Role))
    graph.add_node("shop", node, **more)
    graph.add_edge(START, "shop")
    graph.add_edge("shop", END)
    made: CompiledStateGraph[Any, Any, Any, Any] = graph.compile(checkpointer=saver)
    return made


def paying_agent(home: Path, kill: str = "") -> WorldAgent:
    """An agent that pays for what the message names, once a person has approved."""

    def kill_at(place: str) -> None:
        if place == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    @tool(risk="write")
    def pay(what: str) -> str:
        """Pay for something."""
        kill_at("paying")
        add(home / "effects", what)
        kill_at("paid")
        return f"paid {what}"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        add(home / "asked", "with the role" if call.role else "without a role")
        kill_at("answer" if call.steps else "plan")
        if not call.steps:
            return {"reply": "", "calls": [{"tool": "pay", "arguments": {"what": call.fields["message"]}}]}
        return {"reply": "It is paid."}

    return scripted_agent(home, ScriptedLM(reply, form="native"), tools=[pay])


def asked_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the graph's one interrupt asks."""
    [interrupt] = state["__interrupt__"]
    asked: dict[str, Any] = interrupt.value
    return asked


def approvals(state: Mapping[str, Any]) -> Any:
    """What resumes the graph with an approval, or the report of an effect that may have happened."""
    forms = {"approval": {"approve": {}}, "uncertain": {"happened": {"result": "paid hat"}}}
    return Command(resume={pause["id"]: forms[pause["kind"]] for pause in asked_in(state)["pauses"]})


async def main(home: Path, what: str, kill: str) -> dict[str, Any]:
    async with AsyncExitStack() as opened:
        saver = await opened.enter_async_context(AsyncSqliteSaver.from_conn_string(str(home / "outer.sqlite")))
        agent = await opened.enter_async_context(paying_agent(home, kill))
        graph = outer_of(agent.as_node(), saver)
        match what:
            case "begin":
                given: Any = {"messages": [("user", "hat")]}
            case "resume":
                found = await graph.aget_state(CONFIG)
                given = approvals({"__interrupt__": found.interrupts})
            case _:
                given = None
        state = await graph.ainvoke(given, CONFIG, context=ROLE, durability="sync")
        return {
            "said": [message.text for message in state["messages"]],
            "asked": [pause["kind"] for pause in asked_in(state)["pauses"]] if "__interrupt__" in state else [],
            "turns": sum(message.kind == "message" for message in await agent.thread("t").history()),
        }


def run(home: str, what: str, kill: str = "") -> Iterator[dict[str, Any]]:
    """Do an order."""
    yield asyncio.run(main(Path(home), what, kill))


if __name__ == "__main__":
    be_program(run)
