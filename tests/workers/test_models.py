"""A worker may have a model of its own, and others for when that cannot be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import InvalidRequestError, RateLimitError, ServerError

from support.agents import calls, price, scripted_agent, to, told
from worldagent.core.errors import InvalidArgument, ModelNotConfigured, ModelRefused, ModelUnavailable
from worldagent.harness import Worker
from worldagent.testing import ScriptedLM


async def test_a_worker_thinks_with_the_model_it_names_and_the_planner_with_the_agents(tmp_path: Path) -> None:
    own = ScriptedLM([to("critic"), {"reply": "Done."}])
    fast = ScriptedLM([{"result": "Fine."}])
    async with scripted_agent(
        tmp_path, own, workers=[Worker("critic", "You judge.", model="fast")], models={"fast": fast}
    ) as agent:
        assert (await agent.thread("t").converse("Go")).text == "Done."
    own.assert_all_used()
    fast.assert_all_used()


@pytest.mark.parametrize("failure", [ServerError("down"), RateLimitError("slow")])
async def test_where_a_model_is_out_the_next_one_is_asked_the_same(tmp_path: Path, failure: Exception) -> None:
    first = ScriptedLM([calls(("price", {"what": "hat"})), failure, {"result": "Never."}])
    second = ScriptedLM([failure])
    third = ScriptedLM([{"result": "It is 3."}], form="native")
    worker = Worker("shopper", "You find prices.", tools=("price",), model="a", fallbacks=("b", "c"))
    models = {"a": first, "b": second, "c": third}
    async with scripted_agent(tmp_path, ScriptedLM([]), workers=[worker], tools=[price], models=models) as agent:
        assert await agent.call("shopper", {"request": "Go."}) == "It is 3."
    assert told(third.calls[0]) == told(first.calls[1]) == told(second.calls[0])
    assert third.calls[0].tools == ("price",), "each is offered tools as it takes them"


async def test_what_is_no_outage_is_not_tried_elsewhere_and_the_last_outage_is_told(tmp_path: Path) -> None:
    refusing = ScriptedLM([InvalidRequestError("no"), ServerError("down")])
    other = ScriptedLM([ServerError("down")])
    worker = Worker("critic", "You judge.", model="a", fallbacks=("b",))
    models = {"a": refusing, "b": other}
    async with scripted_agent(tmp_path, ScriptedLM([]), workers=[worker], models=models) as agent:
        with pytest.raises(ModelRefused):
            await agent.call("critic", {"request": "Go."})
        assert other.calls == []
        with pytest.raises(ModelUnavailable):
            await agent.call("critic", {"request": "Go."})
    assert (len(refusing.calls), len(other.calls)) == (2, 1)


async def test_a_model_string_opens_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker("critic", "You judge.", model="openai/gpt-4o")
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Hello."}]), workers=[worker]) as agent:
        assert (await agent.thread("t").converse("Hello")).text == "Hello."  # it has no key, and needs none yet
        with pytest.raises(ModelNotConfigured, match=r"no API key"):
            await agent.call("critic", {"request": "Go."})


@pytest.mark.parametrize(
    ("worker", "models", "error", "says"),
    [
        (Worker("critic", "Go.", model="fast"), {}, ModelNotConfigured, "the worker 'critic' wants the model 'fast'"),
        (Worker("critic", "Go.", fallbacks=("slow",)), {"fast": "a/b"}, ModelNotConfigured, "'slow'.*names are: fast"),
        (Worker("critic", "Go."), {"a/b": "openai/x"}, InvalidArgument, "'a/b' cannot name a model"),
        (Worker("critic", "Go."), {"fast": 7}, InvalidArgument, "'fast' must be .* got 'int'"),
    ],
)
async def test_models_that_cannot_be_are_told_before_a_turn(
    tmp_path: Path, worker: Worker, models: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        async with scripted_agent(tmp_path, ScriptedLM([]), workers=[worker], models=models):
            pass


async def test_models_may_be_named_in_the_settings(tmp_path: Path) -> None:
    fast = ScriptedLM([{"result": "Fine."}])
    async with scripted_agent(
        tmp_path,
        ScriptedLM([]),
        workers=[Worker("critic", "Go.", model="fast")],
        settings={"models": {"fast": "openai/gpt-4o"}},
        models={"fast": fast},  # an argument goes over a setting
    ) as agent:
        assert await agent.call("critic", {"request": "Go."}) == "Fine."
