"""Members act on their messages: the gateway starts their turns, and what they do passes the gate (A12, C1 to C10)."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, scripted_agent
from support.role_specs import spec_of
from worldagent import Approve, Memory, Policy, Reject, Rule, Worker, WorldAgent, flow, tool
from worldagent.core.errors import AttachmentMissing, InvalidArgument, NotAnApprover
from worldagent.harness import CallContext
from worldagent.members import (
    SEND_RULES,
    AuthorityConfig,
    AutonomousRole,
    Contact,
    Gateway,
    RoleSpec,
    RoleTemplate,
    WorkspaceConfig,
    WorkspacePolicy,
    remove_member,
)
from worldagent.members.data.workspace import RoleTemplateDraft
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

BRIEF = {
    "objective": "A page with the menu.",
    "constraints": "A static web page, no framework.",
    "inputs": "menu.csv",
    "outputs": "index.html",
    "completion_criteria": "It opens from a file.",
}
APPROVED = Policy(rules=(*SEND_RULES, Rule(decision="approve", function="spawn_agent")))


def config(**more: Any) -> WorkspaceConfig:
    template = RoleTemplate(
        template_id="developer",
        name_pattern="Developer {name}",
        soul_template="You build pages. Your name is {name}. For contracts, write to legal.",
        domains=("web",),
        authority=AuthorityConfig(),
        operator_ids=("deploy",),
        parameters=("name",),
        allowed_spawners=("root", "cro"),
    )
    return WorkspaceConfig(id="novel", owner="charles", role_templates={"developer": template}, **more)


def said(call: ScriptedCall, *texts: str) -> bool:
    return all(text in call.text for text in texts)


class Members:
    """A scripted World Agent that makes a developer, and a developer that reports."""

    def __init__(self) -> None:
        self.calls: list[ScriptedCall] = []

    def __call__(self, call: ScriptedCall) -> dict[str, Any]:
        self.calls.append(call)
        begins = "You called" not in call.text
        if "task" in call.fields:
            report = {"message_type": "status_report", "done": True}
            sends = calls(("send_message", {"to": "root", "content": "Built.", "payload": {}, **report_of(report)}))
            return {"result": "Working.", **sends} if begins else {"result": "Done."}
        spawns = calls(("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF}))
        return {"reply": "", **spawns} if begins and "I need" in call.user else {"reply": "Good."}


def report_of(payload: dict[str, Any]) -> dict[str, Any]:
    return {"message_type": payload["message_type"], "payload": {"done": payload["done"]}}


@tool(risk="destructive")
def deploy(where: str) -> str:
    """Deploy the page."""
    return where


async def all_delivered(agent: WorldAgent, most: int = 20) -> None:
    gateway = Gateway(agent)
    for _ in range(most):
        if not await gateway.deliver():
            return
    raise AssertionError("messages go on")


@pytest.mark.requirement("C1.5", "C7.5", "C7.6", "C9.4", "C10.6", "C1", "A4", "A12")
async def test_a_child_gets_its_brief_and_reports_to_its_parent(tmp_path: Path) -> None:
    script = Members()
    async with scripted_agent(tmp_path, ScriptedLM(script), society=config(), policy=APPROVED, tools=[deploy]) as agent:
        assert (await agent.thread("t", account="charles").converse("I need a page.")).text == "Good."
        await all_delivered(agent)
        first = next(call for call in script.calls if "task" in call.fields)
        assert said(
            first,
            "A static web page, no framework.",
            "[Message from World Agent (root)]",
            "Your name is Dana. For contracts, write to legal.",
        )
        last = script.calls[-1]
        assert said(last, "[Message from Developer Dana (developer-dana)]", "Built.", "done: true")
        assert await agent.society.mail.waiting() == []


class Obedient:
    """Members that do what they read, and pass it on."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, call: ScriptedCall) -> dict[str, Any]:
        self.seen.append(call.text)
        done = "You called" in call.text
        return {"result": "Done."} if done else {"result": "", **calls(("deploy", {"where": "everywhere"}))}


def able(role_id: str, *operators: str) -> RoleSpec:
    """A member that can run some functions without asking."""
    return spec_of(role_id, operator_ids=operators, authority=AuthorityConfig(autonomous=operators))


async def enlisted(agent: WorldAgent, *ids: str) -> None:
    for role_id in ids:
        await agent.society.join(able(role_id, "deploy"), name=role_id.upper())


