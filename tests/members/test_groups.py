"""One message to several contacts, with the answers gathered in one pause (A20)."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, open_pauses
from support.role_specs import spec_of
from support.society import Call, delivered, doing, ended, enlisted, office, request, send, who_of
from worldagent import Approve, Policy, Reject, Rule, WorldAgent, flow
from worldagent.core.pauses import Pause
from worldagent.harness import CallContext
from worldagent.members import SEND_RULES, Contact, remove_member
from worldagent.members.data.roles import RoleStatus
from worldagent.members.mail.groups import MAX_GROUP
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A20")

PANEL = ("ada", "bob", "kim")


def group(*members: str, request: str = "May we?", reason: str = "A vote.", **more: Any) -> Call:
    given = {"members": [*members]} if members else {}
    return "ask_group", {"request": request, "reason": reason, **given, **more}


async def panel(agent: WorldAgent, *others: str, operators: tuple[str, ...] = ()) -> None:
    """Add a chair that knows the members of its panel, and members that it does not know."""
    await enlisted(agent, "cro", operators=operators)
    for each in (*PANEL, *others):
        await enlisted(agent, each)
    for each in PANEL:
        await agent.society.contacts.add("cro", Contact(id=each, role=each.upper()))


async def begun(agent: WorldAgent, *others: str) -> Pause:
    """The pause of the chair's turn once it has asked."""
    await panel(agent, *others)
    await agent.society.mail.send("root", "cro", "Decide.")
    await delivered(agent)
    [pause] = await open_pauses(agent.thread("member cro"))
    return pause


def said(lm: ScriptedLM) -> dict[str, Any]:
    """What the chair was told at the end of its group."""
    text = next(text for text in ended(lm) if '"enough"' in text)
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text[text.rindex('{"answers"') :])[0]
    return found


def votes(found: dict[str, Any]) -> dict[str, str]:
    """The first line of each answer."""
    return {each: text.splitlines()[1] for each, text in found["answers"].items()}


def chairing(asks: Call, **answers: str) -> ScriptedLM:
    """A chair that asks, and members that answer it; those without an answer do nothing."""

    def act(call: ScriptedCall) -> dict[str, Any]:
        who = who_of(call, "cro", *PANEL)
        if who == "cro":
            return doing(call, *([asks] if "Decide." in str(call.fields["message"]) else []))
        return doing(call, *([send("cro", answers[who])] if who in answers else []))

    return ScriptedLM(act)


async def decided(agent: WorldAgent) -> None:
    """Have the chair decide, and deliver until nothing is left."""
    await agent.society.mail.send("root", "cro", "Decide.")
    await delivered(agent)


def turns(lm: ScriptedLM, member: str = "cro") -> int:
    """How many turns of a member began."""
    return len([call for call in lm.calls if who_of(call, "cro", *PANEL) == member and not call.steps])


@pytest.mark.on_every_database
async def test_a_turn_pauses_once_and_resumes_once_with_all_answers(tmp_path: Path) -> None:
    lm = chairing(group(*PANEL), ada="Yes.", bob="No.", kim="Yes.")
    async with office(tmp_path, lm) as agent:
        await panel(agent)
        await decided(agent)
        assert await agent.society.mail.waiting() == []
    found = said(lm)
    assert (votes(found), found["missing"], found["enough"]) == (
        {"ada": "Yes.", "bob": "No.", "kim": "Yes."},
        {},
        True,
    )
    assert turns(lm) == 1, "no answer started a turn of its own"


@pytest.mark.on_every_database
async def test_it_waits_until_the_quorum_is_reached_and_later_answers_are_ordinary_messages(tmp_path: Path) -> None:
    lm = chairing(group(*PANEL, quorum=2), ada="Yes.")
    async with office(tmp_path, lm) as agent:
        pause = await begun(agent)
        assert pause.kind == "reply"
        assert (len(pause.arguments["message_ids"]), pause.arguments["quorum"]) == (3, 2)
    async with office(tmp_path, lm) as agent:  # another process goes on
        await agent.society.mail.send("kim", "cro", "Yes, too.")
        await delivered(agent)
        found = said(lm)
        assert (votes(found), found["enough"]) == ({"ada": "Yes.", "kim": "Yes, too."}, True)
        assert found["missing"] == {"bob": "had not replied when enough others had"}
        assert turns(lm) == 1
        await agent.society.mail.send("bob", "cro", "No.")
        await delivered(agent)
    assert turns(lm) == 2
    assert "[Message from BOB (bob)]\nNo." in lm.calls[-1].text


