"""Limits in US dollars, over a service that tells what each answer cost: of a turn, a worker, a day (H4, H5)."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from support import services
from support.agents import scripted_agent
from support.openai_stub import ANSWER_TOKENS, PROMPT_TOKENS, OpenAIStub, openai_stub
from support.services import Said, Service, service
from worldagent import WorldAgent
from worldagent.core.errors import LimitReached
from worldagent.core.events import TaskEnded, TurnEnded, Usage
from worldagent.harness import Worker, tool
from worldagent.harness.limits import Limits, Spent

pytestmark = pytest.mark.requirement("H4")

PRICE = 0.25
TOKENS = PROMPT_TOKENS + ANSWER_TOKENS

ENDLESS = """\
[[ ## reply ## ]]
Let me ask.

[[ ## calls ## ]]
[{"tool": "WHO", "arguments": WHAT}]

[[ ## result ## ]]
Fine.

[[ ## completed ## ]]"""
CRITIC = ENDLESS.replace("WHO", "critic").replace("WHAT", '{"request": "Go on."}')
LOOK = ENDLESS.replace("WHO", "look").replace("WHAT", '{"what": "hats"}')
"""What a conversation says that asks the critic each time, and what the critic says, who looks each time."""


@pytest.fixture(autouse=True)
def _keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")


@tool(risk="read_only")
async def look(what: str) -> str:
    return f"seen {what}"


def critical(home: Path, stub: OpenAIStub, *, critic: Limits | None = None, **settings: Any) -> WorldAgent:
    stub.first, stub.text = ([], CRITIC) if critic is None else ([CRITIC], LOOK)
    looks = () if critic is None else ("look",)
    worker = Worker("critic", "You judge.", "judges", tools=looks, limits=critic or Limits())
    chosen = {"api_base": stub.url, "max_rounds": 1, "model_tools": "json", **settings}
    return scripted_agent(home, "openai/answer", workers=[worker], tools=[look], settings=chosen)


@pytest.mark.requirement("H5")
async def test_turn_over_its_cost_ends_and_resumes_with_a_higher_limit(tmp_path: Path) -> None:
    async with openai_stub(PRICE) as stub:
        async with critical(tmp_path, stub, turn_cost=1.5 * PRICE) as agent:
            thread, events = agent.thread("t", account="ana"), list[Any]()
            reached: LimitReached | None = None
            async with thread.stream("Go") as stream:
                try:
                    async for event in stream:
                        events.append(event)
                except LimitReached as error:
                    reached = error
            assert reached is not None
            assert reached.problem == "the turn reached its limit of 0.375 US dollars"
            assert "turn_cost" in reached.remedy
            assert len(stub.requests) == 2, "the one that went over it was under way"
            assert [event.cost for event in events if isinstance(event, Usage)] == [PRICE] * 2
            assert isinstance(events[-1], TurnEnded)
            assert (events[-1].status, events[-1].code) == ("failed", "limit_reached")
            trace = await agent.traces.get(stream.turn_id)
            assert (trace.status, trace.code, trace.cost, trace.unpriced) == ("failed", "limit_reached", 0.5, 0)
            assert await agent.usage(account="ana") == Spent(calls=1, tokens=2 * TOKENS, cost=0.5)
            with pytest.raises(LimitReached):
                await thread.resume()
            assert len(stub.requests) == 2
        async with critical(tmp_path, stub, turn_cost=10) as agent:  # it knows what it has cost so far
            assert (await agent.thread("t", account="ana").resume()).status == "done"
            assert (await agent.traces.get(stream.turn_id)).cost == len(stub.requests) * PRICE
            assert (await agent.usage(account="ana")).cost == len(stub.requests) * PRICE


async def test_worker_over_its_cost_fails_and_the_turn_continues(tmp_path: Path) -> None:
    async with openai_stub(PRICE) as stub, critical(tmp_path, stub, critic=Limits(cost=2 * PRICE)) as agent:
        async with agent.thread("t").stream("Go") as stream:
            ended = [event async for event in stream if isinstance(event, TaskEnded)]
        assert [(event.status, event.code) for event in ended] == [("failed", "limit_reached")]
        assert stream.turn.status == "done"
        sent = "".join(message["content"] for message in stub.requests[-1]["messages"])
        assert "the worker 'critic' reached its limit of 0.5 US dollars" in sent
        assert len(stub.requests) == 4, "the planner's, and two of the worker"


@pytest.fixture
def anthropic(monkeypatch: pytest.MonkeyPatch) -> Generator[Service]:
    """Anthropic at its own address, whose prices are known; its streams do not say what was sent."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    monkeypatch.setattr(services, "_ANTHROPIC_INPUT", {})
    with service() as stub:
        stub.stand_in(monkeypatch)
        yield stub


async def test_an_estimate_counts_where_a_stream_does_not_say_what_was_sent(tmp_path: Path, anthropic: Service) -> None:
    settings: dict[str, Any] = {"turn_cost": 100}
    async with scripted_agent(tmp_path, "anthropic/claude-sonnet-4-5", settings=settings) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("Ahoy. " * 1000) as stream:  # about 1,500 tokens, for 3 dollars a million
            turn = await stream.wait()
        assert turn.usage.cost is turn.usage.input_tokens is None
        assert 0.004 < (await agent.usage(account="ana")).cost < 0.007
    settings = {"turn_cost": 0.001, "max_rounds": 3}
    anthropic.answers += [Said("", (("look", {"what": "hats"}),))] * 3
    async with scripted_agent(tmp_path, "anthropic/claude-sonnet-4-5", tools=[look], settings=settings) as agent:
        with pytest.raises(LimitReached, match=r"the turn reached its limit of 0.001 US dollars"):
            async with agent.thread("u").stream("Ahoy. " * 1000) as stream:
                await stream.wait()
    assert len(anthropic.requests) == 2
