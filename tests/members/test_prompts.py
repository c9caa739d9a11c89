"""What models are told about briefs, contacts and introductions (C6)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.role_specs import spec_of, workspace_of
from support.society import acting
from worldagent import Policy
from worldagent.members import SEND_RULES, Contact, Gateway, InterfaceSpec
from worldagent.members.functions import FUNCTIONS, prompt

pytestmark = pytest.mark.requirement("C6")

FIELDS = ("objective", "constraints", "inputs", "outputs", "completion_criteria")
ASKING = ("introduction_request", "reason", "required_capability")
ANSWERING = ("introduction_response", "target_id", "role_name", "interface_spec", "usage_advice", "declined")
LAW = InterfaceSpec(services="Checks contracts.", input_format="The contract as text.", output_format="A list.")
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


@pytest.mark.requirement("C6.1", "C6.2", "C6.3", "C6.4", "C6.5")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_prompts_explain_briefs_contacts_asking_and_answering(language: Any) -> None:
    base, root = prompt(language, "base"), prompt(language, "root")
    said = WORDS[language]
    assert "你" not in base + root if language == "en" else "You " not in base + root
    assert [each for each in (*said["contacts"], *ASKING, *ANSWERING) if each not in base] == []
    assert [each for each in (*FIELDS, *said["complete"], *said["constraints"]) if each not in root] == []


@pytest.mark.requirement("C4.4")
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


async def test_an_agent_without_a_society_has_nothing_of_it_in_its_prompts(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.thread("t").converse("Hello.")
    [call] = lm.calls
    lines = [line for each in ("en", "zh") for name in ("base", "root") for line in prompt(each, name).splitlines()]
    assert [each for each in (*FUNCTIONS, *lines) if each in call.text] == []
