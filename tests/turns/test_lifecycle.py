"""Opening and closing an agent, and what it leaves behind in the process of its embedder."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, answering, scripted_agent
from support.agents import shape as job
from support.openai_stub import openai_stub
from support.processes import eventually, held, others, run_script
from support.steps import cut_off
from worldagent import Settings, Storage, Tier, WorldAgent
from worldagent.core.errors import (
    AgentClosed,
    ModelNotConfigured,
    StorageInvalid,
    StorageUnavailable,
)
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, flow
from worldagent.memory import TurnRegister
from worldagent.storage import Lease
from worldagent.testing import ScriptedCall, ScriptedLM

_MANY = 100  # more than begin at the same time
PLAN = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}


async def left_over(before: tuple[int, int, int], tasks: int) -> str:
    """Say what is more than there was, or nothing."""
    if await eventually(lambda: others() <= tasks and all(n <= b for n, b in zip(held(), before, strict=True))):
        return ""
    return f"handles, threads, children: {held()}, before {before}; tasks: {others()}, before {tasks}"


async def turns(home: Path) -> None:
    """A turn with a task, one with a stream, one that is cancelled."""
    started = asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        message = call.fields.get("message")
        if message == "stay":
            started.set()
            await asyncio.Event().wait()
        if message is None:
            return {"result": "Weak."}
        return PLAN if call.index == 1 else {"reply": "Fine."}

    async with scripted_agent(home, ScriptedLM(reply), workers=[CRITIC]) as agent:
        assert (await agent.thread("t").converse("plan")).text == "Fine."
        async with agent.thread("u").stream("Hi") as stream:
            assert [event.type async for event in stream][-1] == "turn_ended"
        staying = asyncio.create_task(agent.thread("v").converse("stay"))
        await asyncio.wait_for(started.wait(), 20)
    assert (await staying).status == "cancelled"


async def test_opening_and_closing_leaves_no_task_thread_process_or_handle_behind(tmp_path: Path) -> None:
    await turns(tmp_path / "first")  # what is imported and kept for good is there now
    before, tasks = held(), others()
    for _ in range(3):
        await turns(tmp_path)
    assert not await left_over(before, tasks)


async def test_a_model_over_http_leaves_nothing_behind(tmp_path: Path) -> None:
    async def one(url: str) -> None:
        settings = Settings(lm="openai/answer", api_base=url)
        async with WorldAgent("novel", storage=Storage(home=tmp_path), settings=settings) as agent:
            assert (await agent.thread("t").converse("Hi")).text == "Paris."
            async with agent.thread("t").stream("Again") as stream:
                assert [event.type async for event in stream][-1] == "turn_ended"

    async with openai_stub() as stub:
        await one(stub.url)
        await asyncio.wait_for(stub.idle.wait(), 10)
        before, tasks = held(), others()
        for _ in range(3):
            await one(stub.url)
        assert not await left_over(before, tasks)
        assert stub.open == 0


def test_one_agent_serves_several_event_loops_one_after_the_other(tmp_path: Path) -> None:
    agent = scripted_agent(tmp_path, answering())
    thread = agent.thread("t")

    async def one() -> str:
        await asyncio.gather(agent.start(), agent.start())
        text = (await thread.converse("Hi")).text
        await asyncio.gather(agent.aclose(), agent.aclose())
        return text

    assert [asyncio.run(one()), asyncio.run(one())] == ["Fine.", "Fine."]


@pytest.mark.parametrize("steps", [2, 8, 34])
async def test_cancelled_start_closes_everything(tmp_path: Path, steps: int) -> None:
    await turns(tmp_path / "first")
    before, tasks = held(), others()
    agent = scripted_agent(tmp_path, answering())
    starting = asyncio.create_task(agent.start())
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting}, timeout=20)
    await agent.aclose()
    assert not await left_over(before, tasks)
    async with agent:
        assert (await agent.thread("t").converse("Hi")).text == "Fine."


async def test_failed_start_closes_everything_and_can_be_repeated(tmp_path: Path) -> None:
    await turns(tmp_path)
    before, tasks = held(), others()
    good = (tmp_path / "roles.db").read_bytes()
    (tmp_path / "roles.db").write_bytes(b"This is a text and no database at all. " * 200)
    broken = scripted_agent(tmp_path, answering())
    with pytest.raises(StorageInvalid, match=r"roles\.db.*use another home"):
        await broken.start()
    with pytest.raises(AgentClosed):
        await broken.thread("t").converse("Hi")
    await broken.aclose()
    assert not await left_over(before, tasks)
    (tmp_path / "roles.db").write_bytes(good)
    async with broken:
        assert (await broken.thread("new").converse("Hi")).text == "Fine."
    with pytest.raises(ModelNotConfigured):
        await scripted_agent(tmp_path, "nosuch/model").start()
    assert not await left_over(before, tasks)


async def test_after_close_every_use_is_refused_with_the_way_to_open(tmp_path: Path) -> None:
    agent = scripted_agent(tmp_path, answering())
    thread = agent.thread("t")
    async with agent:
        made_before, entered_after = thread.stream("Hi"), thread.stream("Hi")
        roles, followed = agent.roles, agent.events("turn_x")
    uses: list[Any] = [
        lambda: thread.converse("Hi"),
        thread.history,
        lambda: thread.task("subagent", {"worker": "x", "request": "y"}),
        lambda: agent.call("x", {}),
        lambda: agent.explain_role(thread),
        lambda: agent.roles.get(Tier.WORKSPACE),
        roles.list,
        made_before.__aenter__,
        lambda: anext(followed),
    ]
    for use in uses:
        with pytest.raises(AgentClosed, match=r"; .*(open|start)"):
            await use()
    with pytest.raises(AgentClosed):
        thread.stream("Hi")
    with pytest.raises(AgentClosed):
        agent.program("Converse")
    async with agent:
        with pytest.raises(AgentClosed, match="closed meanwhile; start the turn with the agent that is open now"):
            await entered_after.__aenter__()


async def test_waiting_turns_that_end_hold_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        with monkeypatch.context() as patched:

            def full(register: TurnRegister, record: Any, *, lease: Lease, also: Any) -> None:
                raise StorageUnavailable("the disk is full", remedy="make room")

            patched.setattr(TurnRegister, "begin", full)
            turns = [asyncio.create_task(agent.thread(f"t{number}").converse("Hi")) for number in range(_MANY)]
            for step, turn in enumerate(turns[::2]):
                asyncio.get_running_loop().call_later(step / 1000, turn.cancel)
            await asyncio.wait(turns)
        async with asyncio.timeout(60):
            again = [agent.thread(f"t{number}").converse("Hi") for number in range(_MANY)]
            assert {turn.text for turn in await asyncio.gather(*again)} == {"Fine."}


async def test_a_turn_in_another_event_loop_than_the_agents_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises(AgentClosed, match="started in another event loop; run its turns in that loop"):
            await asyncio.to_thread(lambda: asyncio.run(agent.thread("t").converse("Hi")))
        assert (await agent.thread("t").converse("Hi")).text == "Fine."


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("surface", ["flow", "another agent's turn"])
async def test_turn_that_closes_its_agent_is_logged_as_reported(tmp_path: Path, surface: str) -> None:
    agents: list[WorldAgent] = []

    async def close() -> str:
        await agents[0].aclose()
        return "closed"

    async def close_from(ctx: CallContext) -> str:
        return await close()

    async def elsewhere(ctx: TaskContext) -> str:
        return await close()

    async def closing(ctx: TaskContext) -> str:
        if surface == "another agent's turn":
            await agents[1].thread("t").task("job", {})
            return await close()
        return str(await ctx.call("flow", {}))

    functions = [flow(name="flow")(close_from)]
    agents.append(await scripted_agent(tmp_path, answering(), tools=functions, shapes=[job(closing)]).start())
    async with scripted_agent(tmp_path / "other", answering(), shapes=[job(elsewhere)]) as other:
        agents.append(other)
        turn = await asyncio.wait_for(agents[0].thread("t").task("job", {}), 20)
    await agents[0].aclose()
    async with scripted_agent(tmp_path, answering()) as agent:
        [state] = await agent.threads()
        assert (turn.status, state.status, state.turn_id) == ("cancelled", "cancelled", turn.id)
        assert (await agent.thread("t").converse("Hi")).text == "Fine."


async def test_close_that_is_cancelled_at_any_point_still_closes(tmp_path: Path) -> None:
    await turns(tmp_path / "first")
    cut, suspension = True, 0
    while cut:
        suspension += 1
        before, tasks = held(), others()
        agent = await scripted_agent(tmp_path / "home", answering()).start()
        await agent.thread("t").converse("Hi")
        cut = await cut_off(agent.aclose(), suspension)
        assert not await left_over(before, tasks), suspension
    assert suspension > 5


async def test_an_agent_that_is_forgotten_without_a_close_lets_its_threads_go(tmp_path: Path) -> None:
    await turns(tmp_path / "first")
    gc.collect()
    before, tasks = held(), others()
    gc.freeze()  # what the tests before have left is not looked through again, which takes a second each time
    try:
        agent = await scripted_agent(tmp_path, answering()).start()
        await agent.thread("t").converse("Hi")
        del agent
        assert await eventually(lambda: collected(before, tasks)), (held(), before)
    finally:
        gc.unfreeze()


def collected(before: tuple[int, int, int], tasks: int) -> bool:
    """Look again after each collection: a thread that ends late leaves its connection in a cycle of its own."""
    gc.collect()
    return others() <= tasks and all(n <= b for n, b in zip(held(), before, strict=True))


GUEST = """
import asyncio, gc, json, logging, os, signal, sys, threading
from pathlib import Path
import dspy
from dspy.utils.callback import BaseCallback
from support.agents import CRITIC, scripted_agent
from worldagent.testing import ScriptedLM

