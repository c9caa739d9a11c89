"""Tasks are subgraphs of the graph of a turn: drawn, traced and paused there, with a context of their own (T18)."""

import asyncio
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from langgraph._internal import _constants as constants
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from support.agents import CRITIC, calls, scripted_agent
from support.databases import Engine, contents_of, made, on_every_database, rows_of
from support.processes import add, call_of, killed, start_script
from support.subgraphs import ROLE, STEP, Counted, Order, Receipt, Tree, die, noted, offer_graph, step_agent
from worldagent import Approve, Limits, Shape, Trace, Worker, WorldAgent
from worldagent.core.errors import GraphChanged
from worldagent.core.pauses import Happened, RunAgain
from worldagent.graphs import TaskContext, nesting
from worldagent.graphs.shapes import graph_shape
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T18")

KINDS = list(STEP)
PAIRS = [(kind, KINDS[(place + 1) % len(KINDS)]) for place, kind in enumerate(KINDS)]
ALL_PAIRS = [(waits, fails) for waits in KINDS for fails in KINDS if waits != fails]


async def test_each_kind_of_task_is_a_node_with_its_subgraph(tmp_path: Path) -> None:
    async with step_agent(tmp_path / "home", Counted()) as agent:
        graph: Any = dict(agent.graph().get_subgraphs())["converse"]
        subgraphs = dict(graph.get_subgraphs(recurse=True))
        drawn = graph.get_graph(xray=True)
    assert {node for node in graph.nodes if not node.startswith("__")} == {
        *("think", "act", "subagent", "skill_composer", "order", "offer")
    }
    assert subgraphs.keys() == {"subagent", "skill_composer", "offer"}
    assert all(isinstance(each, CompiledStateGraph) for each in subgraphs.values())
    assert {"subagent:think", "subagent:act", "skill_composer:compose", "skill_composer:think", "offer:quote"} <= {
        *drawn.nodes
    }


@pytest.mark.requirement("R7", "T8", "T6")
@on_every_database
async def test_one_tree_of_callbacks_has_all_kinds_and_no_role(engine: Engine, tmp_path: Path) -> None:
    home, tree, work = made(engine, tmp_path / "home"), Tree(), Counted()
    async with step_agent(home, work, trace=Trace(callbacks=[tree])) as agent:
        turn = await agent.thread("t").converse("Go.", role=ROLE)
    assert (turn.text, work.done) == ("All is done.", dict.fromkeys(STEP, 1))
    assert {line: count for line, count in tree.lines.items() if "__start__" not in line} == {
        "turn": 1,
        "turn > think": 2,
        "turn > act": 1,
        "turn > order": 1,
        "turn > subagent": 1,
        "turn > subagent > helper": 1,
        "turn > subagent > helper > think": 2,
        "turn > subagent > helper > act": 1,
        "turn > skill_composer": 1,
        "turn > skill_composer > skill_composer": 1,
        "turn > skill_composer > skill_composer > compose": 1,
        "turn > skill_composer > skill_composer > think": 2,
        "turn > skill_composer > skill_composer > act": 1,
        "turn > offer": 1,
        "turn > offer > offer": 1,
        "turn > offer > offer > quote": 1,
    }
    assert_no_role_leak([tree.seen, *contents_of(home).values()], ROLE.content)
    assert_no_role_leak([tree.seen, *contents_of(home).values()], "Work, then answer.")  # the text of the skill
    [(namespaces,)] = rows_of(home, "SELECT COUNT(*) FROM checkpoints WHERE checkpoint_ns <> ''")
    assert namespaces == 0, "subgraphs keep no checkpoints"


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("waits", "fails"),
    [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.soak) for pair in ALL_PAIRS if pair not in PAIRS)],
)
async def test_one_kind_waits_and_one_fails_while_the_others_run(waits: str, fails: str, tmp_path: Path) -> None:
    home, work = tmp_path / "home", Counted(fails)
    async with step_agent(home, work, asks=[waits]) as agent:
        turn = await agent.thread("t").converse("Go.")
        assert (turn.status, len(turn.pauses)) == ("paused", 1)
        assert work.done == {kind: 1 for kind in STEP if kind != waits}
    async with step_agent(home, work, asks=[waits]) as agent:
        thread = agent.thread("t")
        turn = await thread.resume({turn.pauses[0].id: Approve()})
        assert (turn.status, turn.text) == ("done", "All is done.")
        results = [message.body for message in await thread.history() if message.kind == "result"]
    assert work.done == dict.fromkeys(STEP, 1)
    assert [body["to"] for body in results] == [name for name, _ in STEP.values()]
    # A failed call of a loop is told to its model, which goes on; that of a handler fails the task.
    failed = [kind for kind, body in zip(STEP, results, strict=True) if body["status"] == "failed"]
    assert failed == [fails] * (fails in ("tool", "shape", "graph"))


