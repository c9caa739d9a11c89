"""Budgets of members: counted for all above, told at 80 %, paused at 100 %, extended or ended (A16)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.role_specs import spec_of, workspace_of
from support.society import APPROVED, delivered, doing, send, who_of
from worldagent import WorldAgent
from worldagent.core.errors import BudgetInvalid
from worldagent.members import MemberLimits
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A16")


def team(**limits: MemberLimits | None) -> Any:
    """A workspace in which `ada` reports to `cro`, with limits by their ids."""
    cro = spec_of("cro", "", limits=limits.pop("cro", None))
    ada = spec_of("ada", "", reports_to="cro", limits=limits.pop("ada", None))
    return workspace_of(roles=(cro, ada), **limits)


def fine(call: ScriptedCall) -> dict[str, Any]:
    return doing(call)


async def ask(agent: WorldAgent, to: str = "ada", *, times: int = 1, message_id: str | None = None) -> None:
    for _ in range(times):
        await agent.society.mail.send("root", to, "Go.", payload={"reason": "Work."}, message_id=message_id)
    await delivered(agent)


def calls_of(lm: ScriptedLM, member: str = "ada") -> int:
    """How often the model was called for a member; its superior is told of budgets, and has turns of its own."""
    return [who_of(each, "ada", "cro") for each in lm.calls].count(member)


async def inbox(agent: WorldAgent) -> list[str]:
    return [each.message.content for each in await agent.society.mail.inbox()]


async def test_a_turn_of_a_member_counts_for_all_above_it(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    society = team(cro=MemberLimits(tokens=10**6, turns=10, period="day"))
    async with scripted_agent(tmp_path, lm, society=society, policy=APPROVED) as agent:
        await ask(agent, times=2)
        await ask(agent, "cro")
        ada, cro = await agent.society.budgets.of("ada"), await agent.society.budgets.of("cro")
    assert (ada.used["turns"], cro.used["turns"]) == (2, 3)
    assert (ada.used["calls"], cro.used["calls"], len(lm.calls)) == (2, 3, 3)
    assert 0 < ada.used["tokens"] < cro.used["tokens"]
    assert not any(cro.reserved.values())
    assert (cro.until is None, ada.limits) == (False, None)


async def test_work_waits_at_the_limit_and_goes_on_once_it_is_extended(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=team(ada=MemberLimits(turns=1)), policy=APPROVED) as agent:
        await ask(agent)
        await ask(agent, message_id="second")
        [held] = await agent.society.budgets.held()
        assert (held.work, held.member, held.holder, calls_of(lm)) == ("second", "ada", "member ada", 1)
        assert len((await agent.society.queue("ada"))[0]) == 1
        await ask(agent)
        assert calls_of(lm) == 1
        with pytest.raises(BudgetInvalid, match="is not above"):
            await agent.society.budgets.extend("ada", MemberLimits(turns=9), by="root")
        await agent.society.budgets.extend("ada", MemberLimits(turns=9))
        await delivered(agent)
        assert (calls_of(lm), await agent.society.budgets.held()) == (3, ())


async def test_a_turn_pauses_before_the_call_that_is_too_much_and_resumes_where_it_was(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        return doing(call, send("root", "Half."))

    lm = ScriptedLM(act)
    async with scripted_agent(tmp_path, lm, society=team(ada=MemberLimits(calls=1)), policy=APPROVED) as agent:
        await ask(agent, message_id="first")
        [held] = await agent.society.budgets.held()
        assert (held.work, calls_of(lm)) == ("first", 1)
        await delivered(agent)
        assert calls_of(lm) == 1
        await agent.society.budgets.extend("ada", MemberLimits(calls=2))
        await delivered(agent)
        assert calls_of(lm) == 2
        sent = [each.message.content for each in await agent.society.mail.of("root") if each.message.from_id == "ada"]
        assert sent == ["Half."]
        assert (await agent.society.budgets.of("ada")).used["calls"] == 2


async def test_a_budget_begins_again_with_its_next_period(tmp_path: Path) -> None:
    clock, lm = VirtualClock(), ScriptedLM(fine)
    society = team(ada=MemberLimits(turns=1, period="day"))
    async with scripted_agent(tmp_path, lm, society=society, policy=APPROVED, clock=clock) as agent:
        await ask(agent, times=2)
        assert calls_of(lm) == 1
        await clock.advance(86_400)
        await delivered(agent)
        assert calls_of(lm) == 2


async def test_the_superior_is_told_once_at_80_percent_and_once_when_it_is_reached(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=team(ada=MemberLimits(turns=5)), policy=APPROVED) as agent:
        await ask(agent, times=3)
        assert not await agent.society.mail.of("cro")
        await ask(agent, times=3)
        told = [each.message.content for each in await agent.society.mail.of("cro")]
    assert told == [
        "From the system: The budget of member ada is used to 80%: 4 of 5 turns, 4 calls, in all.",
        "From the system: The budget of member ada is reached, and its work waits: 5 of 5 turns, 5 calls, in all.",
    ] or [each.split(":")[1].strip() for each in told] == [
        "The budget of member ada is used to 80%",
        "The budget of member ada is reached, and its work waits",
    ]


async def test_the_owner_is_told_of_a_member_without_a_superior(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=team(cro=MemberLimits(turns=1)), policy=APPROVED) as agent:
        await ask(agent, "cro", times=2)
        assert [each.partition(":")[2].split(":")[0] for each in await inbox(agent)] == [
            " The budget of member cro is used to 100%",
            " The budget of member cro is reached, and its work waits",
        ]


async def test_work_that_waits_can_be_ended(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=team(ada=MemberLimits(turns=0)), policy=APPROVED) as agent:
        await ask(agent, message_id="m1")
        with pytest.raises(BudgetInvalid, match="does not wait"):
            await agent.society.budgets.end("other")
        with pytest.raises(BudgetInvalid, match="not above"):
            await agent.society.budgets.end("m1", by="ada")
        await agent.society.budgets.end("m1", by="cro")
        await delivered(agent)
        assert (await agent.society.budgets.held(), calls_of(lm)) == ((), 0)
        [back] = [each.message for each in await agent.society.mail.of("root") if each.message.to_id == "root"]
    assert back.payload["error"] == "budget_reached"


async def test_a_superior_extends_within_its_own_budget(tmp_path: Path) -> None:
    society = team(cro=MemberLimits(turns=10), ada=MemberLimits(turns=2))
    async with scripted_agent(tmp_path, ScriptedLM(fine), society=society, policy=APPROVED) as agent:
        budgets = agent.society.budgets
        await ask(agent, "cro", times=4)
        await ask(agent, times=2)
        with pytest.raises(BudgetInvalid, match="wider"):
            await budgets.extend("ada", MemberLimits(turns=11))
        with pytest.raises(BudgetInvalid, match="less turns left"):
            await budgets.extend("ada", MemberLimits(turns=8), by="cro")
        with pytest.raises(BudgetInvalid, match="less turns left"):
            await budgets.extend("ada", MemberLimits(tokens=8), by="cro")
        state = await budgets.extend("ada", {"turns": 5}, by="cro")
        assert state.limits == MemberLimits(turns=5)
        assert [each.holder for each in await budgets.list()] == ["member ada", "member cro"]


async def test_a_limit_in_dollars_needs_a_price(tmp_path: Path) -> None:
    with pytest.raises(BudgetInvalid, match="no known price"):
        async with scripted_agent(tmp_path, ScriptedLM(fine), society=team(ada=MemberLimits(cost=1)), policy=APPROVED):
            pass


async def test_costs_are_reserved_at_their_bound_and_counted_as_used(tmp_path: Path) -> None:
    seen: list[float] = []

    async def act(call: ScriptedCall) -> dict[str, Any]:
        seen.append((await agent.society.budgets.of("ada")).reserved["cost"])
        return doing(call)

    lm = ScriptedLM(act, model="openai/gpt-4o-mini")
    async with scripted_agent(tmp_path, lm, society=team(ada=MemberLimits(cost=1)), policy=APPROVED) as agent:
        await ask(agent)
        used = await agent.society.budgets.of("ada")
    assert 0 < used.used["cost"] < seen[0] < 0.1
    assert used.reserved["cost"] == 0
