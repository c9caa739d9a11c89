"""What callers over A2A asked of members, as the database has it (A22)."""

from pathlib import Path

import pytest

from support.databases import Engine, fresh, on_every_database
from support.role_specs import spec_of, workspace_of
from support.society import tables
from worldagent.core.errors import LifecycleError, MessageInvalid, UnknownMember, UnknownTask
from worldagent.members import Society

pytestmark = pytest.mark.requirement("A22")


@on_every_database
async def test_tasks_belong_to_their_caller_and_a_repeat_is_the_same(engine: Engine, tmp_path: Path) -> None:
    async with tables(fresh(engine, tmp_path)) as database:
        society = Society(workspace_of(), database)
        await society.join(spec_of("ada"))
        offers = society.offers
        first = await offers.ask("ada", "ana", "m1", "Hello.", context="talk")
        assert (first.state, first.context, first.text) == ("submitted", "talk", "")
        assert first.messages == ((first.id, True, "Hello."),)
        assert await offers.ask("ada", "ana", "m1", "Hello.", context="talk") == first
        second = await offers.ask("ada", "ana", "m2", "And?", context="other")
        assert (await offers.ask("ada", "bo", "m1", "Hello.")).id != first.id
        assert [each.id for each in (await offers.list("ada", "ana"))[0]] == [second.id, first.id]
        found, count = await offers.list("ada", "ana", limit=1, before=second.place)
        assert ([each.id for each in found], count) == ([first.id], 2)
        assert [each.id for each in (await offers.list("ada", "ana", context="talk"))[0]] == [first.id]
        for account in ("bo", None):
            with pytest.raises(UnknownTask):
                await offers.task("ada", account, first.id)
        with pytest.raises(LifecycleError):
            await offers.ask("ada", "ana", "m3", "More.", task=first.id)
        with pytest.raises(UnknownMember):
            await offers.ask("kim", "ana", "m4", "Hello.")
        with pytest.raises(MessageInvalid):
            await offers.ask("ada", "ana", "m5", " ")
        assert len(await society.mail.of("ada")) == 3  # what was refused left nothing


@on_every_database
async def test_questions_answers_and_cancelling_follow_from_the_messages(engine: Engine, tmp_path: Path) -> None:
    async with tables(fresh(engine, tmp_path)) as database:
        society = Society(workspace_of(), database)
        await society.join(spec_of("ada"))
        offers, mail = society.offers, society.mail
        task = await offers.ask("ada", "ana", "m1", "Paint it.")
        await mail.answer(task.id)  # its turn begins
        assert (await offers.task("ada", "ana", task.id)).state == "working"
        question = await mail.send("ada", "a2a:ana", "Which colour?", kind="request")
        asked = await offers.task("ada", "ana", task.id)
        assert (asked.state, asked.text) == ("asking", "Which colour?")
        await offers.ask("ada", "ana", "m2", "Red.", task=task.id)
        [reply] = [each for each in await mail.of("ada") if each.message.correlation_id == question.message.id]
        assert (reply.message.type, reply.message.content) == ("response", "Red.")
        assert (await offers.task("ada", "ana", task.id)).state == "working"
        await mail.send("ada", "a2a:ana", "It is red.")
        done = await offers.task("ada", "ana", task.id)
        assert (done.state, done.text) == ("done", "It is red.")
        with pytest.raises(LifecycleError):
            await offers.cancel("ada", "ana", task.id)
        other = await offers.ask("ada", "ana", "m3", "Again.")
        assert (await offers.cancel("ada", "ana", other.id)).state == "cancelled"
        assert other.id not in [each.message.id for each in await mail.waiting()]