KILLS = [(place % 5, (place + 1) % 5, (place + 2) % 5, place % 2) for place in range(5)]
OTHER_KILLS = [
    (a, b, c, after) for a, b, c in permutations(range(5), 3) for after in (0, 1) if (a, b, c, after) not in KILLS
]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("waits", "fails", "hangs", "after"),
    [*KILLS, *(pytest.param(*kill, marks=pytest.mark.soak) for kill in OTHER_KILLS)],
)
@on_every_database
async def test_one_kind_is_killed_while_one_waits_and_one_fails(
    engine: Engine, waits: int, fails: int, hangs: int, after: int, tmp_path: Path
) -> None:
    home = made(engine, tmp_path / "home")
    asked, broken, hanging = KINDS[waits], KINDS[fails], KINDS[hangs]
    await killed(await start_script(call_of(die, home, asked, broken, hanging, after)))
    before = noted(home)
    assert before == {kind: 1 for kind in KINDS if kind != asked and (after or kind != hanging)}

    async def work(kind: str) -> None:
        add(tmp_path / "worked", kind)

    async with step_agent(home, work, asks=[asked]) as agent:
        thread = agent.thread("t")
        pauses = (await thread.resume()).pauses
        kinds = {pause.function.removeprefix("work_"): pause for pause in pauses}
        assert {kind: kinds[kind].kind for kind in (asked, hanging)} == {asked: "approval", hanging: "uncertain"}
        # The person looks which effects happened. Besides the killed one, one that had just ended can be uncertain.
        settled = {
            pause.id: Approve() if kind == asked else Happened("worked") if kind in before else RunAgain()
            for kind, pause in kinds.items()
        }
        turn = await thread.resume(settled)
        assert (turn.status, turn.text) == ("done", "All is done.")
    assert noted(home) == dict.fromkeys(KINDS, 1)


@pytest.mark.parametrize("hangs", KINDS)
async def test_a_turn_is_cancelled_in_a_task_of_each_kind(hangs: str, tmp_path: Path) -> None:
    work, hanging = Counted(), asyncio.Event()

    async def hang(kind: str) -> None:
        await work(kind)
        if kind == hangs and work.done[kind] == 1:
            hanging.set()
            await asyncio.Event().wait()

    async with step_agent(tmp_path / "home", hang) as agent:
        thread = agent.thread("t")
        running = asyncio.create_task(thread.converse("Go."))
        await asyncio.wait_for(hanging.wait(), 20)
        await thread.cancel()
        assert (await asyncio.wait_for(running, 20)).status == "cancelled"
        assert work.done[hangs] == 1
        assert (await thread.converse("Again.")).text == "All is done."


@pytest.mark.requirement("H4")
async def test_a_time_limit_in_one_task_ends_that_task_alone(tmp_path: Path) -> None:
    work = Counted()

    async def hang(kind: str) -> None:
        await work(kind)
        if kind == "worker":
            await asyncio.Event().wait()

    helper = Worker("helper", "You help.", "helps", tools=("work_worker",), limits=Limits(seconds=0.3))
    async with step_agent(tmp_path / "home", hang, workers=[helper]) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("Go.")).text == "All is done."
        results = {message.body["to"]: message.body for message in await thread.history() if message.kind == "result"}
    assert work.done == dict.fromkeys(KINDS, 1)
    assert [name for name, body in results.items() if body["status"] == "failed"] == ["helper"]


async def test_all_kinds_wait_and_are_answered_one_by_one(tmp_path: Path) -> None:
    home, work = tmp_path / "home", Counted()
    async with step_agent(home, work, asks=KINDS) as agent:
        pauses = (await agent.thread("t").converse("Go.")).pauses
    assert len(pauses) == len(STEP)
    for number, pause in enumerate(pauses, 1):
        async with step_agent(home, work, asks=KINDS) as agent:
            turn = await agent.thread("t").resume({pause.id: Approve()})
        assert (turn.status, work.done.total()) == ("done" if number == len(STEP) else "paused", number)
    assert work.done == dict.fromkeys(STEP, 1)


