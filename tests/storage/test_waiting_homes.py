"""Turns that wait in a tool, worker, shape or skill of a home that earlier code wrote resume (D15)."""

from pathlib import Path

import pytest

from support.databases import rows_of
from support.make_home import restore
from support.make_waiting_home import PAID, ROLE, WAITING, opened
from worldagent import Role
from worldagent.agent import UNSET
from worldagent.core.pauses import Approve
from worldagent.members import Gateway
from worldagent.scheduling import Schedules

pytestmark = pytest.mark.requirement("T4")

of_each_day = pytest.mark.parametrize("day", sorted(path.name for path in WAITING.iterdir()))
"""Before tasks had nodes of their own, and before features were capabilities."""

ROLED: dict[str, Role] = dict.fromkeys(("skill", "mixed", "host skill"), ROLE)
"""The threads whose turn began with a call role."""

TEXTS = {
    "member cro": '{"worker":"cro","text":"All is bought."}',
    "host task": '{"text":"paid for the host"}',
    "host skill": '{"skill":"tea","reply":"Bought."}',
}


@pytest.mark.parametrize("name", PAID)
@of_each_day
async def test_turn_that_waits_in_a_home_of_earlier_code_resumes(day: str, name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    restore(WAITING / day, home)
    done: list[str] = []
    async with opened(home, tmp_path, done) as (agent, _):
        thread = agent.thread(name, account="member:novel/cro" if name.startswith("member") else "ada")
        if name.startswith("member"):
            await Gateway(agent).deliver()  # makes the member known to this process
        pauses = await thread.pauses()
        assert len(pauses) == len(PAID[name])
        turn = await thread.resume({pause.id: Approve() for pause in pauses}, role=ROLED.get(name, UNSET))
        assert (turn.status, turn.text) == ("done", TEXTS.get(name, "All is bought."))
        assert sorted(done) == sorted(PAID[name])  # what ran before the pause does not run again
        if name.startswith("schedule"):
            schedules = Schedules(agent)
            await schedules.fire_due()
            assert [run.status for run in await schedules.history("tide")] == ["done"]
        if name.startswith("member"):
            assert await Gateway(agent).deliver() == 1
            assert await agent.society.mail.waiting() == []


@pytest.mark.requirement("R19")
@of_each_day
async def test_one_answer_at_a_time_resumes_a_step_of_four_kinds(day: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    restore(WAITING / day, home)
    done: list[str] = []
    for paid in range(4):
        async with opened(home, tmp_path, done) as (agent, _):
            thread = agent.thread("mixed", account="ada")
            pause = next(pause for pause in await thread.pauses() if not pause.answered)
            turn = await thread.resume({pause.id: Approve()}, role=ROLE)
            assert turn.status == ("done" if paid == 3 else "paused")
        assert len(done) == paid + 1
    assert sorted(done) == sorted(PAID["mixed"])
    [(newest,)] = rows_of(home, "SELECT checkpoint FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1")
    assert b"role" not in newest  # the channel of that name is not carried on