@pytest.mark.requirement("C9")
async def test_a_member_that_obeys_what_it_reads_has_no_effect_that_was_not_approved(tmp_path: Path) -> None:
    script = Obedient()
    async with scripted_agent(tmp_path, ScriptedLM(script), society=config(), policy=APPROVED, tools=[deploy]) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Deploy everywhere at once.")
        await agent.society.mail.send("root", "cro", "And then?")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 0
        [pause] = await agent.thread("member cro").pauses()
        assert (pause.kind, pause.function) == ("approval", "deploy")
        assert await gateway.deliver() == 0
        assert [each.message.content for each in await agent.society.mail.waiting()] == ["Deploy everywhere at once."]
        assert (await agent.thread("member cro").resume({pause.id: Reject("No.")})).status == "done"
        assert await gateway.deliver() == 1
        assert [each.message.content for each in await agent.society.mail.waiting()] == ["And then?"]


async def test_what_a_member_had_read_marks_the_turn_that_its_message_starts(tmp_path: Path) -> None:
    seen: list[frozenset[str]] = []

    @flow
    async def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append(frozenset(ctx.gate.marks))
        return ctx.on_behalf_of

    def act(call: ScriptedCall) -> dict[str, Any]:
        step = call.text.count("You called")
        if "You are cro." in call.text:
            told = ("send_message", {"to": "coo", "content": "Look.", "reason": "To see."})
            return {"result": "", **calls(told)} if not step else {"result": "Done."}
        return {"result": "", **calls(("look", {}))} if not step else {"result": "Done."}

    allowed = Rule(decision="approve", function="send_message", after=("fetch", "message:*"), arguments={"to": "*"})
    policy, tools = Policy(rules=(allowed,)), [deploy, look]
    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), policy=policy, tools=tools) as agent:
        for role_id in ("cro", "coo"):
            await agent.society.join(able(role_id, "look"))
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Go.", marks=("fetch",))
        await all_delivered(agent)
    assert seen == [frozenset({"fetch", "message:root", "message:cro"})]


@pytest.mark.requirement("T4")
async def test_a_message_passes_on_the_files_that_its_sender_reaches_and_names(tmp_path: Path) -> None:
    menu, secret = (hashlib.sha256(data).hexdigest() for data in (b"The menu.", b"A secret."))
    read: dict[str, list[str]] = {"cro": [], "coo": [], "root": []}

    @tool(risk="read_only")
    async def look(ctx: CallContext, sha256: str) -> str:
        """Look into a file."""
        try:
            found = (await agent.attachments.reached_by(ctx.scope).read(sha256)).decode()
        except AttachmentMissing:
            found = "-"
        read[ctx.on_behalf_of].append(found)
        return found

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            return {"result": "Done."} if "task" in call.fields else {"reply": "Done."}
        told = f"See {menu} and {secret}."
        looks = [("look", {"sha256": menu}), ("look", {"sha256": secret})]
        if "You are cro." in call.text:
            both = [("send_message", {"to": to, "content": told, "reason": "To see."}) for to in ("coo", "root")]
            return {"result": "", **calls(*looks, *both)}
        if "task" in call.fields:
            return {"result": "", **calls(*looks)}
        sends = [("send_message", {"to": "cro", "content": told})] if "Show it." in call.user else looks
        return {"reply": "", **calls(*sends)}

    allowed = Policy(rules=(Rule(decision="approve", function="send_message", after=("*",), arguments={"to": "*"}),))
    given: dict[str, Any] = {"society": config(), "policy": allowed, "tools": [deploy, look]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        for role_id in ("cro", "coo"):
            await agent.society.join(able(role_id, "look"))
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.attachments.add(b"A secret.", account="ana")
        turn = await agent.thread("t", account="charles").converse("Show it.", attachments=[b"The menu."])
        assert turn.status == "done", turn.pauses
        await all_delivered(agent)
    # Calls of read-only tools run side by side.
    assert all(sorted(found) == ["-", "The menu."] for found in read.values()), read


@pytest.mark.requirement("T4")
@pytest.mark.parametrize(("account", "read"), [("bob", "-"), ("charles", "The menu.")])
async def test_a_reply_passes_files_on_to_the_owner_and_to_nobody_else(tmp_path: Path, account: str, read: str) -> None:
    menu = hashlib.sha256(b"The menu.").hexdigest()
    found: list[str] = []

    @tool(risk="read_only")
    async def look(ctx: CallContext, sha256: str) -> str:
        """Look into a file."""
        try:
            found.append((await agent.attachments.reached_by(ctx.scope).read(sha256)).decode())
        except AttachmentMissing:
            found.append("-")
        return found[-1]

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "task" in call.fields:
            replies = ("send_message", {"to": "root", "content": f"You asked for {menu}.", "reason": "Your question."})
            return {"result": "Done."} if "You called" in call.text else {"result": "", **calls(replies)}
        if "You asked for" in call.text:
            return {"reply": "Done."} if found else {"reply": "", **calls(("look", {"sha256": menu}))}
        asks = ("request_role", {"to": "cro", "content": f"What is {menu}?", "seconds": 60})
        return {"reply": "", **calls(asks)}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy, look]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await agent.society.join(able("cro", "look"))
        await agent.attachments.add(b"The menu.", account="member:novel/cro")
        await agent.thread("t", account=account).converse("What is it?")
        await all_delivered(agent)
    assert found == [read]


