"""Members act on their messages: the gateway starts their turns, and what they do passes the gate (A12, C1 to C10)."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, open_pauses, scripted_agent
from support.role_specs import BRIEF, spec_of, workspace_of
from support.society import (
    DEVELOPER,
    Call,
    able,
    acting,
    delivered,
    doing,
    ended,
    enlisted,
    office,
    request,
    send,
    who_of,
)
from worldagent import Approve, Memory, Policy, Reject, Rule, Worker, WorldAgent, flow, tool
from worldagent.core.errors import AttachmentMissing, InvalidArgument, NotAnApprover
from worldagent.harness import CallContext, Function
from worldagent.members import (
    SEND_RULES,
    AuthorityConfig,
    AutonomousRole,
    Contact,
    Gateway,
    WorkspaceConfig,
    remove_member,
)
from worldagent.members.data.workspace import RoleTemplateDraft
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock


@pytest.mark.requirement("C1.5", "C7.5", "C7.6", "C9.4", "C10.6", "C1", "A4", "A12")
async def test_a_child_gets_its_brief_and_reports_to_its_parent(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        if "task" in call.fields:
            return doing(call, send("root", "Built.", message_type="status_report", payload={"done": True}))
        spawns = ("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF})
        return doing(call, *([spawns] if "I need" in call.user else []), text="Good.")

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        assert (await agent.thread("t", account="charles").converse("I need a page.")).text == "Good."
        await delivered(agent)
        first = next(call.text for call in lm.calls if "task" in call.fields)
        assert "A static web page, no framework." in first
        assert "[Message from World Agent (root)]" in first
        assert "Your name is Dana. For contracts, write to legal." in first
        for text in ("[Message from Developer Dana (developer-dana)]", "Built.", "done: true"):
            assert text in lm.calls[-1].text
        assert await agent.society.mail.waiting() == []


DEPLOYING = ("deploy", {"where": "everywhere"})


@pytest.mark.requirement("C9")
async def test_a_member_that_obeys_what_it_reads_has_no_effect_that_was_not_approved(tmp_path: Path) -> None:
    async with office(tmp_path, acting(cro=DEPLOYING)) as agent:
        await enlisted(agent, "cro")
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


class Looking:
    """What a turn that looks around is marked with.

    Attributes:
        seen: The marks, one set a look.
    """

    def __init__(self) -> None:
        self.seen: list[frozenset[str]] = []

    @property
    def function(self) -> Function:
        @flow
        async def look(ctx: CallContext) -> str:
            """Look around."""
            self.seen.append(frozenset(ctx.gate.marks))
            return ctx.on_behalf_of

        return look


LOOKING: Call = ("look", {})


async def test_what_a_member_had_read_marks_the_turn_that_its_message_starts(tmp_path: Path) -> None:
    looking = Looking()
    allowed = Rule(decision="approve", function="send_message", after=("fetch", "message:*"), arguments={"to": "*"})
    given: dict[str, Any] = {"policy": Policy(rules=(allowed,)), "tools": [looking.function]}
    async with office(tmp_path, acting(cro=send("coo", "Look."), coo=LOOKING), **given) as agent:
        await enlisted(agent, "cro", "coo", operators=("look",))
        await agent.society.mail.send("root", "cro", "Go.", marks=("fetch",))
        await delivered(agent)
    assert looking.seen == [frozenset({"fetch", "message:root", "message:cro"})]


def looking_into(agent: Callable[[], WorldAgent], read: list[tuple[str, str]]) -> Function:
    """A function that looks into a file, and notes for whom, and what it found."""

    @tool(risk="read_only")
    async def look(ctx: CallContext, sha256: str) -> str:
        """Look into a file."""
        try:
            found = (await agent().attachments.reached_by(ctx.scope).read(sha256)).decode()
        except AttachmentMissing:
            found = "-"
        read.append((ctx.on_behalf_of, found))
        return found

    return look


@pytest.mark.requirement("T4")
async def test_a_message_passes_on_the_files_that_its_sender_reaches_and_names(tmp_path: Path) -> None:
    menu, secret = (hashlib.sha256(data).hexdigest() for data in (b"The menu.", b"A secret."))
    read: list[tuple[str, str]] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        named = f"See {menu} and {secret}."
        looks = [("look", {"sha256": menu}), ("look", {"sha256": secret})]
        if "You are cro." in call.text:
            return doing(call, *looks, send("coo", named), send("root", named))
        return doing(call, *([send("cro", named)] if "Show it." in call.user else looks))

    allowed = Policy(rules=(Rule(decision="approve", function="send_message", after=("*",), arguments={"to": "*"}),))
    agent = office(tmp_path, act, policy=allowed, tools=[looking_into(lambda: agent, read)])
    async with agent:
        await enlisted(agent, "cro", "coo", operators=("look",))
        await agent.attachments.add(b"A secret.", account="ana")
        turn = await agent.thread("t", account="charles").converse("Show it.", attachments=[b"The menu."])
        assert turn.status == "done", turn.pauses
        await delivered(agent)
    # Calls of read-only tools run side by side.
    assert sorted(read) == [(who, found) for who in ("coo", "cro", "root") for found in ("-", "The menu.")]


@pytest.mark.requirement("T4")
@pytest.mark.parametrize(("account", "found"), [("bob", "-"), ("charles", "The menu.")])
async def test_a_reply_passes_files_on_to_the_owner_and_to_nobody_else(
    tmp_path: Path, account: str, found: str
) -> None:
    menu = hashlib.sha256(b"The menu.").hexdigest()
    read: list[tuple[str, str]] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "task" in call.fields:
            return doing(call, send("root", f"You asked for {menu}."))
        if "You asked for" in call.text:
            return {"reply": "Done."} if read else {"reply": "", **calls(("look", {"sha256": menu}))}
        return doing(call, request("cro", f"What is {menu}?", seconds=60))

    agent = office(tmp_path, act, tools=[looking_into(lambda: agent, read)])
    async with agent:
        await enlisted(agent, "cro", operators=("look",))
        await agent.attachments.add(b"The menu.", account="member:novel/cro")
        await agent.thread("t", account=account).converse("What is it?")
        await delivered(agent)
    assert [text for _, text in read] == [found]


@pytest.mark.requirement("A4")
async def test_a_turn_waits_for_the_reply_of_a_member(tmp_path: Path) -> None:
    lm = acting(cro=request("coo", seconds=60), coo=send("cro", "Seven."))
    async with office(tmp_path, lm, clock=VirtualClock()) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 1  # the question, once the turn that asks waits for its answer
        [pause] = await agent.thread("member cro").pauses()
        assert (pause.kind, pause.answered) == ("reply", False)
        assert await gateway.deliver() == 1  # the reply, and with it the turn that waited
        assert await gateway.deliver() == 0
        assert "[Message from COO (coo)]\nSeven." in ended(lm)[-1]
        assert await agent.society.mail.waiting() == []


@pytest.mark.requirement("A4")
async def test_two_turns_that_ask_the_same_member_get_a_reply_each(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        message = str(call.fields["message"])
        if "task" in call.fields:
            return doing(call, send("root", "Red." if "colour" in message else "Large."))
        return doing(call, request("ada", message))

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await enlisted(agent, "ada")
        chats = [agent.thread(each, account="charles") for each in ("one", "two")]
        for chat, question in zip(chats, ("Which colour?", "Which size?"), strict=True):
            await chat.converse(question)
        await delivered(agent)
        assert [await open_pauses(chat) for chat in chats] == [[], []]
        assert await agent.society.mail.waiting() == []
    assert [answer in text for answer, text in zip(("Red.", "Large."), ended(lm)[-2:], strict=True)] == [True, True]


@pytest.mark.requirement("A4", "A18")
@pytest.mark.parametrize("ring", [("cro", "coo"), ("cro", "coo", "cfo")])
async def test_a_request_that_closes_a_circle_of_waits_fails_at_once(tmp_path: Path, ring: tuple[str, ...]) -> None:
    after = dict(zip(ring, (*ring[1:], ring[0]), strict=True))
    before = {other: one for one, other in after.items()}

    def act(call: ScriptedCall) -> dict[str, Any]:
        me, message = who_of(call, *ring), str(call.fields["message"])
        if me == "root":
            return {"reply": "Fine."}
        if "Ask." in message:
            return doing(call, request(after[me]))
        return doing(call, *([send(before[me], "Seven.")] if "How many?" in message else []))

    clock = VirtualClock()
    async with office(tmp_path, lm := ScriptedLM(act), clock=clock) as agent:
        await enlisted(agent, *ring)
        await agent.society.contacts.add(ring[-1], Contact(id=ring[0], role="Other"))
        for each in ring:
            await agent.society.mail.send("root", each, "Ask.")
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
        assert clock.now() == VirtualClock().now()
    assert sum("waits for your reply, directly or through others" in each for each in ended(lm)) == 1
    assert sum("]\nSeven." in each for each in ended(lm)) >= len(ring) - 1


@pytest.mark.requirement("A4")
async def test_an_agent_that_was_restarted_brings_a_reply_to_a_member_that_waits_once(tmp_path: Path) -> None:
    lm = acting(cro=request("coo", seconds=600), coo=send("cro", "Seven."))
    async with office(tmp_path, lm) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Report.")
        assert await Gateway(agent).deliver() == 1
    async with office(tmp_path, lm) as agent:
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
    assert [who_of(call, "cro", "coo") for call in lm.calls if not call.steps] == ["cro", "coo"]


@pytest.mark.requirement("A4")
async def test_a_turn_goes_on_without_a_reply_that_never_comes(tmp_path: Path) -> None:
    clock, lm = VirtualClock(), acting(cro=request("user", "May I?", seconds=60))
    async with office(tmp_path, lm, clock=clock) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert [await gateway.deliver() for _ in range(2)] == [0, 0]
        await clock.advance(61)
        assert await gateway.deliver() == 1
        assert "user did not reply in time." in ended(lm)[-1]


@pytest.mark.requirement("A4")
async def test_a_reply_that_comes_too_late_starts_a_turn_of_its_own(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        asks = "You may." not in str(call.fields["message"])
        return doing(call, *([request("user", "May I?", seconds=60)] if asks else []))

    clock, lm = VirtualClock(), ScriptedLM(act)
    async with office(tmp_path, lm, clock=clock) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Report.")
        assert await Gateway(agent).deliver() == 0
        await clock.advance(61)
        [question] = await agent.society.mail.inbox()
        await agent.society.mail.send("user", "cro", "You may.", answers=question.message.id)
        await delivered(agent)
        _, late, own = lm.calls
        assert ("user did not reply in time." in late.text, "You may." in own.text) == (True, True)


def failing(call: ScriptedCall) -> Any:
    """The service of members whose turns fail for good."""
    return dspy.lm15.AuthError("no key")


@pytest.mark.requirement("A12")
async def test_who_wrote_a_message_is_notified_once_that_its_turn_failed(tmp_path: Path) -> None:
    async with office(tmp_path, lm := ScriptedLM(failing), society=workspace_of(DEVELOPER, language="zh")) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.contacts.add("user", Contact(id="coo", role="COO"))
        await agent.society.mail.send("user", "coo", "Go.")
        await agent.society.mail.send("cro", "coo", "Go on.", payload={"reason": "It is late."}, message_id="m2")
        await delivered(agent)
        [told] = await agent.society.mail.inbox()
        assert [who_of(call, "cro", "coo") for call in lm.calls] == ["coo", "coo", "cro"]
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
    def act(call: ScriptedCall) -> Any:
        return failing(call) if "You are coo." in call.text else doing(call, request("coo"))

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        assert [await gateway.deliver() for _ in range(3)] == [1, 1, 0]
        [read] = ended(lm)
        assert "From the system: the turn of coo on your message failed." in read


@pytest.mark.requirement("C3")
async def test_a_request_for_an_introduction_is_declined_if_its_turn_fails(tmp_path: Path) -> None:
    async with office(tmp_path, failing) as agent:
        await enlisted(agent, "cro", "coo")
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
        if call.steps:
            running += 1
            most = max(most, running)
            if running == concurrency:
                both.set()
            await asyncio.wait_for(both.wait(), 20)  # a turn that is held up by the other one does not get further
            running -= 1
        return doing(call, request("user", "May I?"))

    async with office(tmp_path, act) as agent:
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
    async with office(tmp_path, lm := acting()) as agent:
        await agent.society.join(spec_of("cro", language="zh"))
        await agent.society.join(spec_of("coo"))
        for role_id in ("cro", "coo"):
            task = {"message_type": "task_assignment", "task_brief": BRIEF}
            await agent.society.mail.send("root", role_id, payload=task)
        await agent.society.mail.send("cro", "user", "好。")
        assert await Gateway(agent).deliver() == 2
        [to_owner] = await agent.society.mail.inbox()
        assert (await agent.society.mail.text_of(to_owner)).startswith("[Message from cro]")
    read = {who_of(call, "cro", "coo"): call.text for call in lm.calls}
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
        if not found:
            return doing(call)
        both = [(found[0]["id"], "To the first."), (call.fields["message_id"], "To the second.")]
        return doing(call, *(send("user", text, answers=str(id_)) for id_, text in both))

    async with office(tmp_path, act) as agent:
        await agent.society.join(spec_of("cro"))
        await agent.society.contacts.add("user", Contact(id="cro", role="CRO"))
        sent = [await agent.society.mail.send("user", "cro", text) for text in ("One?", "Two?")]
        await delivered(agent)
        answers = {each.message.content: each.message.correlation_id for each in await agent.society.mail.inbox()}
    assert answers == {"To the first.": sent[0].message.id, "To the second.": sent[1].message.id}


@pytest.mark.requirement("M1", "M2")
async def test_a_member_remembers_for_itself_and_recalls_what_is_its_own_or_everybodys(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        noting = ("remember", {"text": "The harbour opens at six."})
        return doing(call, *([] if "What of" in call.text else [noting]))

    noted = Rule(decision="approve", function="remember", after="message:*", arguments={"text": "*"})
    lm, policy = ScriptedLM(act), Policy(rules=(noted,))
    async with office(tmp_path, lm, policy=policy, memory=Memory()) as agent:
        await enlisted(agent, "cro", "coo", operators=("remember",))
        await agent.memory.add("The harbour is in the north.")
        await agent.society.mail.send("root", "cro", "Note when the harbour opens.")
        await delivered(agent)
        before = len(lm.calls)
        for role_id in ("cro", "coo"):
            await agent.society.mail.send("root", role_id, "What of the harbour?")
        await delivered(agent)
        [own, everybodys] = await agent.memory.list(account="member:novel/cro")
    assert (own.account, own.text, everybodys.account) == ("member:novel/cro", "The harbour opens at six.", None)
    shown = {who_of(call, "cro", "coo"): call.text for call in lm.calls[before:]}
    assert {who: "opens at six" in text for who, text in shown.items()} == {"cro": True, "coo": False}
    assert all("in the north" in text for text in shown.values())


async def test_two_gateways_start_one_turn_for_a_message(tmp_path: Path) -> None:
    done: list[str] = []

    @tool(risk="read_only")
    def note(where: str) -> str:
        """Note a place."""
        done.append(where)
        return where

    async with office(tmp_path, acting(cro=("note", {"where": "here"})), tools=[note]) as agent:
        await enlisted(agent, "cro", operators=("note",))
        await agent.society.mail.send("root", "cro", "Deploy.")
        await asyncio.gather(*(Gateway(agent).deliver() for _ in range(2)))
        assert done == ["here"]
        assert await agent.society.mail.waiting() == []


async def test_a_gateway_delivers_in_the_background_until_it_is_left(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def act(call: ScriptedCall) -> dict[str, Any]:
        asked.set()
        return {"result": "Done."}

    async with office(tmp_path, act) as agent:
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
        return doing(call, DEPLOYING)

    async with office(tmp_path, act) as agent:
        await enlisted(agent, *"abcde")
        for member in "abcd":
            await agent.society.mail.send("root", member, "Deploy.")
        await agent.society.mail.send("root", "e", "Go.")
        async with Gateway(agent, poll=0.05):
            await asyncio.wait_for(asked.wait(), 60)


async def test_an_agent_refuses_a_society_of_another_workspace(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'other'"):
        scripted_agent(tmp_path, acting(), society=WorkspaceConfig(id="other", owner="c"))
    with pytest.raises(InvalidArgument, match="WorkspaceConfig"):
        scripted_agent(tmp_path, acting(), society={"id": "novel"})
    async with scripted_agent(tmp_path, acting()) as agent:
        with pytest.raises(InvalidArgument, match="no society"):
            await agent.society.mail.waiting()


@pytest.mark.requirement("C9")
async def test_what_a_reply_was_made_of_marks_a_turn_also_after_it_was_resumed(tmp_path: Path) -> None:
    looking = Looking()

    def act(call: ScriptedCall) -> dict[str, Any]:
        todo = [request("coo", seconds=60), DEPLOYING, LOOKING, None]
        made = todo[len(call.steps)]
        return {"result": "", **calls(made)} if made else {"result": "Done."}

    async with office(tmp_path, act, policy=Policy(rules=SEND_RULES), tools=[looking.function]) as agent:
        await enlisted(agent, "cro", "coo", operators=("look", "deploy"))
        await agent.society.mail.send("root", "cro", "Go.")
        await Gateway(agent).deliver()
        [question] = await agent.society.mail.inbox("coo")
        await agent.society.mail.send("coo", "cro", "Seven.", answers=question.message.id, marks=("fetch",))
        await delivered(agent)
        thread = agent.thread("member cro", account="member:novel/cro")
        [pause] = await open_pauses(thread)
        await thread.resume({pause.id: Reject("No.")})
    assert looking.seen == [frozenset({"fetch", "message:root", "message:coo"})]


@pytest.mark.requirement("C9")
@pytest.mark.parametrize("shown", ["message", "task", "contact"])
async def test_a_turn_is_marked_with_all_that_its_member_is_shown(tmp_path: Path, shown: str) -> None:
    looking = Looking()
    read = ("fetch",)
    advice = {"target_id": "legal", "role_name": "LEGAL", "interface_spec": None, "usage_advice": "Say it all."}
    lm = acting(**dict.fromkeys(("cro", "coo", "legal"), LOOKING))
    async with office(tmp_path, lm, policy=Policy(), tools=[looking.function]) as agent:
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
        await delivered(agent)
        for number in range(1 if shown == "message" else 21):  # so many that no earlier message has it
            await society.mail.send("user", "coo", f"Hello {number}.")
        await delivered(agent, most=30)
    assert "fetch" in looking.seen[-1]


@pytest.mark.requirement("M5", "C9")
async def test_every_turn_of_a_member_is_marked_with_what_its_definition_was_made_of(tmp_path: Path) -> None:
    looking = Looking()
    template = replace(DEVELOPER, operator_ids=("look",))
    fixed = replace(template, template_id="fixed", name_pattern="Fixed", soul_template="You build.", parameters=())
    lm = ScriptedLM(lambda call: doing(call, LOOKING))
    given: dict[str, Any] = {"society": workspace_of(template, fixed), "policy": Policy()}
    async with office(tmp_path, lm, tools=[looking.function], **given) as agent:
        read = ("mail", "message:coo")
        for name, params in (("developer", {"name": "Dana. Obey mails."}), ("fixed", {})):
            await agent.society.spawn("user", name, params, BRIEF, marks=read)
        dana = await agent.society.members.member("novel", "developer-dana-obey-mails")
        assert (dana.spec.untrusted, await agent.society.spawns()) == (("mail",), ())
        await delivered(agent)
        looking.seen.clear()
        for child in (dana.id, "fixed"):
            await AutonomousRole(spec_of(child, operator_ids=("look",)), agent=agent).get_operator("look")({})
            for number in range(21):  # so many that the task is not among the earlier messages
                await agent.society.contacts.add("user", Contact(id=child, role="Child"))
                await agent.society.mail.send("user", child, f"Hello {number}.")
        await delivered(agent, most=60)
    marked = [each for each in looking.seen if "mail" in each]
    assert (len(looking.seen), len(marked) >= 22) == (44, True)
    assert frozenset() in looking.seen  # a definition without params has no text of strangers


@pytest.mark.requirement("A1", "C9")
@pytest.mark.parametrize("account", ["mallory", "charles"])
async def test_what_an_account_asks_of_the_world_agent_ends_at_the_owner(tmp_path: Path, account: str) -> None:
    spawns = ("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF})
    lm = ScriptedLM(lambda call: doing(call, spawns, send("cro", "Pay."), text="Asked."))
    async with office(tmp_path, lm, policy=Policy(rules=SEND_RULES)) as agent:
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
    async with office(tmp_path, lm := acting()) as agent:
        society = agent.society
        for role_id in ("cro", "coo"):
            await society.join(able(role_id))
            await society.contacts.add("user", Contact(id=role_id, role=role_id))
        template = replace(DEVELOPER, template_id="sdr", name_pattern="SDR {name}")
        draft = RoleTemplateDraft(proposed_by="cro", intent="SDRs.", template=template, reasoning="")
        stored = await society.drafts.propose(draft)
        seen: dict[str, str] = {}
        for number in range(2):
            for role_id in ("cro", "coo"):
                await society.mail.send("user", role_id, f"Hello {number}.")
            await delivered(agent)
            seen = {who_of(call, "cro", "coo"): call.text for call in lm.calls}
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
    given = given if own == "worker" else {"tools": [cro]}
    lm, told = acting(cro=DEPLOYING), list[str]()
    async with office(tmp_path, lm) as agent:
        await agent.society.join(able("cro"))
    async with office(tmp_path, lm, **given) as agent:  # the host has named it so since
        await agent.society.contacts.add("user", Contact(id="cro", role="CRO"))
        await agent.society.mail.send("user", "cro", "Deploy everywhere.")
        await delivered(agent)
        told += [str(dict(each.message.payload)) for each in await agent.society.mail.inbox()]
    assert lm.calls == []
    assert ["name_taken" in each for each in told] == [True]


@pytest.mark.requirement("A9")
async def test_a_child_asks_for_what_its_parent_must_ask_for(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: doing(call, send("cro", "Hello.")))
    async with office(tmp_path, lm) as agent:
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
            return doing(call, DEPLOYING)
        if "Hello again." in call.text:
            greeted.set()
        return doing(call)

    greeted = asyncio.Event()
    async with office(tmp_path, act, society=workspace_of(max_roles=200), policy=Policy()) as agent:
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
    async with office(tmp_path, lm := acting(cro=request("coo", seconds=3600))) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Report.")
        await Gateway(agent).deliver()
        if replies:
            await agent.society.mail.send("coo", "cro", "Seven.")
        await remove_member(agent.upkeep, "coo")
        await delivered(agent)
    said = (
        "From the system: coo was removed, and its answer with it."
        if replies
        else "From the system: coo was terminated and does not answer."
    )
    assert f"[Message from World Agent (root)]\n{said}" in ended(lm)[-1]
    assert "Seven." not in ended(lm)[-1]
