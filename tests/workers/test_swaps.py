"""Who calls a worker does not see whether it is a model or code (H8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Nothing, calls, scripted_agent, told
from worldagent.core.errors import ParamsInvalid
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H8")


class Text(BaseModel):
    text: str


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
SHAPE = Shape("job", Nothing, Text, _handle)


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
    after = await every_way(tmp_path / "after", function)
    assert before == after
    assert before["code"] == before["flow"] == before["task"] == before["worker"] == before["shape"] == "judged it"


@pytest.mark.requirement("H9")
async def test_code_in_a_workers_place_is_asked_for_once_where_it_needs_leave(tmp_path: Path) -> None:
    done: list[str] = []

    @tool(name="critic", description="judges", risk="write")
    async def critic(request: str) -> str:
        done.append(request)
        return "judged"

    dispatch = {"reply": "", "calls": [{"tool": "critic", "arguments": {"request": "it"}}]}
    lm = ScriptedLM([dispatch, {"reply": "Done."}])
    async with scripted_agent(tmp_path, lm, workers=[critic]) as agent:
        turn = await agent.thread("t").converse("Go")
        [pause] = turn.pauses
        assert (pause.function, pause.arguments, done) == ("critic", {"request": "it"}, [])
    async with scripted_agent(tmp_path, lm, workers=[critic]) as agent:
        turn = await agent.thread("t").resume({pause.id: Approve()})
        assert (turn.status, turn.text, done) == ("done", "Done.", ["it"])