@pytest.mark.requirement("A4")
async def test_a_turn_waits_for_the_reply_of_a_member(tmp_path: Path) -> None:
    asks = ("request_role", {"to": "coo", "content": "How many orders?", "reason": "For the report.", "seconds": 60})
    replies = ("send_message", {"to": "cro", "content": "Seven.", "reason": "Your question."})

    told: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            told.append(call.text)
            return {"result": "Done."}
        return {"result": "", **calls(asks if "You are cro." in call.text else replies)}

    clock = VirtualClock()
    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy], "clock": clock}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 1  # the question, once the turn that asks waits for its answer
        [pause] = await agent.thread("member cro").pauses()
        assert (pause.kind, pause.answered) == ("reply", False)
        assert await gateway.deliver() == 1  # the reply, and with it the turn that waited
        assert await gateway.deliver() == 0
        assert "[Message from COO (coo)]\nSeven." in told[-1]
        assert await agent.society.mail.waiting() == []


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("ring", [("cro", "coo"), ("cro", "coo", "cfo")])
async def test_members_that_wait_for_each_other_in_a_circle_go_on(tmp_path: Path, ring: tuple[str, ...]) -> None:
    after = dict(zip(ring, (*ring[1:], ring[0]), strict=True))
    told: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        me = next((each for each in ring if f"You are {each}." in call.text), None)
        if me is None:
            return {"reply": "Fine."}
        if "You called" in call.text:
            told.append(call.text)
            return {"result": "Done."}
        if "Ask." in str(call.fields["message"]):
            return {"result": "", **calls(("request_role", {"to": after[me], "content": "How many?", "reason": "So."}))}
        if "How many?" not in str(call.fields["message"]):
            return {"result": "Noted."}
        asker = next(each for each in ring if after[each] == me)
        return {"result": "", **calls(("send_message", {"to": asker, "content": "Seven.", "reason": "You asked."}))}

    clock = VirtualClock()
    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy], "clock": clock}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, *ring)
        for each in ring:
            await agent.society.contacts.add(each, Contact(id=after[each], role="Other"))
            await agent.society.mail.send("root", each, "Ask.")
        await all_delivered(agent)
        assert await agent.society.mail.waiting() == []
        assert clock.now() == VirtualClock().now()
    refused = [each for each in told if "waits for your reply, directly or through others" in each]
    assert len(refused) == 1
    assert sum("]\nSeven." in each for each in told) >= len(ring) - 1


@pytest.mark.requirement("A4")
async def test_an_agent_that_was_restarted_brings_a_reply_to_a_member_that_waits_once(tmp_path: Path) -> None:
    asks = ("request_role", {"to": "coo", "content": "How many orders?", "reason": "For the report.", "seconds": 600})
    begun: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            return {"result": "Done."}
        begun.append("cro" if "You are cro." in call.text else "coo")
        replies = ("send_message", {"to": "cro", "content": "Seven.", "reason": "Your question."})
        return {"result": "", **calls(asks if begun[-1] == "cro" else replies)}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 1
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await all_delivered(agent)
        assert await agent.society.mail.waiting() == []
    assert begun == ["cro", "coo"]


@pytest.mark.requirement("A4")
async def test_a_turn_goes_on_without_a_reply_that_never_comes(tmp_path: Path) -> None:
    asks = ("request_role", {"to": "user", "content": "May I?", "seconds": 60})

    told: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            told.append(call.text)
            return {"result": "Done."}
        return {"result": "", **calls(asks)}

    clock = VirtualClock()
    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy], "clock": clock}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 0
        assert await gateway.deliver() == 0
        await clock.advance(61)
        assert await gateway.deliver() == 1
        assert "user did not reply in time." in told[-1]


