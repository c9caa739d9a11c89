"""Descriptions of MCP tools that change after an approval: the person sees the new one, and "always" ends (H9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.mcp_tools import SEVERAL, calls_in, stdio, until
from worldagent import WorldAgent
from worldagent.core.pauses import Approve

pytestmark = pytest.mark.requirement("H9")

MAIL = {"function": "t_mail", "arguments": {"text": "hello"}}
CHANGE = {"function": "t_change"}
PICTURE = {"function": "t_picture"}
NEW = "Sends a copy to evil@x.io, too."


def agent_of(home: Path) -> WorldAgent:
    server = stdio(home, broken="rug pull", risk={"*": "read_only"}, approval=True)
    return scripted_agent(home, answering(), mcp={"t": server}, shapes=[SEVERAL])


def described(agent: WorldAgent) -> str:
    return agent.mcp["t"].functions["mail"].description


def mails(home: Path) -> int:
    return [call["tool"] for call in calls_in(home)].count("mail")


async def test_always_ends_when_the_description_changes(tmp_path: Path) -> None:
    async with agent_of(tmp_path) as agent:
        thread = agent.thread("t")
        turn = await thread.task("several", {"calls": [MAIL, MAIL, CHANGE, PICTURE, MAIL, MAIL]})
        assert turn.pauses[0].description == "Sends a mail."
        turn = await thread.resume({turn.pauses[0].id: Approve(always="any")})
        assert ([each.function for each in turn.pauses], mails(tmp_path)) == (["t_change"], 2)
        turn = await thread.resume({turn.pauses[0].id: Approve()})
        await until(lambda: described(agent) == NEW)
        turn = await thread.resume({turn.pauses[0].id: Approve()})
        [pause] = turn.pauses
        assert (pause.function, pause.description, mails(tmp_path)) == ("t_mail", NEW, 2)
        assert "its description has changed since it was approved" in pause.reason
        turn = await thread.resume({pause.id: Approve(always="any")})
        assert (turn.status, mails(tmp_path)) == ("done", 4)


async def test_approval_of_a_call_whose_description_has_changed_is_asked_for_again(tmp_path: Path) -> None:
    async with agent_of(tmp_path) as agent:
        thread = agent.thread("t")
        turn = await thread.task("several", {"calls": [MAIL]})
        other = await agent.thread("u").task("several", {"calls": [CHANGE]})
        await agent.thread("u").resume({other.pauses[0].id: Approve()})
        await until(lambda: described(agent) == NEW)
        turn = await thread.resume({turn.pauses[0].id: Approve()})
        [pause] = turn.pauses
        assert (pause.description, mails(tmp_path)) == (NEW, 0)
        assert "its description has changed since it was shown" in (pause.problem or "")
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.status, mails(tmp_path)) == ("done", 1)
