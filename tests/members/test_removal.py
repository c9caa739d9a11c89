"""A member is exported and removed with all that is its alone (C2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, scripted_agent
from support.homes import found
from support.role_specs import spec_of
from worldagent import Memory, Policy, Role, WorldAgent, tool
from worldagent.core.errors import ThreadPaused, UnknownMember
from worldagent.members import (
    SEND_RULES,
    Contact,
    Gateway,
    InterfaceSpec,
    WorkspaceConfig,
    export_member,
    remove_member,
)
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("C2")

SOUL = "You guard the lighthouse at the very end of the northern mole."
NOTE = "Ask it about oil that is burned by night."
SENT = "The lamp was lit at six, and nobody came by."
RECEIVED = "Please keep the lamp burning until the ferry is in."
WAITING = "Is there a second keeper who can take the watch?"
KNOWN = "The ferry is late whenever the wind is in the north."
SERVICES = "Lights lamps of any size."
ROLE = "Speak like a keeper of lighthouses."
TEXTS = [SOUL, NOTE, SENT, RECEIVED, WAITING, KNOWN, SERVICES, ROLE]


@tool(risk="destructive")
def douse() -> str:
    """Put the lamp out."""
    return "dark"


async def kept(agent: WorldAgent) -> None:
    """A keeper with all that a member can have, below a harbour master, who knows a mate."""
    for role_id in ("master", "mate"):
        await agent.society.join(spec_of(role_id))
    interface = InterfaceSpec(services=SERVICES, input_format="A time.", output_format="A report.")
    await agent.society.join(spec_of("keeper", "master", soul=SOUL), interface=interface)
    await agent.society.contacts.add("keeper", Contact(id="mate", role="Mate", note=NOTE))
    await agent.society.contacts.add("keeper", Contact(id="user", role="the owner"))
    await agent.society.mail.send("keeper", "user", SENT)
    await agent.memory.add(KNOWN, account="member:novel/keeper")
    await agent.roles.put("account", Role("keeper", ROLE), scope_id="member:novel/keeper")


def agent_of(home: Path, lm: ScriptedLM) -> WorldAgent:
    society = WorkspaceConfig(id="novel", owner="charles")
    return scripted_agent(home, lm, society=society, policy=Policy(rules=SEND_RULES), tools=[douse], memory=Memory())


@pytest.mark.on_every_database
async def test_nothing_of_a_removed_member_is_left(tmp_path: Path) -> None:
    async with agent_of(tmp_path, ScriptedLM(lambda call: {"result": "Done."})) as agent:
        await kept(agent)
        await agent.society.mail.send("master", "keeper", RECEIVED)
        assert await Gateway(agent).deliver() == 1
        await agent.society.mail.send("keeper", "mate", WAITING)
        assert all(found(tmp_path, [each]) for each in TEXTS)
        removed = await remove_member(agent.upkeep, "keeper")
        assert (removed.threads, removed.entries, removed.shared) == (1, 1, ())
        assert found(tmp_path, TEXTS[:-1]) == []  # the roles are in a journal until their file is closed
        assert await agent.society.mail.waiting() == await agent.society.mail.inbox() == []
        assert "keeper" not in str(await agent.society.contacts.every())
        assert await agent.roles.get("account", scope_id="member:novel/keeper") is None
        with pytest.raises(UnknownMember, match="'keeper'"):
            await remove_member(agent.upkeep, "keeper")
        # Its place in a mailbox is free, and its id.
        await agent.society.join(spec_of("keeper", "master"))
        await agent.society.mail.send("master", "keeper", "Hello.")
        assert await Gateway(agent).deliver() == 1
    assert found(tmp_path, TEXTS) == []


async def test_a_member_with_a_turn_that_waits_is_removed_only_with_that_turn(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "", **calls(("douse", {}))}

    async with agent_of(tmp_path, ScriptedLM(act)) as agent:
        await kept(agent)
        await agent.society.join(spec_of("oiler", "keeper", operator_ids=("douse",)))
        await agent.society.mail.send("keeper", "oiler", "Put it out.", payload={"reason": "It is day."})
        assert await Gateway(agent).deliver() == 0
        with pytest.raises(ThreadPaused):
            await remove_member(agent.upkeep, "oiler")
        assert (await agent.society.members.member("novel", "oiler")).life.status == "active"
        await remove_member(agent.upkeep, "oiler", cancel=True)
        assert await agent.thread("member oiler").pauses() == ()
        assert await agent.society.mail.waiting() == []


async def test_members_below_a_removed_one_end_with_it(tmp_path: Path) -> None:
    async with agent_of(tmp_path, answering()) as agent:
        await kept(agent)
        await remove_member(agent.upkeep, "master")
        assert [each.id for each in await agent.society.members.list_roles("novel")] == ["mate"]
        assert (await agent.society.members.member("novel", "keeper")).life.status == "terminated"


async def test_an_export_has_all_that_is_stored_of_a_member(tmp_path: Path) -> None:
    async with agent_of(tmp_path, answering()) as agent:
        await kept(agent)
        await agent.society.mail.send("master", "keeper", RECEIVED)
        exported = await export_member(agent.upkeep, "keeper")
        assert json.loads(json.dumps(exported)) == exported
        assert (exported["member"]["spec"]["soul"], exported["member"]["life"]["status"]) == (SOUL, "active")
        assert [each["id"] for each in exported["contacts"]] == ["master", "mate", "user"]
        assert [each["owner"] for each in exported["known_by"]] == ["master", "user"]
        assert [each["content"] for each in exported["messages"]] == [SENT, RECEIVED]
        assert [each["text"] for each in exported["memory"]] == [KNOWN]
        with pytest.raises(UnknownMember, match="'ghost'"):
            await export_member(agent.upkeep, "ghost")
