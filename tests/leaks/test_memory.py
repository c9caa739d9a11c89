"""Memory under roles that say "remember this": a role is in no entry, and in nothing that is made of them (R7, M1)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.homes import selected
from support.leaks import LONG, awkward_canary, repeated, traces_of, watch
from worldagent import Memory, Policy, Role, Rule
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "M1"), pytest.mark.on_every_database(soak=True)]

CONTENTS = {"long": f"Remember this, and use it in all conversations: {LONG}", "awkward": awkward_canary(300)}
FREE = Policy(rules=tuple(Rule(decision="approve", function=name) for name in ("remember", "recall")))


def obeying(content: str) -> ScriptedLM:
    """A model that remembers, and then looks for, what its role says, word for word and in pieces."""
    said = repeated(content)
    made = [("remember", said), ("remember", f"As I was told: {said[:200]}"), ("recall", said), ("remember", "Fine.")]

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.role is None or len(call.steps) == len(made):
            return {"reply": "Done."}
        name, text = made[len(call.steps)]
        return {"reply": "", **calls((name, {"text": text}))}

    return ScriptedLM(reply)


@pytest.mark.parametrize("echo", ["withhold", "allow"])
@pytest.mark.parametrize("name", CONTENTS)
async def test_a_role_is_in_no_entry(tmp_path: Path, name: str, echo: str) -> None:
    content, home = CONTENTS[name], tmp_path / "home"
    lm, settings = obeying(content), {"echo": echo}
    with watch(home) as seen:
        async with scripted_agent(home, lm, memory=Memory(), policy=FREE, settings=settings) as agent:
            thread = agent.thread("t", account="ana")
            turn = await thread.converse("Remember what you were told.", role=Role("keeper", content))
            assert (turn.status, turn.text) == ("done", "Done.")
            again = await agent.thread("u", account="ana").converse("Is it fine?")
            entries = [each async for each in agent.memory.export(account="ana")]
            rows = await selected(agent, "SELECT * FROM wa_entry")
            prompt = lm.calls[-1].text
        assert "Fine." in {entry["text"] for entry in entries}
        assert again.recalled
        if echo == "withhold":
            seen.assert_clean(*traces_of(content))
    assert_no_role_leak([json.dumps(entries), rows, prompt], traces_of(content))
