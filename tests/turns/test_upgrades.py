"""Turns that wait while the code changes: refused before any effect, and neither turn nor thread is lost (D15)."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Said, scripted_agent
from support.shop import Order
from worldagent import WorldAgent
from worldagent.core.errors import CallRefused, GraphChanged
from worldagent.core.pauses import Approve, Reject
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")


class PricedOrder(Order):
    currency: str = "EUR"


class Code:
    """One version of somebody's code; `done` counts effects over all versions."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.write = self.leaf("write")
        self.pay = self.leaf("pay", approval=True)
        self.shapes: Sequence[Shape[Any, Any]] = [self.shape()]
        self.workers = [CRITIC]

    def leaf(self, name: str, **more: Any) -> Function:
        async def body(what: str) -> str:
            self.done.append(f"{name} {what}")
            return what

        options: dict[str, Any] = {"risk": "read_only", **more}
        made: Function = tool(name=name, **options)(body)
        return made

    def shape(
        self, params: type[BaseModel] = Order, key: str = "job", result: type[BaseModel] = Said
    ) -> Shape[Any, Any]:
        async def handle(order: Any, ctx: TaskContext) -> dict[str, str]:
            await ctx.task("subagent", {"worker": "critic", "request": "Judge it."})
            first = await ctx.call("write", {"what": order.what})
            return {"text": f"{first}, {await ctx.call('pay', {'what': order.what})}"}

        return Shape(key, params, result, handle, description="buys")

    def agent(self, home: Path) -> WorldAgent:
        def reply(call: ScriptedCall) -> dict[str, Any]:
            if "request" in call.fields:
                return {"result": "It is fine."}
            if "Hello" in call.text or call.steps:
                return {"reply": "All done."}
            return {
                "reply": "",
                "calls": [
                    {"tool": "job", "arguments": {"what": "hat"}},
                    {"tool": "critic", "arguments": {"request": "Judge hats."}},
                ],
            }

        functions = [each for each in (self.write, self.pay) if each is not None]
        return scripted_agent(home, ScriptedLM(reply), tools=functions, workers=self.workers, shapes=self.shapes)


async def more_params(what: str, currency: str = "EUR") -> str:
    raise AssertionError("it must not run")


async def a_number(what: str) -> int:
    raise AssertionError("it must not run")


async def a_flow(ctx: CallContext, what: str) -> str:
    raise AssertionError("it must not run")


class Wish(BaseModel):
    wish: str


class SaidMore(Said):
    more: str = ""


def pay(code: Code, body: Any) -> None:
    code.pay = (flow if body is a_flow else tool)(name="pay", approval=True)(body)


def write(code: Code, body: Any) -> None:
    code.write = tool(name="write", risk="read_only")(body)


def rename_leaf(code: Code, leaf: str) -> None:
    setattr(code, leaf, code.leaf(f"other_{leaf}", approval=leaf == "pay"))


def job(code: Code, **changed: Any) -> None:
    code.shapes = [code.shape(**changed)]


CHANGES: dict[str, tuple[Callable[[Code], None], str]] = {
    "the function that waits is gone": (lambda code: rename_leaf(code, "pay"), "'pay'"),
    "the function that waits takes other params": (lambda code: pay(code, more_params), "'pay'"),
    "the function that waits is a flow now": (lambda code: pay(code, a_flow), "'pay'"),
    "a function that was called is gone": (lambda code: rename_leaf(code, "write"), "'write'"),
    "a function that was called takes other params": (lambda code: write(code, more_params), "'write'"),
    "the function that waits gives something else": (lambda code: pay(code, a_number), "'pay'"),
    "a function that was called gives something else": (lambda code: write(code, a_number), "'write'"),
    "the shape gives more": (lambda code: job(code, result=SaidMore), "'job'"),
    "the shape takes more": (lambda code: job(code, params=PricedOrder), "'job'"),
    "the shape takes something else": (lambda code: job(code, params=Wish), "'job'"),
    "the shape is gone": (lambda code: job(code, key="errand"), "'job'"),
}


async def begun(home: Path, done: list[str], surface: str) -> str:
    """Leave a turn that waits for leave to pay; gives the pause's id."""
    async with Code(done).agent(home) as agent:
        thread = agent.thread("t")
        turn = await (thread.converse("Buy a hat") if surface == "converse" else thread.task("job", {"what": "hat"}))
    assert (turn.status, done) == ("paused", ["write hat"])
    return turn.pauses[0].id


