"""What a turn used: counted alike for all services, by model, over pauses; what is not said is None, never 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dspy import lm15

from support.agents import open_pauses, scripted_agent
from support.services import FORMATS, Format, Said, Service, service
from worldagent import Approve, Settings, Storage, WorldAgent, tool
from worldagent.core import ModelUsage
from worldagent.core import events as ev
from worldagent.testing import ScriptedLM

ALL = pytest.mark.parametrize("wanted", FORMATS)


@tool(risk="write")
def launch(ship: str) -> str:
    """Launch a ship."""
    return f"{ship} floats"


LAUNCH = Said("", (("launch", {"ship": "Vela"}),))


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


def agent_at(home: Path, stub: Service, wanted: Format, **settings: Any) -> WorldAgent:
    chosen = Settings(api_base=stub.url(wanted), model_attempts=1, **settings)
    return WorldAgent("ships", lm=FORMATS[wanted], storage=Storage(home=home), settings=chosen, tools=[launch])


@ALL
async def test_tokens_count_alike_for_all_services(tmp_path: Path, wanted: Format) -> None:
    with service(Said("Aye.")) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            turn = await agent.thread("t").converse("Ahoy.")
    [used] = turn.usage.models.values()
    assert (used.calls, used.input_tokens, used.cached_tokens) == (1, 100, 64)
    assert used.output_tokens == (13 if wanted == "gemini" else 10)  # whose 3 of reasoning come on top of its 10
    assert used.reasoning_tokens == (0 if wanted == "anthropic" else 3)  # it does not say how many of the 10
    assert used.cost is None  # a server of one's own has its own prices


@ALL
async def test_a_stream_that_does_not_say_what_it_was_sent_is_not_known(tmp_path: Path, wanted: Format) -> None:
    with service(Said("Aye.")) as stub:
        async with (
            agent_at(tmp_path, stub, wanted) as agent,
            agent.thread("t").stream("Ahoy.") as stream,
        ):
            told = [event async for event in stream if isinstance(event, ev.Usage)]
    [event] = told
    assert stream.turn is not None
    assert event.input_tokens == stream.turn.usage.input_tokens == (None if wanted == "anthropic" else 100)
    assert event.output_tokens == stream.turn.usage.output_tokens == (13 if wanted == "gemini" else 10)
    assert stream.turn.to_json()["usage"]["input_tokens"] == event.input_tokens


async def test_what_an_lm_of_the_callers_does_not_say_is_not_known_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.testing.scripted._usage", lambda *_: lm15.Usage())
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Aye."}])) as agent:
        turn = await agent.thread("t").converse("Ahoy.")
    assert turn.usage.models == {"scripted": ModelUsage(calls=1, input_tokens=None, output_tokens=None, cost=None)}


@pytest.mark.on_every_database
async def test_a_turn_counts_what_it_used_before_a_pause_by_model(tmp_path: Path) -> None:
    with service(LAUNCH, Said("It floats.")) as stub:
        async with agent_at(tmp_path, stub, "chat") as agent:
            turn = await agent.thread("t").converse("Launch it.", key="k")
            assert (turn.status, turn.usage.calls, turn.usage.input_tokens) == ("paused", 1, 100)
        async with agent_at(tmp_path, stub, "chat") as agent:
            thread = agent.thread("t")
            [pause] = await open_pauses(thread)
            turn = await thread.resume({pause.id: Approve()})
            again = await thread.converse("Launch it.", key="k")
    [(name, used)] = turn.usage.models.items()
    assert name == FORMATS["chat"]
    assert (used.calls, used.input_tokens, used.output_tokens, used.cached_tokens) == (2, 200, 20, 128)
    assert turn.usage == again.usage
