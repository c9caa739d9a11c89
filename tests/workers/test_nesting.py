"""Workers call workers that call tools, up to a depth, and no caller sees whether one is code (H4, H7, H8)."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Nothing, Said, answering, calls, price, scripted_agent, streamed, to, told
from worldagent.core.errors import AgentClosed, ParamsInvalid
from worldagent.core.events import CallStarted, TaskStarted
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedLM


class Article(BaseModel):
    name: str
    colour: str | None = None


class Offer(BaseModel):
    price: int


@pytest.mark.requirement("H1", "H7")
async def test_a_worker_calls_a_worker_that_calls_a_tool_that_calls_a_worker(tmp_path: Path) -> None:
    @flow
    async def look(ctx: CallContext, what: str) -> str:
        """Look around."""
        return f"seen {await ctx.call('eye', {'request': what})}"

    boss = Worker("boss", "You lead.", tools=("hand",))
    hand = Worker("hand", "You work.", tools=("look",))
    eye = Worker("eye", "You see.")

    def reply(call: Any) -> dict[str, Any]:
        if "message" in call.fields:
            return {"reply": "Done."} if told(call) else to("boss")
        if "You see" in call.system:
            return {"result": call.fields["request"].upper()}
        if told(call):
            return {"result": told(call)[-1].rsplit("\n", 1)[-1]}
        return calls(("hand", {"request": "hat"}) if "You lead" in call.system else ("look", {"what": "hat"}))

    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[boss, hand, eye], tools=[look]) as agent:
        assert await agent.call("boss", {"request": "Go."}) == "seen HAT"
        _, events = await streamed(agent.thread("t").stream("Go"))
    begun = [(event.task_id, event.label) for event in events if isinstance(event, TaskStarted)]
    begun += [(event.call_id, event.function) for event in events if isinstance(event, CallStarted)]
    ids, names = zip(*sorted(begun), strict=True)
    assert names == ("boss", "hand", "look", "eye")
    assert all(below.startswith(f"{above}/") for above, below in pairwise(ids))


@pytest.mark.requirement("H4")
async def test_a_worker_that_calls_itself_is_refused_at_the_sixth(tmp_path: Path) -> None:
    worker = Worker("fern", "You call yourself.", tools=("fern",))

    def reply(call: Any) -> dict[str, Any]:
        if "message" in call.fields:
            return {"reply": "Done."} if told(call) else to("fern", "0")
        deep = int(call.fields["request"])
        return {"result": told(call)[-1]} if told(call) else calls(("fern", {"request": str(deep + 1)}))

    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, workers=[worker]) as agent:
        thread = agent.thread("t")
        await thread.converse("Go")  # what the planner asks for is not below anything
        [answer] = [message.body["result"]["text"] for message in await thread.history() if message.kind == "result"]
    assert "It failed (depth_exceeded): " in answer
    assert "6 deep" in answer
    assert max(int(call.fields["request"]) for call in lm.calls if "request" in call.fields) == 5


@pytest.mark.requirement("H2")
async def test_a_worker_takes_and_gives_what_it_declares(tmp_path: Path) -> None:
    worker = Worker("offer", "You make offers.", tools=("price",), input=Article, output=list[Offer])
    lm = ScriptedLM([calls(("price", {"what": "hat"})), {"result": [{"price": "dear"}]}, {"result": [{"price": 3}]}])
    async with scripted_agent(tmp_path, lm, workers=[worker], tools=[price]) as agent:
        assert await agent.call("offer", Article(name="hat")) == [Offer(price=3)]
    assert [call.fields["name"] for call in lm.calls] == ["hat"] * 3
    assert '"price"' in lm.calls[0].system
    assert "JSON that fits this schema" in lm.calls[0].system
    assert "price: Input should be a valid integer" in told(lm.calls[2])[-1]
    assert "dear" in lm.calls[2].text.partition("could not be used")[2]  # its own answer, to correct


@pytest.mark.requirement("H2")
async def test_a_shape_is_called_by_a_worker_as_a_function_is(tmp_path: Path) -> None:
    async def sell(params: Article, ctx: TaskContext) -> Offer:
        return Offer(price=await ctx.call("price", {"what": params.name}))

    shape = Shape("sell", Article, Offer, sell)
    worker = Worker("seller", "You sell.", tools=("sell",))
    lm = ScriptedLM([calls(("sell", {"name": "hat"})), {"result": "Sold."}])
    async with scripted_agent(tmp_path, lm, workers=[worker], tools=[price], shapes=[shape]) as agent:
        assert await agent.call("seller", {"request": "Go."}) == "Sold."
    assert told(lm.calls[1])[0].endswith('{"price": 3}')


@tool(risk="read_only", capabilities=["prices", "hats"])
async def cost(what: str) -> int:
    return len(what)


@flow(capabilities=["prices"])
async def cheapest(ctx: CallContext) -> int:
    return min(len(found.name) for found in ctx.registry.find("hats"))


@pytest.mark.requirement("H10")
async def test_functions_and_workers_are_found_by_what_they_are_good_for(tmp_path: Path) -> None:
    workers = [Worker("shopper", "You buy.", capabilities=("prices",)), Worker("critic", "You judge.")]
    agent = scripted_agent(tmp_path, answering(), tools=[cost, cheapest], workers=workers)
    with pytest.raises(AgentClosed):
        agent.find("prices")
    async with agent:
        assert {found.name for found in agent.find("prices")} == {"cost", "cheapest", "shopper"}
        assert [found.name for found in agent.find("hats")] == ["cost"]
        assert agent.find("cost") == agent.find("") == ()
        assert set(agent.find("prices")) <= set(agent.functions)
        assert await agent.call("cheapest", {}) == len("cost")


pytestmark = pytest.mark.requirement("H8")


@tool(name="critic", description="judges", risk="read_only")
async def plain(request: str) -> str:
    return f"judged {request}"


@flow(name="critic", description="judges")
async def nested(ctx: CallContext, request: str) -> str:
    return str(await ctx.call("inner", {"request": request}))


@tool(risk="read_only")
async def inner(request: str) -> str:
    return f"judged {request}"


@flow
async def asks(ctx: CallContext, what: dict[str, Any]) -> Any:
    given = await ctx.call("critic", what)
    return given.model_dump() if isinstance(given, BaseModel) else given


async def _handle(params: Nothing, ctx: TaskContext) -> dict[str, Any]:
    return {"text": (await ctx.task("subagent", {"worker": "critic", "request": "it"})).text}


BOSS = Worker("boss", "You ask others.", "asks others", tools=("critic",))
SHAPE = Shape("job", Nothing, Said, _handle)


def reply(call: Any) -> dict[str, Any]:
    fields = call.fields
    if "message" in fields:
        return {"reply": told(call)[-1]} if told(call) else {"reply": "", "calls": json.loads(fields["message"])}
    if "You judge" in call.system:
        return {"result": f"judged {fields['request']}"}
    if told(call):
        return {"result": told(call)[-1].rsplit("\n", 1)[-1]}
    return calls(("critic", json.loads(fields["request"])))


async def every_way(home: Path, critic: Worker | Function) -> dict[str, Any]:
    """What comes of calling `critic` in each way that there is; the callers are the same whatever it is."""
    given: dict[str, Any] = {}
    lm, params = ScriptedLM(reply), {"request": "it"}
    async with scripted_agent(home, lm, workers=[critic, BOSS], tools=[asks, inner], shapes=[SHAPE]) as agent:
        thread = agent.thread("t")
        given["planner"] = (await thread.converse(json.dumps([{"tool": "critic", "arguments": params}]))).text
        given["prompt"] = lm.calls[0].system
        given["history"] = [message.body for message in await thread.history() if message.kind == "result"]
        given["code"] = await agent.call("critic", params)
        given["flow"] = await agent.call("asks", {"what": params})
        result: Any = (await thread.task("subagent", {"worker": "critic", **params})).result
        given["task"] = result.text
        given["worker"] = await agent.call("boss", {"request": json.dumps(params)})
        handled: Any = (await thread.task("job", {})).result
        given["shape"] = handled.text
        with pytest.raises(ParamsInvalid):
            await agent.call("critic", {"wrong": 1})
    return given


@pytest.mark.parametrize("function", [plain, nested], ids=["a tool", "a flow"])
async def test_a_worker_that_becomes_code_changes_no_caller(tmp_path: Path, function: Function) -> None:
    worker = Worker("critic", "You judge.", "judges")
    before = await every_way(tmp_path / "before", worker)
    assert before == (await every_way(tmp_path / "after", function))
    assert before["code"] == before["flow"] == before["task"] == before["worker"] == before["shape"] == "judged it"