async def refused(agent: WorldAgent, pause: str, says: str) -> None:
    with pytest.raises(GraphChanged, match=says) as caught:
        await agent.thread("t").resume({pause: Approve()})
    assert re.search(r"; resume it with the (code|version) that began it, or cancel it and", str(caught.value))
    with pytest.raises(GraphChanged, match=says):  # the answer was not taken
        await agent.thread("t").resume()


@pytest.mark.parametrize("surface", ["converse", "task"])
@pytest.mark.parametrize("what", CHANGES)
async def test_changed_code_is_refused_and_the_old_code_resumes(tmp_path: Path, what: str, surface: str) -> None:
    done: list[str] = []
    pause = await begun(tmp_path, done, surface)
    change, says = CHANGES[what]
    code = Code(done)
    change(code)
    async with code.agent(tmp_path) as agent:
        await refused(agent, pause, says)
    assert done == ["write hat"]
    async with Code(done).agent(tmp_path) as agent:
        assert (await agent.thread("t").resume({pause: Approve()})).status == "done"
    assert done == ["write hat", "pay hat"]


async def test_a_worker_that_a_plan_dispatched_to_and_that_is_gone_is_named(tmp_path: Path) -> None:
    done: list[str] = []
    pause = await begun(tmp_path, done, "converse")
    code = Code(done)
    code.workers = []
    async with code.agent(tmp_path) as agent:
        await refused(agent, pause, "'critic'")
    assert done == ["write hat"]


@pytest.mark.parametrize("surface", ["converse", "task"])
async def test_another_graph_is_named_before_any_effect(tmp_path: Path, surface: str) -> None:
    done: list[str] = []
    pause = await begun(tmp_path, done, surface)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as connection, connection:
        connection.execute("UPDATE wa_turn SET graph='turn/0'")
    async with Code(done).agent(tmp_path) as agent:
        await refused(agent, pause, "'turn/0', and this version runs 'turn/2'")
        thread = agent.thread("t")
        assert await thread.cancel()
        assert (await thread.converse("Hello")).text == "All done."
        assert [message.kind for message in await thread.history()][-2:] == ["message", "answer"]
    assert done == ["write hat"]


async def test_refusal_counts_where_approval_is_no_longer_required(tmp_path: Path) -> None:
    done: list[str] = []
    pause = await begun(tmp_path, done, "task")
    code = Code(done)
    code.pay = code.leaf("pay")
    async with code.agent(tmp_path) as agent:
        with pytest.raises(CallRefused, match="too dear"):
            await agent.thread("t").resume({pause: Reject("too dear")})
    assert done == ["write hat"]


async def test_call_that_no_longer_requires_approval_runs(tmp_path: Path) -> None:
    done: list[str] = []
    await begun(tmp_path, done, "task")
    code = Code(done)
    code.pay = code.leaf("pay")
    async with code.agent(tmp_path) as agent:
        assert (await agent.thread("t").resume()).status == "done"
    assert done == ["write hat", "pay hat"]


@pytest.mark.requirement("T5")
async def test_a_stopped_turn_whose_function_is_gone_is_named_before_any_effect(tmp_path: Path) -> None:
    done: list[str] = []
    under_way, go = asyncio.Event(), asyncio.Event()

    async def body(what: str) -> str:
        under_way.set()
        await go.wait()
        done.append(f"write {what}")
        return what

    code = Code(done)
    code.write = tool(name="write", risk="read_only")(body)
    agent = await code.agent(tmp_path).start()
    running = asyncio.create_task(agent.thread("t").task("job", {"what": "hat"}))
    await under_way.wait()
    draining = asyncio.create_task(agent.drain(30))
    await asyncio.sleep(0)
    go.set()
    assert (await running).status == "stopped"
    await draining
    code = Code(done)
    rename_leaf(code, "write")
    async with code.agent(tmp_path) as agent:
        with pytest.raises(GraphChanged, match="'write'"):
            await agent.thread("t").resume()
    assert done == ["write hat"]
    async with Code(done).agent(tmp_path) as agent:
        assert (await agent.thread("t").resume()).status == "paused"
    assert done == ["write hat"]
