"""Turns that wait for a person: what they show and in which form, which answers are taken, what runs then (T4, R13)."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.agents import Muse, Said, Thinking, answering, scripted_agent, shape, shop, state_of, streamed
from support.sidecar_served import Shop, call
from worldagent import Role, Tier, WorldAgent
from worldagent.core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    InvalidArgument,
    NothingToResume,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    ThreadPaused,
    UnknownPause,
    WorldAgentError,
)
from worldagent.core.events import TurnStarted
from worldagent.core.pauses import Approve, Reject, call_id_of, pause_id_of
from worldagent.graphs import Composed, TaskContext
from worldagent.harness import Function, tool
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T4")


def writing(done: list[str], **more: Any) -> Function:
    async def write(what: str) -> str:
        done.append(what)
        return f"wrote {what}"

    made: Function = tool(**more)(write)
    return made


async def asks_twice(ctx: TaskContext) -> str:
    first, second, third = await asyncio.gather(
        ctx.call("pay", {"what": "a"}),
        ctx.calls.ask_person("Which colour?", ["red", "blue"]),
        ctx.call("write", {"what": "c"}),
    )
    return f"{first}, {second}, {third}"


def paying(home: Path, done: list[str], **more: Any) -> WorldAgent:
    functions = [writing(done), writing(done, name="pay", approval=True)]
    return scripted_agent(home, answering(), tools=functions, shapes=[shape(asks_twice, entry=Muse)], **more)


@pytest.mark.on_every_database
@pytest.mark.parametrize("together", [True, False])
async def test_concurrent_pauses_are_answered_together_or_one_by_one(tmp_path: Path, together: bool) -> None:
    done: list[str] = []
    agent = await paying(tmp_path, done).start()
    turn = await agent.thread("t").task("job", {})
    assert turn.status == "paused"
    assert done == ["c"]
    pay, ask = sorted(turn.pauses, key=lambda pause: pause.kind)
    assert (pay.kind, pay.function, pay.arguments) == ("approval", "pay", {"what": "a"})
    assert (ask.kind, ask.question, ask.options) == ("question", "Which colour?", ("red", "blue"))
    said: dict[str, object] = {ask.id: "blue", pay.id: Approve()}
    answers = [said] if together else [{one: answer} for one, answer in said.items()]
    resumed = turn
    for place, answer in enumerate(answers):
        await agent.aclose()
        agent = await paying(tmp_path, done).start()
        resumed = await agent.thread("t").resume(answer)
        assert resumed.id == turn.id
        assert resumed.status == ("done" if place == len(answers) - 1 else "paused")
    assert resumed.result == Said(text="wrote a, blue, wrote c")
    assert sorted(done) == ["a", "c"]
    await agent.aclose()


async def test_new_input_on_a_paused_thread_is_refused_naming_the_pauses_and_cancel_frees_it(tmp_path: Path) -> None:
    async with paying(tmp_path, []) as agent:
        thread = agent.thread("t")
        turn = await thread.task("job", {})
        with pytest.raises(ThreadPaused) as refused:
            await thread.converse("Hello?")
        assert all(pause.id in str(refused.value) for pause in turn.pauses)
        assert {pause.id for pause in await thread.pauses()} == {pause.id for pause in turn.pauses}
        assert await thread.cancel()
        assert not await thread.cancel()
        assert await thread.pauses() == ()
        with pytest.raises(NothingToResume, match="is cancelled"):
            await thread.resume({turn.pauses[0].id: Approve()})
        assert (await thread.converse("Hello?")).status == "done"


async def test_answers_that_cannot_be_taken_leave_every_pause_open(tmp_path: Path) -> None:
    async with paying(tmp_path, []) as agent:
        thread = agent.thread("t")
        with pytest.raises(NothingToResume, match="has no turn"):
            await thread.resume()
        pay, ask = sorted((await thread.task("job", {})).pauses, key=lambda pause: pause.kind)
        wrong: list[tuple[Any, type[Exception]]] = [
            ({"call_1": Approve()}, UnknownPause),
            ({pay.id: "yes"}, AnswerInvalid),
            ({pay.id: Reject("\ud800")}, AnswerInvalid),
            ({pay.id: Approve(), ask.id: "green"}, AnswerInvalid),
            ({ask.id: Approve()}, AnswerInvalid),
            ({ask.id: 7}, AnswerInvalid),
            ([pay.id], InvalidArgument),
        ]
        for answers, error in wrong:
            with pytest.raises(error) as refused:
                await thread.resume(answers)
            assert "; " in str(refused.value)
            assert len(await thread.pauses()) == 2
        await thread.resume({ask.id: "red"})
        with pytest.raises(AlreadyAnswered):
            await thread.resume({ask.id: "blue"})


async def test_a_finished_turn_and_the_pauses_of_another_thread_are_not_resumed(tmp_path: Path) -> None:
    async with paying(tmp_path, []) as agent:
        answers = await paused_with(agent, None)
        other = agent.thread("other")
        await other.task("job", {})
        with pytest.raises(UnknownPause, match="the open pauses are: "):
            await other.resume(answers)
        assert len(await other.pauses()) == 2
        assert (await agent.thread("t").resume(answers)).status == "done"
        for pause_id, answer in answers.items():  # whoever is second is told so, however late
            with pytest.raises(AlreadyAnswered, match=f"{pause_id}.* is answered already, and the turn .* is done"):
                await agent.thread("t").resume({pause_id: answer})
        for given in ({"other": Approve()}, None):
            with pytest.raises(NothingToResume, match="is done; begin a new turn"):
                await agent.thread("t").resume(given)


# --- the role over a pause ------------------------------------------------------------------------------------------


async def paused_with(agent: WorldAgent, role: Role | None) -> Any:
    turn = await agent.thread("t").task("job", {}, role=role)
    return {pause.id: "red" if pause.kind == "question" else Approve() for pause in turn.pauses}


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("how", [{"role": None}, {"on_role_change": "refresh"}, {"on_role_change": "pin"}])
async def test_on_role_change_chooses_the_role_of_a_resume(tmp_path: Path, how: dict[str, Any]) -> None:
    async with paying(tmp_path, []) as agent:
        answers = await paused_with(agent, Role("critic", "Be harsh."))
        async with agent.thread("t").stream_resume(answers, **how) as stream:
            [begun] = [event.role_tiers async for event in stream if isinstance(event, TurnStarted)]
        assert stream.turn.status == "done"
        assert stream.turn.role_tiers == ()  # the handler asks no model
    assert begun == ((Tier.CALL,) if how.get("on_role_change") == "pin" else ())


@pytest.mark.requirement("R13", "T8")
async def test_refresh_accepts_a_changed_role_that_a_handlers_code_gives_and_fail_refuses_it(tmp_path: Path) -> None:
    role = Role("i", "Speak in rhymes.")

    async def inner(ctx: TaskContext) -> str:
        paid = await ctx.call("pay", {"what": "a"})
        return f"{paid}: {(await ctx.predict(Muse, about='It.'))['thought']}"

    async def outer(ctx: TaskContext) -> str:
        said: Said = await ctx.task("inner", {}, role=role)
        return said.text

    done: list[str] = []
    lm = ScriptedLM([{"thought": "So be it."}])
    pay = writing(done, name="pay", approval=True)
    shapes = [shape(inner, key="inner", entry=Muse), shape(outer, key="outer")]
    async with scripted_agent(tmp_path, lm, tools=[pay], shapes=shapes) as agent:
        thread = agent.thread("t")
        [pause] = (await thread.task("outer", {})).pauses
        role = Role("i", "Speak in prose.")
        with pytest.raises(RoleChanged, match="`on_role_change` as `refresh`"):
            await thread.resume({pause.id: Approve()})
        assert (done, lm.calls) == ([], [])
        turn = await thread.resume(on_role_change="refresh")
    assert turn.text == '{"text":"wrote a: So be it."}'
    assert (done, [call.role for call in lm.calls]) == (["a"], ["Speak in prose."])


ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")


async def paused(home: Path, role: Role | None = None, **more: Any) -> str:
    """A turn that waits for an approval in a process that is gone; gives the pause's id."""
    async with shop(home, []) as agent:
        turn = await agent.thread("t").task("job", {}, role=role, **more)
    [pause] = turn.pauses
    return pause.id


