"""Who may write to whom, and how members come to know each other."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.role_specs import BRIEF, spec_of, workspace_of
from worldagent.core.errors import (
    InvalidArgument,
    MailboxFull,
    MessageInvalid,
    RoleExists,
    RolesFull,
    UnknownContact,
    UnknownMember,
    WorldAgentError,
)
from worldagent.members import Contact, InterfaceSpec, Letter, RoleSpec, Society
from worldagent.members.data.roles import Participant
from worldagent.members.life.members import InMemoryRegistry, RoleRegistry
from worldagent.members.mail.letters import MAX_WAITING
from worldagent.storage import Database
from worldagent.testing import VirtualClock

LAW = InterfaceSpec(
    services="Checks contracts and licences.", input_format="The contract as text.", output_format="A list."
)
ASK_LAW: dict[str, Any] = {
    "message_type": "introduction_request",
    "reason": "A contract must be checked.",
    "required_capability": "contracts",
}
GARDENING: dict[str, Any] = ASK_LAW | {"required_capability": "gardening"}
ANSWER_COO: dict[str, Any] = {
    "message_type": "introduction_response",
    "target_id": "coo",
    "role_name": "COO",
    "interface_spec": None,
    "usage_advice": "Say what it is about.",
}


def spec(role_id: str, *, parent: str = "", domains: tuple[str, ...] = ()) -> RoleSpec:
    return spec_of(role_id, parent, workspace="w", domains=domains)


def society_on(database: Database, clock: VirtualClock | None = None, **policy: Any) -> Society:
    return Society(workspace_of(id="w", **policy), database, clock)


async def branches(database: Database, clock: VirtualClock | None = None, **policy: Any) -> Society:
    """root has cro and coo; cro has bdr; coo has legal, which offers its services."""
    made = society_on(database, clock, **policy)
    await made.join(spec("cro", domains=("revenue",)), name="CRO")
    await made.join(spec("coo", domains=("operations",)), name="COO")
    await made.join(spec("bdr", parent="cro", domains=("revenue",)), name="BDR")
    await made.join(spec("legal", parent="coo", domains=("law",)), name="Legal", interface=LAW)
    return made


async def known(society: Society, owner: str) -> list[str]:
    return sorted(each.id for each in await society.contacts.list(owner))


async def deliver(society: Society) -> list[Letter]:
    """What a gateway does, without turns: settle all that waits; what needs a turn is over at once, and returned."""
    left: list[Letter] = []
    while found := await society.mail.waiting():
        for letter in found:
            if not await society.mail.answer(letter.message.id):
                left.append(letter)
                await society.mail.ended(letter.message.id)
    return left


# --- contacts ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C2.1", "C2.2", "C2.7", "C2")
async def test_members_know_whom_they_come_from_and_the_world_agent_knows_its_own(database: Database) -> None:
    society = await branches(database)
    assert await known(society, "cro") == ["bdr", "root", "user"]
    assert await known(society, "bdr") == ["cro"]
    assert await known(society, "root") == ["coo", "cro", "user"]
    [contact] = [each for each in await society.contacts.list("coo") if each.id == "legal"]
    assert (contact.role, contact.introduced_by, contact.interface) == ("Legal", "birth", LAW)


@pytest.mark.requirement("C2")
async def test_a_member_knows_those_who_report_to_it_as_well_as_they_know_it(database: Database) -> None:
    superiors = {"cro": "", "bdr": "cro", "clerk": "user"}
    roles = [spec_of(id_, workspace="w", reports_to=above) for id_, above in superiors.items()]
    society = Society(workspace_of(id="w", roles=roles), database)
    await society.bootstrap()
    assert await known(society, "cro") == ["bdr", "root", "user"]
    assert await known(society, "bdr") == ["cro", "root"]
    assert await known(society, "user") == ["root"]


@pytest.mark.requirement("C2.6", "C2", "C11")
async def test_a_message_to_a_stranger_is_refused_with_whom_to_ask(database: Database) -> None:
    society = await branches(database)
    for stranger in ("legal", "coo", "ghost", "users"):
        with pytest.raises(UnknownContact) as refused:
            await society.mail.send("bdr", stranger, "Hello.", payload={"reason": "A question."})
        assert "introduction_request: cro" in str(refused.value)
        assert refused.value.code == "unknown_contact"
    assert await deliver(society) == []


@pytest.mark.requirement("C2.3", "C2.4")
async def test_at_first_the_world_agent_and_the_owner_know_each_other_alone(database: Database) -> None:
    society = society_on(database)
    for one, other in (("root", "user"), ("user", "root")):
        assert await known(society, one) == [other]
        await society.contacts.withdraw(one, other)
        letter = await society.mail.send(one, other, "Hello.")
        assert letter.opening is None
    assert [(owner, each.id) for owner, each in await society.contacts.every()] == [("root", "user"), ("user", "root")]
    assert "send_message" not in await society.mail.text_of((await society.mail.inbox())[0])
    await society.join(spec("cro"))
    with pytest.raises(UnknownContact, match="contacts are: root"):
        await society.mail.send("user", "cro", "Hello.")


async def test_discovery_open_lets_all_members_write_to_each_other(local: Database) -> None:
    society = await branches(local, discovery="open")
    letter = await society.mail.send("bdr", "legal", "Hello.", payload={"reason": "A contract."})
    assert letter.message.to_id == "legal"
    assert "bdr" in await known(society, "legal")


@pytest.mark.requirement("C2")
async def test_contacts_expire_and_can_be_withdrawn(database: Database) -> None:
    clock = VirtualClock()
    society = await branches(database, clock)
    await society.contacts.add("bdr", Contact(id="coo", role="COO", expires=clock.now() + timedelta(hours=1)))
    await society.mail.send("bdr", "coo", "Hello.", payload={"reason": "A question."})
    await clock.advance(3600)
    with pytest.raises(UnknownContact):
        await society.mail.send("bdr", "coo", "Still there?")
    await society.contacts.withdraw("bdr", "cro")
    with pytest.raises(UnknownContact, match="bdr"):
        await society.mail.send("bdr", "cro", "Hello.")
    assert await society.contacts.get("bdr", "cro") is None


async def test_the_owner_is_the_user_under_both_names(local: Database) -> None:
    society = await branches(local)
    await society.mail.send("cro", "charles", "The quarter is over.")
    [letter] = await society.mail.inbox()
    assert (letter.message.from_id, letter.message.to_id) == ("cro", "user")
    assert letter == (await society.mail.inbox("charles"))[0]
    assert await society.mail.waiting() == []
    await society.mail.read(letter.message.id)
    assert await society.mail.inbox() == []
    sent = await society.mail.send("charles", "cro", "Thank you.")
    assert await society.mail.text_of(sent) == "[Message from the user]\nThank you."


# --- first messages and replies ---------------------------------------------------------------------------------------


@pytest.mark.requirement("C5.2", "C5.3", "C9.2", "C5")
async def test_a_first_message_makes_both_know_each_other(database: Database) -> None:
    society = await branches(database)
    await society.contacts.add("bdr", Contact(id="legal", role="Legal"))
    with pytest.raises(MessageInvalid, match="`reason`"):
        await society.mail.send("bdr", "legal", "Hello.")
    assert "bdr" not in await known(society, "legal")
    first = await society.mail.send("bdr", "legal", "Hello.", payload={"reason": "A contract."})
    assert (await society.mail.text_of(first)).splitlines() == [
        "[Message from BDR (bdr)]",
        "First contact. Role: BDR. Duties: revenue. Reason: A contract.",
        "Hello.",
        "To reply, use send_message(to='bdr', ...)",
    ]
    assert "bdr" in await known(society, "legal")
    second = await society.mail.send("bdr", "legal", "One more thing.")
    assert second.opening is None


@pytest.mark.requirement("C5")
async def test_the_reason_of_an_introduction_is_enough(local: Database) -> None:
    society = await branches(local)
    await society.contacts.add("bdr", Contact(id="legal", role="Legal", note="For contracts."))
    letter = await society.mail.send("bdr", "legal", "Hello.")
    assert letter.opening is not None
    assert letter.opening.reason == "For contracts."


@pytest.mark.requirement("C5.6", "C5.7", "C5")
async def test_a_reply_is_allowed_until_it_was_given(database: Database) -> None:
    society = await branches(database)
    await society.contacts.add("bdr", Contact(id="legal", role="Legal", note="For contracts."))
    question = await society.mail.send("bdr", "legal", "Is this right?", kind="request")
    await society.contacts.withdraw("legal", "bdr")
    with pytest.raises(UnknownContact):
        await society.mail.send("legal", "bdr", "No.", answers="another message")
    answer = await society.mail.send("legal", "bdr", "Yes.", kind="response", answers=question.message.id)
    assert answer.message.correlation_id == question.message.id
    with pytest.raises(UnknownContact):
        await society.mail.send("legal", "bdr", "And now?")


async def test_a_reply_needs_no_introduction_of_its_own(local: Database) -> None:
    society = await branches(local, discovery="open")
    request = await society.mail.send("bdr", "legal", payload=ASK_LAW)
    answer = await society.mail.send(
        "legal", "bdr", payload={"message_type": "introduction_response", "declined": "No."}
    )
    assert (answer.opening, answer.message.correlation_id) == (None, request.message.id)
    assert "legal" not in await known(society, "bdr")


async def test_a_remark_before_the_introduction_is_no_answer_to_the_request(local: Database) -> None:
    society = await branches(local)
    request = await society.mail.send("bdr", "cro", payload=ASK_LAW)
    await society.mail.answer(request.message.id)
    await society.mail.send("cro", "bdr", "One moment.")
    await society.contacts.add("cro", Contact(id="legal", role="Legal"))
    await society.mail.send("cro", "bdr", payload=ANSWER_COO | {"target_id": "legal"})
    await society.mail.ended(request.message.id)
    assert [each.message.message_type for each in await deliver(society)] == [None, "introduction_response"]


async def test_only_a_message_between_the_two_can_be_answered(local: Database) -> None:
    society = await branches(local)
    theirs = await society.mail.send("coo", "legal", "Hello.")
    for other in (theirs.message.id, "msg_of_no_one"):
        with pytest.raises(MessageInvalid, match="`answers` is not the id of a message from 'cro' to 'bdr'"):
            await society.mail.send("bdr", "cro", "Yes.", kind="response", answers=other)
    assert not (await society.mail.waiting())[0].answered


# --- what is stored ---------------------------------------------------------------------------------------------------


async def test_a_message_that_is_sent_twice_is_stored_once(database: Database) -> None:
    society = await branches(database)
    first, again = [await society.mail.send("cro", "bdr", "Hello.", message_id="m1") for _ in range(2)]
    assert first == again
    assert [each.message.id for each in await deliver(society)] == ["m1"]
    assert (await society.mail.send("cro", "bdr", "Hello.", message_id="m1")).state == "handled"
    assert await society.mail.waiting() == []


@pytest.mark.requirement("C5.4")
async def test_messages_are_delivered_in_order_and_one_at_a_time(database: Database) -> None:
    society = await branches(database)
    for number in range(3):
        await society.mail.send("cro", "bdr", f"{number}")
        await society.mail.send("coo", "legal", f"{number}")
    assert [each.message.content for each in await society.mail.waiting()] == ["0", "0"]
    assert not await society.mail.answer((await society.mail.waiting())[0].message.id)
    assert [each.message.content for each in await society.mail.waiting()] == ["0", "0"]
    assert sorted(each.message.content for each in await deliver(society)) == sorted("001122")


async def test_a_mailbox_is_bounded(local: Database) -> None:
    society = await branches(local)
    for _ in range(MAX_WAITING):
        await society.mail.send("cro", "bdr", "Hello.")
    with pytest.raises(MailboxFull, match="1,000"):
        await society.mail.send("cro", "bdr", "One more.")
    [letter] = await society.mail.waiting()
    await society.mail.ended(letter.message.id)
    await society.mail.send("cro", "bdr", "One more.")


@pytest.mark.requirement("C9.1", "C9")
async def test_the_sender_is_a_member_or_a_person(local: Database) -> None:
    society = await branches(local)
    with pytest.raises(InvalidArgument, match="'ghost'"):
        await society.mail.send("ghost", "cro", "Boo.")
    letter = await society.mail.send("cro", "bdr", "Hello.", payload={"from": "user", "from_id": "user"})
    assert letter.message.from_id == "cro"
    assert (await society.mail.text_of(letter)).startswith("[Message from CRO (cro)]")


async def test_who_is_terminated_neither_writes_nor_reads(local: Database) -> None:
    society = await branches(local)
    await society.terminate("bdr")
    for one, other in (("cro", "bdr"), ("bdr", "cro")):
        with pytest.raises(MessageInvalid, match="'bdr' is terminated"):
            await society.mail.send(one, other, "Hello.")
    assert "bdr" not in [each.id for each in await society.members.list_roles("w")]


async def referred(society: Society, asked: dict[str, Any] = ASK_LAW, *, to: str = "root") -> tuple[str, str]:
    """Have `cro`, which `bdr` asked, ask another in turn; gives both requests. That of `cro` is not over."""
    first = (await society.mail.send("bdr", "cro", payload=asked)).message.id
    assert not await society.mail.answer(first)
    second = (await society.mail.send("cro", to, payload=asked)).message.id
    await society.mail.ended(first)
    if to != "user":
        assert not await society.mail.answer(second)
    return first, second


# --- introductions ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C3.1", "C3.3", "C3.4", "C3.7", "C4.3", "C5.1", "C3", "C4")
async def test_a_contact_that_fits_is_introduced_without_a_model(database: Database) -> None:
    society = await branches(database)
    await society.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    request = await society.mail.send("bdr", "coo", payload=ASK_LAW)
    [answer] = await deliver(society)
    payload = answer.message.to_json()["payload"]
    assert (answer.message.from_id, answer.message.correlation_id) == ("coo", request.message.id)
    assert (payload["target_id"], payload["interface_spec"]) == ("legal", LAW.to_json())
    contact = await society.contacts.get("bdr", "legal")
    assert contact is not None
    assert (contact.introduced_by, contact.interface, contact.note) == ("coo", LAW, "The contract as text.")
    await society.mail.send("bdr", "legal", "Please check this.")
    with pytest.raises(MessageInvalid, match="no open introduction_request"):
        await society.mail.send("coo", "bdr", payload=payload)


@pytest.mark.requirement("C3.5", "C3.6", "C3")
async def test_an_answer_to_a_referral_is_forwarded_along_the_path(database: Database) -> None:
    society = await branches(database)
    first, second = await referred(society)
    await society.mail.send("root", "coo", payload=ASK_LAW)
    await society.mail.ended(second)
    [answer] = await deliver(society)
    assert (answer.message.from_id, answer.message.to_id) == ("cro", "bdr")
    assert answer.message.correlation_id == first
    assert {each: (await society.contacts.get(each, "legal")).introduced_by for each in ("bdr", "cro", "root")} == {  # type: ignore[union-attr]
        "bdr": "cro",
        "cro": "root",
        "root": "coo",
    }


@pytest.mark.requirement("C3")
async def test_loops_and_dead_ends_end(local: Database) -> None:
    society = await branches(local)
    request = await society.mail.send("bdr", "cro", payload=ASK_LAW)
    await society.mail.answer(request.message.id)
    with pytest.raises(MessageInvalid, match="was asked for this introduction already"):
        await society.mail.send("cro", "bdr", payload=ASK_LAW)
    await society.mail.ended(request.message.id)
    [answer] = await deliver(society)
    assert answer.message.payload["declined"] == "I know of none."
    assert await known(society, "bdr") == ["cro"]


@pytest.mark.requirement("C3")
async def test_an_answer_that_comes_before_the_turn_that_asked_is_over_is_forwarded(local: Database) -> None:
    society = await branches(local)
    request = (await society.mail.send("bdr", "cro", payload=ASK_LAW)).message.id
    assert not await society.mail.answer(request)
    await society.mail.send("cro", "root", payload=ASK_LAW)
    await society.mail.send("root", "cro", payload=ANSWER_COO)
    await society.mail.ended(request)
    await deliver(society)
    assert await known(society, "bdr") == ["coo", "cro"]


@pytest.mark.requirement("A12")
async def test_a_message_that_is_over_several_times_at_once_is_counted_once(database: Database) -> None:
    society = await branches(database)
    request = (await society.mail.send("bdr", "cro", payload=ASK_LAW)).message.id
    await asyncio.gather(*(society.mail.answer(request) for _ in range(8)))
    await asyncio.gather(*(society.mail.ended(request) for _ in range(8)))
    counts = await database.read(lambda tx: tx.execute("SELECT member, waiting, last FROM wa_mailbox ORDER BY member"))
    assert [tuple(row) for row in counts] == [("bdr", 1, 1), ("cro", 0, 1)]


@pytest.mark.requirement("C3")
async def test_a_member_introduces_only_whom_it_knows(local: Database) -> None:
    society = await branches(local)
    request = await society.mail.send("bdr", "cro", payload=ASK_LAW)
    await society.mail.answer(request.message.id)
    answer = ANSWER_COO | {"target_id": "legal"}
    with pytest.raises(UnknownContact, match="introduction_request: "):
        await society.mail.send("cro", "bdr", payload=answer)
    with pytest.raises(MessageInvalid, match="itself"):
        await society.mail.send("cro", "bdr", payload=answer | {"target_id": "bdr"})
    with pytest.raises(MessageInvalid, match="not asked"):
        await society.mail.send("coo", "legal", payload=ASK_LAW, answers=request.message.id)
    assert await known(society, "bdr") == ["cro"]


@pytest.mark.requirement("C3")
async def test_a_request_ends_when_its_last_referral_was_declined(database: Database) -> None:
    society = await branches(database)
    _, second = await referred(society, GARDENING)
    await society.mail.ended(second)
    answers = await deliver(society)
    assert [(each.message.to_id, each.message.payload["declined"]) for each in answers] == [
        ("cro", "I know of none."),
        ("bdr", "I know of none."),
    ]


@pytest.mark.requirement("C3")
async def test_no_member_is_asked_twice_for_one_introduction(database: Database) -> None:
    society = await branches(database)
    await society.contacts.add("cro", Contact(id="coo", role="COO", note="Operations."))
    first, second = await referred(society, GARDENING, to="coo")
    await society.mail.ended(second)
    [declined] = await society.mail.waiting()
    assert not await society.mail.answer(declined.message.id)
    with pytest.raises(MessageInvalid, match="'coo' was asked for this introduction already"):
        await society.mail.send("cro", "coo", payload=GARDENING)
    third = await society.mail.send("cro", "root", payload=GARDENING)
    assert third.message.correlation_id == first
    await society.mail.answer(third.message.id)
    with pytest.raises(MessageInvalid, match="'coo' was asked for this introduction already"):
        await society.mail.send("root", "coo", payload=GARDENING)


@pytest.mark.requirement("C3")
async def test_a_plain_answer_to_a_referral_is_forwarded_as_why_there_is_no_introduction(database: Database) -> None:
    society = await branches(database)
    _, second = await referred(society, GARDENING)
    await society.mail.send("root", "cro", "We have no garden.", answers=second, marks=("fetch",))
    await society.mail.ended(second)
    left = await deliver(society)
    answers = [each for each in left if each.message.message_type == "introduction_response"]
    assert [(each.message.to_id, each.message.payload["declined"], each.marks) for each in answers] == [
        ("cro", "We have no garden.", ("fetch", "message:root")),
        ("bdr", "We have no garden.", ("fetch", "message:root")),
    ]


@pytest.mark.requirement("C3")
async def test_what_a_person_answers_to_a_referral_in_words_ends_the_request(database: Database) -> None:
    society = await branches(database)
    first, _ = await referred(society, to="user")
    assert await deliver(society) == []
    [request] = await society.mail.inbox()
    await society.mail.send("user", "cro", "Hire a lawyer.", answers=request.message.id)
    plain, declined = await deliver(society)
    assert (plain.message.to_id, plain.message.content) == ("cro", "Hire a lawyer.")
    assert (declined.message.to_id, declined.message.payload["declined"]) == ("bdr", "Hire a lawyer.")
    assert declined.message.correlation_id == first


async def test_a_member_reads_the_task_that_it_was_given_and_not_one_that_it_gave(local: Database) -> None:
    society = await branches(local)
    for one, other in (("root", "cro"), ("cro", "bdr")):
        task = {"message_type": "task_assignment", "task_brief": dict.fromkeys(BRIEF, f"For {other}.")}
        await society.mail.send(one, other, payload=task)
    assert "Objective: For cro." in await society.mail.task_of("cro")


async def test_what_a_member_sent_is_among_its_earlier_messages_before_it_is_read(local: Database) -> None:
    society = await branches(local)
    sent = await society.mail.send("bdr", "cro", "One moment.")
    await society.mail.send("cro", "bdr", "Not read yet.")
    letter = await society.mail.send("cro", "bdr", "Well?")
    [earlier] = await society.mail.earlier(letter, most=5)
    assert (earlier.message.id, await society.mail.text_for("bdr", earlier)) == (sent.message.id, "-> cro: One moment.")


@pytest.mark.parametrize("capability", ["contracts", "gardening"])
async def test_a_request_whose_answer_is_refused_ends(local: Database, capability: str) -> None:
    society = await branches(local)
    await society.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    await society.mail.send("bdr", "coo", payload=ASK_LAW | {"required_capability": capability})
    await society.terminate("bdr")
    assert [each.message.to_id for each in await deliver(society)] == ["coo"]
    assert await known(society, "bdr") == []


@pytest.mark.requirement("A4")
async def test_a_plain_reply_answers_the_question_and_not_the_message_before_it(local: Database) -> None:
    society = await branches(local)
    await society.mail.send("cro", "bdr", "Here is your task.")
    question = await society.mail.send("cro", "bdr", "How many?", kind="request")
    reply = await society.mail.send("bdr", "cro", "42")
    assert reply.message.correlation_id == question.message.id
    assert await society.mail.reply_to(question.message.id) == reply


@pytest.mark.requirement("C5")
async def test_a_first_message_after_an_introduction_tells_the_reason_of_the_request(local: Database) -> None:
    society = await branches(local)
    await society.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    await society.mail.send("bdr", "coo", payload=ASK_LAW)
    await deliver(society)
    letter = await society.mail.send("bdr", "legal", "Hello.")
    assert letter.opening is not None
    assert letter.opening.reason == ASK_LAW["reason"]


async def questions(society: Society) -> list[Letter]:
    """The questions for consent that wait, once all is settled that needs no turn."""
    while fresh := [each for each in await society.mail.waiting() if each.state == "waiting"]:
        for letter in fresh:
            await society.mail.answer(letter.message.id)
    return [each for each in await society.mail.waiting() if "introduction" in each.message.payload]


AGREED = {"message_type": "collaboration_response", "consent": True}


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_who_is_introduced_agrees_first_where_the_policy_says_so(database: Database, language: Any) -> None:
    society = await branches(database, consent="ask")
    society.config = replace(society.config, language=language)
    await society.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    for said, knows in ((False, False), (True, True)):
        request = await society.mail.send("bdr", "coo", payload=ASK_LAW)
        [question] = await questions(society)
        assert (question.message.from_id, question.message.to_id) == ("coo", "legal")
        assert "bdr" in question.message.content
        assert "legal" not in await known(society, "bdr")
        with pytest.raises(MessageInvalid, match="`consent`"):
            await society.mail.send("legal", "coo", payload={"message_type": "collaboration_response"})
        await society.mail.send("legal", "coo", payload=AGREED | {"consent": said})
        [answer] = [each for each in await deliver(society) if each.message.to_id == "bdr"]
        assert ("declined" in answer.message.payload, answer.message.correlation_id) == (not said, request.message.id)
        assert ("legal" in await known(society, "bdr")) is knows


@pytest.mark.requirement("C3")
async def test_the_lowest_common_superior_confirms_an_introduction_across_branches(local: Database) -> None:
    society = await branches(local, cross_branch="confirm", consent="ask")
    await society.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    await society.mail.send("bdr", "coo", payload=ASK_LAW)
    [first] = await questions(society)
    assert first.message.to_id == "root"
    await society.mail.send("root", "coo", payload=AGREED, answers=first.message.id)
    await society.mail.ended(first.message.id)
    [second] = await questions(society)
    assert second.message.to_id == "legal"
    await society.mail.send("legal", "coo", payload=AGREED)
    [answer] = [each for each in await deliver(society) if each.message.to_id == "bdr"]
    assert answer.message.payload["target_id"] == "legal"
    assert answer.chain > second.chain


@pytest.mark.requirement("C3")
async def test_an_introduction_in_one_branch_needs_no_superior_and_silence_is_no_consent(local: Database) -> None:
    society = await branches(local, cross_branch="confirm")
    await society.join(spec("intern", parent="bdr"), name="Intern", interface=LAW)
    await society.mail.send("cro", "bdr", payload=ASK_LAW)
    [answer] = await deliver(society)
    assert answer.message.payload["target_id"] == "intern"
    strict = await branches(local, consent="ask")
    await strict.contacts.add("bdr", Contact(id="coo", role="COO", note="Knows operations."))
    await strict.mail.send("bdr", "coo", payload=ASK_LAW)
    left = await deliver(strict)
    assert [each.message.payload.get("declined") for each in left if each.message.to_id == "bdr"] == [
        "The introduction was not agreed to."
    ]


# --- the registry -----------------------------------------------------------------------------------------------------


async def registries(database: Database) -> list[Any]:
    return [InMemoryRegistry("charles"), society_on(database).members]


@pytest.mark.requirement("A3")
async def test_registries_answer_alike(database: Database) -> None:
    seen = []
    for registry in await registries(database):
        assert isinstance(registry, RoleRegistry)
        for each in ("cro", "bdr"):
            assert await registry.register(spec(each, domains=("revenue",))) == each
        assert await registry.register(spec("cro", domains=("revenue",))) == "cro"
        with pytest.raises(RoleExists, match="'cro'"):
            await registry.register(spec("cro", domains=("law",)))
        assert await registry.queue_spawn(spec("late", domains=("revenue",))) == "pending:late"
        found = await registry.find_by_domain("w", "revenue")
        assert await registry.find_by_domain("w", "Revenue") == []
        assert await registry.list_roles("other") == []
        await registry.remove("w", "bdr")
        await registry.remove("w", "bdr")
        seen.append(
            (found, await registry.get("w", "cro"), await registry.get("w", "bdr"), await registry.get("w", "user"))
        )
    assert seen[0] == seen[1]
    assert [each.id for each in seen[0][0]] == ["cro", "bdr"]


@pytest.mark.requirement("A9")
async def test_a_workspace_has_as_many_members_as_its_policy_allows(database: Database) -> None:
    registry = society_on(database, max_roles=2).members
    await registry.register(spec("a"))
    await registry.queue_spawn(spec("b"))
    with pytest.raises(RolesFull, match="has 2 members"):
        await registry.register(spec("c"))
    await registry.remove("w", "a")
    await registry.register(spec("c"))
    with pytest.raises(UnknownMember, match="'a'"):
        await registry.member("w", "a")


async def test_nothing_is_left_of_a_member_that_is_removed(database: Database) -> None:
    society = await branches(database)
    await society.mail.send("cro", "bdr", "Hello.")
    await society.members.remove("w", "bdr")
    assert "bdr" not in str(await society.contacts.every())
    assert await society.mail.waiting() == []
    with pytest.raises(UnknownContact):
        await society.mail.send("cro", "bdr", "Hello.")


async def test_people_other_than_the_owner_have_an_inbox_each(local: Database) -> None:
    society = await branches(local)
    await society.members.add_person("w", Participant(id="dana", type="human", name="Dana"))
    await society.contacts.add("cro", Contact(id="dana", role="Dana"))
    await society.mail.send("cro", "dana", "Hello.")
    assert [each.message.content for each in await society.mail.inbox("dana")] == ["Hello."]
    assert await society.mail.inbox() == []
    assert await society.mail.waiting() == []
    for id_, kind in (("user", "human"), ("charles", "human"), ("cro", "human"), ("x", "role")):
        with pytest.raises(InvalidArgument):
            await society.members.add_person("w", Participant(id=id_, type=kind))  # type: ignore[arg-type]
    with pytest.raises(RoleExists):
        await society.join(spec("dana"))


@pytest.mark.parametrize(
    ("named", "given"), [("w2", {"workspace": "w2"}), ("names 'ghost'", {"parent_role_id": "ghost"})]
)
async def test_a_member_that_does_not_belong_is_refused(local: Database, named: str, given: dict[str, str]) -> None:
    society = society_on(local)
    with pytest.raises(WorldAgentError, match=named):
        await society.join(replace(spec("cro"), **given))  # type: ignore[arg-type]
    assert await society.members.list_roles("w") == []


@pytest.mark.requirement("A3")
async def test_the_messages_of_a_society_are_found_where_they_were(local: Database) -> None:
    society = society_on(local)
    with pytest.deprecated_call(match=r"society\.mail\.inbox"):
        assert await society.inbox() == []  # type: ignore[attr-defined] # not for type checkers
    with pytest.raises(AttributeError, match="outbox"):
        society.outbox  # type: ignore[attr-defined] # noqa: B018
