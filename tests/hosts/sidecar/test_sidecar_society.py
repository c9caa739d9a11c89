"""The sidecar's tools about members: a client writes as the person of its account, and its messages are delivered."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls
from support.command_line import Run, as_json, home, run
from support.example_clients import client, typescript_chat
from support.role_specs import spec_of
from support.sidecar_served import agents, caller_of, served, tokens
from support.sidecars import until
from worldagent import Policy, WorldAgent
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.members import SEND_RULES, Contact, WorkspaceConfig
from worldagent.members.data.roles import Participant
from worldagent.members.life.outcomes import Outcome
from worldagent.testing import ScriptedCall, ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = [pytest.mark.requirement("C2"), pytest.mark.requirement("C9")]

SECRET = "The seventh keeper of the lighthouse says so"
BOUND = 30  # seconds
READ: dict[str, Any] = {"messages": ["msg_1"]}
TOKEN = "token-of-the-sidecar"
CONFIG = WorkspaceConfig(id="novel", owner="charles")
KNOWN = tokens(
    charles=Grant(("novel",), ("charles",)),
    ana=Grant(("novel",), ("ana",)),
    ben=Grant(("novel",), ("ben",)),
    mole=Grant(("novel",), ("cro", "root", "user")),
    operator=Grant(("novel",), ("*",), operator=True),
)


def made(place: Path, script: Any = None) -> Callable[[str], WorldAgent]:
    lm = answering() if script is None else ScriptedLM(script)
    return agents(place, lm=lm, society=CONFIG, policy=Policy(rules=SEND_RULES))


async def peopled(place: Path) -> None:
    """A CRO with a BDR and two drafts, a person ana that the CRO has written to, and a message to the owner."""
    async with made(place)("novel") as agent:
        society = agent.society
        for role_id, parent in (("cro", ""), ("bdr", "cro")):
            await society.join(spec_of(role_id, parent), name=role_id.upper())
        await society.members.add_person("novel", Participant(id="ana", type="human", name="Ana"))
        for draft in ("sdr", "ae"):
            await society.members.queue_spawn(spec_of(draft, "cro"))
        done = Outcome(episode_id="e1", role_id="cro", capability="mail", succeeded=True, at=datetime.now(UTC))
        await society.outcomes.record(done)
        for person in ("ana", "user"):
            await society.contacts.add("cro", Contact(id=person, role="a person"))
            await society.mail.send("cro", person, f"Hello {person}.")


async def quiet(place: Path) -> Sidecar:
    """A sidecar over these members; its model answers whatever it is asked."""
    await peopled(place)
    return Sidecar(made(place, lambda call: {"reply": "Good.", "result": "Good."}), tokens=KNOWN)


async def test_the_owner_sees_members_and_contacts_as_the_command_line_shows_them(run: Run, home: Path) -> None:
    sidecar = await quiet(home)
    shown: dict[str, Any] = {
        "society_members": (("members",), {}),
        "society_contacts": (("contacts", "bdr"), {"member": "bdr"}),
        "society_graph": (("graph",), {}),
        "society_inbox": (("inbox",), {}),
        "society_stalls": (("stalls",), {}),
        "society_spawns": (("spawns",), {}),
    }
    async with served(sidecar) as url, caller_of(url, "auto", "charles") as owner:
        for tool, (words, arguments) in shown.items():
            answer = await owner(tool, **arguments)
            assert answer.pop("contract") == 1
            assert answer == await as_json(run, "society", *words, "--workspace", "novel")
        rated = (await owner("society_feedback", episode="e1", feedback="bad"))["trust"]
        assert rated["scores"] == {"mail": 0.15}
        answer = await owner("society_outcomes", member="cro")
        assert (answer.pop("contract"), answer["trust"], answer["outcomes"][0]["feedback"]) == (1, rated, "bad")
        assert answer == await as_json(run, "workspace", "outcomes", "cro", "--workspace", "novel")
        assert [each["id"] for each in (await owner("society_contacts"))["contacts"]] == ["root", "cro"]
        graph = await owner("society_graph")
        assert graph["mermaid"].startswith("flowchart LR\n")
        assert {"bdr", "cro"} <= {each["owner"] for each in graph["contacts"]}
        [message] = (await owner("society_inbox"))["messages"]
        assert (message["from"], message["to"], message["content"]) == ("cro", "user", "Hello user.")


async def test_a_client_writes_and_reads_as_the_person_of_its_account_alone(tmp_path: Path) -> None:
    sidecar = await quiet(tmp_path)
    async with (
        served(sidecar) as url,
        caller_of(url, "auto", "charles") as owner,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
        caller_of(url, "auto", "mole") as mole,
        caller_of(url, "auto", "operator") as operator,
    ):
        [hello] = (await ana("society_inbox"))["messages"]
        assert hello["content"] == "Hello ana."
        [other] = (await owner("society_inbox"))["messages"]
        assert (await ana("society_read", messages=[hello["id"], other["id"], "msg_unknown"]))["read"] == 1
        assert (await ana("society_inbox"))["messages"] == []
        assert (await owner("society_inbox"))["messages"] == [other]
        given: dict[str, Any] = {"to": "cro", "text": "Thanks.", "answers": hello["id"], "key": "k1"}
        sent = (await ana("society_send", **given))["message"]
        assert (sent["from"], sent["to"], sent["correlation_id"]) == ("ana", "cro", hello["id"])
        assert (await ana("society_send", **given))["message"]["id"] == sent["id"]
        of_owner = (await owner("society_send", to="cro", text="Thanks.", key="k1"))["message"]
        assert (of_owner["from"], of_owner["id"] != sent["id"]) == ("user", True)
        assert (await operator("society_send", to="root", text="Hm."))["message"]["from"] == "user"
        assert (await operator("society_send", to="cro", text="Hm.", account="ana"))["message"]["from"] == "ana"
        # No argument says who sends, and an account with the id of a member is not that member.
        told = (await ana.refused("society_send", to="cro", text="Hm.", **{"from": "bdr"}))["problem"]
        assert "an argument that the tool does not have" in told
        assert (await ana.refused("society_send", to="cro", text="Hm.", account="charles"))["code"] == "forbidden"
        strangers = [(ben, "ben"), *((mole, account) for account in ("cro", "root", "user"))]
        for caller, account in strangers:
            for tool, more in (
                ("society_send", {"to": "bdr", "text": "Hm."}),
                ("society_inbox", {}),
                ("society_read", READ),
            ):
                error = await caller.refused(tool, account=account, **more)
                assert (error["code"], "is not a person of the workspace" in error["problem"]) == ("forbidden", True)


async def test_only_the_owner_and_operators_see_and_change_what_members_know(tmp_path: Path) -> None:
    sidecar = await quiet(tmp_path)
    only: dict[str, dict[str, Any]] = {
        "society_members": {},
        "society_contacts": {"member": "bdr"},
        "society_graph": {},
        "society_stalls": {},
        "society_withdraw": {"member": "bdr", "contact": "cro"},
        "society_spawns": {},
        "society_approve": {"member": "sdr"},
        "society_reject": {"member": "sdr"},
        "society_outcomes": {"member": "cro"},
        "society_feedback": {"episode": "e1", "feedback": "good"},
        "event_post": {"event": "e1", "type": "lead.created", "domain": "revenue"},
        "event_list": {},
        "event_export": {},
        "workspace_try": {"file": "workspace: auto"},
        "board_list": {},
        "board_move": {"brief": "b1", "move": "retry"},
        "budget_list": {},
        "budget_extend": {"member": "cro", "turns": 5},
        "budget_end": {"work": "msg_over"},
    }
    async with (
        served(sidecar) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "charles") as owner,
        caller_of(url, "auto", "operator") as operator,
    ):
        assert [each["id"] for each in (await ana("society_contacts"))["contacts"]] == ["cro"]
        for tool, arguments in only.items():
            error = await ana.refused(tool, **arguments)
            assert (error["code"], "only the owner" in error["problem"]) == ("forbidden", True)
        for name, caller in (("ana", owner), ("bdr", operator)):
            withdrawn: dict[str, Any] = {"member": "cro", "contact": name}
            assert (await caller("society_withdraw", **withdrawn))["withdrawn"] is True
            assert (await caller("society_withdraw", **withdrawn))["withdrawn"] is False
        assert (await owner("society_withdraw", member="root", contact="user"))["withdrawn"] is False
        assert [each["id"] for each in (await operator("society_spawns"))["spawns"]] == ["sdr", "ae"]
        assert (await owner("society_approve", member="sdr"))["approved"] == "sdr"
        assert (await operator("society_reject", member="ae", reason="Not now."))["rejected"] == "ae"
        assert (await owner("society_spawns"))["spawns"] == []
        assert (await owner.refused("society_approve", member="sdr"))["code"] == "lifecycle_error"
        statuses = {each["id"]: each["status"] for each in (await owner("society_members"))["members"]}
        assert statuses == {"cro": "active", "bdr": "active", "sdr": "active"}


async def test_refusals_say_what_to_do_and_quote_nothing(tmp_path: Path) -> None:
    sidecar = await quiet(tmp_path)
    request = {"message_type": "introduction_request", "payload": {"reason": SECRET}}
    refused: list[tuple[str, dict[str, Any], str, str]] = [
        ("society_send", {"to": SECRET, "text": SECRET}, "unknown_contact", "is not a contact of the person"),
        ("society_send", {"to": "bdr", "text": SECRET}, "unknown_contact", "is not a contact of the person"),
        ("society_send", {"to": "cro"}, "message_invalid", "the message is empty"),
        ("society_send", {"to": "cro", **request}, "message_invalid", "lacks `required_capability`"),
        ("society_send", {"to": "cro", "text": "Hm.", "answers": SECRET}, "message_invalid", "`answers` is not the id"),
        ("society_send", {"to": "cro", "message_type": SECRET}, "invalid_argument", "message_type: Input should be"),
        ("society_send", {"to": "cro", "payload": {"message_type": "x"}}, "invalid_argument", "message_type, which is"),
        ("society_contacts", {"member": SECRET}, "unknown_member", "no member with this id"),
        ("society_withdraw", {"member": SECRET, "contact": "cro"}, "unknown_member", "no member with this id"),
        ("society_approve", {"member": SECRET}, "unknown_member", "no member with this id"),
        ("society_outcomes", {"member": SECRET}, "unknown_member", "no member with this id"),
        ("society_feedback", {"episode": SECRET, "feedback": "bad"}, "unknown_episode", "no outcome of an episode"),
        ("society_reject", {"member": SECRET}, "unknown_member", "no member with this id"),
        ("society_inbox", {"limit": 0}, "invalid_argument", "limit: Input should be greater than or equal to 1"),
    ]
    async with served(sidecar) as url, caller_of(url, "auto", "charles") as owner:
        for tool, arguments, code, problem in refused:
            error = await owner.refused(tool, **arguments)
            assert (error["code"], problem in error["problem"]) == (code, True), error
            assert SECRET not in json.dumps(error)
            if code == "unknown_contact":
                assert [step["tool"] for step in error["next"]] == ["society_contacts"]
                assert "introduction_request" in error["remedy"]


async def test_an_agent_without_a_society_says_so(tmp_path: Path) -> None:
    tools: dict[str, dict[str, Any]] = {
        "society_members": {},
        "society_contacts": {},
        "society_graph": {},
        "society_stalls": {},
        "society_inbox": {},
        "society_read": READ,
        "society_send": {"to": "root", "text": "Hm."},
        "society_withdraw": {"member": "root", "contact": "cro"},
        "society_spawns": {},
        "society_approve": {"member": "sdr"},
        "society_reject": {"member": "sdr"},
        "society_outcomes": {"member": "cro"},
        "society_feedback": {"episode": "e1", "feedback": "good"},
        "event_post": {"event": "e1", "type": "lead.created", "domain": "revenue"},
        "event_list": {},
        "event_export": {},
        "workspace_try": {"file": "workspace: auto"},
        "board_list": {},
        "board_move": {"brief": "b1", "move": "retry"},
        "budget_list": {},
        "budget_extend": {"member": "cro", "turns": 5},
        "budget_end": {"work": "msg_over"},
    }
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "operator") as operator,
    ):
        for tool, arguments in tools.items():
            error = await operator.refused(tool, **arguments)
            assert (error["code"], error["problem"]) == ("invalid_argument", "this agent has no society")


class Asks:
    """A World Agent that asks the CRO before it answers, and a CRO that replies once it may."""

    def __init__(self) -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def __call__(self, call: ScriptedCall) -> dict[str, Any]:
        if "task" in call.fields:
            if call.steps:
                return {"result": "Done."}
            self.asked.set()
            await asyncio.wait_for(self.may.wait(), BOUND)
            return {"result": "", **calls(("send_message", {"to": "root", "content": "All is well."}))}
        if call.steps:
            return {"reply": f"It says: {'All is well.' if 'All is well.' in call.text else 'nothing'}"}
        return {"reply": "", **calls(("request_role", {"to": "cro", "content": "How is it?"}))}


async def settled(caller: Any, thread: str) -> dict[str, Any]:
    """The state of a thread once its turn is over."""

    async def over() -> Any:
        state = await caller("pauses", thread=thread)
        return None if state["status"] in ("paused", "running") else state

    return dict(await until(over, BOUND))


@pytest.mark.requirement("A12")
async def test_messages_are_delivered_while_the_sidecar_has_the_agent_open(tmp_path: Path) -> None:
    await peopled(tmp_path)
    script = Asks()
    script.may.set()
    sidecar = Sidecar(made(tmp_path, script), tokens=KNOWN)
    async with served(sidecar) as url, caller_of(url, "auto", "charles") as owner:
        answer = await owner("converse", thread="t", text="How is the CRO?")
        assert (answer["turn"]["status"], answer["next"]) == ("paused", [])
        [pause] = answer["turn"]["pauses"]
        assert (pause["kind"], pause["answers"]) == ("reply", {})
        assert (await settled(owner, "t"))["status"] == "done"
        last = (await owner("history", thread="t"))["messages"][-1]
    assert "It says: All is well." in json.dumps(last["body"])


async def test_the_client_in_typescript_waits_for_the_reply_of_a_member(tmp_path: Path) -> None:
    await peopled(tmp_path)
    script, one = Asks(), tokens(**{TOKEN: Grant(("novel",), ("ana",))})
    async with (
        served(Sidecar(made(tmp_path, script), tokens=one)) as url,
        client(typescript_chat(url), tmp_path, WORLDAGENT_SIDECAR_TOKEN=TOKEN) as chat,
    ):
        await chat.types("How is the CRO?")
        await chat.sees("[it waits for the reply of a member]")
        script.may.set()
        await chat.sees("It says: All is well.")
        assert await chat.ends() == 0
    assert "y or n" not in chat.said


async def test_a_turn_of_a_member_that_the_end_of_a_sidecar_interrupts_continues_with_the_next(tmp_path: Path) -> None:
    await peopled(tmp_path)
    script = Asks()
    async with (
        served(Sidecar(made(tmp_path, script), tokens=KNOWN)) as url,
        caller_of(url, "auto", "charles") as owner,
    ):
        await owner("converse", thread="t", text="How is the CRO?")
        await asyncio.wait_for(script.asked.wait(), BOUND)
    script.may.set()
    async with (
        served(Sidecar(made(tmp_path, script), tokens=KNOWN)) as url,
        caller_of(url, "auto", "charles") as owner,
    ):
        assert (await settled(owner, "t"))["status"] == "done"
        last = (await owner("history", thread="t"))["messages"][-1]
    assert "It says: All is well." in json.dumps(last["body"])
