"""What is over and old of a society is removed, and trust stays what all outcomes made it (A8, A12)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import scripted_agent
from support.role_specs import spec_of
from worldagent import Memory, Policy, Rule, WorldAgent, tool
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import UnknownEpisode
from worldagent.core.pauses import Approve
from worldagent.members import (
    SEND_RULES,
    AuthorityConfig,
    Event,
    Gateway,
    Route,
    Society,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.members.data.roles import TrustProfile
from worldagent.members.life.outcomes import Outcome, fold_outcomes, outcomes_of, replayed, sums_of
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database
from worldagent.testing import ScriptedLM, VirtualClock

DAY = 86_400.0
APPROVED = Policy(rules=(*SEND_RULES, Rule(decision="approve", function="qualify")))
TABLES = ("wa_occurrence", "wa_mail", "wa_outcome", "wa_member_step", "wa_turn", "wa_call", "wa_message", "wa_entry")


@tool(risk="write")
def qualify(lead: str) -> str:
    """Qualify a lead."""
    return f"{lead} is good."


@tool(risk="write")
def price(lead: str) -> str:
    """Offer a price."""
    return f"{lead} pays."


def cro() -> Any:
    return spec_of(
        "cro",
        domains=("revenue",),
        operator_ids=("qualify", "price"),
        authority=AuthorityConfig(autonomous=("qualify",), needs_approval=("price",)),
        routes=(
            Route(event="lead.*", operator="qualify", capability="qualify"),
            Route(event="deal.*", operator="price", capability="price"),
        ),
        trust=TrustProfile(default=0.5),
    )


@asynccontextmanager
async def opened(tmp_path: Path, clock: VirtualClock, **settings: Any) -> AsyncGenerator[WorldAgent]:
    lm = ScriptedLM(lambda call: {"result": "Done."} if "message_id" in call.fields else {"reply": "Hello."})
    async with scripted_agent(
        tmp_path,
        lm,
        society=WorkspaceConfig(id="novel", owner="charles"),
        tools=[qualify, price],
        policy=APPROVED,
        memory=Memory(),
        clock=clock,
        settings=settings,
    ) as agent:
        await agent.society.join(cro())
        yield agent


async def post(agent: WorldAgent, id_: str, kind: str = "lead.created") -> None:
    now = inside(agent).clock.now()
    await agent.society.events.post(
        Event(id=id_, type=kind, source="hubspot", domain="revenue", payload={"lead": "Ada"}, timestamp=now)
    )
    await Gateway(agent).deliver()


async def rows(agent: WorldAgent) -> dict[str, int]:
    def work(tx: Any) -> dict[str, int]:
        return {each: tx.execute(f"SELECT COUNT(*) FROM {each}")[0][0] for each in TABLES}

    return await inside(agent).stores.database.read(work)


async def busy(agent: WorldAgent, clock: VirtualClock) -> None:
    """Some days of work: events, messages, steps of lives, and a task that is still the last one of its member."""
    for number in range(3):
        await post(agent, f"e{number}")
        await agent.society.mail.send("root", "cro", f"How is lead {number}?")
        await Gateway(agent).deliver()
        await agent.society.suspend("cro")
        await agent.society.resume("cro")
        for letter in await agent.society.mail.inbox():  # each run is reported to the owner
            await agent.society.mail.read(letter.message.id)
        await clock.advance(DAY)


@pytest.mark.requirement("A12")
@pytest.mark.requirement("A8")
@pytest.mark.on_every_database
async def test_what_is_over_is_removed_and_trust_stays(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock, society_age=90 * DAY) as agent:
        await busy(agent, clock)
        trust = (await agent.society.members.member("novel", "cro")).trust
        assert trust.trust_for("qualify") == 0.65
        before = await rows(agent)
        await clock.advance(89 * DAY)
        counted = await agent.upkeep.prune_by_age(society=90 * DAY, dry_run=True)
        assert (counted.events, counted.outcomes, counted.steps) == (2, 2, 4)
        assert await rows(agent) == before
        pruned = await agent.upkeep.prune()
        assert (pruned.events, pruned.outcomes, pruned.steps) == (2, 2, 4)
        assert [each.event.id for each in await agent.society.events.list()] == ["e2"]
        assert [each.thread for each in await agent.threads(account="member:novel/cro")] != []
        assert await agent.thread("event e0", account="member:novel/cro").state() is None
        assert await agent.thread("event e2", account="member:novel/cro").state() is not None
        assert (await agent.society.members.member("novel", "cro")).trust == trust
        with pytest.raises(UnknownEpisode, match="no longer kept"):
            await agent.society.outcomes.rate("event.e0", "bad")
        after = await agent.society.outcomes.rate("event.e2", "bad")
        assert after.trust_for("qualify") == 0.45, "0.5, two that are removed, and a bad one"
        await post(agent, "e0")  # its id is free again
        assert (await agent.society.members.member("novel", "cro")).trust.trust_for("qualify") == 0.5
        await agent.society.mail.read("event.e0.report")
        await clock.advance(91 * DAY)
        await agent.upkeep.prune()
        left = await rows(agent)
        assert {each: left[each] for each in TABLES[:4]} == dict.fromkeys(TABLES[:4], 0)
        assert left["wa_entry"] == 0, "episodes go with the threads of their turns"
        assert (await agent.upkeep.prune()).events == 0


@pytest.mark.requirement("A12")
async def test_what_something_still_needs_is_kept(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock) as agent:
        society = agent.society
        await post(agent, "waits", "deal.won")  # for a person
        await agent.thread("event mine", account="ana").converse("Hello.")
        await post(agent, "mine")
        await agent.society.mail.read("event.mine.report")
        await post(agent, "told")
        brief = dict.fromkeys(("objective", "constraints", "inputs", "outputs", "completion_criteria"), "none")
        await society.mail.send("root", "cro", payload={"message_type": "task_assignment", "task_brief": brief})
        await Gateway(agent).deliver()
        await society.mail.send("cro", "user", "Shall I?", kind="request", message_id="asked")
        await society.mail.send("cro", "user", "Well?", message_id="unread")
        await society.mail.read("asked")
        await clock.advance(400 * DAY)
        await society.mail.send("user", "cro", "Yes.", answers="asked", message_id="answer")
        await agent.upkeep.prune()
        assert [each.event.id for each in await society.events.list()] == ["waits", "mine", "told"]
        kept = {each.message.id for each in await society.mail.of("cro")}
        task = await society.mail.last_task("cro")
        assert task is not None
        assert kept == {task.message.id, "asked", "unread", "answer", "event.told.report"}
        assert (await agent.thread("event mine", account="ana").history()) != (), "a person's thread of this name"
        thread = agent.thread("event waits", account="member:novel/cro")
        [pause] = await thread.pauses()
        await thread.resume({pause.id: Approve()})
        await Gateway(agent).deliver()
        event = await society.events.get("waits")
        assert event is not None
        assert event.result == "done"


@pytest.mark.requirement("A12")
async def test_a_gateway_removes_it_each_hour(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with opened(tmp_path, clock, society_age=DAY) as agent:
        await post(agent, "e0")
        await agent.society.mail.read("event.e0.report")
        async with Gateway(agent):
            await clock.advance(DAY + 3601)
            async with asyncio.timeout(30):
                while await agent.society.events.list():
                    await clock.advance(1)
                    await asyncio.sleep(0)


OUTCOMES = st.lists(
    st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from([None, "good", "bad"])), max_size=40
)


@pytest.mark.requirement("A8")
@given(OUTCOMES, st.lists(st.integers(0, 40), max_size=3), st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_trust_is_that_of_a_replay_of_all_outcomes(
    tmp_path_factory: pytest.TempPathFactory, made: Any, cuts: list[int], changed: float
) -> None:
    """However often outcomes are put into their sum, and whatever the definition says later."""
    clock = VirtualClock()
    policy = WorkspacePolicy(default_trust=0.5)

    async def run() -> None:
        database = await Database.open(tmp_path_factory.mktemp("trust") / "a.db", schemas=[SOCIETY])
        try:
            society = Society(WorkspaceConfig(id="w", owner="o", policy=policy), database, clock)
            await society.join(spec_of("m", workspace="w", trust=TrustProfile(scores={"a": 0.2}, default=0.5)))
            log = [outcome(number, what, done, said, clock) for number, (what, done, said) in enumerate(made)]
            for number, each in enumerate(log):
                await society.outcomes.record(each)
                if number in cuts:
                    before = (clock.now() + timedelta(seconds=number)).timestamp()
                    fold = partial(fold_outcomes, workspace="w", role_id="m", before=before)
                    await database.transact(fold)
            member = await society.members.member("w", "m")
            assert member.trust == replayed(member, log)
            sums = await database.read(lambda tx: sums_of(tx, member))
            kept = await database.read(lambda tx: outcomes_of(tx, member))
            other = replace(member, spec=replace(member.spec, trust=TrustProfile(scores={"b": changed}, default=0.5)))
            assert replayed(other, kept, sums) == replayed(other, log)
        finally:
            await database.aclose()

    asyncio.run(run())


def outcome(number: int, capability: str, succeeded: bool, feedback: Any, clock: VirtualClock) -> Outcome:
    at = clock.now() + timedelta(seconds=number)
    return Outcome(
        episode_id=f"e{number}", role_id="m", capability=capability, succeeded=succeeded, feedback=feedback, at=at
    )
