"""Declarations and arguments that are refused: the error has its type and names the thing."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agents import Said, answering, failure, refused, scripted_agent
from support.steps import turns_of
from worldagent.core.errors import FunctionInvalid, InvalidArgument, MissingExtra, ParamsInvalid, ToolFailed
from worldagent.harness import CallContext, Policy, Registry, Worker, flow, tool
from worldagent.harness.gate import Rule
from worldagent.harness.limits import Retry
from worldagent.harness.schema import params_of
from worldagent.harness.trace import OpenTelemetryTrace
from worldagent.tools.agents import PARALLEL, manage_todo_list


@flow
async def ask(ctx: CallContext, given: dict[str, Any]) -> str:
    return str(await ctx.ask_person(**given))


def worker(**given: Any) -> Worker:
    named: dict[str, Any] = {"instructions": "Go.", **given}
    return Worker("w", **named)


SEVEN: Any = 7
MADE: Any = ask
BAD: list[tuple[str, Callable[[], object], str]] = [
    ("attempts", lambda: Retry(attempts=0), "`attempts` must be an integer from 1 to 20, got 0"),
    ("backoff", lambda: Retry(backoff=9, longest=1), "`backoff` must be a number of seconds"),
    ("timeout", lambda: replace(ask, timeout=0), "the timeout of the function 'ask' must be a positive number"),
    ("retried flow", lambda: replace(ask, retry=Retry(attempts=2)), "the flow 'ask' cannot be retried"),
    ("starred", lambda: tool(name="f")(lambda *args: 1), "'args' of the function 'f' cannot be passed by name"),
    ("no return type", lambda: tool(name="f")(lambda: 1), "the function 'f' has no return type"),
    ("tool of a tool", lambda: tool(MADE), "'ask' is already a tool"),
    ("functions", lambda: Registry(SEVEN), "functions= must be a list, got 'int'"),
    ("function", lambda: Registry([SEVEN]), "7 is not a function"),
    ("worker", lambda: Registry(workers=[SEVEN]), "7 is not a worker"),
    ("schema", lambda: params_of("f", SEVEN), "the schema of the params of 'f' must be a JSON object"),
    ("schema of a list", lambda: params_of("f", {"type": "array"}), "must describe an object"),
    ("instructions", lambda: worker(instructions=" "), "the worker 'w' has no instructions"),
    ("model", lambda: worker(model=""), "the model of the worker 'w' must be a text"),
    ("limits", lambda: worker(limits=5), "the limits of the worker 'w' must be Limits, got 'int'"),
    ("policy", lambda: worker(policy={}), "the policy of the worker 'w' must be a Policy, got 'dict'"),
    (
        "rule of the agent",
        lambda: worker(policy=Policy(rules=(Rule(decision="approve", function="f", seconds=3),))),
        "has seconds=, which belongs to the agent's policy",
    ),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_invalid_declaration_is_refused(make: Callable[[], object], says: str) -> None:
    assert says in refused(make, FunctionInvalid).problem


def test_spans_without_the_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert "'otel' is not installed" in refused(OpenTelemetryTrace, MissingExtra).problem


CALLS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("ask", {"given": {"question": ""}}, InvalidArgument, "`question` must be a text that is not empty"),
    ("ask", {"given": {"question": "?", "options": "ab"}}, InvalidArgument, "`options` must be a list of texts"),
    ("ask", {"given": {"question": "?", "options": ["a"], "form": 1}}, InvalidArgument, "`options` and `form`"),
    ("manage_todo_list", {"items": [{"content": "a"}] * 2}, ToolFailed, "'a' is in the list twice"),
    (
        "manage_todo_list",
        {"items": [{"content": each, "status": "in_progress"} for each in "ab"]},
        ToolFailed,
        "more than one item is in_progress",
    ),
    ("parallel_execution", {"calls": [{"tool": "parallel_execution"}]}, ToolFailed, "cannot call itself"),
]


@pytest.mark.parametrize(("name", "given", "error", "says"), CALLS)
async def test_invalid_arguments_of_a_call_are_refused(
    tmp_path: Path, name: str, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    async with scripted_agent(tmp_path, answering(), tools=[ask, manage_todo_list, PARALLEL]) as agent:
        failed = await failure(agent.call(name, given))
    assert type(failed) is error
    assert says in failed.problem


async def test_invalid_request_of_a_task_and_limit_of_a_list_are_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), workers=[Worker("w", "Go.", input=Said)]) as agent:
        for request in ("no JSON", "[]"):
            failed = await failure(agent.thread("t").task("subagent", {"worker": "w", "request": request}))
            assert isinstance(failed, ParamsInvalid)
            assert "params of worker 'w' must be a JSON object" in failed.problem
        assert "`limit` must be an integer from 1 to" in (await failure(agent.traces.list(limit=0))).problem


async def test_calls_that_cannot_be_made_here_are_refused(tmp_path: Path) -> None:
    """A leaf that kept the context of a flow cannot call, and without an agent no worker can run."""
    kept: list[CallContext] = []

    @tool(risk="read_only")
    async def sly() -> str:
        return str(await kept[0].call("main", {}))

    @flow
    async def main(ctx: CallContext) -> str:
        kept.append(ctx)
        return str(await ctx.call("sly", {}))

    async with turns_of(tmp_path, sly, main, worker().function) as turns:
        for name, given, says in (
            ("main", {}, "the leaf 'sly' cannot call 'main'"),
            ("w", {"request": "x"}, "run here"),
        ):
            failed = await failure(turns.drive(name, given))
            assert isinstance(failed, FunctionInvalid)
            assert says in failed.problem
