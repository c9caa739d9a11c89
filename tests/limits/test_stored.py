"""What an account stores in a day has limits, as its calls and tokens have (H4)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, answering, scripted_agent
from support.homes import rows
from support.inbox import ended, texts
from worldagent import Memory, Settings, WorldAgent
from worldagent.agent import Say
from worldagent.core.errors import LimitReached, SettingsInvalid
from worldagent.core.scope import account_of
from worldagent.scheduling import Cron, Schedule, Schedules, StartMessage
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("H4")


def limited(
    home: Path, clock: VirtualClock | None = None, memory: Memory | None = None, **limits: dict[str, float]
) -> WorldAgent:
    return scripted_agent(home, answering(), settings=limits, clock=clock, memory=memory)


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


async def test_messages_beside_a_turn_count_once(tmp_path: Path) -> None:
    thinking = Thinking()
    async with scripted_agent(tmp_path, thinking.lm, settings={"account_limits": {"bytes": 5_000}}) as agent:
        thread = agent.thread("a", account="ana")
        async with thread.stream("Hello.") as stream:
            await asyncio.wait_for(thinking.asked.wait(), 20)
            for _ in range(2):
                await thread.queue(Say("x" * 2000, key="1"))
            await thread.steer("y" * 2000)
            for more in (thread.steer("z" * 2000), thread.queue("z" * 2000)):
                with pytest.raises(LimitReached, match="'ana' reached its limit of 5000 bytes a day"):
                    await more
            thinking.may.set()
            await stream.wait()
        await ended(thread)
        assert await thread.queued() == ()
        said = [text for kind, text in await texts(thread) if kind == "message"]
        assert said == ["Hello.", "y" * 2000, "x" * 2000]


@pytest.mark.parametrize("wrong", [{"byte": 1}, {"bytes": -1}, {"threads": 1.5}, {"bytes": float("inf")}])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingsInvalid, match=r"account_limits: the limit `?'?(byte|threads)"):
        Settings(account_limits=wrong)


@pytest.mark.on_every_database
async def test_forks_replays_and_what_edits_keep_are_threads_that_an_account_begins(tmp_path: Path) -> None:
    async with limited(tmp_path, account_limits={"threads": 5}) as agent:
        thread = agent.thread("a", account="ana")
        await thread.converse("Hello.")
        fork = await thread.fork(to="fork")
        await fork.converse("It has counted already.")
        await thread.replay(to="again")
        await thread.edit("Hello?")  # what it replaces is a thread
        await thread.fork()
        for more in (thread.fork(to="f"), thread.replay(to="r"), thread.edit("Hi."), thread.edit("Hi.", keep_as="k")):
            with pytest.raises(LimitReached, match="the account 'ana' reached its limit of 5 threads a day"):
                await more
        assert {each.thread for each in await agent.threads(archived=None)}.isdisjoint({"f", "r", "k"})
        await thread.converse("It goes on.")


def schedule(name: str, account: str | None = "ana", text: str = "Hi.") -> Schedule:
    when, starts = Cron("0 0 * * *"), StartMessage(text)
    return Schedule(id=name, when=when, starts=starts, workspace="novel", account=account)


@pytest.mark.on_every_database
async def test_schedules_and_memory_entries_count_as_bytes_and_have_a_number(tmp_path: Path) -> None:
    limits = {"bytes": 3000.0, "schedules": 2, "entries": 2}
    async with limited(tmp_path, account_limits=limits, memory=Memory()) as agent:
        schedules, reached = Schedules(agent), "the account 'ana' reached its limit of"
        for name in ("a", "b"):
            await schedules.add(schedule(name))
            await agent.memory.add(f"A hat {name}.", account="ana", key=name)
        with pytest.raises(LimitReached, match=f"{reached} 2 schedules"):
            await schedules.add(schedule("c"))
        with pytest.raises(LimitReached, match=f"{reached} 2 entries"):
            await agent.memory.add("A hat.", account="ana")
        await agent.memory.add("Not written again.", account="ana", key="a")
        with pytest.raises(LimitReached, match=f"{reached} 2 entries"):
            await agent.memory.import_lines([{"text": "One."}, {"text": "Two."}], account="ana")
        assert [len(await schedules.list()), len([each async for each in agent.memory.export(account="ana")])] == [2, 2]
        await schedules.remove("a")
        await schedules.add(schedule("c"))
        await schedules.add(schedule("like", "an_", text='"account":"ana"'))
        for number in range(3):  # neither what has no account nor what members remember
            await schedules.add(schedule(f"s{number}", None))
            await agent.memory.add(f"Hat {number}.")
            await agent.memory.add(f"Hat {number}.", account=account_of("novel", "cro"))
        with pytest.raises(LimitReached, match=f"{reached} 3000 bytes a day"):
            await agent.memory.add("x" * 4000, account="ana")
        with pytest.raises(LimitReached, match=f"{reached} 3000 bytes a day"):
            await schedules.add(schedule("long", text="x" * 4000))


async def test_without_settings_an_account_keeps_100_schedules_and_10000_entries(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        for number in range(100):
            await Schedules(agent).add(schedule(f"s{number}"))
        with pytest.raises(LimitReached, match="100 schedules; remove some, or raise `schedules`"):
            await Schedules(agent).add(schedule("more"))
        with pytest.raises(LimitReached, match="10000 entries"):
            await agent.memory.import_lines(({"text": f"Hat {number}."} for number in range(10_001)), account="ana")
