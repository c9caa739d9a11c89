"""What is captured, and that no role ever is: in JSON Lines, in the home's database, in spans, in memory (H5, R7)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Said, answering, asks_the_critic, scripted_agent
from support.leaks import LONG, SHORT, TracePlaces, awkward_canary
from support.shop import Order
from worldagent import Role
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.harness.trace import Trace
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("H5", "R7")


@tool(risk="read_only", capture=True)
async def open_door(name: str) -> str:
    return f"the door of {name} is open"


@tool(risk="read_only")
async def shut_door(name: str) -> str:
    return f"the door of {name} is shut"


class Everywhere(TracePlaces):
    """All places that traces can go to, and the database of the home, which is their folder."""

    def everything(self) -> list[Any]:
        files = [file for file in self.folder.rglob("*") if file.is_file() and not file.name.startswith("roles.db")]
        assert {self.file.name, "traces.db"} <= {file.name for file in files}
        return [[file.read_bytes() for file in files], *self.in_memory()]

    def text(self) -> str:
        return repr(self.everything())


def sent_in(call: ScriptedCall) -> list[dict[str, str]]:
    """The messages as the model got them."""
    said = [{"role": role, "content": content} for role, content in call.messages]
    return [{"role": "system", "content": call.system}, *said]


async def test_inputs_and_outputs_are_those_of_functions_that_allow_it(tmp_path: Path) -> None:
    trace = Trace(capture={"inputs", "outputs"})
    async with scripted_agent(tmp_path, answering(), tools=[open_door, shut_door], trace=trace) as agent:
        await agent.call("open_door", {"name": "ana"})
        await agent.call("shut_door", {"name": "bob"})
        shut, opened = [await agent.traces.get(each.id) for each in await agent.traces.list()]
    [call] = [record for record in opened.records if record.kind == "call"]
    assert (call.inputs, call.outputs) == ({"name": "ana"}, "the door of ana is open")
    [call] = [record for record in shut.records if record.kind == "call"]
    assert (call.inputs, call.outputs) == (None, None)


async def test_a_captured_prompt_is_what_the_model_got_but_for_the_role(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, trace=Trace(capture=["prompts"])) as agent:
        turn = await agent.thread("t1").converse("Hello there", role=Role("x", SHORT))
        [model] = [record for record in (await agent.traces.get(turn.id)).records if record.kind == "model"]
    sent = sent_in(lm.calls[0])
    mark = f"[role: {len(SHORT)} characters]"
    assert mark in json.dumps(model.prompt)
    assert json.loads(json.dumps(sent).replace(SHORT, mark)) == model.prompt


ROLES = pytest.mark.parametrize("content", [SHORT, awkward_canary(300)], ids=["short", "awkward"])


@ROLES
async def test_no_role_is_in_a_trace_of_turns_that_succeed_and_fail(tmp_path: Path, content: str) -> None:
    def reply(call: ScriptedCall) -> Any:
        if "Fail" in call.fields.get("message", ""):
            raise RuntimeError("down")
        return asks_the_critic(call)

    places = Everywhere(tmp_path)
    lm, more = ScriptedLM(reply), {"model_attempts": 2}
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], trace=places.trace(), settings=more) as agent:
        thread, role = agent.thread("t1"), Role("zebra-name", content)
        await thread.converse("Hello", role=role)
        with pytest.raises(WorldAgentError):
            await thread.converse("Fail", role=role)
        await agent.thread("t2").task("subagent", {"worker": "critic", "request": "Judge this."}, role=role)
    assert any(call.fields.get("role") == content for call in lm.calls), "the role reached no model"
    assert f"[role: {len(content)} characters]" in places.text()
    assert_no_role_leak(places.everything(), content)
    assert "zebra-name" not in places.text()


@ROLES
async def test_trace_of_a_resumed_turn_has_no_role(tmp_path: Path, content: str) -> None:
    @tool(approval=True, capture=True)
    async def pay(what: str) -> str:
        return f"paid for the {what}"

    places = Everywhere(tmp_path)

    async def shop(params: Order, ctx: TaskContext) -> Said:
        return Said(text=await ctx.call("pay", {"what": params.what}))

    shape = Shape("shop", Order, Said, shop)
    async with scripted_agent(tmp_path, answering(), tools=[pay], shapes=[shape], trace=places.trace()) as agent:
        thread, role = agent.thread("t1"), Role("zebra-name", content)
        turn = await thread.task("shop", {"what": "hat"}, role=role)
        assert turn.status == "paused"
        await thread.resume({turn.pauses[0].id: Approve()}, role=role)
        await thread.converse("Hello", role=role)
    assert "paid for the hat" in places.text()
    assert_no_role_leak(places.everything(), content)


async def test_a_message_that_was_made_a_role_is_withheld_from_captured_prompts(tmp_path: Path) -> None:
    places = Everywhere(tmp_path)
    async with scripted_agent(tmp_path, answering(), trace=places.trace()) as agent:
        thread = agent.thread("t1")
        await thread.converse(LONG)
        turn = await thread.converse("And now?", role=Role("x", LONG))
        [model] = [record for record in (await agent.traces.get(turn.id)).records if record.kind == "model"]
    assert LONG not in json.dumps(model.prompt)
    assert "[role withheld]" in json.dumps(model.prompt)