async def refused(agent: WorldAgent, pause_id: str, error: type[WorldAgentError], **how: Any) -> None:
    """The answer is refused, and its pause stays open."""
    thread = agent.thread("t")
    with pytest.raises(error) as told:
        await thread.resume({pause_id: Approve()}, **how)
    assert told.value.turn_id == call_id_of(pause_id).partition("/")[0]
    [left] = await thread.pauses()
    assert (left.id, left.answered) == (pause_id, False)
    state = await state_of(thread)
    assert (state.status, state.pauses, state.answers) == ("paused", 1, 0)


@pytest.mark.requirement("R13")
async def test_an_answer_is_not_taken_where_the_role_is_not_the_one_that_the_turn_began_with(tmp_path: Path) -> None:
    done: list[str] = []
    pause_id = await paused(tmp_path, ROLE)
    async with shop(tmp_path, done) as agent:
        await refused(agent, pause_id, RoleRequired)
        await refused(agent, pause_id, RoleRequired, on_role_change="pin")
        await refused(agent, pause_id, RoleChanged, role=Role("critic", "Be mild."))
        await refused(agent, pause_id, InvalidArgument, role=ROLE, skill=Composed("Haggle.", shape="job", params={}))
    async with shop(tmp_path, done, settings={"role_key": "another key of some length"}) as agent:
        await refused(agent, pause_id, RoleKeyMismatch, role=ROLE)
    async with shop(tmp_path, done) as agent:
        thread = agent.thread("t")
        assert (await thread.resume({pause_id: Approve()}, role=ROLE)).status == "done"
        with pytest.raises(AlreadyAnswered):
            await thread.resume({pause_id: Approve()}, role=ROLE)
    assert done == ["hat"]


