"""An autonomous role asks and notifies others from the host's code (A4)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, scripted_agent
from support.role_specs import spec_of
from worldagent import Policy
from worldagent.core.errors import InvalidArgument, PauseExpired, UnknownContact
from worldagent.members import SEND_RULES, AutonomousRole, Gateway, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A4")

CONFIG = WorkspaceConfig(id="novel", owner="charles", roles=(spec_of("ceo"), spec_of("cro", reports_to="ceo")))


def reply(call: ScriptedCall) -> dict[str, Any]:
    """What the CEO does with a message: it answers."""
    done = "You called" in call.text
    sends = calls(("send_message", {"to": "cro", "content": "Twelve."}))
    return {"result": "Done."} if done else {"result": "", **sends}


async def test_a_role_asks_and_gets_the_reply(tmp_path: Path) -> None:
    policy = Policy(rules=SEND_RULES)
    async with scripted_agent(tmp_path, ScriptedLM(reply), society=CONFIG, policy=policy) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        async with Gateway(agent):
            answer = await cro.request_role("ceo", "How many?", {"reason": "The plan."}, seconds=30)
        assert (answer.from_id, answer.content) == ("ceo", "Twelve.")


async def test_a_reply_that_does_not_come_in_time_is_an_error(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), society=CONFIG, clock=clock) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        asking = asyncio.ensure_future(cro.request_role("ceo", "How many?", {"reason": "The plan."}, seconds=60))
        while not await agent.society.mail.waiting():  # noqa: ASYNC110 -- the message is stored by another task
            await asyncio.sleep(0)
        await clock.advance(61)
        with pytest.raises(PauseExpired):
            await asking


async def test_a_role_notifies_its_contacts_alone(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), society=CONFIG) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        sent = await cro.notify_role("ceo", "It is done.", {"reason": "The plan."})
        assert (sent.from_id, sent.to_id, sent.type, sent.content) == ("cro", "ceo", "notification", "It is done.")
        with pytest.raises(UnknownContact):
            await cro.notify_role("cfo", "It is done.")
    with pytest.raises(InvalidArgument):
        await AutonomousRole(CONFIG.roles[1]).notify_role("ceo", "It is done.")
