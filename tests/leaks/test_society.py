"""A role that a model repeats in its messages to members is nowhere: not in a mailbox, an event or a trace (R7, H5)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.leaks import awkward_canary, repeated, traces_of, watch
from support.role_specs import spec_of
from worldagent import Policy, Role
from worldagent.core import events as ev
from worldagent.harness.trace import JsonLinesTrace, Trace
from worldagent.members import SEND_RULES, Gateway, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("R7", "H5"), pytest.mark.on_every_database(soak=True)]


def repeating(call: ScriptedCall) -> dict[str, Any]:
    """A World Agent that puts its role into each field of a message, and members that answer."""
    if call.role is None or call.steps:
        return {"reply": "Done.", "result": "Done."}
    said = repeated(call.role)
    asks = {"message_type": "introduction_request", "payload": {"reason": said, "required_capability": said}}
    sends: list[tuple[str, dict[str, Any]]] = [
        ("send_message", {"to": "cro", "content": said}),
        ("send_message", {"to": call.role, "content": said}),
        ("send_message", {"to": "cro", "content": said, "answers": call.role[:100], "reason": said}),
        ("send_message", {"to": "cro", **asks}),
        ("request_role", {"to": call.role[:100], "content": said}),
    ]
    return {"reply": "", **calls(*sends)}


async def test_a_role_that_a_model_sends_to_members_is_nowhere(tmp_path: Path) -> None:
    role, lm = awkward_canary(200, seed="members"), ScriptedLM(repeating)
    more: dict[str, Any] = {
        "society": WorkspaceConfig(id="novel", owner="charles"),
        "policy": Policy(rules=SEND_RULES),
    }
    with watch(tmp_path / "home") as seen:
        trace = Trace(sinks=(JsonLinesTrace(seen.home / "traced.jsonl"),), capture=("inputs", "outputs"))
        async with scripted_agent(seen.home, lm, trace=trace, **more) as agent:
            await agent.society.join(spec_of("cro", workspace="novel"))
            async with agent.thread("t").stream("Write.", role=Role("quiet", role)) as stream:
                events = [event async for event in stream]
            waiting = await agent.society.mail.waiting()
            for _ in range(5):
                if not await Gateway(agent).deliver():
                    break
            listed = await agent.traces.list()
            traces = [await agent.traces.get(each.id) for each in listed]
            seen.kept.append([events, waiting, traces])
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert any(call.role == role for call in lm.calls), "the role never reached the model"
    assert [event.sender for event in events if isinstance(event, ev.MessageSent)]
    assert [event.code for event in events if isinstance(event, ev.MessageRefused)]
    assert {record.kind for trace in traces for record in trace.records} >= {"message", "refusal"}


@pytest.mark.requirement("A21")
async def test_a_role_of_a_turn_in_which_a_member_speaks_is_nowhere(tmp_path: Path) -> None:
    role, config = awkward_canary(200, seed="handed"), WorkspaceConfig(id="novel", owner="charles")
    lm = ScriptedLM(lambda call: {"reply": "Done." if call.role is None else repeated(call.role)})
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(seen.home, lm, society=config) as agent:
            await agent.society.join(spec_of("cro", workspace="novel"))
            thread = agent.thread("t", account="ana")
            await thread.converse("Hello.")
            await thread.hand_over("cro")
            async with thread.stream("Write.", role=Role("quiet", role)) as stream:
                events = [event async for event in stream]
            seen.kept.append([events, await thread.history(), await thread.state()])
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert [call.role for call in lm.calls] == [None, role]
    assert "You are cro." in lm.calls[1].system
