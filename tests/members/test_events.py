"""Events are posted once, decided once, and their decisions are executed by a gateway (A2, A4, A12)."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, open_pauses, scripted_agent
from support.desk import APPROVED, NOW, Desk, cro, directive, event, found, handled, thread_of, workspace
from support.role_specs import spec_of
from support.society import delivered
from worldagent import Policy, tool
from worldagent.core.errors import (
    CallRefused,
    InvalidArgument,
    KeyReused,
    MailboxFull,
    ModelUnavailable,
    ParamsInvalid,
    SpawnForbidden,
    StorageUnavailable,
    UnknownMember,
)
from worldagent.core.pauses import Approve, Reject
from worldagent.members import (
    AuthorityConfig,
    AutonomousRole,
    Event,
    Gateway,
    remove_member,
)
from worldagent.members.data.roles import RoleStatus, TrustProfile
from worldagent.members.data.workspace import RoutingDecision
from worldagent.members.events import events as events_module
from worldagent.members.events.events import read_event
from worldagent.members.events.routing import Roster
from worldagent.members.life.memory import AgentMemory
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

# --- posting ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A12")
@pytest.mark.on_every_database
async def test_an_event_is_posted_once(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        await agent.society.join(cro())
        first = await agent.society.events.post(event())
        assert (first.member, first.state) == ("cro", "waiting")
        later = replace(event(), timestamp=datetime.now(UTC))
        assert await agent.society.events.post(later) == first
        with pytest.raises(KeyReused, match="other content"):
            await agent.society.events.post(event(lead="Bob"))
        with pytest.raises(KeyReused, match="other content"):
            await agent.society.events.post(event(), to="cro")
        assert len(await agent.society.events.list()) == 1


@pytest.mark.requirement("A2")
@pytest.mark.on_every_database
async def test_an_event_goes_to_the_first_live_member_of_its_domain_or_to_a_named_one(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        for id_ in ("cro", "cfo"):
            await agent.society.join(cro(role_id=id_))
        assert (await agent.society.events.post(event())).member == "cro"
        assert (await agent.society.events.post(event("e2"), to="cfo")).member == "cfo"
        with pytest.raises(UnknownMember):
            await agent.society.events.post(event("e3"), to="ghost")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"id": "e", "type": "t", "source": "s"}, "lacks `domain`"),
        ({"id": "e", "type": "t", "source": "s", "domain": ""}, "lacks `domain`"),
        ([], "must be a JSON object"),
        ({"id": "e", "type": "t", "source": "s", "domain": "d", "source_verified": True}, "no field 'source_verified'"),
        ({"id": "e", "type": "t", "source": "s", "domain": "d", "payload": 3}, "`payload` must be a JSON object"),
        ({"id": "e", "type": "t", "source": "s", "domain": "d", "timestamp": "soon"}, "`timestamp`"),
        ({"id": 3, "type": "t", "source": "s", "domain": "d"}, "id of an event 3 is not an id"),
    ],
)
def test_an_event_that_is_incomplete_or_invalid_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_event(given, now=NOW)


@pytest.mark.on_every_database
async def test_a_workspace_holds_so_many_open_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "MAX_EVENTS", 2)
    async with Desk().agent(tmp_path) as agent:
        for id_ in ("e1", "e2"):
            await agent.society.events.post(event(id_))
        with pytest.raises(MailboxFull, match="2 open events"):
            await agent.society.events.post(event("e3"))
        await delivered(agent)
        assert (await agent.society.events.post(event("e3"))).state == "waiting"


# --- executing --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A12", "A8")
@pytest.mark.on_every_database
async def test_a_delegated_event_runs_its_operator_for_the_member(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event()) as agent:
        posted = await found(agent)
        assert desk.done == [("cro", "Ada")]
        assert (posted.state, posted.result) == ("done", "done")
        assert posted.decision is not None
        assert (posted.decision.action, posted.decision.operator_id) == ("delegate", "qualify")
        [outcome] = await agent.society.outcomes.list("cro")
        assert (outcome.capability, outcome.succeeded) == ("qualify", True)
        assert (await agent.society.members.member("novel", "cro")).trust.trust_for("qualify") == 0.55
        [report] = await agent.society.mail.inbox()
        assert report.message.content == "qualify for lead.created: done"
        [episode] = await AgentMemory(agent, "cro").episodes()
        assert (episode.id, episode.action, episode.succeeded) == ("event.e1", "qualify", True)
        assert (episode.tags, episode.payload) == ({"lead": "Ada"}, {"lead": "Ada"})
        await delivered(agent)
        assert len(desk.done) == 1


async def test_a_worker_is_an_operator_too(tmp_path: Path) -> None:
    async with handled(
        Desk(), tmp_path, event(type_="note.taken", lead="Ada"), lm=(lm := answering("Noted."))
    ) as agent:
        assert (await found(agent)).result == "done"
        assert '{"lead":"Ada"}' in lm.calls[0].text


@pytest.mark.requirement("A12")
@pytest.mark.on_every_database
async def test_what_needs_approval_runs_once_the_owner_approves(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event(type_="deal.price"), event("e2")) as agent:
        assert (await found(agent)).state == "paused"
        assert desk.done == [("cro", "Ada")]
        [pause] = await open_pauses(thread_of(agent))
        assert (pause.function, pause.arguments) == ("price", {"lead": "Ada"})
        await thread_of(agent).resume({pause.id: Approve()})
        await delivered(agent)
        assert (await found(agent)).result == "done"
        assert desk.done[1:] == [("cro", "price for Ada")]


@pytest.mark.requirement("A8")
async def test_low_trust_lets_the_owner_review_each_run(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event(), role=cro(trust=TrustProfile(default=0.1))) as agent:
        [pause] = await open_pauses(thread_of(agent))
        with pytest.raises(CallRefused):
            await thread_of(agent).resume({pause.id: Reject("not this one")})
        await delivered(agent)
        posted = await found(agent)
        assert (posted.result, posted.code) == ("refused", "call_refused")
        assert desk.done == []
        assert await agent.society.outcomes.list("cro") == ()


@pytest.mark.requirement("A2")
async def test_what_is_forbidden_is_escalated_to_the_superior(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        await agent.society.join(spec_of("ceo", reports_to="charles"))
        await agent.society.join(cro(reports_to="ceo"))
        await agent.society.events.post(event(type_="deal.sign"))
        gateway = Gateway(agent)
        assert await gateway.deliver() == 1
        assert ((await found(agent)).result, desk.done) == ("escalated", [])
        [letter] = await agent.society.mail.waiting()
        assert (letter.message.from_id, letter.message.to_id) == ("cro", "ceo")
        assert letter.message.content == "deal.sign: 'sign' is forbidden for 'cro'"
        assert letter.message.payload["event"]["payload"] == {"lead": "Ada"}


@pytest.mark.requirement("A2")
async def test_an_event_of_no_member_is_escalated_to_the_owner(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        await agent.society.events.post(event(domain="marketing"))
        await delivered(agent)
        [letter] = await agent.society.mail.inbox()
        assert letter.message.content == "lead.created: no live member is responsible for 'marketing'"
        assert (await found(agent)).result == "escalated"


@pytest.mark.requirement("H5")
@pytest.mark.on_every_database
async def test_what_an_escalation_sends_is_reported_and_wakes_gateways(tmp_path: Path) -> None:
    seen: list[Any] = []
    async with Desk().agent(tmp_path) as agent:
        society = agent.society.notifying(seen.extend)
        async with society.mail.listen() as watch:
            posted = await society.events.post(event(domain="marketing"))
            await asyncio.wait_for(watch.wait(), 20)
            decision = RoutingDecision(action="escalate", reason="It is of no member.", target_role_id="charles")
            await society.events.route(posted, decision)
            await asyncio.wait_for(watch.wait(), 20)
        assert [each.message.to_id for each in seen] == ["user"]


@pytest.mark.requirement("A2")
@pytest.mark.on_every_database
async def test_a_forward_goes_to_the_member_of_the_domain(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        await agent.society.join(cro())
        await agent.society.join(spec_of("cmo", domains=("marketing",)))
        await agent.society.events.post(event(), to="cmo")
        await delivered(agent)
        posted = await found(agent)
        assert (posted.member, posted.trail, posted.result) == ("cro", ("cmo",), "done")
        assert desk.done == [("cro", "Ada")]
        assert await agent.society.events.post(event(), to="cmo") == posted


class Passes(AutonomousRole):
    """A member that passes every event on."""

    to = ""

    def handle(self, event: Event, roster: Any = None) -> Any:
        return RoutingDecision(action="forward", reason="not mine", target_role_id=self.to)


@pytest.mark.requirement("A2")
@pytest.mark.on_every_database
async def test_the_third_forward_is_an_escalation_to_the_owner(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        roles = []
        for id_, other in (("ping", "pong"), ("pong", "ping")):
            spec = spec_of(id_, domains=("revenue",))
            await agent.society.join(spec)
            roles.append(Passes(spec))
            roles[-1].to = other
        await agent.society.events.post(event())
        await delivered(agent, *roles)
        posted = await found(agent)
        assert (posted.result, posted.trail) == ("escalated", ("ping", "pong"))
        [letter] = await agent.society.mail.inbox()
        assert "it was forwarded 3 times: ping -> pong -> ping -> pong" in letter.message.content


class Chooses(AutonomousRole):
    """A member whose code chooses the operator."""

    def _match_operator(self, event: Event) -> tuple[str | None, str | None]:
        if "lead" not in event.payload:
            raise KeyError("lead")
        return "qualify", None


async def test_the_code_of_a_role_chooses_and_its_error_loses_no_event(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        spec = cro(routes=(), authority=AuthorityConfig(autonomous=("lead.created", "qualify")))
        await agent.society.join(spec)
        await agent.society.events.post(event())
        await agent.society.events.post(event("e2", other="x"))
        await delivered(agent, Chooses(spec))
        assert desk.done == [("cro", "Ada")]
        assert (await found(agent, "e2")).result == "escalated"
        assert "could not decide (KeyError)" in (await agent.society.mail.inbox())[-1].message.content


async def test_code_of_a_role_that_decides_nothing_loses_no_event(tmp_path: Path) -> None:
    class Forgets(AutonomousRole):
        def handle(self, event: Event, roster: Roster | None = None) -> RoutingDecision:
            return None  # type: ignore[return-value] # what a forgotten return gives

    async with Desk().agent(tmp_path) as agent:
        await agent.society.join(cro())
        await agent.society.events.post(event())
        await delivered(agent, Forgets(cro()))
        assert (await found(agent)).result == "escalated"
        assert "could not decide (TypeError)" in (await agent.society.mail.inbox())[-1].message.content


@pytest.mark.on_every_database
async def test_an_event_of_a_member_that_is_suspended_goes_to_the_next_or_to_the_owner(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        for id_ in ("cro", "cfo"):
            await agent.society.join(cro(role_id=id_))
        await agent.society.events.post(event())
        await agent.society.suspend("cro")
        await delivered(agent)
        assert desk.done == [("cfo", "Ada")]
        await agent.society.events.post(event("e2"))
        await agent.society.events.post(event("e3"), to="cfo")
        await agent.society.suspend("cfo")
        await delivered(agent)
        assert ((await found(agent, "e2")).result, (await found(agent, "e3")).result) == ("escalated", "ignored")


@pytest.mark.requirement("A7")
async def test_the_owner_is_told_of_a_test_what_a_member_would_have_escalated(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        await agent.society.join(spec_of("cfo"))
        await agent.society.join(cro(reports_to="cfo"), status=RoleStatus.TESTING)
        await agent.society.events.post(event(type_="deal.sign"))
        await delivered(agent)
        assert ((await found(agent)).result, await agent.society.mail.waiting()) == ("escalated", [])
        [letter] = await agent.society.mail.recorded("cro")
        assert letter.message.content == "deal.sign: 'sign' is forbidden for 'cro'"
        [told] = await agent.society.mail.inbox()
        assert told.message.content == f"A test, recorded for 'cfo': {letter.message.content}"
        assert [each.id for each in await agent.society.contacts.list("user")] == ["root"]


async def test_a_payload_that_the_operator_does_not_take_fails_the_event_alone(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event("e1", lead="Ada", phone="1"), event("e2")) as agent:
        posted = await found(agent)
        assert (posted.result, posted.code) == ("refused", ParamsInvalid.code)
        told = [each.message.content for each in await agent.society.mail.inbox()]
        assert f"qualify for lead.created: refused ({ParamsInvalid.code}): the fields are: lead" in told
        assert desk.done == [("cro", "Ada")]


async def test_a_run_that_fails_is_an_episode_and_the_owner_is_told(tmp_path: Path) -> None:
    @tool(risk="write")
    async def qualify(lead: str) -> str:
        raise ValueError(lead)

    async with scripted_agent(tmp_path, answering(), society=workspace(), policy=APPROVED, tools=[qualify]) as agent:
        await agent.society.join(cro(operator_ids=("qualify",), trust=TrustProfile(default=0.9)))
        await agent.society.events.post(event())
        await delivered(agent)
        assert ((await found(agent)).result, (await found(agent)).code) == ("failed", "task_failed")
        [episode] = await AgentMemory(agent, "cro").episodes()
        [outcome] = await agent.society.outcomes.list("cro")
        assert (episode.succeeded, outcome.succeeded) == (False, False)
        told = (await agent.society.mail.inbox())[0].message.content
        assert told.startswith("qualify for lead.created: failed (task_failed): fix your code; ")


async def test_an_event_is_handled_once_the_model_of_its_operator_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [ModelUnavailable("the model is down", remedy="wait")]

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if answers:
            raise answers.pop()
        return {"result": "Noted."}

    async with Desk().agent(tmp_path, ScriptedLM(reply)) as agent:
        await agent.society.join(cro())
        await agent.society.events.post(event(type_="note.taken"))
        assert await Gateway(agent).deliver() == 0
        assert caplog.messages[0].startswith("the event e1 is handled again later: model_unavailable; try again later")
        assert (await found(agent)).state == "decided"
        await delivered(agent)
        assert (await found(agent)).result == "done"


async def test_an_event_waits_while_the_database_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        await agent.society.join(cro())
        await agent.society.events.post(event())

        async def down(*_: Any, **__: Any) -> Any:
            raise StorageUnavailable("the database cannot be reached", remedy="start it")

        gateway = Gateway(agent)
        with monkeypatch.context() as broken:
            broken.setattr(events_module.Events, "route", down)
            assert await gateway.deliver() == 0
        assert ((await found(agent)).state, desk.done) == ("waiting", [])
        await delivered(agent)
        assert desk.done == [("cro", "Ada")]


async def test_a_run_that_expects_an_answer_too_late_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    policy = Policy(rules=APPROVED.rules, expires=3600)
    desk = Desk()
    async with handled(desk, tmp_path, event(type_="deal.price"), clock=clock, policy=policy) as agent:
        assert (await found(agent)).state == "paused"
        await clock.advance(3601)
        await delivered(agent)
        assert ((await found(agent)).result, (await found(agent)).code) == ("refused", "pause_expired")
        assert desk.done == []


@pytest.mark.requirement("A8")
async def test_an_event_with_text_of_strangers_is_not_acted_on_without_a_person(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(
        desk, tmp_path, replace(event(), metadata={"untrusted": ["mail"]}), role=cro(trust=TrustProfile(default=0.9))
    ) as agent:
        [pause] = await open_pauses(thread_of(agent))
        assert ("untrusted results of: mail" in pause.reason, desk.done) == (True, [])
        with pytest.raises(InvalidArgument, match="must be a list of names"):
            await agent.society.events.post(replace(event("e2"), metadata={"untrusted": "mail"}))


# --- making members ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A9")
async def test_a_directive_makes_a_member(tmp_path: Path) -> None:
    async with handled(
        Desk(),
        tmp_path,
        directive("e1", template_id="bdr", params={"territory": "APAC"}),
        lm=ScriptedLM(lambda call: {"result": "Ready."}),
    ) as agent:
        member = await agent.society.members.member("novel", "bdr-apac")
        assert (member.spec.parent_role_id, (await found(agent)).result) == ("cro", "done")


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    ("payload", "more", "code"),
    [
        ({"template_id": "sdr", "params": {}}, {}, "unknown_template"),
        ({"template_id": "bdr", "params": {}}, {}, "params_invalid"),
        ({"template_id": "bdr", "params": {"territory": "APAC", "age": "3"}}, {}, "params_invalid"),
        ({"template_id": "bdr", "params": {"territory": "APAC"}}, {"role_id": "cfo"}, "spawn_forbidden"),
        ({"template_id": "bdr", "params": {"territory": "APAC"}}, {"max_roles": 1}, "roles_full"),
        ({"template_id": "bdr", "params": {"territory": "APAC"}}, {"brief": "required"}, "brief_invalid"),
        ({"template_id": "bdr", "params": {"territory": "APAC"}, "brief": "Find leads."}, {}, "brief_invalid"),
    ],
)
async def test_a_directive_that_cannot_be_followed_fails_and_the_owner_is_told(
    tmp_path: Path, payload: Any, more: Any, code: str
) -> None:
    role_id = more.pop("role_id", "cro")
    async with handled(
        Desk(), tmp_path, directive("e1", **payload), role=cro(role_id=role_id), society=workspace(**more)
    ) as agent:
        posted = await found(agent)
        assert (posted.result, posted.code) == ("failed", code)
        assert code in (await agent.society.mail.inbox())[0].message.content


@pytest.mark.requirement("A7")
async def test_a_gateway_ends_members_whose_time_is_over(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Desk().agent(tmp_path, clock=clock) as agent:
        await agent.society.join(cro(ttl="90d"))
        await clock.advance(91 * 86_400)
        await Gateway(agent).deliver()
        assert (await agent.society.members.member("novel", "cro")).life.status == "terminated"


@pytest.mark.requirement("A12")
async def test_an_event_that_waits_for_a_person_is_over_once_its_member_is_removed(tmp_path: Path) -> None:
    async with handled(Desk(), tmp_path, event(type_="deal.price")) as agent:
        assert (await found(agent)).state == "paused"
        await remove_member(agent.upkeep, "cro", cancel=True)
        await delivered(agent)
        posted = await found(agent)
        assert (posted.state, posted.result, posted.code) == ("done", "refused", UnknownMember.code)


@pytest.mark.requirement("A7")
async def test_a_member_in_testing_makes_no_members(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        await agent.society.join(cro(), status=RoleStatus.TESTING)
        await agent.society.events.post(directive("e1", template_id="bdr", params={"territory": "APAC"}))
        await delivered(agent)
        posted = await found(agent)
        assert (posted.state, posted.result, posted.code) == ("done", "failed", SpawnForbidden.code)
        assert [each.id for each in await agent.society.members.list_roles("novel")] == ["cro"]


@pytest.mark.requirement("A7")
async def test_a_suspended_member_finishes_what_waited_for_an_approval(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event(type_="deal.price")) as agent:
        await agent.society.suspend("cro")
        gateway = Gateway(agent)
        assert await gateway.deliver() == 0
        [pause] = await open_pauses(thread_of(agent))
        await thread_of(agent).resume({pause.id: Approve()})
        assert await gateway.deliver() == 1
        posted = await found(agent)
        assert (posted.state, posted.result, desk.done) == ("done", "done", [("cro", "price for Ada")])


@pytest.mark.requirement("A12")
async def test_a_full_inbox_of_the_owner_holds_up_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.members.mail.letters.MAX_WAITING", 2)
    desk = Desk()
    async with desk.agent(tmp_path) as agent:
        await agent.society.join(cro(role_id="ceo", domains=()))
        await agent.society.join(cro(reports_to="ceo"))
        for each in range(2):
            await agent.society.mail.send("root", "ceo", f"Wait {each}.")
        await agent.society.suspend("ceo")
        for each in range(4):
            await agent.society.events.post(event(f"u{each}", "deal.sign"))
        await agent.society.events.post(event())
        await delivered(agent)
        assert [each.result for each in await agent.society.events.list()] == ["escalated"] * 4 + ["done"]
        assert (len(await agent.society.mail.inbox()), desk.done) == (2, [("cro", "Ada")])
        assert await agent.society.events.next() == ()
