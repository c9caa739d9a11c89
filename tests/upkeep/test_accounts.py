"""An account that is removed: its threads, its schedules and its memory entries go, by one call (M4, D10)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Gate, Nothing, Said, scripted_agent
from support.homes import found
from worldagent import Memory
from worldagent.agent.upkeep import RemovedAccount
from worldagent.core.errors import InvalidArgument, ThreadBusy, ThreadPaused
from worldagent.graphs import Shape
from worldagent.mcp_client.logins import LoginRecord, LoginStore
from worldagent.scheduling import Every, Schedule, Schedules, StartMessage
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("M4")

SAID = "Ana rows to the seventh buoy every morning."
NOTES = {"ana": "The seventh buoy is where she turns.", "bob": "He never learned to swim at all."}
SHARED = "Who else rows in the morning?"
NOTHING = RemovedAccount(threads=0, messages=0, turns=0, entries=0, schedules=0)


def _model() -> ScriptedLM:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": "Fine.", "calls": []}

    return ScriptedLM(reply)


@pytest.mark.on_every_database
async def test_an_account_goes_with_all_that_is_its_alone(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, _model(), memory=Memory()) as agent:
        ana, workspace = agent.thread("row", account="ana"), agent.workspace
        await ana.converse(SAID)
        await ana.edit(f"{SAID} Twice.")
        await ana.fork(to="plan")
        for account in ("ana", "bob"):
            await agent.thread("talk", account=account).converse(SHARED)
            await agent.memory.add(NOTES[account], account=account)
            await Schedules(agent).add(
                Schedule(
                    id=f"of-{account}",
                    workspace=workspace,
                    account=account,
                    when=Every(3600),
                    starts=StartMessage(SHARED),
                )
            )
        await agent.memory.add("The harbour opens at six.")
        places = [("mail", "ana"), ("notes", "ana"), ("mail", "bob"), ("mail", None)]
        logins = [LoginStore(tmp_path, workspace).of(name, "https://a.example", whose) for name, whose in places]
        for login in logins:
            await login.write(LoginRecord(tokens={"access_token": "x"}, client={}))
        removed = await agent.upkeep.remove_account("ana")
        assert removed == RemovedAccount(
            threads=3, messages=4, turns=2, entries=1, schedules=1, logins=2, shared=("talk",)
        )
        assert [await login.read() is not None for login in logins] == [False, False, True, True]
        assert [state.thread for state in await agent.threads(archived=None)] == ["talk"]
        assert [schedule.id for schedule in await Schedules(agent).list()] == ["of-bob"]
        texts = {entry.text for entry in await agent.memory.list(account="ana")}
        assert texts == {"The harbour opens at six."}
        assert {entry.text for entry in await agent.memory.list(account="bob")} == {*texts, NOTES["bob"]}
        assert await agent.upkeep.remove_account("ben") == NOTHING
        with pytest.raises(InvalidArgument, match="account"):
            await agent.upkeep.remove_account("")
        assert found(tmp_path, [NOTES["ana"], f"{SAID} Twice."]) == []


async def test_an_account_with_a_turn_is_removed_only_with_it(tmp_path: Path) -> None:
    gate = Gate()
    shapes: list[Shape[Any, Any]] = [Shape("wait", Nothing, Said, gate.run)]
    async with scripted_agent(tmp_path, _model(), shapes=shapes, memory=Memory()) as agent:
        await agent.thread("row", account="ana").converse(SAID)
        turn = asyncio.create_task(agent.thread("wait", account="ana").task("wait", {}))
        await gate.begun.wait()
        with pytest.raises(ThreadBusy, match="a turn runs on the thread 'wait'; wait for it, or cancel it as well"):
            await agent.upkeep.remove_account("ana")
        assert len(await agent.threads()) == 2
        assert (await agent.upkeep.remove_account("ana", cancel=True)).threads == 2
        assert (await turn).status == "cancelled"
        assert await agent.threads() == ()


async def test_an_account_with_a_turn_that_waits_keeps_all_that_it_has(tmp_path: Path) -> None:
    async def ask(params: Nothing, ctx: Any) -> Said:
        return Said(text=str(await ctx.calls.ask_person("Which?")))

    async with scripted_agent(tmp_path, _model(), shapes=[Shape("ask", Nothing, Said, ask)], memory=Memory()) as agent:
        await agent.memory.add(SAID, account="ana")
        await agent.thread("row", account="ana").task("ask", {})
        with pytest.raises(ThreadPaused, match="is paused and can be resumed"):
            await agent.upkeep.remove_account("ana")
        assert (len(await agent.threads()), len(await agent.memory.list(account="ana"))) == (1, 1)
