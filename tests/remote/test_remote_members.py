"""Members that are agents of others, over A2A (A22)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.a2a_peers import KINDS, TOKEN, TOKEN_VARIABLE, Peer, check_wire, peer
from support.agents import calls, open_pauses
from support.processes import eventually
from support.role_specs import spec_of, workspace_of
from support.society import delivered, doing, office, send
from worldagent import Approve, Policy, Rule, WorldAgent
from worldagent.members import SEND_RULES, Contact, Gateway
from worldagent.members.data.roles import RoleSpec
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("A22")


@pytest.fixture(params=KINDS)
def agent_of_others(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Peer]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with peer(request.param, tmp_path / "peer") as running:
        yield running


@pytest.fixture
def painter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Peer]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with peer("js", tmp_path / "peer") as running:
        yield running


def remote(running: Peer, role_id: str = "painter") -> RoleSpec:
    return spec_of(role_id, remote=running.remote)


@asynccontextmanager
async def workspace(home: Path, running: Peer, lm: Any = (), **more: Any) -> AsyncGenerator[WorldAgent]:
    """An agent whose owner knows the remote member."""
    async with office(home, lm, society=workspace_of(roles=(remote(running), *more.pop("roles", ()))), **more) as agent:
        await agent.society.contacts.add("user", Contact(id="painter", role="Painter"))
        yield agent


async def until(condition: Callable[[], object], limit: float = 20) -> None:
    """Wait for what another process does."""
    assert await eventually(lambda: bool(condition()), limit)


async def until_none(agent: WorldAgent) -> None:
    """Wait until no message waits any more."""
    async with asyncio.timeout(20):
        while await agent.society.mail.waiting():  # noqa: ASYNC110 -- nothing says so
            await asyncio.sleep(0.05)


async def inbox(agent: WorldAgent) -> list[str]:
    return [each.message.content for each in await agent.society.mail.inbox()]


async def test_a_remote_agent_answers_a_person(tmp_path: Path, agent_of_others: Peer) -> None:
    async with workspace(tmp_path / "home", agent_of_others) as agent:
        await agent.society.mail.send("user", "painter", "echo hello", kind="request", message_id="m1")
        await delivered(agent)
        [answer] = await agent.society.mail.inbox()
        first = {"js": "js: echo hello", "fasta2a": "fast: echo hello"}[agent_of_others.kind]
        assert answer.message.content.splitlines()[0] == first
        assert answer.message.correlation_id == "m1"
        assert answer.marks == (agent_of_others.remote.mark,)
        if agent_of_others.kind == "js":  # data is taken as JSON, and a file is left out
            assert answer.message.content.splitlines()[1:] == ['{"colour": "red"}', "[a file was left out]"]
        assert agent_of_others.effects == ["echo m1"]
    assert check_wire(agent_of_others.noted("wire"), agent_of_others.kind) >= 3


async def test_the_card_of_a_remote_agent_is_how_others_ask_it(tmp_path: Path, agent_of_others: Peer) -> None:
    async with workspace(tmp_path / "home", agent_of_others) as agent:
        await Gateway(agent).deliver()
        [contact] = [each for each in await agent.society.contacts.list("user") if each.id == "painter"]
        assert contact.interface is not None
        skill = {"js": "Paint: Paints walls.", "fasta2a": "Count: Counts."}[agent_of_others.kind]
        assert skill in contact.interface.services
        assert contact.marks == (agent_of_others.remote.mark,)  # a stranger wrote it


def asking(text: str) -> ScriptedLM:
    """A model of `ada`, which asks the remote agent, and tells the owner what it said."""

    def act(call: ScriptedCall) -> dict[str, Any]:
        asked = ("request_role", {"to": "painter", "content": text})
        told = send("charles", f"It said: {call.steps[-1]!r}" if call.steps else "", reason="")
        if len(call.steps) == 2:
            return {"result": "Done."}
        return {"result": "", **calls(told if call.steps else asked)}

    return ScriptedLM(act)


async def known(agent: WorldAgent) -> None:
    await agent.society.contacts.add("ada", Contact(id="painter", role="Painter", note="walls"))
    await agent.society.contacts.add("user", Contact(id="ada", role="Ada"))


async def test_what_a_remote_agent_says_is_untrusted(tmp_path: Path, painter: Peer) -> None:
    async with workspace(tmp_path / "home", painter, asking("echo hi"), roles=(spec_of("ada"),)) as agent:
        await known(agent)
        await agent.society.mail.send("user", "ada", "Go.")
        await delivered(agent)
        thread = agent.thread("member ada", account="member:novel/ada")
        [pause] = await open_pauses(thread)  # SEND_RULES approve what follows messages alone
        if pause.function == "request_role":  # it had read the card
            await thread.resume({pause.id: Approve()})
            await delivered(agent)
            [pause] = await open_pauses(thread)
        assert (pause.function, await inbox(agent)) == ("send_message", [])
        assert "js: echo hi" in str(pause.arguments)
    allowed = Rule(
        decision="approve",
        function=("send_message", "request_role"),
        after=("message:*", "account:*", painter.remote.mark),
        arguments={"to": "*"},
        times=1000,
    )
    policy = Policy(rules=(allowed, *SEND_RULES))
    more: dict[str, Any] = {"roles": (spec_of("ada"),), "policy": policy}
    async with workspace(tmp_path / "other", painter, asking("echo hi"), **more) as agent:
        await known(agent)
        await agent.society.mail.send("user", "ada", "Go.")
        await delivered(agent)
        [told] = await inbox(agent)
        assert "js: echo hi" in told


async def test_a_question_of_a_remote_agent_goes_to_the_sender_and_the_answer_into_the_same_task(
    tmp_path: Path, painter: Peer
) -> None:
    async with workspace(tmp_path / "home", painter) as agent:
        await agent.society.mail.send("user", "painter", "ask me", kind="request", message_id="m1")
        await delivered(agent)
        [asked] = await agent.society.mail.inbox()
        assert asked.message.content.splitlines()[-1] == "Which colour?"
        assert asked.message.correlation_id == "m1"
        await agent.society.mail.read(asked.message.id)
        await agent.society.mail.send("user", "painter", "red", message_id="m2", answers=asked.message.id)
        await delivered(agent)
        [answer] = await inbox(agent)
        assert answer.splitlines()[0] == "js: red"
        await agent.society.mail.send("user", "painter", "echo again", message_id="m3")
        await delivered(agent)
    first, second, third = (each["message"] for each in painter.calls("SendMessage"))
    assert "taskId" not in first
    assert second["taskId"]
    assert "taskId" not in third
    assert second["contextId"] == third["contextId"]
    assert check_wire(painter.noted("wire")) >= 6


async def test_a_task_that_failed_is_the_failure_of_a_member(tmp_path: Path, painter: Peer) -> None:
    async with workspace(tmp_path / "home", painter) as agent:
        await agent.society.mail.send("user", "painter", "fail now", kind="request", message_id="m1")
        await delivered(agent)
        [failed] = await agent.society.mail.inbox()
        assert failed.message.id == "m1.failed"
        assert failed.message.payload["error"] == "remote_agent_failed"
        assert "It broke" not in str(failed.message.to_json())


async def test_a_cancelled_conversation_cancels_the_task_of_its_request(tmp_path: Path, painter: Peer) -> None:
    lm = ScriptedLM(lambda call: doing(call, ("request_role", {"to": "painter", "content": "slow one"})))
    async with workspace(tmp_path / "home", painter, lm) as agent:
        await agent.society.contacts.add("root", Contact(id="painter", role="Painter", note="walls"))
        thread = agent.thread("t", account="charles")
        assert (await thread.converse("Paint.")).status == "paused"
        async with Gateway(agent, poll=0.05):
            await until(lambda: painter.effects)
            await thread.cancel()
            await until(lambda: painter.noted("cancelled"))
            await until_none(agent)
        assert await agent.society.mail.waiting() == []


async def test_ending_a_remote_member_cancels_its_tasks(tmp_path: Path, agent_of_others: Peer) -> None:
    async with workspace(tmp_path / "home", agent_of_others) as agent, Gateway(agent, poll=0.05):
        await agent.society.mail.send("user", "painter", "slow one", kind="request")
        await until(lambda: agent_of_others.effects)
        await agent.society.terminate("painter")
        if agent_of_others.kind == "fasta2a":  # it does one thing after the other
            agent_of_others.go()
        await until(lambda: agent_of_others.calls("CancelTask"), 30)


async def test_an_agent_that_waits_for_a_login_is_told_to_the_owner_once(tmp_path: Path, painter: Peer) -> None:
    async with workspace(tmp_path / "home", painter) as agent:
        await agent.society.mail.send("user", "painter", "login please", kind="request", message_id="m1")
        async with Gateway(agent, poll=0.05):
            await until(lambda: len(painter.calls("GetTask")) > 2)
        [told] = await agent.society.mail.inbox()
        assert told.message.id == "m1.login"
