"""`worldagent threads hand-over` and `hand-back`, out of the database alone (A21)."""

import json
from pathlib import Path

import pytest

from support.agents import scripted_agent
from support.command_line import Run, home, refusal, run
from support.role_specs import spec_of, workspace_of
from worldagent.testing import ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A21")

NOVEL = ("--workspace", "novel", "--json")


async def test_commands_hand_a_thread_to_a_member_and_back(home: Path, run: Run) -> None:
    society = workspace_of(roles=(spec_of("bdr"), spec_of("cro")))

    async def said(text: str) -> str:
        lm = ScriptedLM([{"reply": "Fine."}])
        async with scripted_agent(home, lm, society=society) as agent:
            await agent.thread("t1", account="ana").converse(text)
            await agent.society.suspend("cro") if text == "Q1" else None
        return lm.calls[0].text

    await said("Q1")
    done = await run("threads", "hand-over", "t1", "bdr", "--messages", "last:1", *NOVEL)
    assert json.loads(done.stdout)["handed"] == {"thread": "t1", "speaker": "bdr"}
    assert json.loads((await run("threads", "show", "t1", *NOVEL)).stdout)["thread"]["speaker"] == "bdr"
    assert "speaker: bdr" in (await run("threads", "show", "t1", *NOVEL[:2])).stdout
    text = await said("Q2")
    assert ("You are bdr." in text, "Fine." in text, "Q1" in text) == (True, True, False)
    shown = json.loads((await run("threads", "show", "t1", *NOVEL)).stdout)["thread"]["messages"]
    assert [each["author"] for each in shown] == ["ana", "agent", "ana", "bdr"]
    done = await run("threads", "hand-back", "t1", *NOVEL)
    assert json.loads(done.stdout)["handed"]["speaker"] is None
    assert "You are bdr." not in await said("Q3")
    for words, code in (
        (("t1", "nobody"), "unknown_member"),
        (("t1", "cro"), "lifecycle_error"),
        (("t1", "bdr", "--messages", "some"), "invalid_argument"),
    ):
        assert (await refusal(run, "threads", "hand-over", *words, *NOVEL[:2]))["code"] == code
