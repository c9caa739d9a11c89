"""What an account stores in a day has limits, as its calls and tokens have (H4)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.homes import rows
from worldagent import Settings, WorldAgent
from worldagent.core.errors import LimitReached, SettingsInvalid
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("H4")


def limited(home: Path, clock: VirtualClock | None = None, **limits: dict[str, float]) -> WorldAgent:
    return scripted_agent(home, answering(), settings=limits, clock=clock)


@pytest.mark.on_every_database
async def test_an_account_begins_so_many_threads_a_day(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with limited(tmp_path, clock, account_limits={"threads": 2}) as agent:
        for name in ("a", "b", "a"):
            await agent.thread(name, account="ana").converse("Hello.")
        with pytest.raises(LimitReached, match="the account 'ana' reached its limit of 2 threads a day"):
            await agent.thread("c", account="ana").converse("Hello.")
        assert await agent.thread("c", account="ana").state() is None
        assert await rows(agent, "wa_message") == 6
        await agent.thread("a", account="ana").converse("It is not new.")
        await agent.thread("d", account="bob").converse("Hello.")
        await agent.thread("e").converse("Hello.")
        await clock.advance(86_400)
        await agent.thread("c", account="ana").converse("Hello.")
    async with limited(tmp_path, clock, workspace_limits={"threads": 2.0}) as other:  # counts what was begun before
        await other.thread("f", account="bob").converse("Hello.")
        with pytest.raises(LimitReached, match="the workspace 'novel' reached its limit of 2 threads a day"):
            await other.thread("g", account="ana").converse("Hello.")


async def test_an_account_stores_so_many_bytes_a_day(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with limited(tmp_path, clock, account_limits={"bytes": 10_000}) as agent:
        thread = agent.thread("a", account="ana")
        await thread.converse("x" * 3000)
        picture = await agent.attachments.add(b"y" * 3000, name="a.txt", account="ana")
        await thread.converse("See.", attachments=[picture])  # it is stored once, and counts once
        with pytest.raises(LimitReached, match="'ana' reached its limit of 10000 bytes a day; wait for the next day"):
            await agent.attachments.add(b"z" * 4000, account="ana")
        with pytest.raises(LimitReached, match="bytes"):
            await thread.converse("See.", attachments=[b"z" * 4000])
        await thread.converse("z" * 2000)
        await agent.attachments.add(b"z" * 4000, account="bob")
        await agent.attachments.add(b"z" * 4000)
        await clock.advance(86_400)
        await agent.attachments.add(b"z" * 4000, account="ana")


@pytest.mark.parametrize("wrong", [{"byte": 1}, {"bytes": -1}, {"threads": 1.5}, {"bytes": float("inf")}])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingsInvalid, match=r"account_limits: the limit `?'?(byte|threads)"):
        Settings(account_limits=wrong)