class Watch(BaseCallback):
    seen = []
    def on_lm_start(self, call_id, instance, inputs): self.seen.append("lm")
    def on_module_start(self, call_id, instance, inputs): self.seen.append("module")
    def on_adapter_format_start(self, call_id, instance, inputs): self.seen.append("format")
    def on_adapter_parse_start(self, call_id, instance, inputs): self.seen.append("parse")

def handlers():
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    return sorted((one.name, *map(repr, one.handlers)) for one in known if getattr(one, "handlers", None))

def state():
    return {
        "dspy": {name: id(value) for name, value in dspy.settings.copy().items()},
        "environment": dict(os.environ),
        "signals": [id(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "handlers": handlers(),
        "level": logging.root.level,
        "hooks": [id(sys.excepthook), id(threading.excepthook), id(sys.unraisablehook)],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)],
        "folder": os.getcwd(),
        "path": list(sys.path),
        "streams": [id(sys.stdout), id(sys.stderr)],
    }

async def main():
    watch, mine = Watch(), ScriptedLM(lambda call: {"answer": "mine"})
    dspy.configure(lm=mine, adapter=dspy.ChatAdapter(), callbacks=[watch])
    before = state()
    plan = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}
    for n in range(3):
        lm = ScriptedLM([plan, {"result": "ok"}, {"reply": "Fine."}, dspy.lm15.ServerError("down")])
        async with scripted_agent(Path(sys.argv[1]), lm, workers=[CRITIC]) as agent:
            before_turn = id(asyncio.get_running_loop().get_exception_handler())
            await agent.thread("t").converse("Hi")
            try:
                await agent.thread("t").converse("Hi")
            except Exception as error:
                assert type(error).__name__ == "ModelUnavailable", error
            assert id(asyncio.get_running_loop().get_exception_handler()) == before_turn
    after = state()
    changed = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    seen = list(watch.seen)
    answer = (await dspy.Predict("question -> answer").acall(question="?")).answer
    dspy.configure(lm=mine)
    told = {"changed": changed, "seen": seen, "answer": answer, "own": watch.seen, "model": len(mine.history)}
    print(json.dumps(told))

asyncio.run(main())
"""


async def test_nothing_of_the_embedders_process_is_changed_and_its_callbacks_see_no_call(tmp_path: Path) -> None:
    told = json.loads(await run_script(GUEST, tmp_path, fresh=True))
    assert (told["changed"], told["seen"]) == ({}, [])
    assert (told["answer"], told["model"], "lm" in told["own"]) == ("mine", 1, True)
