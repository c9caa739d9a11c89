"""Budgets of members: counted for all above, told at 80 %, paused at 100 %, extended or ended (A16)."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.databases import Engine, made, on_every_database, storage_of
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from support.society import APPROVED, delivered, doing, send, who_of
from worldagent import Policy, Rule, Worker, WorldAgent
from worldagent.core.errors import BudgetInvalid, BudgetReached, InvalidArgument
from worldagent.harness.gate import Predicate
from worldagent.harness.limits import Limits
from worldagent.members import (
    SEND_RULES,
    AuthorityConfig,
    Event,
    MemberLimits,
    Route,
    WorkspaceConfig,
    case_of,
)
from worldagent.members.data.accounts import scope_of
from worldagent.members.data.roles import TrustProfile
from worldagent.members.workers import worker_of
from worldagent.members.workspace_file import read_workspace
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A16")


def team(**limits: MemberLimits | None) -> WorkspaceConfig:
    """A workspace in which `ada` reports to `cro`, with limits by their ids."""
    cro = spec_of("cro", "", limits=limits.pop("cro", None))
    ada = spec_of("ada", "", reports_to="cro", limits=limits.pop("ada", None))
    return workspace_of(roles=(cro, ada))


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
        await ask(agent, times=2)
        await ask(agent, message_id="last")
        told = [each.message.content for each in await agent.society.mail.of("cro")]
    assert [each.split(":")[1].strip() for each in told] == [
        "The budget of member ada is used to 80%",
        "The budget of member ada is reached, and last waits",
    ]


async def test_the_owner_is_told_of_a_member_without_a_superior(tmp_path: Path) -> None:
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=team(cro=MemberLimits(turns=1)), policy=APPROVED) as agent:
        await ask(agent, "cro")
        await ask(agent, "cro", message_id="last")
        assert [each.split(":")[1].strip() for each in await inbox(agent)] == [
            "The budget of member cro is used to 100%",
            "The budget of member cro is reached, and last waits",
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


def event_of(id_: str, limits: MemberLimits) -> Event:
    given: dict[str, Any] = {"type": "lead.created", "source": "test", "domain": "web", "payload": {}}
    return Event(id=id_, timestamp=datetime(2026, 2, 18, tzinfo=UTC), limits=limits, **given)


def running() -> WorkspaceConfig:
    """A workspace in which `ada` runs an operator for leads, which asks a model."""
    ada = spec_of(
        "ada",
        "",
        reports_to="cro",
        domains=("web",),
        operator_ids=("critic",),
        authority=AuthorityConfig(autonomous=("judge", "critic")),
        trust=TrustProfile(default=0.9),
        routes=(Route(event="lead.*", operator="critic", capability="judge"),),
    )
    return workspace_of(roles=(spec_of("cro"), ada))


async def test_an_event_has_limits_for_all_that_follows_from_it(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"result": "Good."})
    critic = Worker("critic", "You judge.", "judges")
    async with scripted_agent(tmp_path, lm, society=running(), policy=APPROVED, workers=[critic]) as agent:
        society = agent.society
        await society.events.post(event_of("e1", MemberLimits(calls=5)))
        await society.events.post(event_of("e2", MemberLimits(tokens=2)))
        await society.events.post(event_of("e3", MemberLimits(turns=0)))
        await delivered(agent)
        found = {each.event.id: (each.state, each.result) for each in await society.events.list()}
        assert found == {"e1": ("done", "done"), "e2": ("paused", None), "e3": ("waiting", None)}
        held = {each.work: each.holder for each in await society.budgets.held()}
        assert held == {"event.e2": "case event.e2", "event.e3": "case event.e3"}
        [case] = [each for each in await society.budgets.list() if each.holder == "case event.e1"]
        judged = [each for each in lm.calls if "You judge." in each.text]
        assert (case.used["turns"], case.used["calls"], len(judged)) == (1, 1, 1)
        assert (await case_of(agent, "e2")).steps[-1].kind == "budget"
        await society.budgets.extend("case event.e2", MemberLimits(tokens=10**6))
        await society.budgets.end("e3")
        await delivered(agent)
        ended = {each.event.id: (each.result, each.code) for each in await society.events.list()}
        assert ended == {"e1": ("done", ""), "e2": ("done", ""), "e3": ("cancelled", "budget_reached")}
        assert not [each for each in await society.budgets.list() if any(each.reserved.values())]


async def test_a_brief_has_limits_for_the_member_and_those_below_it(tmp_path: Path) -> None:
    template = template_of("dev", "root", limits=MemberLimits(turns=9))
    lm = ScriptedLM(fine)
    async with scripted_agent(tmp_path, lm, society=workspace_of(template), policy=APPROVED) as agent:
        brief = {**BRIEF, "limits": {"turns": 2, "calls": 8}}
        await agent.society.spawn("user", "dev", {"name": "ada"}, brief, message_id="task")
        await agent.society.join(spec_of("bob", "ada"))
        await ask(agent)
        await agent.society.mail.send("ada", "bob", "Go.", message_id="below")
        await delivered(agent)
        [held] = await agent.society.budgets.held()
        assert (held.work, held.holder) == ("below", "brief task")
        used = {each.holder: each.used["turns"] for each in await agent.society.budgets.list()}
        assert used == {"brief task": 2, "member ada": 2}


async def test_a_member_of_a_template_has_no_wider_limits_than_its_parent(tmp_path: Path) -> None:
    wide = template_of("dev", "cro", limits=MemberLimits(turns=90, tokens=5, period="day"))
    cro = spec_of("cro", limits=MemberLimits(turns=7, period="week"))
    async with scripted_agent(tmp_path, ScriptedLM(fine), society=workspace_of(wide, roles=(cro,))) as agent:
        await agent.society.spawn("cro", "dev", {"name": "ada"}, BRIEF)
        made_of_it = await agent.society.budgets.of("ada")
    assert made_of_it.limits == MemberLimits(turns=7, tokens=5, period="day")


async def test_a_superior_extends_and_ends_with_its_functions(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        message = str(call.fields.get("message", ""))
        if who_of(call, "ada", "cro") != "cro" or "is reached" not in message:
            return doing(call)
        extending = ("extend_budget", {"member": "ada", "turns": 2})
        return doing(call, extending if "second waits" in message else ("end_work", {"work": "third"}))

    more: dict[str, Any] = {"decision": "approve", "after": "*", "times": 9}
    extend = Rule(function="extend_budget", arguments={"member": "ada", "turns": Predicate(most=5)}, **more)
    policy = Policy(rules=(*SEND_RULES, extend, Rule(function="end_work", arguments={"work": "*"}, **more)))
    society = team(cro=MemberLimits(turns=30), ada=MemberLimits(turns=1))
    lm = ScriptedLM(act)
    async with scripted_agent(tmp_path, lm, society=society, policy=policy) as agent:
        await ask(agent)
        await ask(agent, message_id="second")
        assert (calls_of(lm), (await agent.society.budgets.of("ada")).limits) == (2, MemberLimits(turns=2))
        await ask(agent, message_id="third")
        assert (await agent.society.budgets.held(), calls_of(lm)) == ((), 2)


async def test_a_call_that_could_not_be_reserved_is_counted_and_no_further_one_is_made(tmp_path: Path) -> None:
    society = team(cro=MemberLimits(tokens=10), ada=MemberLimits(tokens=5))
    async with scripted_agent(tmp_path, ScriptedLM(fine), society=society, policy=APPROVED) as agent:
        await agent.society.members.member("novel", "ada")
        purse = agent.society.budgets.purse(scope_of("novel", "ada"))
        assert purse is not None
        await purse.spend(4, model="sea-1")
        with pytest.raises(BudgetReached, match="'member ada' is reached"):
            await purse.spend(8, model="sea-1")
        assert [each.used["tokens"] for each in await agent.society.budgets.list()] == [12, 12]
        await agent.society.budgets.extend("cro", MemberLimits(tokens=99, cost=1))
        with pytest.raises(BudgetInvalid, match="'sea-1' has no known price"):
            await purse.spend(1, model="sea-1")


async def test_a_turn_on_a_message_has_its_own_time(tmp_path: Path) -> None:
    society = team(ada=MemberLimits(seconds=30))
    async with scripted_agent(tmp_path, ScriptedLM(fine), society=society, policy=APPROVED) as agent:
        found = await agent.society.members.member("novel", "ada")
        assert worker_of(found, society, ()).limits == Limits(seconds=30)


@pytest.mark.parametrize("given", [{"turns": -1}, {"tokens": 1.5}, {"cost": True}, {"seconds": 0}, {"period": "year"}])
def test_limits_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        MemberLimits(**given)


FILE = """workspace: novel
owner: charles
roles:
  - {role_id: cro, soul: You lead., limits: {turns: 5, period: day}}
  - {role_id: ada, soul: You work., reports_to: cro, limits: {turns: 9, period: day}}
