"""The suite can fail: each naive way to hand a role on is planted, and what looks on in the matrix finds it.

On Postgres `COPY` shows it, and the log of the server.
"""

import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import dspy
import psycopg
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.clients.cache import Cache
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from support.agents import scripted_agent
from support.leaks import Plants, Watch, awkward_canary, watch
from worldagent import Role
from worldagent.core.errors import HostError
from worldagent.core.events import TextDelta
from worldagent.testing import ScriptedLM, scan_for_roles

plants, plants_on_server = Plants(), Plants()


class Naive(TypedDict, total=False):
    """A state that has room for a role."""

    role: str
    log: Annotated[list[Any], lambda old, new: [*old, *new]]


def graph_of(node: Callable[..., Any], **nodes: Callable[..., Any]) -> Any:
    graph = StateGraph(Naive)
    graph.add_node("node", node)
    for name, more in nodes.items():
        graph.add_node(name, more)
    graph.add_edge("node", END)
    graph.add_conditional_edges(START, getattr(node, "route", lambda _: "node"), ["node", *nodes])
    return graph


@contextlib.asynccontextmanager
async def naive_graph(seen: Watch, node: Callable[..., Any], **nodes: Callable[..., Any]) -> AsyncGenerator[Any, None]:
    """A graph of one node (more where named, reached by `Send`) that keeps checkpoints below the watched home."""
    async with AsyncSqliteSaver.from_conn_string(str(seen.home / "naive.db")) as saver:
        yield graph_of(node, **nodes).compile(checkpointer=saver)


async def idle(state: Naive) -> Naive:
    return {"log": ["done"]}


