"""Examples of turns with roles: a role is in none of their rows, and in nothing that is made of them (R7)."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt import BootstrapFewShot
from pydantic import BaseModel

from support.agents import CRITIC, Ask, Nothing, Said, scripted_agent
from support.homes import selected
from support.leaks import LONG, SHORT, awkward_canary, repeated, traces_of, watch
from worldagent import Role, Tier, WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import module_shape
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "R12"), pytest.mark.on_every_database(soak=True)]

CONTENTS = {"short": SHORT, "long": LONG, "awkward": awkward_canary(300)}


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look something up."""
    return f"Found: {what}"


async def _review(params: Nothing, ctx: TaskContext) -> Said:
    assert ctx.entry is not None
    said = str((await ctx.predict(ctx.entry, message="Well?"))["reply"])
    await ctx.call("critic", {"request": said})
    return Said(text=said)


class Asked(BaseModel):
    message: str = "Well?"


class Replied(BaseModel):
    reply: str


def parrot(content: str) -> ScriptedLM:
    """A model that repeats its role, in calls too, and hands it on to a worker without one."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        said = repeated(content) if call.role is not None and content is not SHORT else "Fine."
        if "request" in call.fields:
            return {"result": call.fields["request"]}
        if "Reply to the message" not in call.system:
            return {"reply": said}
        if call.steps or "look" not in call.user:
            return {"reply": said, "calls": []}
        calls = [{"tool": "look", "arguments": {"what": said}}, {"tool": "critic", "arguments": {"request": said}}]
        return {"reply": said, "calls": calls}

    return ScriptedLM(reply)


async def turned(agent: WorldAgent, content: str, said: str) -> None:
    """Turns with the role of a call, of the account, and of a thread on which a person says something."""
    role, thread = Role("keeper", content, applies_to="*"), agent.thread("t", account="ana")
    await thread.converse("Please look.", role=role)
    await thread.task("subagent", {"worker": "critic", "request": "Judge it."}, role=role)
    await thread.task("review", {}, role=role)
    await thread.task("module", {}, role=role)
    await agent.roles.put(Tier.ACCOUNT, Role("keeper", content), scope_id="ana")
    await thread.converse("Please look again.")
    typed = agent.thread("typed")
    typed.role.set(role)
    await typed.converse(said)
    await typed.converse("And now look.")


@pytest.mark.parametrize("echo", ["disclosure", "strict", "allow"])
@pytest.mark.parametrize("name", CONTENTS)
async def test_a_role_is_in_no_example(tmp_path: Path, name: str, echo: str) -> None:
    content, home, file = CONTENTS[name], tmp_path / "home", tmp_path / "converse.json"
    lm, settings = parrot(content), {"examples": "all", "echo": echo}
    module = module_shape("module", dspy.Predict(Ask), params=Asked, result=Replied, entry=Ask)
    shapes = [Shape("review", Nothing, Said, _review, entry=Ask), module]
    with watch(home) as seen:
        async with scripted_agent(home, lm, workers=[CRITIC], tools=[look], shapes=shapes, settings=settings) as agent:
            # What a person types is in the log; a short text of it can be anything.
            await turned(agent, content, "Hello" if echo != "allow" or content is SHORT else content)
            examples = await agent.examples()
            assert {example.signature for example in examples} == {"Converse", "critic", "Ask"}
            assert len([example for example in examples if example.signature == "Ask"]) == 2
            rows = await selected(agent, "SELECT * FROM wa_example")
            program = agent.program("Converse")
        assert any(call.role is not None and content in call.text for call in lm.calls)
        with dspy.context(lm=ScriptedLM(lambda call: {"reply": "Fine."})):
            trained = BootstrapFewShot(max_bootstrapped_demos=2, max_labeled_demos=8).compile(
                program, trainset=[example for example in examples if example.signature == "Converse"]
            )
        trained.save(file)
        if echo != "allow":
            seen.assert_clean(*traces_of(content))
    made = [rows, [json.dumps(example.toDict()) for example in examples], [str(example) for example in examples], file]
    assert_no_role_leak(made, traces_of(content))


async def test_a_short_role_that_a_model_repeats_is_in_no_example(tmp_path: Path) -> None:
    role, file = Role("keeper", SHORT, applies_to="*"), tmp_path / "converse.json"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        said = f"As a {SHORT} I say: fine."
        if "request" in call.fields:
            return {"result": said}
        calls = [{"tool": "look", "arguments": {"what": said}}, {"tool": "critic", "arguments": {"request": said}}]
        return {"reply": said, "calls": [] if call.steps else calls}

    lm = ScriptedLM(reply, form="native")
    async with scripted_agent(
        tmp_path / "home", lm, workers=[CRITIC], tools=[look], settings={"examples": "all"}
    ) as agent:
        turns = [await agent.thread("t").converse("Please look.", role=role) for _ in range(2)]
        examples = await agent.examples()
        rows = await selected(agent, "SELECT * FROM wa_example")
        program = agent.program("Converse")
    assert all(SHORT in turn.text for turn in turns)  # the conversation has what the model said
    assert {example.signature for example in examples} == {"Converse", "critic"}
    program.predict.demos = examples
    program.save(file)
    assert_no_role_leak([rows, [json.dumps(example.toDict()) for example in examples], file], SHORT)