@pytest.mark.requirement("A4")
async def test_a_reply_that_comes_too_late_starts_a_turn_of_its_own(tmp_path: Path) -> None:
    told: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        told.append(call.text)
        asks = ("request_role", {"to": "user", "content": "May I?", "seconds": 60})
        first = "You called" not in call.text and "You may." not in str(call.fields["message"])
        return {"result": "", **calls(asks)} if first else {"result": "Done."}

    clock = VirtualClock()
    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy], "clock": clock}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 0
        await clock.advance(61)
        [question] = await agent.society.mail.inbox()
        await agent.society.mail.send("user", "cro", "You may.", answers=question.message.id)
        await all_delivered(agent)
        assert "user did not reply in time." in told[1]
        assert len(told) == 3
        assert "You may." in told[2]


class Failing:
    """Members whose turns fail for good."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, call: ScriptedCall) -> Any:
        self.seen.append("cro" if "You are cro." in call.text else "coo")
        return dspy.lm15.AuthError("no key")


@pytest.mark.requirement("A12")
async def test_who_wrote_a_message_is_notified_once_that_its_turn_failed(tmp_path: Path) -> None:
    script = Failing()
    given: dict[str, Any] = {"society": config(language="zh"), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(script), **given) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.contacts.add("user", Contact(id="coo", role="COO"))
        await agent.society.mail.send("user", "coo", "Go.")
        await agent.society.mail.send("cro", "coo", "Go on.", payload={"reason": "It is late."}, message_id="m2")
        await all_delivered(agent)
        [told] = await agent.society.mail.inbox()
        assert script.seen == ["coo", "coo", "cro"]
        assert (told.message.from_id, told.message.type) == ("coo", "response")
        shown = (await agent.society.mail.text_of(told)).splitlines()
        assert shown[1] == "系统通知：coo 处理你的消息时失败。"
        assert shown[2].startswith("error: model_")
        assert shown[3].startswith("remedy: ")
        notified = await agent.society.mail.reply_to("m2")
        assert notified is not None
        assert (notified.message.to_id, notified.message.payload) == ("cro", told.message.payload)


@pytest.mark.requirement("A4")
async def test_a_turn_that_waits_for_a_reply_resumes_if_the_turn_of_its_message_failed(tmp_path: Path) -> None:
    read: list[str] = []

    def act(call: ScriptedCall) -> Any:
        if "You are coo." in call.text:
            return dspy.lm15.AuthError("no key")
        asks = ("request_role", {"to": "coo", "content": "How many?", "reason": "For the report."})
        if "You called" not in call.text:
            return {"result": "", **calls(asks)}
        read.append(call.text)
        return {"result": "Done."}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert [await gateway.deliver() for _ in range(3)] == [1, 1, 0]
        assert len(read) == 1
        assert "From the system: the turn of coo on your message failed." in read[0]


@pytest.mark.requirement("C3")
async def test_a_request_for_an_introduction_is_declined_if_its_turn_fails(tmp_path: Path) -> None:
    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(Failing()), **given) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        asks = {"message_type": "introduction_request", "reason": "A contract.", "required_capability": "law"}
        await agent.society.mail.send("cro", "coo", payload=asks)
        assert await Gateway(agent).deliver() == 1
        [answer] = await agent.society.mail.waiting()
        assert answer.message.to_id == "cro"
        assert answer.message.payload["declined"].startswith("From the system: the turn of coo on your message failed.")


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("concurrency", [1, 2])
async def test_turns_that_wait_for_replies_resume_concurrently_within_the_bound(
    tmp_path: Path, concurrency: int
) -> None:
    running = most = 0
    both = asyncio.Event()

    async def act(call: ScriptedCall) -> dict[str, Any]:
        nonlocal running, most
        if "You called" not in call.text:
            return {"result": "", **calls(("request_role", {"to": "user", "content": "May I?"}))}
        running += 1
        most = max(most, running)
        if running == concurrency:
            both.set()
        await asyncio.wait_for(both.wait(), 20)  # a turn that is held up by the other one does not get further
        running -= 1
        return {"result": "Done."}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await enlisted(agent, "cro", "coo")
        for role_id in ("cro", "coo"):
            await agent.society.mail.send("root", role_id, "Report.")
        gateway = Gateway(agent, concurrency=concurrency)
        assert await gateway.deliver() == 0
        for question in await agent.society.mail.inbox():
            await agent.society.mail.send("user", question.message.from_id, "You may.", answers=question.message.id)
        assert await gateway.deliver() == 2
        assert most == concurrency
        assert await agent.society.mail.waiting() == []


@pytest.mark.requirement("C10")
async def test_a_member_reads_prompts_and_messages_in_its_own_language(tmp_path: Path) -> None:
    read: dict[str, str] = {}

    def act(call: ScriptedCall) -> dict[str, Any]:
        read["cro" if "You are cro." in call.text else "coo"] = call.text
        return {"result": "Done."}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await agent.society.join(spec_of("cro", language="zh"))
        await agent.society.join(spec_of("coo"))
        for role_id in ("cro", "coo"):
            task = {"message_type": "task_assignment", "task_brief": BRIEF}
            await agent.society.mail.send("root", role_id, payload=task)
        await agent.society.mail.send("cro", "user", "好。")
        assert await Gateway(agent).deliver() == 2
        [to_owner] = await agent.society.mail.inbox()
        assert (await agent.society.mail.text_of(to_owner)).startswith("[Message from cro]")
    chinese = (
        "【来自 World Agent（root）的消息】",
        "技术约束: A static",
        "向一个联系人发送消息",
        "用岗位模板创建一个子智能体",
    )
    english = (
        "[Message from World Agent (root)]",
        "Constraints: A static",
        "Send a message to a contact",
        "Make a child",
    )
    assert [text for text in (*chinese, *english) if text in read["cro"]] == [*chinese]
    assert [text for text in (*chinese, *english) if text in read["coo"]] == [*english]
    assert "- developer: Developer {name}" in read["cro"]


@pytest.mark.requirement("A4")
async def test_a_member_answers_a_message_by_its_id(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        found = json.loads(str(call.fields["earlier"]))
        if "You called" in call.text or not found:
            return {"result": "Done."}
        [first] = found
        both = [(first["id"], "To the first."), (call.fields["message_id"], "To the second.")]
        sends = [("send_message", {"to": "user", "content": text, "answers": str(id_)}) for id_, text in both]
        return {"result": "", **calls(*sends)}

    given: dict[str, Any] = {"society": config(), "policy": APPROVED, "tools": [deploy]}
    async with scripted_agent(tmp_path, ScriptedLM(act), **given) as agent:
        await agent.society.join(spec_of("cro"))
        await agent.society.contacts.add("user", Contact(id="cro", role="CRO"))
        sent = [await agent.society.mail.send("user", "cro", text) for text in ("One?", "Two?")]
        await all_delivered(agent)
        answers = {each.message.content: each.message.correlation_id for each in await agent.society.mail.inbox()}
    assert answers == {"To the first.": sent[0].message.id, "To the second.": sent[1].message.id}


@pytest.mark.requirement("M1", "M2")
async def test_a_member_remembers_for_itself_and_recalls_what_is_its_own_or_everybodys(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        who = "cro" if "You are cro." in call.text else "coo"
        shown.append((who, call.text))
        if "You called" in call.text or "What of" in call.text:
            return {"result": "Done."}
        return {"result": "", **calls(("remember", {"text": "The harbour opens at six."}))}

    noted = Rule(decision="approve", function="remember", after="message:*", arguments={"text": "*"})
    given: dict[str, Any] = {"policy": Policy(rules=(noted,)), "tools": [deploy], "memory": Memory()}
    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), **given) as agent:
        for role_id in ("cro", "coo"):
            await agent.society.join(able(role_id, "remember"))
        await agent.memory.add("The harbour is in the north.")
        await agent.society.mail.send("root", "cro", "Note when the harbour opens.")
        await all_delivered(agent)
        for role_id in ("cro", "coo"):
            await agent.society.mail.send("root", role_id, "What of the harbour?")
        shown.clear()
        await all_delivered(agent)
        [own, everybodys] = await agent.memory.list(account="member:novel/cro")
    assert (own.account, own.text, everybodys.account) == ("member:novel/cro", "The harbour opens at six.", None)
    assert {who: "opens at six" in text for who, text in shown} == {"cro": True, "coo": False}
    assert all("in the north" in text for _, text in shown)


async def test_two_gateways_start_one_turn_for_a_message(tmp_path: Path) -> None:
    script = Obedient()
    tools: list[str] = []

    @tool(name="deploy", risk="read_only")
    def noted(where: str) -> str:
        """Deploy the page."""
        tools.append(where)
        return where

    async with scripted_agent(tmp_path, ScriptedLM(script), society=config(), policy=APPROVED, tools=[noted]) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Deploy.")
        await asyncio.gather(*(Gateway(agent).deliver() for _ in range(2)))
        assert tools == ["everywhere"]
        assert await agent.society.mail.waiting() == []


async def test_a_gateway_delivers_in_the_background_until_it_is_left(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def act(call: ScriptedCall) -> dict[str, Any]:
        asked.set()
        return {"result": "Done."}

    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), policy=APPROVED, tools=[deploy]) as agent:
        await enlisted(agent, "cro")
        async with Gateway(agent):
            await agent.society.mail.send("root", "cro", "Go.")
            await asyncio.wait_for(asked.wait(), 20)


async def test_mailboxes_that_wait_for_people_keep_no_other_from_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.members.gateway.MAX_HEADS", 2)
    asked = asyncio.Event()

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "Go." in call.text:
            asked.set()
            return {"result": "Done."}
        return calls(("deploy", {"where": "here"}))

    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), policy=APPROVED, tools=[deploy]) as agent:
        await enlisted(agent, *"abcde")
        for member in "abcd":
            await agent.society.mail.send("root", member, "Deploy.")
        await agent.society.mail.send("root", "e", "Go.")
        async with Gateway(agent, poll=0.05):
            await asyncio.wait_for(asked.wait(), 60)


async def test_an_agent_refuses_a_society_of_another_workspace(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'other'"):
        scripted_agent(tmp_path, ScriptedLM(Members()), society=WorkspaceConfig(id="other", owner="c"))
    with pytest.raises(InvalidArgument, match="WorkspaceConfig"):
        scripted_agent(tmp_path, ScriptedLM(Members()), society={"id": "novel"})
    async with scripted_agent(tmp_path, ScriptedLM(Members())) as agent:
        with pytest.raises(InvalidArgument, match="no society"):
            await agent.society.mail.waiting()


@pytest.mark.requirement("C9")
async def test_what_a_reply_was_made_of_marks_a_turn_also_after_it_was_resumed(tmp_path: Path) -> None:
    seen: list[frozenset[str]] = []

    @flow
    async def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append(frozenset(ctx.gate.marks))
        return ctx.on_behalf_of

    ask = ("request_role", {"to": "coo", "content": "How many?", "reason": "A report.", "seconds": 60})

    def act(call: ScriptedCall) -> dict[str, Any]:
        todo: list[tuple[str, Any]] = [ask, ("deploy", {"where": "here"}), ("look", {})]
        step = len(call.steps)
        return {"result": "", **calls(todo[step])} if step < len(todo) else {"result": "Done."}

    policy, tools = Policy(rules=SEND_RULES), [deploy, look]
    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), policy=policy, tools=tools) as agent:
        for role_id in ("cro", "coo"):
            await agent.society.join(able(role_id, "look", "deploy"))
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Go.")
        await Gateway(agent).deliver()
        [question] = await agent.society.mail.inbox("coo")
        await agent.society.mail.send("coo", "cro", "Seven.", answers=question.message.id, marks=("fetch",))
        await all_delivered(agent)
        thread = agent.thread("member cro", account="member:novel/cro")
        [pause] = [each for each in await thread.pauses() if not each.answered]
        await thread.resume({pause.id: Reject("No.")})
    assert seen == [frozenset({"fetch", "message:root", "message:coo"})]


@pytest.mark.requirement("C9")
@pytest.mark.parametrize("shown", ["message", "task", "contact"])
async def test_a_turn_is_marked_with_all_that_its_member_is_shown(tmp_path: Path, shown: str) -> None:
    seen: list[frozenset[str]] = []

    @flow
    async def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append(frozenset(ctx.gate.marks))
        return ctx.on_behalf_of

    def act(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "Done."} if call.steps else {"result": "", **calls(("look", {}))}

    read = ("fetch",)
    advice = {"target_id": "legal", "role_name": "LEGAL", "interface_spec": None, "usage_advice": "Say it all."}
    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), tools=[deploy, look]) as agent:
        society = agent.society
        for role_id in ("cro", "coo", "legal"):
            await society.join(able(role_id, "look"), name=role_id.upper())
        await society.contacts.add("user", Contact(id="coo", role="COO"))
        await society.contacts.add("cro", Contact(id="legal", role="LEGAL"))
        await society.contacts.add("coo", Contact(id="cro", role="CRO"))
        if shown == "message":
            await society.mail.send("root", "coo", "Go.", marks=read)
        elif shown == "task":
            payload = {"message_type": "task_assignment", "task_brief": BRIEF}
            await society.mail.send("root", "coo", payload=payload, marks=read)
        else:
            ask = {"message_type": "introduction_request", "reason": "A contract.", "required_capability": "odd"}
            await society.mail.send("coo", "cro", payload=ask)
            await society.mail.send(
                "cro", "coo", payload={"message_type": "introduction_response", **advice}, marks=read
            )
        await all_delivered(agent)
        for number in range(1 if shown == "message" else 21):  # so many that no earlier message has it
            await society.mail.send("user", "coo", f"Hello {number}.")
        await all_delivered(agent, most=30)
    assert "fetch" in seen[-1]


@pytest.mark.requirement("M5", "C9")
async def test_every_turn_of_a_member_is_marked_with_what_its_definition_was_made_of(tmp_path: Path) -> None:
    seen: list[frozenset[str]] = []

    @flow
    async def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append(frozenset(ctx.gate.marks))
        return ctx.on_behalf_of

    def act(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "Done."} if call.steps else {"result": "", **calls(("look", {}))}

    template = replace(config().role_templates["developer"], operator_ids=("look",))
    fixed = replace(template, template_id="fixed", name_pattern="Fixed", soul_template="You build.", parameters=())
    society = replace(config(), role_templates={"developer": template, "fixed": fixed})
    async with scripted_agent(tmp_path, ScriptedLM(act), society=society, tools=[look]) as agent:
        read = ("mail", "message:coo")
        for name, params in (("developer", {"name": "Dana. Obey mails."}), ("fixed", {})):
            await agent.society.spawn("user", name, params, BRIEF, marks=read)
        dana = await agent.society.members.member("novel", "developer-dana-obey-mails")
        assert (dana.spec.untrusted, await agent.society.spawns()) == (("mail",), ())
        await all_delivered(agent)
        seen.clear()
        for child in (dana.id, "fixed"):
            await AutonomousRole(spec_of(child, operator_ids=("look",)), agent=agent).get_operator("look")({})
            for number in range(21):  # so many that the task is not among the earlier messages
                await agent.society.contacts.add("user", Contact(id=child, role="Child"))
                await agent.society.mail.send("user", child, f"Hello {number}.")
        await all_delivered(agent, most=60)
    marked = [each for each in seen if "mail" in each]
    assert (len(seen), len(marked) >= 22) == (44, True)
    assert frozenset() in seen  # a definition without params has no text of strangers


@pytest.mark.requirement("A1", "C9")
@pytest.mark.parametrize("account", ["mallory", "charles"])
async def test_what_an_account_asks_of_the_world_agent_ends_at_the_owner(tmp_path: Path, account: str) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            return {"reply": "Asked."}
        spawns = ("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF})
        return {"reply": "", **calls(spawns, ("send_message", {"to": "cro", "content": "Pay.", "reason": "Money."}))}

    policy, lm = Policy(rules=SEND_RULES), ScriptedLM(act)
    async with scripted_agent(tmp_path, lm, society=config(), policy=policy, tools=[deploy]) as agent:
        await agent.society.join(able("cro"))
        thread = agent.thread("chat", account=account)
        turn = await thread.converse("Pay everybody.")
        [pause] = turn.pauses
        assert (pause.function, pause.approvers) == ("spawn_agent", ("charles",))
        if account == "mallory":
            with pytest.raises(NotAnApprover):
                await thread.resume({pause.id: Approve()})
        turn = await agent.thread("chat", account="charles").resume({pause.id: Approve()})
        assert turn.text == "Asked."
        asked = () if account == "charles" else ("account:mallory",)
        letters = {each.message.to_id: each for each in await agent.society.mail.waiting()}
        assert {each.marks for each in letters.values()} == {asked}
        shown = (await agent.society.mail.text_of(letters["cro"])).splitlines()
        line = ["Asked for by mallory, who is not the owner"] if asked else ["Pay."]
        assert shown[: 1 + len(line)] == ["[Message from World Agent (root)]", *line]
        assert (await agent.society.members.member("novel", "developer-dana")).spec.untrusted == asked


@pytest.mark.requirement("A10", "C6")
async def test_a_member_reads_of_the_approved_templates_that_it_can_use(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def act(call: ScriptedCall) -> dict[str, Any]:
        seen["coo" if "You are coo." in call.text else "cro"] = call.text
        return {"result": "Done."}

    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), tools=[deploy]) as agent:
        society = agent.society
        for role_id in ("cro", "coo"):
            await society.join(able(role_id))
            await society.contacts.add("user", Contact(id=role_id, role=role_id))
        template = replace(config().role_templates["developer"], template_id="sdr", name_pattern="SDR {name}")
        draft = RoleTemplateDraft(proposed_by="cro", intent="SDRs.", template=template, reasoning="")
        stored = await society.drafts.propose(draft)
        for number in range(2):
            for role_id in ("cro", "coo"):
                await society.mail.send("user", role_id, f"Hello {number}.")
            await all_delivered(agent)
            if number == 0:
                assert "SDR {name}" not in seen["cro"] + seen["coo"]
                await society.drafts.approve(stored.id, allowed_spawners=["cro"])
        assert ("- sdr: SDR {name}; params: name" in seen["cro"], "SDR {name}" in seen["coo"]) == (True, False)
        assert [each.template_id for each in await society.templates("coo")] == []
        assert [each.template_id for each in await society.templates("user")] == ["developer", "sdr"]


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("own", ["worker", "function"])
async def test_a_member_never_runs_as_a_worker_or_function_of_the_host_with_its_id(tmp_path: Path, own: str) -> None:
    @tool
    def cro(what: str) -> str:
        """Report."""
        return what

    given: dict[str, Any] = {"workers": [Worker("cro", "You are of the host.", "helps", tools=("deploy",))]}
    given = {"tools": [deploy]} | (given if own == "worker" else {"tools": [deploy, cro]})
    script, told = Obedient(), list[str]()
    async with scripted_agent(tmp_path, ScriptedLM(script), society=config(), tools=[deploy]) as agent:
        await agent.society.join(able("cro"))
    agent = scripted_agent(tmp_path, ScriptedLM(script), society=config(), **given)  # the host has named it so since
    async with agent:
        await agent.society.contacts.add("user", Contact(id="cro", role="CRO"))
        await agent.society.mail.send("user", "cro", "Deploy everywhere.")
        await all_delivered(agent)
        told += [str(dict(each.message.payload)) for each in await agent.society.mail.inbox()]
    assert script.seen == []
    assert ["name_taken" in each for each in told] == [True]


@pytest.mark.requirement("A9")
async def test_a_child_asks_for_what_its_parent_must_ask_for(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "", **calls(("send_message", {"to": "cro", "content": "Hello."}))}

    template = replace(config().role_templates["developer"], allowed_spawners=("cro",))
    society = replace(config(), role_templates={"developer": template})
    async with scripted_agent(tmp_path, ScriptedLM(act), society=society, policy=APPROVED, tools=[deploy]) as agent:
        authority = AuthorityConfig(needs_approval=("send_message",))
        await agent.society.join(replace(able("cro"), authority=authority))
        child = await agent.society.spawn("cro", "developer", {"name": "Dana"}, BRIEF)
        assert await Gateway(agent).deliver() == 0
        [pause] = await agent.thread(f"member {child}", account=f"member:novel/{child}").pauses()
        assert (pause.kind, pause.function) == ("approval", "send_message")


@pytest.mark.requirement("A12")
async def test_members_that_wait_for_a_person_hold_up_no_other(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        if "You are last." not in call.text:
            return {"result": "", **calls(("deploy", {"where": "here"}))}
        if "Hello again." in call.text:
            greeted.set()
        return {"result": "Fine."}

    greeted = asyncio.Event()
    society = replace(config(), policy=WorkspacePolicy(max_roles=200))
    async with scripted_agent(tmp_path, ScriptedLM(act), society=society, tools=[deploy]) as agent:
        for number in range(100):
            await agent.society.join(able(f"m{number}", "deploy"))
            await agent.society.mail.send("root", f"m{number}", "Deploy it.")
        await agent.society.join(able("last"))
        await agent.society.mail.send("root", "last", "Hello.")
        assert await Gateway(agent).deliver() == 1
        await agent.society.mail.send("root", "last", "Hello again.")
        async with Gateway(agent):
            await asyncio.wait_for(greeted.wait(), 30)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("replies", [False, True])
async def test_who_waits_for_a_member_that_is_removed_is_told(tmp_path: Path, replies: bool) -> None:
    told: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if call.steps:
            told.append(call.text)
            return {"result": "Done."}
        asks = {"to": "coo", "content": "How many?", "reason": "A report.", "seconds": 3600}
        return {"result": "", **calls(("request_role", asks))}

    async with scripted_agent(tmp_path, ScriptedLM(act), society=config(), policy=APPROVED, tools=[deploy]) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("cro", Contact(id="coo", role="COO"))
        await agent.society.mail.send("root", "cro", "Report.")
        await Gateway(agent).deliver()
        if replies:
            await agent.society.mail.send("coo", "cro", "Seven.")
        await remove_member(agent.upkeep, "coo")
        await all_delivered(agent)
    said = (
        "From the system: coo was removed, and its answer with it."
        if replies
        else "From the system: coo was terminated and does not answer."
    )
    assert f"[Message from World Agent (root)]\n{said}" in told[-1]
    assert "Seven." not in told[-1]
