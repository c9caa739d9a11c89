"""Distilling: what a model notes of quiet threads, and what becomes of it (M1, M4, M5)."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.homes import rows
from support.inbox import ended
from worldagent import Memory, Role
from worldagent.core.errors import InvalidArgument, WorldAgentError
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("M1")


def noting(call: ScriptedCall) -> dict[str, Any]:
    """Notes each sentence of a person that begins with `I`; a new town replaces the old one."""
    if "conversation" not in call.fields:
        return {"reply": "Fine."}
    said = [line.split(": ", 1)[1] for line in call.fields["conversation"].split("\n\n") if ": I " in line]
    known = [each["id"] for each in _known(call) if "live" in each["text"]]
    return {"notes": [{"text": text, "replaces": known[0] if "live" in text and known else ""} for text in said]}


def _known(call: ScriptedCall) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(call.fields["known"])
    return found


@pytest.mark.on_every_database
async def test_notes_of_a_thread_are_entries_of_who_spoke(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory()) as agent:
        await agent.thread("t", account="ana").converse("I live in Bonn.")
        await agent.thread("t", account="bob").converse("I like tea.")
        await agent.thread("t").converse("I am nobody.")
        made = await agent.memory.distil("t")
        assert {(entry.account, entry.text) for entry in made} == {("ana", "I live in Bonn."), ("bob", "I like tea.")}
        assert {(entry.source.by, entry.source.thread) for entry in made} == {("distilled", "t")}
        assert await agent.memory.distil("t") == ()
        await agent.thread("u", account="ana").converse("I live in Ulm.")
        [newer] = await agent.memory.distil("u")
        assert {entry.text for entry in await agent.memory.list(account="ana")} == {"I live in Ulm."}
        older = [each for each in await agent.memory.list(account="ana", replaced=True) if each.id != newer.id]
        assert [(each.text, each.replaced_by) for each in older] == [("I live in Bonn.", newer.id)]
        await agent.upkeep.remove("u")
        assert {entry.text for entry in await agent.memory.list(account="ana")} == {"I live in Bonn."}
        await agent.upkeep.remove("t")
        assert await agent.memory.list(account="bob") == ()
        assert await rows(agent, "wa_distilled") == 0


async def test_what_was_said_to_a_running_turn_is_distilled_as_said_by_the_person(tmp_path: Path) -> None:
    asked, may = asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if "conversation" in call.fields:
            return noting(call)
        asked.set()
        await may.wait()
        return {"reply": "Fine."}

    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("I live in Bonn.") as stream:
            await asyncio.wait_for(asked.wait(), 30)
            await thread.steer("I like tea.")
            await thread.steer("I like rain.")
            may.set()
            await stream.wait()
        await ended(thread)
        assert [each.kind for each in await thread.history()][-2:] == ["word", "answer"]
        assert {entry.text for entry in await agent.memory.distil("t")} == {
            "I live in Bonn.",
            "I like tea.",
            "I like rain.",
        }


async def test_a_thread_that_is_quiet_long_enough_is_distilled_once(tmp_path: Path) -> None:
    clock, lm = VirtualClock(), ScriptedLM(noting)
    async with scripted_agent(tmp_path, lm, memory=Memory(distil_after=600), clock=clock) as agent:
        await agent.thread("t", account="ana").converse("I live in Bonn.")
        await clock.advance(500)
        assert await agent.memory.list(account="ana") == ()
        async with asyncio.timeout(30):
            while not await agent.memory.list(account="ana"):
                await clock.advance(60)
        asked = len(lm.calls)
        await clock.advance(2000)
        assert len(lm.calls) == asked
        assert len(await agent.memory.list(account="ana")) == 1


async def test_an_archived_thread_is_distilled_soon(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory(distil_after=86_400), clock=clock) as agent:
        for account in ("ana", "ben"):
            await agent.thread(account, account=account).converse("I live in Bonn.")
        await agent.thread("ana").archive()
        async with asyncio.timeout(30):
            while not await agent.memory.list(account="ana"):
                await clock.advance(60)
        assert await agent.memory.list(account="ben") == ()


async def test_a_message_that_was_edited_is_distilled_as_it_is_now(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("I live in Bonn.")
        await thread.edit("I like tea.")
        assert [entry.text for entry in await agent.memory.distil("t")] == ["I like tea."]


@pytest.mark.requirement("M4")
@pytest.mark.on_every_database
async def test_an_entry_of_a_turn_that_was_edited_goes_with_its_old_version(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("I live in Bonn.")
        await agent.memory.distil("t")
        await thread.edit("I like tea.", keep_as="old")
        await agent.memory.distil("t")
        assert {entry.text for entry in await agent.memory.list(account="ana")} == {"I live in Bonn.", "I like tea."}
        await agent.upkeep.remove("old")
        assert [entry.text for entry in await agent.memory.list(account="ana")] == ["I like tea."]


async def test_threads_that_fail_do_not_keep_others_from_being_distilled(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "I break" in call.fields.get("conversation", ""):
            raise ConnectionError("down")
        return noting(call)

    clock = VirtualClock()
    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory(distil_after=600), clock=clock) as agent:
        for number in range(25):
            await agent.thread(f"t{number}", account="ben").converse("I break it.")
        await agent.thread("u", account="ana").converse("I live in Bonn.")
        async with asyncio.timeout(60):
            while not await agent.memory.list(account="ana"):
                await clock.advance(60)
        assert await agent.memory.list(account="ben") == ()


@pytest.mark.requirement("M4")
async def test_expired_entries_leave_the_file_while_the_agent_is_open(tmp_path: Path) -> None:
    clock, text = VirtualClock(), "Ana rows to the seventh buoy."
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory(), clock=clock) as agent:
        await agent.memory.add(text, account="ana", expires=clock.now() + timedelta(hours=1))
        assert text.encode() in _files(tmp_path)
        async with asyncio.timeout(30):
            while text.encode() in _files(tmp_path):
                await clock.advance(600)
        assert await rows(agent, "wa_entry") == 0


def _files(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())


async def test_the_threads_that_were_not_distilled_yet_are_listed(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, ScriptedLM(noting), memory=Memory(), clock=clock) as agent:
        for thread in ("t", "u", "v"):
            await agent.thread(thread, account="ana").converse("I live in Bonn.")
            await clock.advance(100)
        assert await agent.memory.undistilled() == ("t", "u", "v")
        assert await agent.memory.undistilled(quiet=200) == ("t", "u")
        await agent.memory.distil("t")
        assert await agent.memory.undistilled(quiet=200) == ("u",)
        with pytest.raises(InvalidArgument, match="`quiet` must be seconds from 0, at most a year"):
            await agent.memory.undistilled(quiet=-1)
        with pytest.raises(InvalidArgument, match="thread 'w' has no turn yet; send a message"):
            await agent.memory.distil("w")


async def test_two_processes_that_distil_one_thread_write_it_once(tmp_path: Path) -> None:
    lm = ScriptedLM(noting)
    async with (
        scripted_agent(tmp_path, lm, memory=Memory()) as one,
        scripted_agent(tmp_path, lm, memory=Memory()) as two,
    ):
        await one.thread("t", account="ana").converse("I live in Bonn.")
        made = await asyncio.gather(*(agent.memory.distil("t") for agent in (one, two)))
        assert sorted(map(len, made)) == [0, 1]
        assert len(await one.memory.list(account="ana")) == 1


async def test_a_model_that_fails_writes_nothing(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "conversation" in call.fields:
            raise ConnectionError("down")
        return {"reply": "Fine."}

    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory()) as agent:
        await agent.thread("t", account="ana").converse("I live in Bonn.")
        with pytest.raises(WorldAgentError):
            await agent.memory.distil("t")
        assert await rows(agent, "wa_distilled") == 0
        assert await rows(agent, "wa_entry") == 0


@pytest.mark.requirement("R7")
async def test_a_role_reaches_no_note(tmp_path: Path) -> None:
    role, lm = Role("keeper", "Speak as the keeper of the seventh gate, who never laughs at all."), ScriptedLM(noting)
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        await agent.thread("t", account="ana").converse("I live in Bonn.", role=role)
        await agent.memory.distil("t")
        assert (lm.calls[-1].role, "seventh gate" in lm.calls[-1].text) == (None, False)


async def test_the_signature_can_be_compiled(tmp_path: Path) -> None:
    lm = ScriptedLM(noting)
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        program: Any = agent.program("DistilConversation")
        program.predict.signature = program.predict.signature.with_instructions("Note towns only.")
        await agent.use_program("DistilConversation", program)
        await agent.thread("t", account="ana").converse("I live in Bonn.")
        await agent.memory.distil("t")
        assert "Note towns only." in lm.calls[-1].system