def thread(**more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": "t", **more}}


@plants("role in the state", "checkpoints.checkpoint")
async def in_state(seen: Watch, text: str) -> None:
    async with naive_graph(seen, idle) as graph:
        await graph.ainvoke({"role": text}, thread())


@plants("role in the state of a run that keeps its end alone", "checkpoints.checkpoint")
async def in_state_at_exit(seen: Watch, text: str) -> None:
    async with naive_graph(seen, idle) as graph:
        await graph.ainvoke({"role": text}, thread(), durability="exit")


@plants("role under an unknown key of the input", "naive.db")
async def unknown_key(seen: Watch, text: str) -> None:
    async with naive_graph(seen, idle) as graph:
        await graph.ainvoke({"log": [], "unknown": text}, thread())


@plants("role in configurable", "checkpoints.metadata")
async def in_configurable(seen: Watch, text: str) -> None:
    async with naive_graph(seen, idle) as graph:
        await graph.ainvoke({"log": []}, thread(role=text))


@plants("role in the metadata", "checkpoints.metadata")
async def in_metadata(seen: Watch, text: str) -> None:
    async with naive_graph(seen, idle) as graph:
        await graph.ainvoke({"log": []}, {**thread(), "metadata": {"role": text}})


@plants("role in an error of a node", "writes.value")
async def in_error(seen: Watch, text: str) -> None:
    async def fail(state: Naive) -> Naive:
        raise RuntimeError(f"cannot act as {text}")

    async with naive_graph(seen, fail) as graph:
        with pytest.raises(RuntimeError):
            await graph.ainvoke({"log": []}, thread(), durability="exit")


@plants("role in an interrupt", "writes.value")
async def in_interrupt(seen: Watch, text: str) -> None:
    async def ask(state: Naive) -> Naive:
        return {"log": [interrupt({"may I act as": text})]}

    async with naive_graph(seen, ask) as graph:
        await graph.ainvoke({"log": []}, thread(), durability="exit")


@plants("role in a Send", "naive.db")
async def in_send(seen: Watch, text: str) -> None:
    def route(state: Naive) -> list[Send]:
        return [Send("other", {"role": text})]

    async def node(state: Naive) -> Naive:
        return {}

    node.route = route  # type: ignore[attr-defined]  # read by naive_graph
    async with naive_graph(seen, node, other=idle) as graph:
        await graph.ainvoke({"log": []}, thread())


class Act(dspy.Signature):
    """Act."""

    message: str = dspy.InputField()
    role: str = dspy.InputField()
    reply: str = dspy.OutputField()


@plants("inputs as dspy.History in the state", "naive.db")
async def in_dspy_history(seen: Watch, text: str) -> None:
    async def act(state: Naive) -> Naive:
        inputs = {"message": "Hi", "role": text}
        with dspy.context(lm=ScriptedLM([{"reply": "Hm."}]), disable_history=True, trace=None, callbacks=[]):
            made = await dspy.Predict(Act).acall(**inputs)
        return {"log": [dspy.History(messages=[{**inputs, **made}]).model_dump()]}

    async with naive_graph(seen, act) as graph:
        await graph.ainvoke({"log": []}, thread())


@plants("a plain call of dspy", "['GLOBAL_HISTORY']")
async def plain_call(seen: Watch, text: str) -> None:
    with dspy.context(lm=ScriptedLM([{"reply": "Hm."}]), callbacks=[], trace=None):
        await dspy.Predict(Act).acall(message="Hi", role=text)


@plants("a call with the embedder's callbacks", "['model']")
async def with_callbacks(seen: Watch, text: str) -> None:
    with dspy.context(lm=ScriptedLM([{"reply": "Hm."}]), disable_history=True, trace=None):
        await dspy.Predict(Act).acall(message="Hi", role=text)


@plants("a call with the embedder's trace", "['trace']")
async def with_trace(seen: Watch, text: str) -> None:
    with dspy.context(lm=ScriptedLM([{"reply": "Hm."}]), disable_history=True, callbacks=[]):
        await dspy.Predict(Act).acall(message="Hi", role=text)


@plants("role as input of a runnable", "['chain']")
async def in_runnable(seen: Watch, text: str) -> None:
    step: RunnableLambda[dict[str, str], str] = RunnableLambda(lambda given: "ok")
    await seen.inside_a_chain(lambda: step.ainvoke({"role": text}))


@plants("role as input of a runnable, at LangSmith", "['traced']")
async def in_traced_runnable(seen: Watch, text: str) -> None:
    await in_runnable(seen, text)


@plants("role in a log line", "['logs']")
async def in_log(seen: Watch, text: str) -> None:
    logging.getLogger("naive").debug("acting as %s", text)


@plants("role in an event", "['events']")
async def in_event(seen: Watch, text: str) -> None:
    seen.events.append(TextDelta(turn_id="t", seq=1, at=datetime.now(UTC), text=text))


@plants("role in the message", "agent.db: wa_message.body")
async def in_message(seen: Watch, text: str) -> None:
    async with scripted_agent(seen.home, ScriptedLM([{"reply": "Hm."}])) as agent:
        await agent.thread("t").converse(f"Act as this: {text}")


@plants("role in the page of a log that was asked for", "body['text']")
async def in_history(seen: Watch, text: str) -> None:
    await in_message(seen, text)
    async with scripted_agent(seen.home, ScriptedLM([])) as agent:
        seen.kept.append(await agent.thread("t").history())


async def failing(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


@plants("role in the text of an error", "['errors']")
async def in_text_of_error(seen: Watch, text: str) -> None:
    await seen.outcome(failing(HostError(f"cannot act as {text}", remedy="do not")))


@plants("role in the cause of an error", "__cause__")
async def in_cause(seen: Watch, text: str) -> None:
    await seen.outcome(failing(HostError("cannot act", remedy="do not"), ValueError(text)))


@plants("role in a note of an error", "__notes__")
async def in_note(seen: Watch, text: str) -> None:
    error = HostError("cannot act", remedy="do not")
    error.add_note(text)
    await seen.outcome(failing(error))


@plants("role in a local variable of a frame of the package", "['given']")
async def in_local(seen: Watch, text: str) -> None:
    code = compile("def act(given):\n    raise RuntimeError('plain')\n", "worldagent/naive.py", "exec")
    scope: dict[str, Any] = {}
    exec(code, scope)

    async def act() -> None:
        scope["act"](text)

    await seen.outcome(act())


async def ran(seen: Watch, given: Any, node: Callable[[Naive], Any] = idle, **more: Any) -> None:
    """Run a graph of one node whose checkpoints are in the test's database on the server."""
    async with AsyncPostgresSaver.from_conn_string(os.environ["WORLDAGENT_DATABASE_URL"]) as saver:
        await saver.setup()
        await seen.outcome(graph_of(node).compile(checkpointer=saver).ainvoke(given, {**thread(), **more}))
    seen.errors.clear()  # what stands in memory is looked for elsewhere
    seen.kept.clear()


@plants_on_server("role in the state", "checkpoints")
async def in_state_there(seen: Watch, text: str) -> None:
    await ran(seen, {"role": text})


@plants_on_server("role in a list of the state", "checkpoint_blobs")
async def in_list(seen: Watch, text: str) -> None:
    await ran(seen, {"log": [{"as": text}]})


@plants_on_server("role in the metadata", "checkpoints")
async def in_metadata_there(seen: Watch, text: str) -> None:
    await ran(seen, {"log": []}, metadata={"role": text})


@plants_on_server("role in an error of a node", "checkpoint_writes")
async def in_error_there(seen: Watch, text: str) -> None:
    async def fail(state: Naive) -> Naive:
        raise RuntimeError(f"cannot act as {text}")

    await ran(seen, {"log": []}, fail)


@plants_on_server("role in an interrupt", "checkpoint_writes")
async def in_interrupt_there(seen: Watch, text: str) -> None:
    async def ask(state: Naive) -> Naive:
        return {"log": [interrupt({"may I act as": text})]}

    await ran(seen, {"log": []}, ask)


plants_on_server("role in the message", "wa_message")(in_message)


@plants_on_server("role in a statement that fails", "the log of the server")
async def in_statement(seen: Watch, text: str) -> None:
    with psycopg.connect(os.environ["WORLDAGENT_DATABASE_URL"]) as connection, pytest.raises(psycopg.Error):
        connection.execute(f"SELECT '{text}' FROM nowhere".encode())


@plants_on_server("role in a long text, which the server compresses", "wa_message")
async def in_long_text(seen: Watch, text: str) -> None:
    await in_message(seen, f"{'a long way off ' * 2000}{text}{' and back again' * 2000}")


@pytest.fixture(autouse=True)
def _forget_history() -> Iterator[None]:
    before = len(GLOBAL_HISTORY)
    yield
    while len(GLOBAL_HISTORY) > before:
        GLOBAL_HISTORY.pop()


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("length", [12, 400])
@pytest.mark.parametrize("name", plants)
async def test_a_naive_mistake_is_found(tmp_path: Path, name: str, length: int) -> None:
    await plants.assert_found(name, tmp_path / "home", awkward_canary(length, seed=f"planted as {name}"))


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("length", [12, 400])
@pytest.mark.parametrize("name", plants_on_server)
async def test_a_naive_mistake_is_found_on_the_server(tmp_path: Path, name: str, length: int) -> None:
    text = awkward_canary(length, seed=f"planted on a server as {name}")
    await plants_on_server.assert_found(name, tmp_path / "home", text)


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("length", [12, 400])
async def test_a_role_that_a_model_repeats_is_found_in_dspys_cache_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    text = awkward_canary(length, seed="planted in a cache")
    folder = tmp_path / "cache"
    monkeypatch.setitem(vars(dspy), "cache", Cache(True, True, str(folder), 1 << 24))
    lm = ScriptedLM([{"reply": f"I am {text}"}])
    lm.cache = True
    with dspy.context(lm=lm, disable_history=True, trace=None, callbacks=[]):
        await dspy.Predict(Act).acall(message="Hi", role=text)
    assert scan_for_roles(folder, text).findings
    dspy.cache.disk_cache.close()


@pytest.mark.requirement("R1", "R7")
async def test_a_role_object_in_the_wrong_place_fails_closed(tmp_path: Path) -> None:
    text = awkward_canary(400, seed="planted as an object")
    with watch(tmp_path / "home") as seen:
        async with naive_graph(seen, idle) as graph:
            with pytest.raises(TypeError, match="not msgpack serializable: Role"):
                await graph.ainvoke({"role": Role("object", text)}, thread(), durability="sync")
        assert seen.leaks(text) == []
