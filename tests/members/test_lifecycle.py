"""The life of members: which states follow which, what ends with a member, and when its lifetime is over (A7)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from support.databases import ENGINES, fresh
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from support.society_tables import problems
from worldagent.core.errors import InvalidArgument, LifecycleError, MessageInvalid, SpawnForbidden, UnknownMember
from worldagent.members import (
    Contact,
    Society,
)
from worldagent.members.data.roles import RoleLifecycle, RoleStatus
from worldagent.members.life.lives import moved, terminated
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database, PostgresAddress
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("A7")

START = VirtualClock().now()
FOLLOWS = {
    ("draft", "testing"),
    ("testing", "active"),
    ("active", "suspended"),
    ("suspended", "active"),
    ("suspended", "terminated"),
}
STATES = ("draft", "testing", "active", "suspended", "terminated")
TEMPLATE = template_of("page", "bdr", name_pattern="page", parameters=(), soul_template="You write pages.")
DONE = {"message_type": "status_report", "done": True}


def life_of(status: str) -> RoleLifecycle:
    return RoleLifecycle(status=RoleStatus(status), created_at=START, created_by="user")


# --- the states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [*itertools.product(STATES, STATES)])
def test_a_state_follows_those_that_lead_to_it_and_no_other(before: str, after: str) -> None:
    if (before, after) in FOLLOWS:
        assert moved("bdr", life_of(before), RoleStatus(after), START).status == after
    else:
        with pytest.raises(LifecycleError, match=f"'bdr' is {before} and cannot become {after}"):
            moved("bdr", life_of(before), RoleStatus(after), START)


@pytest.mark.parametrize("before", STATES[:-1])
def test_every_state_but_the_last_leads_to_the_end_through_those_between(before: str) -> None:
    lives = terminated("bdr", life_of(before), "human_decision", START)
    passed = [before, *(each.status.value for each in lives)]
    assert all(step in FOLLOWS for step in itertools.pairwise(passed))
    assert passed == [*STATES[STATES.index(before) :]]
    assert (lives[-1].terminated_at, lives[-1].termination_reason) == (START, "human_decision")
    assert lives[-1].activated_at is None
    with pytest.raises(LifecycleError, match="'bdr' is terminated already"):
        terminated("bdr", lives[-1], "again", START)


@given(st.integers(1, 36_500), st.sampled_from(STATES))
def test_days_count_from_the_first_activation(days: int, status: str) -> None:
    life = replace(life_of(status), activated_at=START)
    assert life.ends_at(None) is None
    assert life.ends_at("task") is None
    assert replace(life, activated_at=None).ends_at(f"{days}d") is None
    assert life.ends_at(f"{days}d") == (None if status == "terminated" else START + timedelta(days=days))


# --- members ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def society(local: Database, clock: VirtualClock) -> AsyncIterator[Society]:
    """cro made bdr, and bdr made intern; coo is apart."""
    made = Society(workspace_of(), local, clock)
    for role_id, parent in (("cro", ""), ("coo", ""), ("bdr", "cro"), ("intern", "bdr")):
        await made.join(spec_of(role_id, parent))
    yield made
    assert await local.read(lambda tx: problems(tx.execute)) == []


async def status(society: Society, member: str) -> str:
    return (await society.members.member("novel", member)).life.status.value


async def passed(society: Society, member: str) -> list[str]:
    return [each.status.value for each in await society.steps(member)]


async def test_a_draft_is_tested_and_then_works(society: Society, clock: VirtualClock) -> None:
    await society.join(spec_of("sdr"), status=RoleStatus.DRAFT)
    with pytest.raises(MessageInvalid, match="'sdr' is draft"):
        await society.mail.send("root", "sdr", "Hello.")
    with pytest.raises(LifecycleError, match="'sdr' is draft, not testing"):
        await society.activate("sdr")
    await society.test("sdr")
    assert (await society.mail.send("root", "sdr", "Hello.")).state == "waiting"
    await clock.advance(60)
    await society.activate("sdr")
    assert await passed(society, "sdr") == ["testing", "active"]
    assert (await society.members.member("novel", "sdr")).life.activated_at == clock.now()
    with pytest.raises(InvalidArgument, match="'late' cannot begin"):
        await society.join(spec_of("late"), status=RoleStatus.SUSPENDED)
    with pytest.raises(UnknownMember, match="'ghost'"):
        await society.test("ghost")


async def test_messages_to_a_suspended_member_wait_or_are_refused(society: Society) -> None:
    letter = await society.mail.send("cro", "bdr", "Hello.")
    other = await society.mail.send("coo", "root", "Hello.")
    await society.suspend("bdr")
    assert [each.message.id for each in await society.mail.waiting()] == [other.message.id]
    assert await society.mail.answer(letter.message.id), "taken before it was suspended"
    for one, two in (("cro", "bdr"), ("bdr", "cro")):
        with pytest.raises(MessageInvalid, match="'bdr' is suspended"):
            await society.mail.send(one, two, "Hello.")
    await society.create_role(TEMPLATE)
    with pytest.raises(SpawnForbidden, match="'bdr' is suspended"):
        await society.spawn("bdr", "page", {}, BRIEF)
    await society.resume("bdr")
    assert [each.message.id for each in await society.mail.waiting()] == [letter.message.id, other.message.id]
    assert not await society.mail.answer(letter.message.id)
    assert await passed(society, "bdr") == ["suspended", "active"]


@pytest.mark.requirement("A4")
async def test_what_a_suspended_member_asked_is_answered_and_waits_for_it(society: Society) -> None:
    await society.mail.send("cro", "bdr", "How many?", kind="request")
    await society.suspend("cro")
    reply = await society.mail.send("bdr", "cro", "Seven.")
    assert [each.message.id for each in await society.mail.inbox("cro")] == [reply.message.id]
    with pytest.raises(MessageInvalid, match="'cro' is suspended"):
        await society.mail.send("bdr", "cro", "And eight.")
    assert reply.message.id not in [each.message.id for each in await society.mail.waiting()]
    await society.resume("cro")
    assert reply.message.id in [each.message.id for each in await society.mail.waiting()]


async def test_a_message_to_a_member_is_not_marked_as_read(society: Society) -> None:
    letter = await society.mail.send("cro", "bdr", "Hello.")
    with pytest.raises(InvalidArgument, match="is to 'bdr', which is not a person"):
        await society.mail.read(letter.message.id)
    assert [each.message.id for each in await society.mail.waiting()] == [letter.message.id]


async def test_a_member_is_not_introduced_while_it_receives_nothing(society: Society) -> None:
    ask = {"message_type": "introduction_request", "reason": "A page.", "required_capability": "intern"}
    await society.suspend("intern")
    letter = await society.mail.send("cro", "bdr", payload=ask)
    assert not await society.mail.answer(letter.message.id)


async def test_descendants_end_first(society: Society, clock: VirtualClock) -> None:
    await society.suspend("bdr")
    assert await society.terminate("cro", "task_complete") == ("intern", "bdr", "cro")
    lives = [(await society.members.member("novel", each)).life for each in ("intern", "bdr", "cro")]
    assert [each.termination_reason for each in lives] == ["parent_terminated", "parent_terminated", "task_complete"]
    assert {each.terminated_at for each in lives} == {clock.now()}
    steps = await society.steps_since(0)
    assert [(each.member, each.status.value) for each in steps[1:]] == [
        ("intern", "suspended"),
        ("intern", "terminated"),
        ("bdr", "terminated"),
        ("cro", "suspended"),
        ("cro", "terminated"),
    ]
    assert [(each.member, each.parent, each.work) for each in await society.memory_due()] == [
        ("intern", "bdr", "archive"),
        ("bdr", "cro", "archive"),
        ("cro", "", "archive"),
    ]
    assert [each.id for each in await society.members.list_roles("novel")] == ["coo"]
    with pytest.raises(LifecycleError, match="'bdr' is terminated already"):
        await society.terminate("bdr")
    with pytest.raises(InvalidArgument, match="'late' names 'bdr', which is not in the workspace, or terminated"):
        await society.join(spec_of("late", "bdr"))


@pytest.mark.parametrize("suspended", [False, True])
async def test_what_others_asked_of_a_member_is_answered_when_it_ends(society: Society, suspended: bool) -> None:
    await society.contacts.add("cro", Contact(id="coo", role="COO", note="Knows operations."))
    question = await society.mail.send("cro", "coo", "How many?", kind="request", payload={"reason": "A question."})
    ask = {"message_type": "introduction_request", "reason": "A page.", "required_capability": "law"}
    introduction = await society.mail.send("cro", "coo", payload=ask)
    told = await society.mail.send("cro", "coo", "By the way.")
    if suspended:
        await society.suspend("coo")
    await society.terminate("coo")
    assert "coo" not in [each.id for each in await society.contacts.list("cro")]
    assert [each.message.to_id for each in await society.mail.waiting()] == ["cro"]
    replies = [await society.mail.reply_to(each.message.id) for each in (question, introduction, told)]
    assert [None if each is None else (each.message.from_id, each.message.type) for each in replies] == [
        ("coo", "response"),
        ("coo", "response"),
        None,
    ]
    assert replies[0] is not None
    assert "was terminated" in replies[0].message.content
    assert replies[1] is not None
    assert "was terminated" in replies[1].message.payload["declined"]
    assert "How many?" not in await society.mail.text_of(replies[1])


async def test_an_introduction_that_waits_for_the_consent_of_a_terminated_member_is_declined(local: Database) -> None:
    society = Society(workspace_of(consent="ask"), local)
    for role_id, parent in (("cro", ""), ("bdr", "cro"), ("law", "cro")):
        await society.join(spec_of(role_id, parent, domains=("contracts",) if role_id == "law" else ()))
    ask = {"message_type": "introduction_request", "reason": "A page.", "required_capability": "contracts"}
    letter = await society.mail.send("bdr", "cro", payload=ask)
    await society.mail.answer(letter.message.id)
    assert [each.message.to_id for each in await society.mail.waiting()] == ["law"]
    await society.terminate("law")
    reply = await society.mail.reply_to(letter.message.id)
    assert reply is not None
    assert "declined" in reply.message.payload
    assert await local.read(lambda tx: problems(tx.execute)) == []


# --- lifetimes --------------------------------------------------------------------------------------------------------


async def test_a_member_of_a_task_ends_when_it_reports_the_task_done(society: Society) -> None:
    for role_id in ("dev", "tester", "nurse"):
        await society.join(spec_of(role_id, "cro", ttl="task"))
    await society.contacts.add("dev", Contact(id="coo", role="COO", note="Operations."))
    await society.mail.send("dev", "coo", payload=DONE)  # it is not who gave it the task
    await society.mail.send("dev", "cro", payload={"message_type": "status_report", "done": False})
    await society.mail.send("bdr", "cro", payload=DONE)  # it does not live for a task
    assert [await status(society, each) for each in ("dev", "bdr")] == ["active", "active"]
    letter = await society.mail.send("dev", "cro", payload=DONE)
    life = (await society.members.member("novel", "dev")).life
    assert (life.status.value, life.termination_reason) == ("terminated", "task_complete")
    assert await society.mail.send("dev", "cro", payload=DONE, message_id=letter.message.id) == letter
    # One that reports inside of a turn ends after that turn.
    task = await society.mail.send("cro", "tester", "Test it.")
    await society.mail.answer(task.message.id)
    await society.mail.send("tester", "cro", payload=DONE)
    assert (await society.expire(), await status(society, "tester")) == ((), "active")
    await society.mail.send("tester", "cro", "It was a pleasure.")
    await society.mail.ended(task.message.id)
    assert (await society.expire(), await status(society, "tester")) == (("tester",), "terminated")
    assert (await society.members.member("novel", "tester")).life.termination_reason == "task_complete"


async def test_a_lifetime_of_days_is_over_at_its_last_second(society: Society, clock: VirtualClock) -> None:
    await society.join(spec_of("dev", "cro", ttl="90d"))
    await society.join(spec_of("tester", "dev", ttl="90d"))
    await society.join(spec_of("later", "dev", ttl="1d"), status=RoleStatus.DRAFT)
    await clock.advance(90 * 86_400 - 1)
    assert await society.expire() == ()
    await society.suspend("tester")
    await clock.advance(1)
    assert await society.expire() == ("later", "tester", "dev")
    reasons = [(await society.members.member("novel", each)).life.termination_reason for each in ("dev", "later")]
    assert reasons == ["lifetime_over", "parent_terminated"]
    assert await society.expire() == ()


# --- any life ---------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")
MEMBER = st.sampled_from(NAMES)
VERBS = {
    "test": ("draft", "testing"),
    "activate": ("testing", "active"),
    "suspend": ("active", "suspended"),
    "resume": ("suspended", "active"),
}


class Lives(RuleBasedStateMachine):
    """A society next to a small statement of what the state, the parent and the end of each member must be."""

    def __init__(self, place: Path | PostgresAddress) -> None:
        super().__init__()
        self.loop, self.clock, self.place = asyncio.new_event_loop(), VirtualClock(), place
        self.states: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.ends: dict[str, Any] = {}
        self.passed: dict[str, list[str]] = {}
        self.open()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def open(self) -> None:
        self.database = self.run(Database.open(self.place, schemas=[SOCIETY]))
        self.society = Society(workspace_of(), self.database, self.clock)

    def teardown(self) -> None:
        assert self.run(self.database.read(lambda tx: problems(tx.execute))) == []
        self.run(self.database.aclose())
        self.loop.close()

    def lives(self, member: str) -> bool:
        return self.states.get(member, "terminated") != "terminated"

    def goes(self, member: str, after: str) -> None:
        self.states[member] = after
        self.passed[member].append(after)
        if after == "active" and self.ends[member] == "2d":
            self.ends[member] = self.clock.now() + timedelta(days=2)

    def end(self, member: str) -> None:
        for child in [each for each in self.states if self.parents[each] == member and self.lives(each)]:
            self.end(child)
        for after in STATES[STATES.index(self.states[member]) + 1 :]:
            self.states[member] = after
            self.passed[member].append(after)

    @rule(member=MEMBER, parent=st.one_of(st.just(""), MEMBER), state=st.sampled_from(STATES[:3]), ttl=st.booleans())
    def join(self, member: str, parent: str, state: str, ttl: bool) -> None:
        if member in self.states or (parent and not self.lives(parent)):
            return
        spec = spec_of(member, parent, ttl="2d" if ttl else "task")
        self.run(self.society.join(spec, status=RoleStatus(state)))
        self.states[member], self.parents[member], self.passed[member] = state, parent, []
        self.ends[member] = "2d" if ttl else None
        if ttl and state == "active":
            self.ends[member] = self.clock.now() + timedelta(days=2)

    @rule(member=MEMBER, verb=st.sampled_from([*VERBS]))
    def move(self, member: str, verb: str) -> None:
        before, after = VERBS[verb]
        work = getattr(self.society, verb)(member)
        if self.states.get(member) == before:
            self.run(work)
            self.goes(member, after)
        else:
            with pytest.raises(LifecycleError if member in self.states else UnknownMember):
                self.run(work)

    @rule(member=MEMBER)
    def terminate(self, member: str) -> None:
        work = self.society.terminate(member)
        if self.lives(member):
            ended = self.run(work)
            self.end(member)
            assert ended[-1] == member
        else:
            with pytest.raises(LifecycleError if member in self.states else UnknownMember):
                self.run(work)

    @rule(member=MEMBER)
    def report(self, member: str) -> None:
        if self.states.get(member) not in ("testing", "active"):
            return
        parent = self.parents[member] or "root"
        if parent != "root" and self.states[parent] not in ("testing", "active"):
            return
        self.run(self.society.mail.send(member, parent, payload=DONE))
        if self.ends[member] is None and self.states[member] == "active":  # in testing, it has no effect
            self.end(member)

    @rule(member=MEMBER, verb=st.sampled_from(("ask", "tell")))
    def message(self, member: str, verb: str) -> None:
        parent = self.parents.get(member) or "root"
        states = {self.states.get(member), self.states.get(parent, "active")}
        if states <= {"testing", "active"}:
            kind: Any = "request" if verb == "ask" else "notification"
            self.run(self.society.mail.send(parent, member, "Hello.", kind=kind))

    @rule(days=st.integers(0, 2))
    def time_passes(self, days: int) -> None:
        self.run(self.clock.advance(86_400 * days))
        self.run(self.society.expire())
        for member, end in self.ends.items():
            if self.lives(member) and end not in (None, "2d") and end <= self.clock.now():
                self.end(member)

    @rule()
    def reopen(self) -> None:
        self.run(self.database.aclose())
        self.open()

    @invariant()
    def the_database_says_the_same(self) -> None:
        found = {each: self.run(self.society.members.member("novel", each)).life.status.value for each in self.states}
        assert found == self.states
        for member in self.states:
            assert [each.status.value for each in self.run(self.society.steps(member))] == self.passed[member]
        reached = {each.message.to_id for each in self.run(self.society.mail.waiting())}
        assert all(self.states.get(each, "active") in ("testing", "active") for each in reached)


@pytest.mark.parametrize("engine", [e if e == "sqlite" else pytest.param(e, marks=pytest.mark.soak) for e in ENGINES])
def test_any_life_is_one_that_the_states_allow(tmp_path: Path, engine: Any) -> None:
    numbers = itertools.count()

    class Here(Lives):
        def __init__(self) -> None:
            super().__init__(fresh(engine, tmp_path / str(next(numbers))))

    examples = max(10, settings().max_examples // 5)
    run_state_machine_as_test(Here, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None))
