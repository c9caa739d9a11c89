"""A host killed at any point of a turn: the turn fails with the tier and the remedy, and the next one works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.agents import answering, scripted_agent
from support.processes import eventually, others
from support.role_hosts import HostProcess, Kind, host
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import RoleSourceUnavailable
from worldagent.mcp_client import HttpHost
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("R14"), pytest.mark.parametrize("kind", ["http", "stdio"])]
HOUSE = Role("house", "house words")


@dataclass
class Mortal:
    """A host that can be killed and comes back: a service is started again, a program by the next call."""

    home: Path
    process: HostProcess | None

    async def kill(self) -> None:
        (self.home / "host.told").touch()  # it hangs no more when it is back
        if self.process is not None:
            await self.process.kill()
        for child in psutil.Process().children():
            child.kill()
            await asyncio.to_thread(child.wait, 10)

    async def come_back(self) -> None:
        if self.process is not None:
            await self.process.start()


@contextlib.asynccontextmanager
async def agent_of(
    kind: Kind, home: Path, lm: Any = None, *, broken: str = ""
) -> AsyncGenerator[tuple[WorldAgent, Mortal]]:
    """An agent that asks its host in every turn; when it is closed, no task and no child is left."""
    settings = {"role_timeout": 60, "role_cache_ttl": 0}
    async with contextlib.AsyncExitStack() as stack:
        if kind == "http":
            process = await stack.enter_async_context(HostProcess(home, broken=broken))
            given: Any = HttpHost(process.url, timeout=30)
        else:
            process = None
            given = stack.enter_context(host("stdio", home, broken=broken, timeout=30))
        made = scripted_agent(home / "home", lm or answering(), roles=Roles(host=given), settings=settings)
        async with made as agent:
            yield agent, Mortal(home, process)
        assert await eventually(lambda: others() == 0)
        assert len(psutil.Process().children()) == (kind == "http")


async def test_killed_during_a_model_call_the_turn_goes_on_with_the_roles_it_has(tmp_path: Path, kind: Kind) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        asked.set()
        await asyncio.wait_for(go_on.wait(), 60)
        return {"reply": f"as {call.role}"}

    async with agent_of(kind, tmp_path, ScriptedLM(reply)) as (agent, mortal):
        await agent.roles.put(Tier.WORKSPACE, HOUSE)
        turn = asyncio.create_task(agent.thread("t", account="ana").converse("Hi"))
        await asyncio.wait_for(asked.wait(), 60)
        await mortal.kill()
        go_on.set()
        assert (await turn).text == f"as {HOUSE.content}"
        await mortal.come_back()
        with contextlib.suppress(RoleSourceUnavailable):  # where nobody had noticed yet
            await agent.thread("t").converse("Hi")
        assert (await agent.thread("t").converse("Hi")).role_tiers == (Tier.WORKSPACE,)


async def test_many_turns_at_once_in_an_outage_all_fail_and_all_work_afterwards(tmp_path: Path, kind: Kind) -> None:
    count = 40
    async with agent_of(kind, tmp_path, broken="hangs until told") as (agent, mortal):
        threads = [agent.thread(f"t{n}", account="ana") for n in range(count)]
        turns = [asyncio.create_task(thread.converse("Hi")) for thread in threads]
        log = tmp_path / "host.log"  # where a host gets 32 calls at once
        assert await eventually(lambda: log.exists() and log.read_text().count("hanging") >= 32, 30)
        await mortal.kill()
        async with asyncio.timeout(60):
            failed: list[Turn | BaseException] = await asyncio.gather(*turns, return_exceptions=True)
        # A turn that asks only after the kill starts the program again and is none of the outage.
        told = [error for error in failed if isinstance(error, RoleSourceUnavailable)]
        assert len(told) >= 32
        assert all(isinstance(turn, Turn) and turn.status == "done" for turn in failed if turn not in told)
        for error in told:
            assert "the workspace and account role could not be read" in str(error)
            assert "ended in the middle of a call" in str(error)
            assert str(error).endswith(error.remedy)
            assert error.retryable
            assert error.__context__ is None
        await mortal.come_back()
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(thread.converse("Hi") for thread in threads))
        assert [turn.text for turn in answers] == ["Fine."] * count
        assert len(psutil.Process().children()) == 1
