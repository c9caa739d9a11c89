"""The drawing of a turn's graph, and the file by which LangGraph Studio loads it."""

import json
import runpy
from pathlib import Path

import pytest
from langgraph.graph.state import CompiledStateGraph

from support.agents import scripted_agent
from worldagent.core.errors import FunctionInvalid
from worldagent.testing import ScriptedLM

STUDIO = Path(__file__).parents[2] / "examples" / "studio"


async def test_the_graph_of_a_turn_can_be_drawn_and_not_run(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([])) as agent:
        graph = agent.graph()
    drawn = graph.get_graph().draw_mermaid()
    for line in ("__start__ --> think;", "think -.-> act;", "act -.-> think;", "think -.-> __end__;"):
        assert line in drawn.replace("&nbsp;", "")
    with pytest.raises(FunctionInvalid, match=r"runs only in a turn of an agent.*; begin a turn with agent\.thread"):
        await graph.ainvoke({})


def test_langgraph_json_names_the_graph_of_a_turn() -> None:
    read = json.loads((STUDIO / "langgraph.json").read_text())
    file, _, name = read["graphs"]["turn"].partition(":")
    loaded = runpy.run_path(str(STUDIO / file))[name]
    assert isinstance(loaded, CompiledStateGraph)
    assert set(loaded.get_graph().nodes) == {"__start__", "think", "act", "subagent", "__end__"}
