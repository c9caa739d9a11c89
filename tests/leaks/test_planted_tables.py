"""The suite over Postgres can fail: a text is put wherever a server could keep it, and `COPY` shows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from support.agents import scripted_agent
from support.leaks import Plants, Watch, awkward_canary
from support.postgres import new_database
from worldagent.testing import ScriptedLM

plants = Plants()


class Naive(TypedDict, total=False):
    role: str
    log: Annotated[list[Any], lambda old, new: [*old, *new]]


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    made = new_database()
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", made)
    return made


async def ran(
    seen: Watch, given: Any, node: Callable[[Naive], Naive] = lambda _: {"log": ["done"]}, **more: Any
) -> None:
    """Run a graph of one node whose checkpoints are in the test's database."""
    graph = StateGraph(Naive)
    graph.add_node("node", RunnableLambda(node))
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}, **more}  # type: ignore[typeddict-item]  # keys of its
    async with AsyncPostgresSaver.from_conn_string(os.environ["WORLDAGENT_DATABASE_URL"]) as saver:
        await saver.setup()
        await seen.outcome(graph.compile(checkpointer=saver).ainvoke(given, config))
    seen.errors.clear()  # what stands in memory is looked for elsewhere
    seen.kept.clear()


@plants("role in the state", "checkpoints")
async def in_state(seen: Watch, text: str) -> None:
    await ran(seen, {"role": text})


@plants("role in a list of the state", "checkpoint_blobs")
async def in_list(seen: Watch, text: str) -> None:
    await ran(seen, {"log": [{"as": text}]})


@plants("role in the metadata", "checkpoints")
async def in_metadata(seen: Watch, text: str) -> None:
    await ran(seen, {"log": []}, metadata={"role": text})


@plants("role in an error of a node", "checkpoint_writes")
async def in_error(seen: Watch, text: str) -> None:
    def fail(state: Naive) -> Naive:
        raise RuntimeError(f"cannot act as {text}")

    await ran(seen, {"log": []}, fail)


@plants("role in an interrupt", "checkpoint_writes")
async def in_interrupt(seen: Watch, text: str) -> None:
    await ran(seen, {"log": []}, lambda _: {"log": [interrupt({"may I act as": text})]})


@plants("role in the message", "wa_message")
async def in_message(seen: Watch, text: str) -> None:
    async with scripted_agent(seen.home, ScriptedLM([{"reply": "Hm."}])) as agent:
        await agent.thread("t").converse(f"Act as this: {text}")


@plants("role in a statement that fails", "the log of the server")
async def in_statement(seen: Watch, text: str) -> None:
    with psycopg.connect(os.environ["WORLDAGENT_DATABASE_URL"]) as connection, pytest.raises(psycopg.Error):
        connection.execute(f"SELECT '{text}' FROM nowhere".encode())


@plants("role in a long text, which the server compresses", "wa_message")
async def in_long_text(seen: Watch, text: str) -> None:
    await in_message(seen, f"{'a long way off ' * 2000}{text}{' and back again' * 2000}")


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("length", [12, 400])
@pytest.mark.parametrize("name", plants)
async def test_a_naive_mistake_is_found_on_the_server(tmp_path: Path, name: str, length: int) -> None:
    await plants.assert_found(name, tmp_path / "home", awkward_canary(length, seed=f"planted on a server as {name}"))