@pytest.mark.requirement("R13")
async def test_an_approvers_answer_waits_for_the_account_that_has_the_role(tmp_path: Path) -> None:
    done: list[str] = []
    async with shop(tmp_path, done) as agent:
        ana, lead = agent.thread("t", account="ana"), agent.thread("t", account="lead")
        [pause] = (await ana.task("job", {}, role=ROLE)).pauses
        with pytest.raises(RoleRequired):
            await lead.resume({pause.id: Approve()})
        [left] = await ana.pauses()
        assert (left.id, left.answered, done) == (pause.id, True, [])
        state = await state_of(ana)
        assert (state.status, state.pauses, state.answers) == ("paused", 0, 1)
        with pytest.raises(AlreadyAnswered):
            await ana.resume({pause.id: Approve()}, role=ROLE)
        assert (await ana.resume(role=ROLE)).status == "done"
        assert (await ana.pauses(), done) == ((), ["hat"])


@pytest.mark.requirement("T10")
async def test_every_stream_is_entered_and_does_nothing_before_that(tmp_path: Path) -> None:
    done: list[str] = []
    async with shop(tmp_path, done) as agent:
        thread = agent.thread("t")
        [pause] = (await thread.task("job", {})).pauses
        resuming = thread.stream_resume({pause.id: Approve()})
        twice, replaying = thread.stream_resume({pause.id: Approve()}), thread.stream_replay(to="again")
        [left] = await thread.pauses()
        assert (left.answered, await agent.thread("again").state()) == (False, None)
        async with resuming as stream:
            assert (await stream.wait()).status == "done"
        assert (stream.turn_id, done) == (call_id_of(pause.id).partition("/")[0], ["hat"])
        with pytest.raises(AlreadyAnswered):
            await streamed(twice)
        async with replaying as stream:
            turn = await stream.wait()
        assert (turn.id, turn.thread, turn.status) == (stream.turn_id, "again", "paused")
        await thread.converse("Hello")
        async with thread.stream_edit("Good day") as stream:
            assert (await stream.wait()).status == "done"


SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
BOUND = 20.0


@pytest.mark.parametrize("at_once", [True, False])
async def test_cancelled_turn_names_its_thread(tmp_path: Path, at_once: bool) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t1").stream("Hello", key="k") as stream:
            if not at_once:
                await asyncio.wait_for(model.asked.wait(), BOUND)
        assert (stream.turn.status, stream.turn.thread) == ("cancelled", "t1")
        assert stream.turn.to_json()["thread"] == "t1"


async def test_json_forms_are_those_of_the_wire(tmp_path: Path) -> None:
    shop = Shop()
    async with (
        Sidecar(lambda workspace: shop.agent(tmp_path)) as sidecar,
        Client(sidecar.server) as client,
    ):
        given = {"thread": "t1", "shape": "buy", "params": {"what": "hat"}, "pauses": "return"}
        sent = (await call(client, "task", account="ana", **given))["turn"]
        pauses = (await call(client, "pauses", account="ana", thread="t1"))["pauses"]
        messages = (await call(client, "history", account="ana", thread="t1"))["messages"]
        threads = (await call(client, "threads", account="ana"))["threads"]
    async with shop.agent(tmp_path) as agent:
        thread = agent.thread("t1", account="ana")
        [pause], [state] = await thread.pauses(), await agent.threads()
        assert as_json(pause.to_json()).items() <= pauses[0].items()
        assert as_json([message.to_json() for message in await thread.history()]) == messages
        assert as_json([state.to_json()]) == threads
        turn = await thread.resume({pause.id: Approve()})
    made = as_json(turn.to_json())
    assert made.keys() == sent.keys()
    assert made["usage"].keys() == sent["usage"].keys()
    assert (made["id"], made["thread"], made["status"]) == (sent["id"], "t1", "done")
    assert made["result"] == {"text": "paid for the hat"}


async def test_earlier_form_of_a_pause_id_is_taken(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.agent(tmp_path) as agent:
        thread = agent.thread("t1", account="ana")
        [pause] = (await thread.task("buy", {"what": "hat"})).pauses
        earlier = call_id_of(pause.id)
        assert "/" in earlier
        assert ":" in earlier
        with pytest.raises(InvalidArgument, match="answered twice"):
            await thread.resume({pause.id: Approve(), earlier: Reject()})
        assert (await thread.resume({earlier: Approve()})).status == "done"
        with pytest.raises(AlreadyAnswered):
            await thread.resume({earlier: Approve()})
    assert shop.done == ["hat"]


@pytest.mark.parametrize("call_id", ["turn_1/step.0.0:a-b/p~y:k%2Fé=+ .1", "turn_1/task:x/y::-2F", "turn_1/a:"])
def test_pause_ids_lead_back_to_their_calls(call_id: str) -> None:
    made = pause_id_of(call_id)
    assert SAFE.fullmatch(made)
    assert call_id_of(made) == call_id_of(call_id) == call_id


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
