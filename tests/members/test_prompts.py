"""What models are told of briefs and contacts, and that it does not grow with the number of members (C2, C6)."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, scripted_agent
from support.role_specs import spec_of, template_of, workspace_of
from support.society import acting
from worldagent import Policy, WorldAgent
from worldagent.core.errors import UnknownTemplate
from worldagent.members import (
    SEND_RULES,
    Contact,
    Gateway,
    InterfaceSpec,
    Objective,
    RoleTemplate,
)
from worldagent.members.functions import FUNCTIONS, prompt
from worldagent.members.mail.contacts import MAX_SHOWN, add_contact
from worldagent.members.responding import respond
from worldagent.storage import Transaction
from worldagent.testing import ScriptedCall, ScriptedLM

LAW = InterfaceSpec(services="Checks contracts.", input_format="The contract as text.", output_format="A list.")
OLD = datetime(2026, 1, 1, tzinfo=UTC)


async def acquaint(agent: WorldAgent, owner: str, count: int) -> None:
    """Give a member many contacts. The first two are a lawyer, and one with whom it wrote."""

    def work(tx: Transaction) -> None:
        for number in range(count):
            known = Contact(id=f"m{number:04}", role=f"Clerk {number}", note="Files letters. " * 10)
            known = replace(known, id="legal", role="Legal", note="", interface=LAW) if number == 0 else known
            add_contact(tx, "novel", owner, known, OLD + timedelta(minutes=number))

    await agent.society._store.transact(work)


async def shown(tmp_path: Path, contacts: int, **more: Any) -> tuple[dict[str, Any], ScriptedCall]:
    """What a member with so many contacts is given with a message, and the call of its model."""
    lm, society = acting(), workspace_of(max_roles=5000, **more)
    async with scripted_agent(tmp_path / str(contacts), lm, society=society, policy=Policy(rules=SEND_RULES)) as agent:
        for id_ in ("cro", "m0001"):
            await agent.society.join(spec_of(id_))
        await acquaint(agent, "cro", contacts)
        await agent.society.contacts.add("m0001", Contact(id="cro", role="CRO"))
        await agent.society.mail.send("m0001", "cro", "How far are you?")
        await Gateway(agent).deliver()
        letter = await agent.society.mail.send("root", "cro", "Have the contracts checked.")
        await Gateway(agent).deliver()

        async def nothing() -> tuple[str, tuple[str, ...]]:
            raise AssertionError("it is prepared")

        given, _ = await agent.society.mail.prepared(letter.message.id, nothing)
    return json.loads(given), lm.calls[-1]


@pytest.mark.requirement("C2")
async def test_a_member_with_many_contacts_is_shown_those_that_matter(tmp_path: Path) -> None:
    given, call = await shown(tmp_path, 1000)
    ids = [each.get("id") for each in given["contacts"]]
    assert len(ids) == MAX_SHOWN + 1
    assert "search" in given["contacts"][-1]["more"]
    assert {"root", "user"} <= {*ids}, "who sent it, and to whom it reports"
    assert {"legal", "m0001", "m0999"} <= {*ids}, "the one that fits, the one it wrote with, and the newest"
    few, small = await shown(tmp_path, 18)
    assert [each["id"] for each in few["contacts"]][:2] == ["legal", "m0001"], "all, the oldest first"
    assert len(call.text) <= 1.1 * len(small.text)


@pytest.mark.requirement("A6", "C2")
@pytest.mark.parametrize("discovery", ["introduced", "open"])
async def test_others_are_found_by_a_search(tmp_path: Path, discovery: str) -> None:
    listing = [("list_contacts", {}), *(("list_contacts", {"search": each}) for each in ("contracts", "clerk"))]
    looking = [("look_up_role", each) for each in ({}, {"domain": "law"}, {"search": "legal law"})]
    lm = ScriptedLM(
        lambda call: (
            {"result": "Done."} if call.steps else calls(*(looking if "send_message" not in call.text else listing))
        )
    )
    async with scripted_agent(tmp_path, lm, society=workspace_of(max_roles=5000, discovery=discovery)) as agent:
        await agent.society.join(spec_of("cro"))
        await agent.society.join(spec_of("legal", domains=("law",)))
        for number in range(1, 30):
            await agent.society.join(spec_of(f"m{number:04}", domains=("press",)))
        await acquaint(agent, "cro", 30)
        await agent.society.mail.send("root", "cro", "Look.")
        await Gateway(agent).deliver()
        listed = [json.loads(step[step.index("[") :]) for step in lm.calls[-1].steps]
        await respond(agent, "cro", "Whom do you know?")
        known = [json.loads(step[step.index("[") :]) for step in lm.calls[-1].steps]
        in_law, _ = await agent.society.contacts.find("cro", "law")
        assert [each.id for each in in_law] == ["legal"], "by its domain"
    assert [len(each) for each in (*listed, *known)] == [21, 1, 21, 21, 1, 1]
    assert listed[1][0]["id"] == known[1][0]["id"] == known[2][0]["id"] == "legal"
    assert ["more" in each[-1] for each in (*listed, *known)] == [True, False, True, True, False, False]


def template(number: int, *spawners: str) -> RoleTemplate:
    return template_of(f"kind-{number}", *spawners, name_pattern=f"Kind {number} {{name}}")


@pytest.mark.requirement("A9")
async def test_a_prompt_lists_the_templates_that_its_reader_may_use(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"result": "Done."} if "message_id" in call.fields else {"reply": "Hello."})
    made = [template(1, "root"), template(2, "cro"), template(3), *(template(n, "coo") for n in range(10, 40))]
    async with scripted_agent(tmp_path, lm, society=workspace_of(*made, max_roles=5000, brief="derived")) as agent:
        await agent.thread("t", account="charles").converse("Hello.")
        for id_ in ("cro", "coo"):
            await agent.society.join(spec_of(id_))
            await agent.society.mail.send("root", id_, "Go.")
            await Gateway(agent).deliver()
        with pytest.raises(UnknownTemplate, match=r"'cro' can use: kind-2;"):
            await agent.society.spawn("cro", "kind", {})
    texts = [call.text for call in lm.calls]
    listed = [[number for number in (1, 2, 3, *range(10, 40)) if f"kind-{number}:" in text] for text in texts]
    assert listed == [[1], [2], [*range(10, 30)]]
    assert "and 10 more" in texts[2]


@pytest.mark.requirement("A5")
async def test_goals_and_earlier_messages_have_a_budget(tmp_path: Path) -> None:
    goals = tuple(Objective(id=f"g{number}", description=f"Reach {number}. " * 20) for number in range(50))
    lm = ScriptedLM(lambda call: {"result": "Done."})
    async with scripted_agent(tmp_path, lm, society=workspace_of(max_roles=5000)) as agent:
        await agent.society.join(spec_of("cro", goals=goals))
        for number in range(12):
            await agent.society.mail.send("root", "cro", f"Letter {number}. " + "Words. " * 1000)
            await Gateway(agent).deliver()
    given = json.loads(lm.calls[-1].fields["earlier"])
    assert 4 <= len(given) <= 12
    assert "Letter 10." in given[-1]["text"], "the newest are shown"
    assert sum(len(each["text"]) for each in given) <= 16_100
    assert "Letter 11." in lm.calls[-1].fields["message"]
    assert len(lm.calls[-1].fields["message"]) > 7000, "the message itself is whole"
    shown = lm.calls[-1].fields["goals"]
    assert "Reach 0." in shown
    assert len(shown) < 4100
    assert "more" in shown.splitlines()[-1]


# --- what they are told -----------------------------------------------------------------------------------------------

FIELDS = ("objective", "constraints", "inputs", "outputs", "completion_criteria")
ASKING = ("introduction_request", "reason", "required_capability")
ANSWERING = ("introduction_response", "target_id", "role_name", "interface_spec", "usage_advice", "declined")
WORDS = {
    "en": {
        "contacts": ("You know only your contacts", "who made you, who you made", "introduced to you"),
        "complete": ("write it completely",),
        "constraints": ("pass on each one that you were given", "a static web page", "in Python"),
    },
    "zh": {
        "contacts": ("你只认识自己的联系人", "创建你的、你创建的", "被介绍给你的"),
        "complete": ("请写完整",),
        "constraints": ("每一条约束都必须传递下去", "静态网页", "Python"),
    },
}


@pytest.mark.requirement("C6", "C6.1", "C6.2", "C6.3", "C6.4", "C6.5")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_prompts_explain_briefs_contacts_asking_and_answering(language: Any) -> None:
    base, root = prompt(language, "base"), prompt(language, "root")
    said = WORDS[language]
    assert "你" not in base + root if language == "en" else "You " not in base + root
    assert [each for each in (*said["contacts"], *ASKING, *ANSWERING) if each not in base] == []
    assert [each for each in (*FIELDS, *said["complete"], *said["constraints"]) if each not in root] == []


@pytest.mark.requirement("C6", "C4.4")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_models_of_a_society_read_them_with_the_interfaces_of_their_contacts(
    tmp_path: Path, language: Any
) -> None:
    given: dict[str, Any] = {"society": workspace_of(language=language), "policy": Policy(rules=SEND_RULES)}
    async with scripted_agent(tmp_path, lm := acting(), **given) as agent:
        await agent.thread("t", account="charles").converse("Hello.")
        await agent.society.join(spec_of("cro"))
        await agent.society.contacts.add("cro", Contact(id="legal", role="Legal", interface=LAW))
        await agent.society.mail.send("root", "cro", "Go.")
        await Gateway(agent).deliver()
    conversation, member = lm.calls[0].text, lm.calls[-1].text
    for text in (conversation, member):
        assert [each for each in FUNCTIONS if each not in text] == []
        for name in ("base", "root"):
            assert [each for each in prompt(language, name).splitlines() if each not in text] == []
    assert "The contract as text." in member


@pytest.mark.requirement("C6")
async def test_an_agent_without_a_society_has_nothing_of_it_in_its_prompts(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.thread("t").converse("Hello.")
    [call] = lm.calls
    lines = [line for each in ("en", "zh") for name in ("base", "root") for line in prompt(each, name).splitlines()]
    assert [each for each in (*FUNCTIONS, *lines) if each in call.text] == []
