"""Events of recorded turns, for any reader and after any kill, and starts with a key, which begin a turn once (T10)."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Thinking, answering, asking_shop, scripted_agent, standing, taken, under_way
from support.homes import change, rows, selected
from support.leaks import canary
from support.processes import next_line, start_script
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Composed, Trigger
from worldagent.agent.recording import Recorder
from worldagent.core import Scope
from worldagent.core import events as events_module
from worldagent.core.errors import (
    AgentClosed,
    EventsGone,
    InvalidArgument,
    KeyReused,
    LeaseLost,
    ModelUnavailable,
    OutputInvalid,
    RoleRequired,
    StorageInvalid,
    UnknownTurn,
)
from worldagent.core.events import TurnEvent
from worldagent.testing import ScriptedLM, VirtualClock, assert_no_role_leak

pytestmark = pytest.mark.requirement("T10")

LIMIT = 20


def whole(events: Sequence[TurnEvent], *, after: int = 0) -> None:
    """Check that events come once each, in order, and none is missing."""
    assert [event.seq for event in events] == list(range(after + 1, after + 1 + len(events)))


async def test_a_turn_that_was_left_is_followed_from_the_number_that_was_seen(tmp_path: Path) -> None:
    model = Thinking("At last.")
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            first = await anext(stream)
        following = asyncio.create_task(taken(agent.events(stream.turn_id, after=first.seq)))
        model.may.set()
        rest = await asyncio.wait_for(following, LIMIT)
        assert first.type == "turn_started"
        assert rest[-1].type == "turn_ended"
        whole([first, *rest])
        assert await taken(agent.events(stream.turn_id)) == [first, *rest]
        assert standing([first, *rest]) == "At last."
        state = await agent.turn(stream.turn_id)
        assert state is not None
        assert (state.status, state.thread, state.recorded) == ("done", "t", True)


async def test_readers_of_another_process_share_one_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, given = Recorder.watch, list[Any]()

    def counted(recorder: Recorder, turn_id: str, last: int) -> Any:
        given.append(watch(recorder, turn_id, last))
        return given[-1]

    monkeypatch.setattr(Recorder, "watch", counted)
    async with under_way(tmp_path) as (model, agent, stream), scripted_agent(tmp_path, answering()) as other:
        state = await other.turn(stream.turn_id)
        assert state is not None
        assert state.status == "running"
        looks = other._runner.parts.recorder.watches
        reading = [asyncio.create_task(taken(other.events(stream.turn_id))) for _ in range(5)]
        async with asyncio.timeout(LIMIT):
            while len(given) < len(reading):  # noqa: ASYNC110 -- nobody tells of it
                await asyncio.sleep(0.02)
            assert len(set(given)) == len(looks) == 1
            for one in reading:
                one.cancel()
            await asyncio.wait(reading)
            while looks:  # noqa: ASYNC110 -- likewise
                await asyncio.sleep(0.02)
        late = asyncio.create_task(taken(other.events(stream.turn_id)))
        model.may.set()
        whole(seen := await asyncio.wait_for(late, LIMIT))
        assert seen == await taken(agent.events(stream.turn_id))
        assert not looks


@pytest.mark.requirement("T4")
async def test_every_surface_is_streamed(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering("Dull."), workers=[CRITIC]) as agent:
        thread, ask = agent.thread("t"), {"worker": "critic", "request": "Judge."}
        for stream, kind in (
            (thread.stream("Hello", detach=True), "message"),
            (thread.stream_task("subagent", ask, detach=True), "task"),
            (thread.stream_skill(Composed("Be brief.", params=ask, name="s"), detach=True), "skill"),
            (
                thread.stream_scheduled(Trigger(schedule="s", fired_at=datetime(2030, 1, 1, tzinfo=UTC)), detach=True),
                "schedule",
            ),
        ):
            async with stream:
                events = await taken(stream)
            assert getattr(events[0], "kind", "") == kind
            assert "Dull." in stream.turn.text
            assert await taken(agent.events(stream.turn_id)) == events


@pytest.mark.requirement("T4")
async def test_the_holder_of_a_detached_stream_cancels_the_turn(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            assert await stream.cancel()
            assert stream.turn.status == "cancelled"
            assert not await stream.cancel()
        events = await taken(agent.events(stream.turn_id))
        assert getattr(events[-1], "status", "") == "cancelled"
        assert events == await taken(stream)
    async with asking_shop(tmp_path) as agent:
        async with agent.thread("p").stream_task("buy", {"what": "hat"}, detach=True) as stream:
            assert (await stream.wait()).status == "paused"
            assert await stream.cancel()
        assert await agent.thread("p").pauses() == ()


async def test_each_bad_request_for_events_has_its_own_error(tmp_path: Path) -> None:
    async with (
        scripted_agent(tmp_path, answering()) as agent,
        WorldAgent("other", lm=answering(), storage=agent.storage) as other,
    ):
        plain = await agent.thread("t").converse("1")
        with pytest.raises(EventsGone, match="not recorded"):
            await anext(agent.events(plain.id))
        with pytest.raises(UnknownTurn):
            await anext(agent.events("turn_none"))
        turn = await agent.thread("t").converse("2", key="k")
        with pytest.raises(UnknownTurn):
            await anext(other.events(turn.id))
        assert await other.turn(turn.id) is None
        for after in (-1, True):
            with pytest.raises(InvalidArgument):
                agent.events(turn.id, after=after)
        last = (await taken(agent.events(turn.id)))[-1].seq
        assert await taken(agent.events(turn.id, after=last)) == []
        for after in (last + 1, 1 << 63):
            with pytest.raises(InvalidArgument, match=f"last event, {last}; read on after {last}"):
                await taken(agent.events(turn.id, after=after))


async def test_reader_of_another_agents_turn_fails_while_its_own_agent_closes(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (model, _, stream), scripted_agent(tmp_path, answering()) as other:
        await other._runner.parts.recorder.aclose()
        with pytest.raises(AgentClosed, match="closed meanwhile; follow the turn with the agent that is open now"):
            await taken(other.events(stream.turn_id))
        model.may.set()


@pytest.mark.on_every_database
async def test_old_events_go_and_a_resume_continues_the_numbers(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with asking_shop(tmp_path, clock=clock, settings={"event_age": 3600}) as agent:
        thread = agent.thread("t")
        async with thread.stream_task("buy", {"what": "hat"}, detach=True) as stream:
            before = await taken(stream)
        assert await agent._runner.parts.recorder.log.prune(3600, most=10) == 0
        await clock.advance(7200)
        assert await agent._runner.parts.recorder.log.prune(3600, most=10) == 1
        assert await rows(agent, "wa_event") == 0
        with pytest.raises(EventsGone, match="have been removed"):
            await anext(agent.events(stream.turn_id))
        assert await taken(agent.events(stream.turn_id, after=len(before))) == []
        async with thread.stream_resume({stream.turn.pauses[0].id: "red"}) as again:
            whole(await taken(again), after=len(before))


SLOW = """
import asyncio, sys
from pathlib import Path
from support.agents import scripted_agent
from worldagent.testing import ScriptedLM

