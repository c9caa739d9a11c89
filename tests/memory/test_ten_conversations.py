"""Ten conversations of one account: the agent answers what only an earlier one told it (M1, M2, M4).

The model answers from what it is sent and from nothing else, so it knows an earlier conversation only by its entries.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from worldagent import Memory, Policy, Rule
from worldagent.profiles import MemoryOverrides, Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("M1", "M2", "M4", "P5"), pytest.mark.on_every_database(soak=True)]

UNKNOWN = "I do not know."
# Each conversation is a thread of its own: what the person says, and what the agent answers if it remembers.
TEN = {
    "January": ("Keep in mind: my sister is called Ida.", "Noted."),
    "February": ("My dog is called Rex.", "I see."),
    "March": ("What is my sister called?", "Ida"),
    "April": ("What is my dog called?", "Rex"),
    "May": ("Keep in mind: my ferry leaves at nine.", "Noted."),
    "June": ("My dog is called Bello, since Rex died.", "I see."),
    "July": ("What is my dog called?", "Bello"),
    "August": ("When does my ferry leave?", "nine"),
    "September": ("What is my cat called?", UNKNOWN),
    "October": ("What is my sister called?", "Ida"),
}
QUIET = Profile("quiet", memory=MemoryOverrides(long_term_memory=False), verification=Verification(enabled=False))
APPROVED = Policy(rules=(Rule(decision="approve", function="remember"),))

PROMPT = """\
Your input fields are:
1. `message` (str):
Your output fields are:
1. `reply` (str):
All interactions will be structured in the following way, with the appropriate values filled in.

[[ ## message ## ]]
{message}

[[ ## reply ## ]]
{reply}

[[ ## completed ## ]]
In adhering to this structure, your objective is: 
        You are a helpful assistant.
        
        Reply to the message."""  # noqa: W291, W293 -- as dspy writes it
MESSAGE = """\
[[ ## message ## ]]
%s

Respond with the corresponding output fields, starting with the field `[[ ## reply ## ]]`, and then ending with the \
marker for `[[ ## completed ## ]]`."""


def answer(call: ScriptedCall) -> dict[str, Any]:
    """Remembers what it is told to keep in mind, notes what is said of the dog, and answers from what it is sent."""
    if "conversation" in call.fields:
        said = re.findall(r"My (dog is called \w+)", call.fields["conversation"])
        older = re.findall(r'"id": "(mem_\w+)"[^}]*dog', call.fields["known"])
        return {"notes": [{"text": f"Their {text}.", "replaces": older[0] if older else ""} for text in said]}
    message = call.fields["message"]
    if message.startswith("Keep in mind: my ") and "memory" in call.fields and not call.steps:
        return {"reply": "", **calls(("remember", {"text": f"Their {message.removeprefix('Keep in mind: my ')}"}))}
    if not message.endswith("?"):
        return {"reply": "Noted." if call.steps else "I see."}
    for subject in ("sister is called", "dog is called", "cat is called", "ferry leaves at"):
        found = re.findall(rf"{subject} (\w+)", call.text)
        if subject.split()[0] in message and found:
            return {"reply": found[-1]}
    return {"reply": UNKNOWN}


async def ten_conversations(home: Path, lm: ScriptedLM, account: str = "ana", **more: Any) -> dict[str, str]:
    """The answers of an agent, which is opened anew for each conversation."""
    answers = {}
    for thread, (text, _) in TEN.items():
        async with scripted_agent(home, lm, **more) as agent:
            answers[thread] = (await agent.thread(thread, account=account).converse(text)).text
            if "memory" in more and "profile" not in more:
                await agent.memory.distil(thread)
    return answers


async def test_an_agent_with_memory_answers_what_an_earlier_conversation_told_it(tmp_path: Path) -> None:
    lm = ScriptedLM(answer)
    answers = await ten_conversations(tmp_path, lm, memory=Memory(), policy=APPROVED)
    assert answers == {thread: expected for thread, (_, expected) in TEN.items()}
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        assert (await agent.thread("other", account="bob").converse("What is my dog called?")).text == UNKNOWN
        entries = [(entry.source.by, entry.text) for entry in await agent.memory.list(account="ana")]
    assert sorted(entries) == [
        ("distilled", "Their dog is called Bello."),
        ("model", "Their ferry leaves at nine."),
        ("model", "Their sister is called Ida."),
    ]


@pytest.mark.parametrize("more", [{}, {"memory": Memory(), "profile": QUIET}], ids=["never", "switched off"])
async def test_without_memory_it_knows_nothing_of_them_and_its_prompt_is_as_ever(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    lm = ScriptedLM(answer)
    answers = await ten_conversations(tmp_path, lm, **more)
    questions = {thread for thread, (text, _) in TEN.items() if text.endswith("?")}
    assert {answers[thread] for thread in questions} == {UNKNOWN}
    assert [call.system for call in lm.calls] == [PROMPT] * len(TEN)
    assert [call.messages for call in lm.calls] == [(("user", MESSAGE % text),) for text, _ in TEN.values()]