"""


def test_a_file_can_have_limits_and_is_told_of_wider_ones(tmp_path: Path) -> None:
    file = tmp_path / "workspace.yaml"
    file.write_text(FILE, encoding="utf-8")
    read = read_workspace(file)
    assert [each.problem for each in read.problems] == []
    assert read.config is not None
    assert [each.limits for each in read.config.roles] == [MemberLimits(turns=n, period="day") for n in (5, 9)]
    assert ["are wider than those of 'cro'" in each.problem for each in read.warnings] == [True]


@on_every_database
async def test_the_books_of_the_model_are_never_above_the_budget(engine: Engine, tmp_path: Path) -> None:
    """Many members at once, below one budget: each call that the model sees is counted, and none is too much."""
    names = [f"m{number}" for number in range(6)]
    roles = (spec_of("cro", limits=MemberLimits(calls=9)), *(spec_of(each, "", reports_to="cro") for each in names))
    lm = ScriptedLM(fine)
    storage = storage_of(made(engine, tmp_path / "home"))
    agent = WorldAgent("novel", lm=lm, storage=storage, society=workspace_of(roles=roles), policy=APPROVED)
    async with agent:
        for number, name in enumerate(names * 2):
            await agent.society.mail.send("root", name, "Go.", message_id=f"w{number}", payload={"reason": "Work."})
        await delivered(agent)
        used, held = await agent.society.budgets.of("cro"), await agent.society.budgets.held()
        assert (len(lm.calls), used.used["calls"], any(used.reserved.values())) == (9, 9, False)
        assert held
        await agent.society.budgets.extend("cro", MemberLimits(calls=50))
        await delivered(agent)
        assert (await agent.society.budgets.held(), len(lm.calls)) == ((), 12)
        assert (await agent.society.budgets.of("cro")).used["calls"] == 12
