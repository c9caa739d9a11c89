"""What a model thinks, for those who stream a turn: with its step, without the role, and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.leaks import traces_of
from support.services import FORMATS, Format, Said, Service, service
from worldagent import Role, Settings, Storage, WorldAgent, tool
from worldagent.core import ECHO_RUN
from worldagent.core import events as ev
from worldagent.testing import assert_no_role_leak

HOW = "Answer as a harbour pilot of forty years would, in short and salty sentences."
THOUGHT = "The person asks for the depth at the quay, so the chart has to be read first."
STEP = Said("Let me look.", (("depth", {"place": "quay"}),), THOUGHT)
END = Said("Seven metres.", (), "The chart says seven.")
ALL = pytest.mark.parametrize("wanted", FORMATS)
SHOWN = {"reasoning_effort": "low", "reasoning_summary": "auto"}


@tool(risk="read_only")
def depth(place: str) -> int:
    """Depth of the water, in metres."""
    return 7


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


def agent_at(home: Path, stub: Service, wanted: Format, **settings: Any) -> WorldAgent:
    chosen = Settings(api_base=stub.url(wanted), model_attempts=1, **{"model_options": SHOWN, **settings})
    return WorldAgent("harbour", lm=FORMATS[wanted], storage=Storage(home=home), settings=chosen, tools=[depth])


def thoughts(events: list[Any], step: int) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.ReasoningDelta) and event.step == step)


@ALL
@pytest.mark.parametrize("recorded", [False, True])
async def test_it_streams_with_its_step_and_without_a_number(tmp_path: Path, wanted: Format, recorded: bool) -> None:
    with service(STEP, END) as stub:
        async with (
            agent_at(tmp_path, stub, wanted) as agent,
            agent.thread("t").stream("How deep?", key="k" if recorded else None) as stream,
        ):
            events = [event async for event in stream]
    assert thoughts(events, 0) == THOUGHT
    assert thoughts(events, 1) == END.thinking
    assert all("seq" not in json.loads(each.model_dump_json()) for each in events if not each.seq)
    numbers = [event.seq for event in events if not isinstance(event, ev.ReasoningDelta)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("wanted", "options", "sent"),
    [
        ("responses", {"reasoning_summary": "concise"}, {"effort": "medium", "summary": "concise"}),
        ("responses", {**SHOWN, "reasoning_effort": "off"}, {"effort": "none"}),
        ("gemini", SHOWN, True),
        ("gemini", {"reasoning_effort": "low"}, None),
        ("anthropic", {"reasoning_summary": "concise"}, "enabled"),
        ("chat", {"reasoning_summary": "auto"}, "medium"),
    ],
)
async def test_the_option_reaches_the_service_in_its_own_words(
    tmp_path: Path, wanted: Format, options: dict[str, str], sent: Any
) -> None:
    with service(END) as stub:
        async with agent_at(tmp_path, stub, wanted, model_options=options) as agent:
            assert (await agent.thread("t").converse("How deep?")).text == END.text
    [body] = stub.requests
    found = {
        "responses": lambda: body["reasoning"],
        "gemini": lambda: body["generationConfig"]["thinkingConfig"].get("includeThoughts"),
        "anthropic": lambda: body["thinking"]["type"],
        "chat": lambda: body["reasoning_effort"],
    }
    assert found[wanted]() == sent


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_unsigned_reasoning_is_not_sent_back_as_what_the_model_said(tmp_path: Path, stream: bool) -> None:
    with service(STEP, END) as stub:
        async with agent_at(tmp_path, stub, "chat") as agent:
            if stream:
                async with agent.thread("t").stream("How deep?") as events:
                    await events.wait()
            else:
                await agent.thread("t").converse("How deep?")
    [said] = [message for message in stub.requests[1]["messages"] if message["role"] == "assistant"]
    assert (said["content"], len(said["tool_calls"])) == (STEP.text, 1)
    assert THOUGHT not in json.dumps(stub.requests[1])


async def test_a_service_that_wants_reasoning_back_gets_it_in_its_own_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
    with service(STEP, END) as stub:
        settings = Settings(api_base=stub.url("chat"), model_attempts=1)
        async with (
            WorldAgent(
                "harbour", lm="deepseek/stub", storage=Storage(home=tmp_path), settings=settings, tools=[depth]
            ) as agent,
            agent.thread("t").stream("How deep?") as events,
        ):
            await events.wait()
    [said] = [message for message in stub.requests[1]["messages"] if message["role"] == "assistant"]
    assert (said["content"], said["reasoning_content"]) == (STEP.text, THOUGHT)


@ALL
async def test_it_is_kept_nowhere_and_only_the_stream_gets_it(tmp_path: Path, wanted: Format) -> None:
    with service(STEP, END) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            async with agent.thread("t").stream("How deep?", key="k") as stream:
                _ = [event async for event in stream]
            again = [event async for event in agent.events(stream.turn_id)]
            async with agent.thread("t").stream("How deep?", key="k") as repeated:
                again += [event async for event in repeated]
    assert again
    assert not any(isinstance(event, ev.ReasoningDelta) for event in again)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert THOUGHT[:30].encode() not in kept


@pytest.mark.requirement("R16")
@ALL
@pytest.mark.parametrize("cut", [0, 20])
async def test_a_role_that_is_thought_aloud_is_withheld(tmp_path: Path, wanted: Format, cut: int) -> None:
    loud = f"I am told: {HOW[cut:]} So I shall be short."
    with service(Said("Aye.", (), loud)) as stub:
        async with (
            agent_at(tmp_path, stub, wanted) as agent,
            agent.thread("t").stream("How deep?", role=Role("pilot", HOW)) as stream,
        ):
            events = [event async for event in stream]
    shown = thoughts(events, 0)
    assert shown.startswith("I am told:")
    assert shown.endswith("So I shall be short.")
    assert not any(HOW[at : at + ECHO_RUN] in shown for at in range(len(HOW) - ECHO_RUN + 1))
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] != []
    assert_no_role_leak(tmp_path, traces_of(HOW))
