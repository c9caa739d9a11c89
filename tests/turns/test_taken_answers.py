"""An answer is taken only where the turn can resume with it; it is shown until a run takes it up (T4, T5, R13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import shop
from worldagent import Role, WorldAgent
from worldagent.core.errors import (
    AlreadyAnswered,
    InvalidArgument,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    WorldAgentError,
)
from worldagent.core.pauses import Approve, call_id_of
from worldagent.graphs import Composed

pytestmark = pytest.mark.requirement("T4")

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
    state = await thread.state()
    assert state is not None
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
        state = await ana.state()
        assert state is not None
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
            async with twice:
                pass
        async with replaying as stream:
            turn = await stream.wait()
        assert (turn.id, turn.thread, turn.status) == (stream.turn_id, "again", "paused")
        await thread.converse("Hello")
        async with thread.stream_edit("Good day") as stream:
            assert (await stream.wait()).status == "done"
