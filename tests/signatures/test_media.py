"""Images and files in prompts: where they are, what they do not change, and what the process keeps of them."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Said, answering, scripted_agent
from support.homes import PDF, PNG, data_uri
from support.leaks import canary
from worldagent import Role
from worldagent.graphs import Shape, TaskContext
from worldagent.signatures.media import Media
from worldagent.testing import ScriptedLM

PICTURE = Media.of("image", PNG, "image/png")
SAID = canary(120, "said by the model")


@pytest.mark.requirement("R12", "R17", "T4")
async def test_the_examples_of_an_optimised_program_are_the_same_with_attachments(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path / "first", lm, workers=[CRITIC]) as agent:
        program: Any = agent.program("Converse")
    program.predict.demos = [{"message": "Hi", "reply": "Hello.", "calls": []}]
    program.predict.signature = program.predict.signature.with_instructions("Answer as a poet.")
    async with scripted_agent(tmp_path / "home", lm, workers=[CRITIC], programs={"Converse": program}) as agent:
        await agent.thread("plain").converse("Look.")
        await agent.thread("attached").converse("Look.", attachments=[PNG, PDF])
        await agent.thread("roled").converse("Look.", role=Role("brief", "In two words."), attachments=[PNG])
    plain, attached, roled = lm.calls
    assert len(plain.messages) == 3
    assert attached.messages[:2] == roled.messages[:2] == plain.messages[:2]
    assert all("Answer as a poet." in call.system for call in lm.calls)
    assert list(attached.fields) == ["message", "attachments", "images", "files"]


class Params(BaseModel):
    text: str = ""


class Compare(dspy.Signature):
    """Compare two pictures."""

    images: list[dspy.Image] = dspy.InputField(desc="two of them")
    paper: dspy.File = dspy.InputField()
    attachments: str = dspy.InputField(desc="of the letter")
    text: str = dspy.OutputField()


async def test_a_signature_of_ones_own_may_take_images_and_call_them_as_it_likes(tmp_path: Path) -> None:
    async def compare(params: Params, ctx: TaskContext) -> Said:
        inputs: dict[str, Any] = {"images": [PICTURE, dspy.Image("https://pictures.example/x.png")]}
        inputs |= {"paper": Media.of("file", PDF, "application/pdf"), "attachments": "none"}
        return Said(text=str((await ctx.predict(Compare, **inputs))["text"]))

    lm = ScriptedLM([{"text": "Alike."}])
    shape = Shape("compare", Params, Said, compare, entry=Compare)
    async with scripted_agent(tmp_path / "first", lm, shapes=[shape]) as agent:
        program = agent.program("Compare")
    program.predict.demos = [{"images": "a and b", "paper": "p", "attachments": "some", "text": "Not alike."}]
    async with scripted_agent(tmp_path / "home", lm, shapes=[shape], programs={"Compare": program}) as agent:
        turn = await agent.thread("t").task("compare", {}, role=Role("brief", "In two words."))
    assert turn.result == Said(text="Alike.")
    [call] = lm.calls
    assert [source for _, source in call.media] == [
        data_uri(PNG), "https://pictures.example/x.png", data_uri(PDF, "application/pdf")
    ]  # fmt: skip
    assert list(call.fields) == ["images", "paper", "attachments", "role"]
    [(_, shown), *_] = call.messages
    assert shown.index("a and b") < shown.index("[[ ## paper ## ]]") < shown.index("[[ ## attachments ## ]]\nsome")


@pytest.mark.requirement("R16")
async def test_what_an_attached_text_says_may_be_repeated_and_what_the_role_alone_says_may_not(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"reply": SAID})
    role = Role("keeper", SAID)
    async with scripted_agent(tmp_path, lm) as agent:
        alone = await agent.thread("a").converse("Speak.", role=role, attachments=[PNG])
        both = await agent.thread("b").converse("Speak.", role=role, attachments=[PNG, SAID.encode()])
    assert (alone.text, both.text) == ("[role withheld]", SAID)


async def test_no_image_stays_in_memory_after_its_call(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        cached = dspy.Image.format.cache_info()
        await agent.thread("t").converse("Look.", attachments=[PNG])
        assert dspy.Image.format.cache_info() == cached
