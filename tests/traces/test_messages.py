"""Traces have each message between members: who sent it to whom, introductions and refusals, and no text (H5)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.inbox import Painting
from support.role_specs import spec_of
from worldagent import Policy, Trace, WorldAgent
from worldagent.core.errors import UnknownContact
from worldagent.harness.trace import TraceRecord, read_trace
from worldagent.hosts.cli.trace_text import trace_page, trace_text
from worldagent.members import SEND_RULES, Gateway, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("H5"), pytest.mark.requirement("C9"), pytest.mark.requirement("C3")]

SECRET = "The menu has dragons"
RESPONSE = {"interface_spec": None, "usage_advice": SECRET}


def answering(call: ScriptedCall) -> dict[str, Any]:
    """A World Agent that writes to the CRO and to an id that it made up."""
    if "You called" in call.text or "task" in call.fields:
        return {"reply": "Good.", "result": "Done."}
    sends = [
        ("send_message", {"to": "cro", "content": SECRET}),
        ("send_message", {"to": f"{SECRET} at night", "content": SECRET}),
    ]
    return {"reply": "", **calls(*sends)}


def society_agent(home: Path, script: Any = answering, **more: Any) -> WorldAgent:
    society, policy = WorkspaceConfig(id="novel", owner="charles"), Policy(rules=SEND_RULES)
    return scripted_agent(home, ScriptedLM(script), society=society, policy=policy, **more)


async def peopled(agent: WorldAgent) -> None:
    """A CRO with a BDR, and legal next to it."""
    for role_id, parent in (("cro", ""), ("bdr", "cro"), ("legal", "")):
        await agent.society.join(spec_of(role_id, parent, workspace="novel"))


def about(record: TraceRecord) -> tuple[Any, ...]:
    return record.kind, record.sender, record.receiver, record.status, record.introduced, record.code


async def without_turn(agent: WorldAgent) -> list[tuple[Any, ...]]:
    """What the traces without a turn have of messages, the oldest first."""
    traces = [await agent.traces.get(each.id) for each in await agent.traces.list() if not each.thread]
    found = [record for trace in reversed(traces) for record in trace.records]
    return [about(record) for record in found if record.sender or record.receiver]


async def test_messages_of_a_turn_are_below_the_calls_that_sent_them(tmp_path: Path) -> None:
    async with society_agent(tmp_path) as agent:
        await peopled(agent)
        turn = await agent.thread("t1", account="ana").converse("Hello")
        trace = await agent.traces.get(turn.id)
        [letter] = await agent.society.mail.waiting()
    sent, refused = [record for record in trace.records if record.sender]
    assert about(sent) == ("message", "root", "cro", "sent", "", "")
    assert (sent.message, sent.label, sent.chain) == (letter.message.id, "notification", 1)
    # The id that the model made up is any text of a model, so it is not there.
    assert about(refused) == ("refusal", "root", "", "refused", "", "unknown_contact")
    below = {record.id: record for record in trace.records if record.kind == "call"}
    assert [below[each.parent].status for each in (sent, refused)] == ["done", "failed"]
    shown = trace_text(trace)
    assert f"message root to cro, notification, 1 in the chain, {letter.message.id}" in shown
    assert "refusal root to (unknown), unknown_contact" in shown
    page = trace_page(trace)
    assert "root to cro, notification" in page
    assert "root to (unknown), unknown_contact" in page
    assert not [file for file in tmp_path.glob("traces.db*") if SECRET.encode() in file.read_bytes()]


async def test_messages_of_host_code_and_of_the_system_have_traces_without_a_turn(tmp_path: Path) -> None:
    async with society_agent(tmp_path) as agent:
        await peopled(agent)
        request = {"message_type": "introduction_request", "reason": SECRET, "required_capability": "legal"}
        await agent.society.mail.send("bdr", "cro", payload=request)
        with pytest.raises(UnknownContact):
            await agent.society.mail.send("bdr", "legal", SECRET)
        # No contact of the CRO fits, so its turn is for a model; host code asks on and answers for it.
        asked = await agent.society.mail.send("cro", "root", payload=request)
        assert await agent.society.mail.answer(asked.message.id)
        found = await without_turn(agent)
    assert found == [
        ("introduction", "bdr", "cro", "request", "", ""),
        ("refusal", "bdr", "legal", "refused", "", "unknown_contact"),
        ("introduction", "cro", "root", "request", "", ""),
        ("introduction", "root", "cro", "introduced", "legal", ""),
    ]


async def test_a_referral_and_the_answer_that_is_forwarded_say_who_introduced_whom(tmp_path: Path) -> None:
    async with society_agent(tmp_path) as agent:
        await peopled(agent)
        society = agent.society
        request = {"message_type": "introduction_request", "reason": SECRET, "required_capability": "legal"}
        asked = await society.mail.send("bdr", "cro", payload=request)
        assert not await society.mail.answer(asked.message.id)
        referral = await society.mail.send("cro", "root", payload=request, answers=asked.message.id)
        await society.mail.answer(referral.message.id)
        await society.mail.ended(asked.message.id)
        [answer] = [each for each in await society.mail.waiting() if each.message.to_id == "cro"]
        assert await society.mail.answer(answer.message.id)
        found = await without_turn(agent)
    assert found == [
        ("introduction", "bdr", "cro", "request", "", ""),
        ("introduction", "cro", "root", "referral", "", ""),
        ("introduction", "root", "cro", "introduced", "legal", ""),
        ("introduction", "cro", "bdr", "introduced", "legal", ""),
    ]


async def test_a_request_that_no_turn_answers_is_declined_in_a_trace_without_a_turn(tmp_path: Path) -> None:
    async with society_agent(tmp_path) as agent:
        await peopled(agent)
        request = {"message_type": "introduction_request", "reason": SECRET, "required_capability": "poetry"}
        await agent.society.mail.send("bdr", "cro", payload=request)
        assert await Gateway(agent).deliver() == 1
        found = await without_turn(agent)
    assert found[-1] == ("introduction", "cro", "bdr", "declined", "", "")


async def test_texts_of_messages_are_kept_if_inputs_are_captured(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    async with society_agent(tmp_path / "home", trace=Trace.to(file, capture={"inputs"})) as agent:
        await peopled(agent)
        turn = await agent.thread("t1").converse("Hello")
        [kept] = [each for each in (await agent.traces.get(turn.id)).records if each.kind == "message"]
    assert kept.inputs == {"content": SECRET, "payload": {}}
    assert [each.inputs for each in read_trace(file).records if each.kind == "message"] == [kept.inputs]


async def test_readers_skip_kinds_that_they_do_not_know(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    async with society_agent(tmp_path / "home", trace=Trace.to(file)) as agent:
        await peopled(agent)
        await agent.thread("t1").converse("Hello")
    before = read_trace(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    [message] = [json.loads(line) for line in lines if '"kind":"message"' in line]
    file.write_text("\n".join([*lines, json.dumps(message | {"kind": "telegram"})]) + "\n", encoding="utf-8")
    assert read_trace(file) == before


@pytest.mark.requirement("T15")
async def test_a_message_that_a_turn_reads_while_it_runs_is_where_it_was_read(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana", name="Ana")
        async with thread.stream("Paint the door.") as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            await thread.steer(SECRET)
            painting.may.set()
            turn = await stream.wait()
        trace = await agent.traces.get(turn.id)
        [word] = [message for message in await thread.history() if message.kind == "word"]
    kinds = [record.kind for record in trace.records if record.parent == turn.id]
    assert kinds == ["model", "call", "message", "model"]
    shown = f"message from Ana, steer, read before step 1, {word.id}"
    assert shown in trace_text(trace)
    assert word.id in trace_page(trace)
    assert SECRET not in trace_text(trace)
