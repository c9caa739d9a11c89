"""What model calls cost: as their service reports it, or by the bundled price list; what is not known stays so (H5)."""

import sys
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import Usage

from support.agents import scripted_agent, streamed
from support.openai_stub import ANSWER_TOKENS, PROMPT_TOKENS, openai_stub
from worldagent.core import ModelUsage
from worldagent.core import events as ev
from worldagent.signatures.engines.costs import CostTracker, _prices_of, estimate

pytestmark = pytest.mark.requirement("H5")

PRICES = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.1, "cache_read_input_token_cost": 0.001}


@pytest.mark.parametrize(("cost", "stream"), [(0.25, False), (0.25, True), (None, True), ("dear", True)], ids=repr)
async def test_reported_cost_is_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: Any, stream: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    expected = 0.25 if cost == 0.25 else None
    async with openai_stub(cost) as stub:
        settings = {"api_base": stub.url}
        async with scripted_agent(tmp_path, "openai/answer", settings=settings) as agent:
            thread, events = agent.thread("t1"), list[Any]()
            if stream:
                turn, events = await streamed(thread.stream("Hello"))
            else:
                turn = await thread.converse("Hello")
            trace = await agent.traces.get(turn.id)
    assert "litellm" not in sys.modules
    [model] = [record for record in trace.records if record.kind == "model"]
    assert (model.cost, trace.cost, trace.unpriced) == (expected, expected, 0 if expected else 1)
    assert (model.model, model.input_tokens, model.output_tokens) == ("openai/answer", PROMPT_TOKENS, ANSWER_TOKENS)
    assert model.end is not None
    assert model.end > model.start
    for event in events:
        if isinstance(event, ev.Usage):
            assert (event.cost, event.call_id, event.model) == (expected, turn.id, "openai/answer")
            assert event.seconds > 0


def test_the_price_list_knows_models_by_vendor_and_name_without_a_network() -> None:
    prices = _prices_of("openai-chat", (None, "gpt-4o"))
    assert prices is not None
    assert estimate("openai-chat", Usage(input_tokens=1000, output_tokens=100), prices) == pytest.approx(0.0035)
    assert _prices_of("openai-chat", ("no-such-model",)) is None
    assert _prices_of("gemini", ("gpt-4o",)) is None


@pytest.mark.parametrize(
    ("provider", "usage", "cost"),
    [
        ("openai", Usage(input_tokens=10, output_tokens=2, cache_read_tokens=4), 0.264),
        ("anthropic", Usage(input_tokens=10, output_tokens=2, cache_read_tokens=4), 0.304),
        ("gemini", Usage(input_tokens=10, output_tokens=2, reasoning_tokens=1), 0.4),
        ("openai", Usage(input_tokens=10, output_tokens=2, cache_write_tokens=4), None),
        ("openai", Usage(input_tokens=10), None),
    ],
)
def test_tokens_are_priced_as_their_service_counts_them(provider: str, usage: Usage, cost: float | None) -> None:
    assert estimate(provider, usage, PRICES) == (None if cost is None else pytest.approx(cost))


def test_of_several_requests_all_costs_must_be_known() -> None:
    tracker = CostTracker()
    assert tracker.used() is None
    tracker.add(ModelUsage(input_tokens=2, cost=0.5))
    tracker.add(ModelUsage(input_tokens=3, cost=0.25))
    assert tracker.used() == ModelUsage(calls=1, input_tokens=5, cost=0.75)
    tracker.add(ModelUsage(cost=None))
    assert tracker.used() == ModelUsage(calls=1, input_tokens=5, cost=None)
