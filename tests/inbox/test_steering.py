"""Messages beside a turn: steering that the running turn reads, and messages that are queued after it (T15, T16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, scripted_agent, state_of
from support.inbox import Painting, ended, texts
from worldagent import Approve, Role
from worldagent.agent import Say
from worldagent.core import events as ev
from worldagent.core.errors import InvalidArgument, ModelNotConfigured, NothingToSteer, NotSteerable, UnknownMessage
from worldagent.hosts.service.inbox import begun
from worldagent.hosts.service.members import delivering
from worldagent.testing import ScriptedCall, ScriptedLM


async def test_a_running_turn_reads_a_message_after_its_calls_and_before_the_next_thought(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana", name="Ana")
        async with thread.stream("Paint the door.") as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            word = await thread.steer("rather in blue")
            assert word.kind == "steer"
            assert word.turn_id is None
            painting.may.set()
            events = [event async for event in stream]
        assert stream.turn.text == "in blue"
        taken = [event for event in events if isinstance(event, ev.MessageTaken)]
        assert [(each.id, each.author, each.name, each.text) for each in taken] == [
            (word.id, "ana", "Ana", "rather in blue")
        ]
        kinds = [message.kind for message in await thread.history()]
        assert kinds == ["message", "plan", "result", "word", "answer"]
        said = (await thread.history())[3]
        assert (said.author, said.id, said.body["text"]) == ("ana", taken[0].message_id, "rather in blue")
        assert "rather in blue" not in painting.read[0]
        assert 'While you worked, "Ana"' in painting.read[1]
        assert await thread.queued() == ()
        await thread.converse("And now?")  # later turns see it at the same place
        assert painting.read[-1].index("painted door") < painting.read[-1].index("rather in blue")


async def test_a_message_that_the_turn_did_not_read_begins_the_next_one(tmp_path: Path) -> None:
    model = Thinking("Fine.")
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            first, second = await thread.steer("2"), await thread.steer("3")
            model.may.set()
            await stream.wait()
        await ended(thread)
        assert await texts(thread) == [
            ("message", "1"),
            ("answer", "Fine."),
            ("message", "2"),
            ("word", "3"),
            ("answer", "Fine."),
        ]
        assert await thread.queued() == ()
        assert (await thread.state()).turn_id != stream.turn_id  # type: ignore[union-attr]
        assert first.id != second.id


async def test_nothing_to_steer_is_an_error_or_begins_a_turn(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, Thinking().lm) as agent:
        with pytest.raises(NothingToSteer, match="begin=True"):
            await agent.thread("t").steer("2")
        assert await agent.thread("t").queued() == ()
    async with scripted_agent(tmp_path, ScriptedLM(lambda _: {"reply": "Fine."})) as agent:
        await agent.thread("t").steer("2", begin=True)
        await ended(agent.thread("t"))
        assert await texts(agent.thread("t")) == [("message", "2"), ("answer", "Fine.")]


async def test_another_account_cannot_steer_a_turn(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent, agent.thread("t", account="ana").stream("1") as stream:
        await asyncio.wait_for(model.asked.wait(), 20)
        for begin in (False, True):
            with pytest.raises(NotSteerable, match="queue"):
                await agent.thread("t", account="eve").steer("send it to me", begin=begin)
        model.may.set()
        await stream.wait()


async def test_a_host_that_stays_begins_what_another_process_queues(tmp_path: Path) -> None:
    answering = ScriptedLM(lambda _: {"reply": "Fine."})
    leaving: dict[str, Any] = {"settings": {"begin_queued": False}}  # as in a command that ends at once
    async with scripted_agent(tmp_path, answering) as host, scripted_agent(tmp_path, answering, **leaving) as command:
        async with delivering(host), asyncio.timeout(30):
            item = await command.thread("t").queue("1")
            assert await begun(command.thread("t"), [item.id], set()) is not None
        await ended(host.thread("t"))
        assert await texts(host.thread("t")) == [("message", "1"), ("answer", "Fine.")]


async def test_a_model_reads_no_id_of_an_account_with_what_was_said(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana@secret.example")
        async with thread.stream("Paint the door.") as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            await thread.steer("rather in blue")
            painting.may.set()
            await stream.wait()
        assert "rather in blue" in painting.read[1]
        assert "ana@secret" not in painting.read[1]


async def test_queued_messages_begin_one_turn_each_in_order(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            items = [await thread.queue(text) for text in ("2", "3", "4", "5")]
            assert [each.text for each in await thread.queued()] == ["2", "3", "4", "5"]
            assert await thread.withdraw(items[1].id)
            assert not await thread.withdraw(items[1].id)
            await thread.reorder([items[3].id, items[0].id])
            assert [each.text for each in await thread.queued()] == ["5", "2", "4"]
            model.may.set()
            await stream.wait()
        await ended(thread)
        assert [text for kind, text in await texts(thread) if kind == "message"] == ["1", "5", "2", "4"]
        assert {message.author for message in await thread.history() if message.kind == "message"} == {"ana"}


async def test_a_message_that_is_queued_on_an_idle_thread_begins_at_once(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(lambda _: {"reply": "Fine."})) as agent:
        thread = agent.thread("t")
        made = [await thread.queue("1", key="a"), await thread.queue("1", key="a")]
        await ended(thread)
        assert made[0].id == made[1].id
        assert await texts(thread) == [("message", "1"), ("answer", "Fine.")]


async def test_what_waits_begins_when_the_next_agent_opens(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1"):
            await asyncio.wait_for(model.asked.wait(), 20)
            await thread.queue("2")
    answering = ScriptedLM(lambda _: {"reply": "Fine."})
    async with scripted_agent(tmp_path, answering, settings={"begin_queued": False}) as agent:
        assert [each.text for each in await agent.thread("t").queued()] == ["2"]
    async with scripted_agent(tmp_path, answering) as agent:
        await ended(agent.thread("t"))
        assert [text for kind, text in await texts(agent.thread("t")) if kind == "message"] == ["1", "2"]


async def test_an_interrupting_message_cancels_a_thought_at_once(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            second = asyncio.ensure_future(thread.converse("2", interrupt=True))
            first = await asyncio.wait_for(stream.wait(), 20)
            model.may.set()
            assert (first.status, (await second).status) == ("cancelled", "done")


async def test_an_interrupting_message_lets_calls_end_and_keeps_them(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t")
        async with thread.stream("Paint the door.") as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            await thread.queue("later")
            item = await thread.queue("no, in blue", interrupt=True)
            assert next(each.id for each in await thread.queued()) == item.id
            painting.may.set()
            assert (await stream.wait()).status == "cancelled"
        await ended(thread)
        assert painting.painted == 1
        assert [each.kind for each in await thread.history()][:3] == ["message", "plan", "result"]
        assert [text for kind, text in await texts(thread) if kind == "message"] == [
            "Paint the door.",
            "no, in blue",
            "later",
        ]
        shown = painting.read[1]
        assert shown.index("painted door") < shown.index("You were interrupted here") < shown.index("no, in blue")


async def test_a_paused_turn_reads_a_message_when_it_resumes(tmp_path: Path) -> None:
    painting = Painting()
    painting.may.set()
    async with scripted_agent(tmp_path, painting.lm, tools=[painting.tool]) as agent:
        thread = agent.thread("t")
        paused = await thread.converse("Paint the door.")
        await thread.steer("rather in blue")
        await thread.queue("later")
        [pause] = paused.pauses
        turn = await thread.resume({pause.id: Approve()})
        assert turn.text == "in blue"
        await ended(thread)
        assert [text for kind, text in await texts(thread) if kind == "message"] == ["Paint the door.", "later"]


async def test_a_message_queued_under_a_role_waits_for_a_process_that_has_it(tmp_path: Path) -> None:
    roles: list[Any] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        roles.append(call.fields.get("role"))
        return {"reply": "Fine."}

    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        async with thread.stream("1"):
            item = await thread.queue(Say("2", role=Role("pirate", "Talk like a pirate.")))
            await thread.queue("3")
            assert [each.role_tiers for each in await thread.queued()] == [("call",), ()]
    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        thread = agent.thread("t")
        await ended(thread)
        assert [each.waits_for for each in await thread.queued()] == ["role", "turn"]
        await thread.release(item.id, role=Role("pirate", "Talk like a pirate."))
        await ended(thread)
        assert await thread.queued() == ()
        assert [bool(each) and "pirate" in str(each) for each in roles] == [True, False]


async def test_a_message_that_waits_for_the_role_of_its_thread_begins_once_that_is_set(tmp_path: Path) -> None:
    pirate = Role("pirate", "Talk like a pirate.")
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        thread.role.set(pirate)
        async with thread.stream("1"):
            await thread.queue("2")
    model.may.set()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        await ended(thread)
        assert [each.waits_for for each in await thread.queued()] == ["role"]
        thread.role.set(Role("sailor", "Talk like a sailor."))
        await ended(thread)
        assert [each.waits_for for each in await thread.queued()] == ["role"]
        thread.role.set(pirate)
        await ended(thread)
        assert await thread.queued() == ()


async def test_a_message_names_the_turn_that_it_began_or_steered(tmp_path: Path) -> None:
    painting = Painting()
    async with painting.agent(tmp_path) as agent:
        thread = agent.thread("t")
        async with thread.stream("Paint the door.") as stream:
            await asyncio.wait_for(painting.begun.wait(), 20)
            word, item = await thread.steer("rather in blue"), await thread.queue("And then?")
            assert [(await thread.pending(each.id)).turn_id for each in (word, item)] == [None, None]
            painting.may.set()
            await stream.wait()
        await ended(thread)
        assert (await thread.pending(word.id)).turn_id == stream.turn_id
        assert (await thread.pending(item.id)).turn_id == (await state_of(thread)).turn_id
        with pytest.raises(UnknownMessage, match=item.id):
            await agent.thread("other").pending(item.id)


@pytest.mark.parametrize("text", ["", " ", "\ud800", 5])
async def test_what_is_not_a_text_is_refused(tmp_path: Path, text: Any) -> None:
    async with scripted_agent(tmp_path, Thinking().lm) as agent:
        thread = agent.thread("t")
        for say in (thread.steer, thread.converse, lambda text: thread.queue(Say(text))):
            with pytest.raises(InvalidArgument, match="`text` must be a non-empty string"):
                await say(text)


async def test_a_key_of_a_queued_message_is_refused_to_others(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, Thinking().lm) as agent:
        with pytest.raises(InvalidArgument, match=r"'inbox:'.*use another key"):
            await agent.thread("t").converse("Hello", key="inbox:1")


async def test_a_queued_message_keeps_the_model_of_its_turn(tmp_path: Path) -> None:
    model, fast = Thinking(), ScriptedLM([{"reply": "Quick."}])
    async with scripted_agent(tmp_path, model.lm, models={"fast": fast}) as agent:
        thread = agent.thread("t")
        async with thread.stream("1") as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
            await thread.queue(Say("2", model="fast"))
            with pytest.raises(ModelNotConfigured, match="'slow'"):
                await thread.queue(Say("3", model="slow"))
            with pytest.raises(InvalidArgument, match="key"):
                await thread.queue(Say("3", key="a"), key="")
            model.may.set()
            await stream.wait()
        await ended(thread)
        assert (await texts(thread))[2:] == [("message", "2"), ("answer", "Quick.")]
    fast.assert_all_used()
