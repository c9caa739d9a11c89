"""A role is nowhere after turns with attachments, and what is attached is in its own file and nowhere else."""

import itertools
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import CRITIC, scripted_agent
from support.homes import pieces
from support.leak_cases import MODES
from support.leaks import Watch, awkward_canary, canary, watch
from support.openai_stub import openai_stub
from worldagent import Role, WorldAgent
from worldagent.core.errors import ModelRefused, ModelUnavailable, WorldAgentError
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles

# Letters alone, so that base64 of a text is told from the text.
ROLE, LABEL = awkward_canary(400, "role beside attachments"), canary(12, "label beside attachments")
PICTURE = b"\x89PNG\r\n\x1a\n" + canary(90, "picture").encode()
NOTES = canary(400, "notes")
ATTACHED = (PICTURE, NOTES.encode(), b"%PDF-1.7\n" + canary(90, "paper").encode())


def answers(call: ScriptedCall) -> Any:
    return {"result": "Fine."} if "request" in call.fields else {"reply": "Fine.", "calls": []}


def calling(call: ScriptedCall) -> Any:
    if "request" in call.fields or call.steps:
        return answers(call)
    return {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge."}}]}


def refuses(call: ScriptedCall) -> Any:
    return dspy.lm15.InvalidRequestError(f"400: you sent {call.text} {call.media}")


def crashes(call: ScriptedCall) -> Any:
    return RuntimeError(f"no reply to {call.text}", call.media)


def repeats(call: ScriptedCall) -> Any:
    return {"reply": f"I am told: {ROLE}", "calls": []}


OUTCOMES: dict[Callable[[ScriptedCall], Any], type[WorldAgentError] | None] = {
    answers: None,
    calling: None,
    refuses: ModelRefused,
    crashes: ModelUnavailable,
    repeats: None,
}


def copies(home: Path) -> list[str]:
    """Where else than in its own file something of what is attached stands, as it is or in base64."""
    runs = [data[-60:] for data in ATTACHED]
    forms = [*runs, *(b64encode(data)[20:60] for data in ATTACHED)]
    return [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and "attachments" not in path.parts and any(form in path.read_bytes() for form in forms)
    ]


async def both_turns(agent: WorldAgent, seen: Watch) -> None:
    thread = agent.thread("t", account="ana")

    async def streamed() -> Any:
        async with thread.stream("Look.", role=Role(LABEL, ROLE), attachments=list(ATTACHED)) as stream:
            given = [event async for event in stream]
        return [given, stream.turn]

    await seen.outcome(seen.inside_a_chain(streamed))
    await seen.outcome(thread.converse("And now?", role=Role(LABEL, ROLE)))
    seen.kept.append(await thread.history())


CASES = [*itertools.product(OUTCOMES, MODES, ["sqlite"]), (calling, "async", "postgres")]


@pytest.mark.requirement("R7", "T4")
@pytest.mark.parametrize(("reply", "mode", "database_engine"), CASES, indirect=["database_engine"])
async def test_no_role_is_left_and_no_copy_of_what_was_attached(
    tmp_path: Path, reply: Callable[[ScriptedCall], Any], mode: Any
) -> None:
    DURABILITY.set(mode)
    lm, home = ScriptedLM(reply), tmp_path / "home"
    with watch(home) as seen:
        async with scripted_agent(home, lm, workers=[CRITIC]) as agent:
            await both_turns(agent, seen)
            seen.assert_clean(ROLE, names=[LABEL])
            # Nor of what is attached, in whatever else was looked on: errors, logs, events, callbacks, history.
            assert seen.leaks(*(data[-60:].decode() for data in ATTACHED)) == in_its_own_file(seen)
            assert copies(home) == []
    assert ROLE in lm.calls[0].text
    assert NOTES in lm.calls[0].text
    assert sorted(pieces(home).values()) == sorted(ATTACHED)
    expected = OUTCOMES[reply]
    assert [type(error) for error in seen.errors] == [expected] * (2 if expected else 0)


def in_its_own_file(seen: Watch) -> list[str]:
    found = seen.leaks_on_disk(*(data[-60:].decode() for data in ATTACHED))
    own = [each for each in found if "attachments/" in each]
    assert len(own) >= len(ATTACHED), "the scan does not see what is attached, so the case shows nothing"
    return own


@pytest.mark.requirement("R7")
async def test_a_service_that_quotes_the_prompt_in_its_refusal_leaves_no_trace_of_either(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with watch(home) as seen:
        async with (
            openai_stub() as stub,
            scripted_agent(home, "openai/echo-400", settings={"api_base": stub.url}) as agent,
        ):
            thread = agent.thread("t")
            await seen.outcome(thread.converse("Look.", role=Role(LABEL, ROLE), attachments=[PICTURE]))
            seen.assert_clean(ROLE, names=[LABEL])
            assert copies(home) == []
        assert scan_for_roles([stub.requests[0]], ROLE).findings, "the role never reached the service"
    assert [type(error) for error in seen.errors] == [ModelRefused]