@pytest.mark.on_every_database
async def test_after_the_deadline_it_goes_on_with_the_answers_that_came_before(tmp_path: Path) -> None:
    clock, lm = VirtualClock(), chairing(group(*PANEL, deadline=60), ada="Yes.")
    async with office(tmp_path, lm, clock=clock) as agent:
        pause = await begun(agent)
        assert pause.expires is not None
        assert (pause.expires - pause.since).total_seconds() == 60
        await clock.advance(59)
        await agent.society.mail.send("bob", "cro", "No.")  # no gateway looks at it before the deadline
        await clock.advance(2)
        await agent.society.mail.send("kim", "cro", "Too late.")
        await delivered(agent)
    found = said(lm)
    assert (votes(found), found["enough"]) == ({"ada": "Yes.", "bob": "No."}, False)
    assert found["missing"] == {"kim": "did not reply in time"}
    assert turns(lm) == 2
    assert "Too late." in lm.calls[-1].text


async def test_answers_to_the_world_agent_wait_for_the_others_and_start_no_turn(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        return doing(call, *([group("ada", "bob")] if "task" not in call.fields else [send("root", "Yes.")]))

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await enlisted(agent, "ada")
        await enlisted(agent, "bob")
        turn = await agent.thread("chat", account="charles").converse("Ask them.")
        assert turn.status == "paused"
        await delivered(agent)
        assert await open_pauses(agent.thread("chat", account="charles")) == []
    assert votes(said(lm)) == {"ada": "Yes.", "bob": "Yes."}
    assert len([call for call in lm.calls if "task" not in call.fields]) == 2


@pytest.mark.on_every_database
async def test_an_answer_to_a_group_whose_turn_is_cancelled_starts_a_turn_of_its_own(tmp_path: Path) -> None:
    lm = chairing(group(*PANEL), ada="The vote is 4711.")
    async with office(tmp_path, lm) as agent:
        await begun(agent)
        await delivered(agent)
        assert sum("4711" in call.text for call in lm.calls if who_of(call, "cro", *PANEL) == "cro") == 0
        assert await agent.thread("member cro", account="member:novel/cro").cancel()
        await delivered(agent)
        assert sum("4711" in call.text for call in lm.calls if who_of(call, "cro", *PANEL) == "cro") == 1
        await agent.society.mail.send("kim", "cro", "Yes.")
        await delivered(agent)
        assert await agent.society.mail.groups.kept() == {}


@pytest.mark.parametrize(
    ("which", "asked"), [({"domain": "law"}, ["ada", "kim"]), ({"children": True}, ["ada", "bob"])]
)
async def test_a_group_can_be_a_domain_or_the_children_among_the_contacts(
    tmp_path: Path, which: dict[str, Any], asked: list[str]
) -> None:
    lm = chairing(group(**which), ada="Yes.", bob="Yes.", kim="Yes.")
    async with office(tmp_path, lm) as agent:
        await agent.society.join(spec_of("cro"))
        for role_id, parent, domain in (("ada", "cro", "law"), ("bob", "cro", "web"), ("kim", "", "law")):
            await agent.society.join(spec_of(role_id, parent, domains=(domain,)))
        await agent.society.join(spec_of("strange", domains=("law",)))
        await agent.society.join(spec_of("away", "cro", domains=("law",)))
        await agent.society.suspend("away")
        await agent.society.contacts.add("cro", Contact(id="kim", role="KIM"))
        await decided(agent)
    assert sorted(said(lm)["answers"]) == asked


MANY = [f"m{number}" for number in range(MAX_GROUP + 1)]


@pytest.mark.parametrize(
    ("asks", "problem"),
    [
        (group("ada", "strange"), "'strange' is not a contact of 'cro'"),
        (group("ada", "nobody"), "'nobody' is not a contact of 'cro'"),
        (group("ada", "cro"), "'cro' is not a contact of 'cro'"),
        (group(), "a group needs exactly one of `members`, `domain` and `children`"),
        (group("ada", domain="law"), "a group needs exactly one of `members`, `domain` and `children`"),
        (group(domain="music"), "the group is empty: none of the active contacts of 'cro' is responsible for 'music'"),
        (group(children=True), "the group is empty: none of the active contacts of 'cro' was made by it"),
        (group(*MANY), f"the group has {MAX_GROUP + 1} members, and {MAX_GROUP} are the most"),
        (group("ada", "bob", quorum=3), "the quorum is 3, and the group has 2 members: ada, bob"),
        (group("ada", "bob", reason=""), "the first message to 'bob' lacks `reason`"),
    ],
)
async def test_a_group_that_cannot_be_asked_is_refused_and_nobody_is_asked(
    tmp_path: Path, asks: Call, problem: str
) -> None:
    lm = chairing(asks)
    async with office(tmp_path, lm) as agent:
        await panel(agent, "strange")
        if "51" in problem:
            for each in MANY:
                await agent.society.contacts.add("cro", Contact(id=each, role="Somebody"))
        await agent.society.contacts.add("ada", Contact(id="cro", role="CRO"))
        await decided(agent)
        assert [each.message.to_id for each in await agent.society.mail.of("cro")] == ["cro"]
    assert problem in ended(lm)[-1]


async def test_members_whose_turn_fails_or_who_are_ended_are_missing_and_not_waited_for(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> Any:
        if who_of(call, "ada") == "ada":
            return dspy.lm15.AuthError("no key")
        return doing(call, *([group(*PANEL, quorum=1)] if "Decide." in str(call.fields["message"]) else []))

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await begun(agent)
        await agent.society.terminate("bob")
        await delivered(agent)
        assert await open_pauses(agent.thread("member cro"))
        await agent.society.terminate("kim")
        await delivered(agent)
    found = said(lm)
    assert (found["answers"], found["enough"]) == ({}, False)
    assert "the turn of ada on your message failed" in found["missing"]["ada"]
    assert "bob was terminated and does not answer." in found["missing"]["bob"]
    assert "kim was terminated and does not answer." in found["missing"]["kim"]


async def test_an_answer_that_was_taken_is_missing_once_its_member_is_removed(tmp_path: Path) -> None:
    async with office(tmp_path, lm := chairing(group(*PANEL), ada="Yes.", bob="No.")) as agent:
        await begun(agent)
        await remove_member(agent.upkeep, "ada")
        await delivered(agent)
        assert await open_pauses(agent.thread("member cro"))
        await agent.society.mail.send("kim", "cro", "Yes.")
        await delivered(agent)
    found = said(lm)
    assert (votes(found), found["missing"]) == ({"bob": "No.", "kim": "Yes."}, {"ada": "was removed"})


@pytest.mark.requirement("A18")
async def test_a_group_with_a_member_that_waits_for_the_asker_is_refused_and_one_without_it_is_not(
    tmp_path: Path,
) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        who, message = who_of(call, "cro", *PANEL), str(call.fields["message"])
        todo: list[Call] = [request("cro", "What is to be done?")] if "Begin." in message else []
        if who == "cro":
            todo = (
                [group(*PANEL), group("bob", "kim"), send("ada", "Wait.")] if "What is to be done?" in message else []
            )
        elif who in ("bob", "kim"):
            todo = [send("cro", "Yes.")]
        return {"result": "Done."} if len(call.steps) == len(todo) else {"result": "", **calls(todo[len(call.steps)])}

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await panel(agent)
        await agent.society.contacts.add("ada", Contact(id="cro", role="CRO"))
        await agent.society.mail.send("root", "ada", "Begin.")
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
        asked = [each.message.to_id for each in await agent.society.mail.of("cro") if each.message.content == "May we?"]
    assert sorted(asked) == ["bob", "kim"]
    assert "'ada' waits for your reply, directly or through others: cro -> ada -> cro" in ended(lm)[0]
    assert votes(said(lm)) == {"bob": "Yes.", "kim": "Yes."}


@pytest.mark.requirement("A18")
async def test_a_member_of_a_group_cannot_wait_for_the_asker_before_the_group_is_over(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        who, message = who_of(call, "cro", *PANEL), str(call.fields["message"])
        todo: list[Call] = []
        if who == "cro" and "Decide." in message:
            todo = [group("ada", "bob", quorum=1), request("user", "And now?")]
        elif who != "cro":
            todo = [request("cro", "What is it about?"), send("cro", "Yes.")] if "May we?" in message else []
            todo = [request("cro", "Is it over?")] if "Ask." in message else todo
        return {"result": "Done."} if len(call.steps) == len(todo) else {"result": "", **calls(todo[len(call.steps)])}

    async with office(tmp_path, lm := ScriptedLM(act)) as agent:
        await panel(agent)
        await decided(agent)
        refused = [text for text in ended(lm) if "'cro' waits for your reply, directly or through others" in text]
        assert {next(each for each in PANEL if f"You are {each}." in text) for text in refused} == {"ada", "bob"}
        assert said(lm)["enough"]
        await agent.society.contacts.add("kim", Contact(id="cro", role="CRO"))
        await agent.society.mail.send("root", "bob", "Ask.")
        await delivered(agent)
        [pause] = await open_pauses(agent.thread("member bob"))
        assert pause.kind == "reply", "the turn of the asker waits for others, and no longer for the group"


@pytest.mark.requirement("C9")
async def test_what_the_answers_were_made_of_marks_the_turn_also_after_it_was_resumed(tmp_path: Path) -> None:
    seen: list[frozenset[str]] = []

    @flow
    async def look(ctx: CallContext) -> str:
        """Look around."""
        seen.append(frozenset(ctx.gate.marks))
        return ""

    def act(call: ScriptedCall) -> dict[str, Any]:
        todo: list[Call | None] = [group("ada", "bob", deadline=60), ("deploy", {"where": "all"}), ("look", {}), None]
        made = todo[len(call.steps)] if who_of(call, "cro") == "cro" else None
        return {"result": "", **calls(made)} if made else {"result": "Done."}

    clock = VirtualClock()
    async with office(tmp_path, act, policy=Policy(rules=SEND_RULES), tools=[look], clock=clock) as agent:
        await panel(agent, operators=("look", "deploy"))
        await decided(agent)
        await agent.society.mail.send("ada", "cro", "Yes.", marks=("fetch",))
        await clock.advance(61)
        await delivered(agent)
        thread = agent.thread("member cro", account="member:novel/cro")
        [pause] = await open_pauses(thread)
        assert pause.function == "deploy"
        await thread.resume({pause.id: Reject("No.")})
    assert seen == [frozenset({"fetch", "message:root", "message:ada"})]


# --- the gate ---------------------------------------------------------------------------------------------------------


async def test_a_person_is_asked_once_with_all_receivers_and_can_leave_some_out(tmp_path: Path) -> None:
    lm = chairing(group(domain="law"), ada="Yes.", bob="Yes.", kim="Yes.")
    async with office(tmp_path, lm, policy=Policy()) as agent:
        await enlisted(agent, "cro")
        for each in PANEL:
            await agent.society.join(spec_of(each, domains=("law",)))
            await agent.society.contacts.add("cro", Contact(id=each, role=each.upper()))
        await agent.society.mail.send("root", "cro", "Decide.")
        await delivered(agent)
        thread = agent.thread("member cro", account="member:novel/cro")
        [pause] = await open_pauses(thread)
        assert (pause.kind, pause.function, pause.arguments["members"]) == ("approval", "ask_members", [*PANEL])
        assert [each for each in await agent.society.mail.waiting() if each.message.to_id != "cro"] == []
        await agent.society.contacts.withdraw("cro", "kim")  # who is asked was decided before
        await thread.resume({pause.id: Approve(arguments={**pause.arguments, "members": ["ada", "bob"]})})
        [waiting] = await open_pauses(thread)
        assert waiting.kind == "reply"
        for each in ("ada", "bob"):
            await agent.society.mail.send(each, "cro", "Yes.")
        await delivered(agent)
        assert await open_pauses(thread) == []
    assert sorted(said(lm)["answers"]) == ["ada", "bob"]
    assert said(lm)["enough"]


async def test_a_rule_about_a_receiver_holds_for_groups_that_it_is_in(tmp_path: Path) -> None:
    never = Rule(decision="refuse", function="ask_members", arguments={"members": "bob"})
    lm = chairing(group(*PANEL))
    async with office(tmp_path, lm, policy=Policy(rules=(never, *SEND_RULES))) as agent:
        await panel(agent)
        await decided(agent)
        assert [each.message.to_id for each in await agent.society.mail.of("cro")] == ["cro"]
    assert "the call of 'ask_members' is refused" in ended(lm)[-1]


@pytest.mark.requirement("A7")
async def test_a_member_in_testing_asks_nobody(tmp_path: Path) -> None:
    async with office(tmp_path, lm := chairing(group("ada", "bob"))) as agent:
        await agent.society.join(spec_of("cro"), status=RoleStatus.TESTING)
        for each in PANEL:
            await enlisted(agent, each)
            await agent.society.contacts.add("cro", Contact(id=each, role=each.upper()))
        await decided(agent)
        assert [each.message.to_id for each in await agent.society.mail.recorded("cro")] == ["ada", "bob"]
    assert "the message to ada is recorded" in said(lm)["missing"]["ada"]


@pytest.mark.requirement("C2")
async def test_answers_for_a_turn_that_still_waits_are_kept(tmp_path: Path) -> None:
    clock, lm = VirtualClock(), chairing(group(*PANEL, deadline=200 * 86_400), ada="Yes.")
    async with office(tmp_path, lm, clock=clock) as agent:
        await begun(agent)
        await clock.advance(100 * 86_400)
        await agent.upkeep.prune()
        for each in ("bob", "kim"):
            await agent.society.mail.send(each, "cro", "No.")
        await delivered(agent)
    assert votes(said(lm)) == {"ada": "Yes.", "bob": "No.", "kim": "No."}