async def words():
    yield "[[ ## reply ## ]]\\n"
    for number in range(2000):
        await asyncio.sleep(0.005)
        yield f"word{number} "

async def main():
    async with scripted_agent(Path(sys.argv[1]), ScriptedLM(lambda call: words())) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            print(stream.turn_id, flush=True)
            async for event in stream:
                print(event.seq, flush=True)

asyncio.run(main())
"""


@pytest.mark.requirement("T5")
async def test_after_a_kill_all_that_was_seen_is_there_and_the_next_run_counts_on(tmp_path: Path) -> None:
    process = await start_script(SLOW, tmp_path)
    turn_id = await next_line(process)
    seen = [int(await next_line(process)) for _ in range(30)]
    async with scripted_agent(tmp_path, answering("Whole.")) as agent:
        following = agent.events(turn_id, after=5)
        watches = [await asyncio.wait_for(anext(following), LIMIT) for _ in range(10)]
        process.kill()
        out, _ = await asyncio.wait_for(process.communicate(), LIMIT)
        seen += [int(line) for line in out.split()]
        watches += await taken(following)
        whole(watches, after=5)
        assert watches[-1].seq >= seen[-1], "something was handed out that is not in the log"
        state = await agent.turn(turn_id)
        assert state is not None
        assert state.status == "cut_off"
        before = await taken(agent.events(turn_id))
        assert (await agent.thread("t").resume()).text == "Whole."
        every = await taken(agent.events(turn_id))
    whole(every)
    assert every[: len(before)] == before
    assert [event.type for event in every[len(before) :][:2]] == ["turn_started", "text_replaced"]
    assert standing(every) == "Whole."


@pytest.mark.requirement("T4")
@pytest.mark.on_every_database
async def test_replaced_owner_writes_no_event(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            await change(agent, "UPDATE wa_epoch SET epoch=epoch + ?", (1,))
            model.may.set()
            with pytest.raises(LeaseLost):
                await taken(stream)
        assert [event.type for event in await taken(agent.events(stream.turn_id))] == ["turn_started"]


@pytest.mark.requirement("R7")
async def test_no_role_is_among_what_is_recorded(tmp_path: Path) -> None:
    content = canary(80)
    async with asking_shop(tmp_path) as agent:
        role = Role("brief", content)
        turn = await agent.thread("t").converse("Hello", role=role, key="k")
        assert await agent.thread("t").converse("Hello", role=role, key="k") == turn
        async with agent.thread("p").stream_task("buy", {"what": "hat"}, role=role, detach=True) as stream:
            events = await taken(stream)
        pauses = stream.turn.pauses
        async with agent.thread("p").stream_resume({pauses[0].id: "red"}, role=role, detach=True) as stream:
            events += await taken(stream)
        told = [event.model_dump_json() for event in [*events, *await taken(agent.events(turn.id))]]
        kept = [
            repr(row)
            for table in ("wa_event", "wa_recorded")
            for row in await selected(agent, f"SELECT * FROM {table}")
        ]
        assert len(kept) > 4
        assert_no_role_leak([tmp_path, *told, *kept], [content])


@pytest.mark.parametrize(
    ("statement", "given"),
    [
        ("UPDATE wa_event SET lines=?", "broken"),
        ("UPDATE wa_event SET first=first + ? WHERE first=1", 7),
    ],
)
async def test_an_event_that_is_not_what_was_written_is_refused(tmp_path: Path, statement: str, given: object) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        turn = await agent.thread("t").converse("1", key="k")
        await change(agent, statement, (given,))
        with pytest.raises(StorageInvalid, match=r"changed since the turn ran|cannot be read"):
            await taken(agent.events(turn.id))


async def test_a_repeated_start_gives_the_turn_and_its_events_again(tmp_path: Path) -> None:
    lm = answering("Dull.")
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        thread = agent.thread("t", account="ana")
        first = await thread.converse("Hello", key="k1")
        task = await thread.task("subagent", {"worker": "critic", "request": "Judge."}, key="k2")
        assert await thread.converse("Hello", key="k1") == first
        assert await thread.task("subagent", {"worker": "critic", "request": "Judge."}, key="k2") == task
        async with thread.stream("Hello", key="k1") as stream:
            events = await taken(stream)
        assert events == await taken(agent.events(first.id))
        assert stream.turn == first
        assert (await agent.thread("u", account="ana").converse("Hello", key="k1")).id != first.id
        assert len(lm.calls) == 3
        assert [message.kind for message in await thread.history()] == ["message", "answer", "task", "result"]


async def test_the_same_key_for_something_else_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC]) as agent:
        thread, ask = agent.thread("t", account="ana"), {"worker": "critic", "request": "Judge."}
        await thread.converse("Hello", key="k")
        await thread.run_skill(Composed("Be brief.", params=ask, name="s"), key="s")
        await thread.run_skill(Composed("Be brief.", params=ask, name="s"), key="s", role=Role("other", "Be kind."))
        with pytest.raises(KeyReused):
            await thread.converse("Hello!", key="k")
        with pytest.raises(KeyReused):
            await thread.task("subagent", ask, key="k")
        with pytest.raises(KeyReused):
            await agent.thread("t", account="ben").converse("Hello", key="k")
        with pytest.raises(KeyReused):
            await thread.run_skill(Composed("Be long.", params=ask, name="s"), key="s")
        with pytest.raises(KeyReused):
            async with thread.stream("Bye", key="k", detach=True):
                pass
        for key in ("", "a\nb", "x" * 201, 7):
            with pytest.raises(InvalidArgument):
                await thread.converse("Hello", key=key)  # type: ignore[arg-type]  # that is what is tried


async def test_start_of_a_running_turn_holds_the_same_turn(tmp_path: Path) -> None:
    model = Thinking("At last.")
    async with scripted_agent(tmp_path, model.lm) as agent, scripted_agent(tmp_path, answering()) as other:
        async with agent.thread("t").stream("Hello", key="k") as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            with pytest.raises(KeyReused):
                await agent.thread("t").converse("Bye", key="k")
            here = asyncio.create_task(agent.thread("t").converse("Hello", key="k"))
            there = asyncio.create_task(other.thread("t").converse("Hello", key="k"))
            async with agent.thread("t").stream("Hello", key="k") as again:
                assert again.turn_id == stream.turn_id
            model.may.set()
            events = await taken(stream)
            turns = await asyncio.wait_for(asyncio.gather(here, there), LIMIT)
        assert stream.turn.status == "done", "a second holder that leaves does not cancel it"
        assert [turn.id for turn in turns] == [stream.turn_id] * 2
        assert [turn.text for turn in turns] == ["At last."] * 2
        assert events == await taken(other.events(stream.turn_id))


@pytest.mark.on_every_database
async def test_starts_of_one_key_at_once_are_one_turn(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent, scripted_agent(tmp_path, answering()) as other:
        starts = (each.thread("t").converse("Hello", key="k") for each in (agent, other) for _ in range(3))
        assert len({turn.id for turn in await asyncio.gather(*starts)}) == 1
        assert await rows(agent, "wa_turn") == 1


async def test_last_holder_that_leaves_cancels_the_turn(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t").stream("Hello", key="k") as stream:
            await asyncio.wait_for(model.asked.wait(), LIMIT)
        assert stream.turn.status == "cancelled"
        assert (await agent.thread("t").converse("Hello", key="k")).status == "cancelled"


async def test_repeat_retries_a_passing_failure_only(tmp_path: Path) -> None:
    lm = ScriptedLM([ModelUnavailable("down", remedy="wait"), {"reply": "Up."}, "", "", ""])
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        with pytest.raises(ModelUnavailable) as failed:
            await thread.converse("Hello", key="k")
        async with thread.stream("Hello", key="k") as stream:
            events = await taken(stream)
        assert (stream.turn.id, stream.turn.text) == (failed.value.turn_id, "Up.")
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type for event in events].count("turn_started") == 2
        with pytest.raises(OutputInvalid):
            await thread.converse("Bad", key="bad")
        count = len(lm.calls)
        with pytest.raises(OutputInvalid) as again:
            await thread.converse("Bad", key="bad")
        assert again.value.turn_id is not None
        assert len(lm.calls) == count


@pytest.mark.requirement("R13")
async def test_role_of_a_start_is_not_compared(tmp_path: Path) -> None:
    lm = ScriptedLM([ModelUnavailable("down", remedy="wait"), {"reply": "Up."}])
    async with scripted_agent(tmp_path, lm) as agent:
        thread, role = agent.thread("t"), Role("brief", "Answer in two words.")
        with pytest.raises(ModelUnavailable):
            await thread.converse("Hello", key="k", role=role)
        with pytest.raises(RoleRequired):
            await thread.converse("Hello", key="k")
        turn = await thread.converse("Hello", key="k", role=role)
        assert (turn.text, [str(tier.value) for tier in turn.role_tiers]) == ("Up.", ["call"])
        assert await thread.converse("Hello", key="k") == turn


def going_on(resolves: asyncio.Event, may: asyncio.Event) -> dict[str, Any]:
    """Options of an agent whose turn stands still where its answer is taken and it is about to go on."""
    roles = 0

    async def role(scope: Scope) -> Role | None:
        nonlocal roles
        roles += 1
        if roles == 3:  # the third one is asked for once the answer is taken
            resolves.set()
            await may.wait()
        return None

    return {"roles": Roles(sources={Tier.CHANNEL: role}), "settings": {"role_timeout": LIMIT}}


@pytest.mark.requirement("T4")
async def test_repeated_start_resumes_an_answered_turn(tmp_path: Path) -> None:
    resolves = asyncio.Event()
    async with asking_shop(tmp_path, **going_on(resolves, asyncio.Event())) as agent:
        thread = agent.thread("t", channel="#shop")
        paused = await thread.task("buy", {"what": "hat"}, key="k")
        resuming = asyncio.create_task(thread.resume({paused.pauses[0].id: "red"}))
        await asyncio.wait_for(resolves.wait(), LIMIT)
        resuming.cancel()
        await asyncio.wait({resuming})
        again = await asyncio.wait_for(thread.task("buy", {"what": "hat"}, key="k"), LIMIT)
        assert (again.id, [pause.function for pause in again.pauses]) == (paused.id, ["pay"])
        assert await thread.task("buy", {"what": "hat"}, key="k") == again


def test_the_union_of_events_is_found_under_its_name_of_0_1_0() -> None:
    with pytest.warns(DeprecationWarning, match="is TurnEvent now"):
        assert events_module.Event is events_module.TurnEvent
