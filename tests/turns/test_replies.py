"""A turn waits for the reply to a message, which no person can give; host code brings it (A4, T4)."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import Said, open_pauses, shape
from support.processes import call_of, killed, start_script
from support.replies import Noting, reply_and_die, requesting, sent
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    FunctionInvalid,
    InvalidArgument,
    NobodyToAsk,
)
from worldagent.core.pauses import Answer, Approve, Happened, NotHappened, Reject, RunAgain
from worldagent.graphs import TaskContext
from worldagent.harness import tool
from worldagent.harness.context import wait_for_replies, wait_for_reply
from worldagent.harness.journal import Reply
from worldagent.hosts.service.answers import pause_record, read_answers
from worldagent.hosts.service.typed_answers import pause_text
from worldagent.memory.turns import thread_key
from worldagent.testing import VirtualClock

pytestmark = [pytest.mark.requirement("A4", "T4"), pytest.mark.timeout(120)]

FORMS: list[dict[str, Any]] = [{"answer": "blue"}, {"approve": {}}, {"reply": {"value": "blue"}}]
BLUE = Reply({"text": "blue"})


@pytest.mark.on_every_database
async def test_a_turn_pauses_and_resumes_elsewhere_with_the_reply(tmp_path: Path) -> None:
    notifier = Noting()
    async with requesting(tmp_path, seconds=60, notifier=notifier) as agent:
        turn = await agent.thread("t").converse("Go", unattended="pause")
        [pause] = turn.pauses
        assert (turn.status, pause.kind, pause.arguments) == ("paused", "reply", {"message_id": "message-hat"})
        assert pause.expires is not None
        assert round((pause.expires - pause.since) / timedelta(seconds=1)) == 60
        assert notifier.pauses == [], "no person can do anything"
        [waiting] = await inside(agent).stores.journal.open_replies("novel")
        assert not await inside(agent).stores.leases.owned([thread_key(waiting.scope)])
    async with requesting(tmp_path) as agent:
        [waiting] = await inside(agent).stores.journal.open_replies("novel")
        assert (waiting.message_ids, waiting.turn_id, waiting.expires) == (("message-hat",), turn.id, pause.expires)
        thread = agent.thread(waiting.scope.thread or "")
        turn = await thread.resume({waiting.pause_id: BLUE})
        assert (turn.status, turn.text) == ("done", "blue")
        assert await inside(agent).stores.journal.open_replies("novel") == ()
        with pytest.raises(AlreadyAnswered):
            await thread.resume({waiting.pause_id: BLUE})
    assert sent(tmp_path) == ["hat", "got blue"]


@pytest.mark.on_every_database
async def test_a_kill_after_the_reply_repeats_nothing(tmp_path: Path) -> None:
    async with requesting(tmp_path) as agent:
        [pause] = (await agent.thread("t").converse("Go")).pauses
    await killed(await start_script(call_of(reply_and_die, tmp_path, pause.id)))
    async with requesting(tmp_path) as agent:
        assert await inside(agent).stores.journal.open_replies("novel") == ()
        assert (await agent.thread("t").resume()).text == "blue"
    assert sent(tmp_path) == ["hat", "got blue"]


async def test_the_deadline_ends_the_wait_and_a_later_reply_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with requesting(tmp_path, seconds=60, clock=clock) as agent:
        thread = agent.thread("t")
        [pause] = (await thread.converse("Go")).pauses
        assert (await thread.resume()).status == "paused", "it is not over yet"
        await clock.advance(61)
        with pytest.raises(AnswerInvalid, match="after it expired"):
            await thread.resume({pause.id: BLUE})
        assert (await thread.resume()).text == "no reply"
    assert sent(tmp_path) == ["hat"]


@pytest.mark.requirement("A20")
@pytest.mark.on_every_database
@pytest.mark.parametrize("late", [False, True])
async def test_a_turn_waits_once_for_several_replies_and_gathers_them_once(tmp_path: Path, late: bool) -> None:
    async def several(ctx: TaskContext) -> str:
        async def gather(value: Any, until: datetime | None) -> Any:
            gathered.append((value, until))
            return {"text": f"gathered {len(gathered)}"}

        found = await wait_for_replies(ctx.calls, ["m1", "m2"], gather, quorum=1, seconds=60)
        return str(await ctx.call("write", {"text": found["text"]}))

    gathered: list[Any] = []
    given: dict[str, Any] = {"shapes": [shape(several)], "clock": (clock := VirtualClock()), "policy": None}
    async with requesting(tmp_path, **given) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        assert (pause.kind, pause.arguments) == ("reply", {"message_ids": ["m1", "m2"], "quorum": 1})
        [waiting] = await inside(agent).stores.journal.open_replies("novel")
        assert (waiting.message_ids, waiting.quorum, waiting.expires) == (("m1", "m2"), 1, pause.expires)
        assert gathered == []
    async with requesting(tmp_path, **given) as agent:
        await clock.advance(61 if late else 1)
        [approval] = (await agent.thread("t").resume({} if late else {pause.id: BLUE})).pauses
        assert (approval.kind, approval.arguments) == ("approval", {"text": "gathered 1"})
        assert await inside(agent).stores.journal.open_replies("novel") == ()
    async with requesting(tmp_path, **given) as agent:
        turn = await agent.thread("t").resume({approval.id: Approve()})
        assert turn.result == Said(text="gathered 1")
    assert gathered == [(None if late else {"text": "blue"}, pause.expires)]
    assert sent(tmp_path) == ["gathered 1"]


async def test_host_code_ends_a_wait_to_which_no_reply_will_come(tmp_path: Path) -> None:
    async with requesting(tmp_path) as agent:
        [pause] = (await agent.thread("t").converse("Go")).pauses
        assert (await agent.thread("t").resume({pause.id: Reply(expired=True)})).text == "no reply"


async def test_a_second_reply_is_refused(tmp_path: Path) -> None:
    async def both(ctx: TaskContext) -> str:
        return " ".join(await asyncio.gather(*(wait_for_reply(ctx.calls, each) for each in ("m1", "m2"))))

    async with requesting(tmp_path, shapes=[shape(both)]) as agent:
        thread = agent.thread("t")
        found = {pause.arguments["message_id"]: pause.id for pause in (await thread.task("job", {})).pauses}
        assert (await thread.resume({found["m2"]: Reply("two")})).status == "paused"
        with pytest.raises(AlreadyAnswered):
            await thread.resume({found["m2"]: Reply("again")})
        assert (await thread.resume({found["m1"]: Reply("one")})).result == Said(text="one two")


@pytest.mark.parametrize(
    "answer", [Approve(), Reject("no"), Answer("blue"), "blue", Happened("blue"), NotHappened(), RunAgain()]
)
async def test_no_person_can_answer_it(tmp_path: Path, answer: Any) -> None:
    async with requesting(tmp_path) as agent:
        thread = agent.thread("t")
        [pause] = (await thread.converse("Go")).pauses
        with pytest.raises(AnswerInvalid, match="which is of kind 'reply'"):
            await thread.resume({pause.id: answer})
        assert [each.id for each in await open_pauses(thread)] == [pause.id]
        assert pause_record(pause)["answers"] == {}
        assert "no person can answer it" in pause_text(pause)
        assert "answer:" not in pause_text(pause)
        for form in FORMS:
            with pytest.raises(AnswerInvalid, match="waits for the reply to a message"):
                read_answers({pause.id: form}, [pause], account=None)
    assert sent(tmp_path) == ["hat"]


@pytest.mark.on_every_database
async def test_open_replies_are_those_of_paused_turns_of_the_workspace_by_deadline(tmp_path: Path) -> None:
    expected = []
    for name, seconds in (("late", 500.0), ("never", None), ("soon", 5.0)):
        async with requesting(tmp_path, seconds=seconds) as agent:
            thread = agent.thread(name, account="ada", channel="mail")
            [pause] = (await thread.converse("Go")).pauses
            expected.append((seconds or 1e9, name, pause.id))
    async with requesting(tmp_path) as agent:
        found = await inside(agent).stores.journal.open_replies("novel")
        assert [(each.scope.thread, each.pause_id) for each in found] == [each[1:] for each in sorted(expected)]
        assert {(each.scope.account, each.scope.channel) for each in found} == {("ada", "mail")}
        assert [each.scope.thread for each in await inside(agent).stores.journal.open_replies("novel", limit=1)] == [
            "soon"
        ]
        assert await inside(agent).stores.journal.open_replies("other") == ()
        assert await agent.thread("soon", account="ada", channel="mail").cancel()
        assert [each.scope.thread for each in await inside(agent).stores.journal.open_replies("novel")] == [
            "late",
            "never",
        ]


@pytest.mark.requirement("H9")
async def test_a_model_has_influenced_what_code_does_after_a_reply(tmp_path: Path) -> None:
    async with requesting(tmp_path) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        [approval] = (await agent.thread("t").resume({pause.id: Reply("blue")})).pauses
        assert (approval.kind, approval.arguments) == ("approval", {"text": "blue"})
    async with requesting(tmp_path) as agent:
        assert (await agent.thread("t").resume({approval.id: Approve()})).result == Said(text="blue")
    assert sent(tmp_path) == ["blue"]


async def test_a_wait_needs_a_turn_a_flow_and_valid_arguments(tmp_path: Path) -> None:
    contexts: list[TaskContext] = []

    @tool(risk="read_only")
    async def leaf() -> str:
        return str(await wait_for_reply(contexts[0].calls, "m1"))

    async def checks(ctx: TaskContext) -> str:
        contexts.append(ctx)
        with pytest.raises(FunctionInvalid, match="the leaf 'leaf' cannot call 'wait_for_reply'"):
            await ctx.call("leaf", {})
        with pytest.raises(InvalidArgument, match="`message_id`"):
            await wait_for_reply(ctx.calls, "")
        with pytest.raises(InvalidArgument, match="`seconds`"):
            await wait_for_reply(ctx.calls, "m1", seconds=-1)
        return "checked"

    async with requesting(tmp_path, shapes=[shape(checks)], tools=[leaf]) as agent:
        assert (await agent.thread("t").task("job", {})).result == Said(text="checked")
        with pytest.raises(NobodyToAsk, match="requires a reply"):
            await agent.call("request", {"text": "hat"})