@pytest.mark.requirement("T8")
async def test_a_graph_without_a_context_gets_nothing_of_its_node(tmp_path: Path) -> None:
    contexts: list[object] = []

    async def quote(state: Any, runtime: Runtime[Any]) -> Any:
        contexts.append(runtime.context)
        return {"text": "10"}

    offer = graph_shape("offer", offer_graph(quote), params=Order, result=Receipt, description="offers")
    lm = ScriptedLM([calls(("offer", {"what": "hat"})), {"reply": "Ten."}])
    async with scripted_agent(tmp_path, lm, shapes=[offer]) as agent:
        assert (await agent.thread("t").converse("Go.", role=ROLE)).text == "Ten."
        await agent.thread("t2").task("offer", {"what": "hat"}, role=ROLE)
    assert contexts == [None, None]


def _payer(home: Path, description: str, work: Counted, key: str = "order") -> WorldAgent:
    """An agent with one shape, which pays before it ends; without a description it is not offered."""

    async def order(given: Order, ctx: TaskContext) -> Receipt:
        return Receipt(text=await ctx.call("work_shape", {}))

    lm = ScriptedLM(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls((key, {"what": "hat"}))})
    shape = Shape(key, Order, Receipt, order, description=description)
    return step_agent(home, work, asks=["shape"], lm=lm, shapes=[shape])


async def test_a_turn_that_waits_in_a_node_that_is_gone_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    home, work = tmp_path / "home", Counted()
    async with _payer(home, "orders a thing", work) as agent:
        assert "converse:order" in agent.graph().get_graph(xray=True).nodes
        [pause] = (await agent.thread("t").converse("Go.")).pauses
    async with _payer(home, "", work) as agent:
        assert "converse:order" not in agent.graph().get_graph(xray=True).nodes
        with pytest.raises(GraphChanged, match="'order' is not offered any more"):
            await agent.thread("t").resume({pause.id: Approve()})
    async with _payer(home, "orders a thing", work) as agent:
        turn = await agent.thread("t").resume({pause.id: Approve()})
    assert (turn.text, work.done) == ("Done.", {"shape": 1})


@pytest.mark.parametrize("key", ["round", "think", "skill_composer", "__start__"])
async def test_a_shape_whose_key_is_taken_in_the_graph_runs_as_a_plain_tool_does(key: str, tmp_path: Path) -> None:
    home, work = tmp_path / "home", Counted()
    async with _payer(home, "orders a thing", work, key) as agent:
        [pause] = (await agent.thread("t").converse("Go.")).pauses
        assert (await agent.thread("t").resume({pause.id: Approve()})).text == "Done."
        turn = await agent.thread("t2").task(key, {"what": "hat"})
        assert (await agent.thread("t2").resume({turn.pauses[0].id: Approve()})).result == Receipt(
            text="worked for the shape"
        )
    assert work.done == {"shape": 2}


async def test_two_workers_at_once_have_namespaces_of_their_own(tmp_path: Path) -> None:
    tree, both = Tree(), calls(("critic", {"request": "One."}), ("critic", {"request": "Two."}))
    lm = ScriptedLM(
        lambda call: {"result": "Fine."} if "request" in call.fields else {"reply": "Ok."} if call.steps else both
    )
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], trace=Trace(callbacks=[tree])) as agent:
        assert (await agent.thread("t").converse("Go.")).text == "Ok."
    assert tree.lines["turn > subagent > critic"] == 2
    spaces = {each["metadata"]["langgraph_checkpoint_ns"] for each in tree.metadata("turn > subagent > critic > think")}
    assert len(spaces) == 2
    assert all(space.startswith("subagent:") for space in spaces)


def test_the_keys_of_langgraph_are_those_that_it_uses() -> None:
    names = {"CHECKPOINTER": "CONFIG_KEY_CHECKPOINTER", "DURABILITY": "CONFIG_KEY_DURABILITY"}
    names |= {"RUNTIME": "CONFIG_KEY_RUNTIME", "STREAM": "CONFIG_KEY_STREAM", "NAMESPACE": "CONFIG_KEY_CHECKPOINT_NS"}
    for ours, theirs in names.items():
        assert getattr(nesting, ours) == getattr(constants, theirs)
