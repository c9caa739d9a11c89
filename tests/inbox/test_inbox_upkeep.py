"""What waits on a thread goes with the thread, or with the account that said it (M4, T16)."""

import asyncio
from pathlib import Path

import pytest

from support.agents import Thinking, scripted_agent
from support.homes import found
from support.inbox import Painting, ended

pytestmark = pytest.mark.requirement("M4", "T16")


@pytest.mark.on_every_database
async def test_a_thread_goes_with_what_waits_on_it_and_what_was_read(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("Paint the door.", detach=True) as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            await thread.steer("of the seventh buoy")
            painting.may.set()
            await stream.wait()
        async with thread.stream("Again.", detach=True) as stream:
            for text in ("of the eighth buoy", "of the ninth buoy"):
                await thread.queue(text)
            removed = await agent.upkeep.remove("t", cancel=True)
        await ended(thread)
        assert removed is not None
        assert await thread.queued() == ()
        assert await thread.history() == ()
    assert found(tmp_path, ["of the seventh buoy", "of the eighth buoy", "of the ninth buoy"]) == []


@pytest.mark.on_every_database
async def test_an_account_goes_with_what_it_has_queued_on_a_shared_thread(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        ana, bob = (agent.thread("t", account=account) for account in ("ana", "bob"))
        async with bob.stream("1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            await ana.queue("of the seventh buoy")
            await bob.queue("2")
            await agent.upkeep.remove_account("ana")
            assert [each.text for each in await bob.queued()] == ["2"]
            model.may.set()
            await stream.wait()
        await ended(bob)
    assert found(tmp_path, ["of the seventh buoy"]) == []
