"""Workers as files and in Python: what they may say, and what is reported of what cannot be used (H3, H6)."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.agents import refused, scripted_agent
from worldagent.core.errors import (
    FunctionInvalid,
    InvalidArgument,
    MissingExtra,
    NameTaken,
    UnknownFunction,
    WorkerInvalid,
)
from worldagent.harness import Function, Policy, Worker, load_workers, tool
from worldagent.harness.gate import Ceiling, Rule
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H6")

WHOLE = """---
worker: 1
name: shopper
description: finds prices
model: fast
fallbacks: [openai/gpt-4o]
tools:
  - price
  - "shop.*"
input:
  type: object
  properties:
    article: {type: string, description: what to look up}
  required: [article]
output: {type: object, properties: {price: {type: integer}}, required: [price]}
risk: [write, network]
retries: 3
max_steps: 5
capabilities: prices
capture: true
background: true
prompt: "Find the {article}."
options: {temperature: 0.2, reasoning_effort: low}
policy:
  default: refuse
  rules:
    - decision: approve
      function: price
ceiling:
  functions: [price, "shop.*"]
  risk: network
  authority: {price: autonomous}
---

# Prices

You find prices.
"""


def written(folder: Path, text: str | bytes, name: str = "shopper.worker.md") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("form", ["plain", "with a mark at its start", "with other ends of lines"])
def test_a_file_says_all_that_python_can(tmp_path: Path, form: str) -> None:
    text = WHOLE.replace("\n", "\r\n") if form.endswith("lines") else WHOLE
    data = text.encode("utf-8-sig") if form.endswith("start") else text.encode()
    [worker] = load_workers(written(tmp_path, data, "other.worker.md"))
    assert worker == Worker(
        "shopper",
        "# Prices\n\nYou find prices.",
        "finds prices",
        risk=("write", "network"),
        capabilities=("prices",),
        tools=("price", "shop.*"),
        input={
            "type": "object",
            "properties": {"article": {"type": "string", "description": "what to look up"}},
            "required": ["article"],
        },
        output={"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]},
        model="fast",
        fallbacks=("openai/gpt-4o",),
        retries=3,
        max_steps=5,
        capture=True,
        background=True,
        prompt="Find the {article}.",
        options={"temperature": 0.2, "reasoning_effort": "low"},
        policy=Policy(rules=(Rule(decision="approve", function="price"),), default="refuse"),
        ceiling=Ceiling(functions=("price", "shop.*"), risk="network", authority={"price": "autonomous"}),
    )


def test_a_folder_gives_its_workers_in_the_order_of_names_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b", "a"):
        written(tmp_path, "---\ndescription: x\n---\nGo.", f"{name}.worker.md")
    written(tmp_path, "no worker", "README.md")
    assert [worker.name for worker in load_workers(tmp_path)] == ["a", "b"]


FRONT = "---\ndescription: x\n"
BAD: dict[str, tuple[Any, str]] = {
    "a wrong key": (
        f"{FRONT}tool: [price]\n---\nGo.",
        r"shopper.worker.md:3: a worker has no key 'tool'; did .* 'tools'",
    ),
    "a wrong type": (f"{FRONT}retries: many\n---\nGo.", r":3: 'retries' must be an integer; write"),
    "too many retries": (
        f"{FRONT}retries: 99\n---\nGo.",
        r":3: the retries .* must be an integer from 0 to 20, got 99",
    ),
    "a bad name": ("---\nname: a b\n---\nGo.", r":2: 'a b' cannot name a worker"),
    "another version": ("---\nworker: 2\n---\nGo.", r":2: the file has version 2"),
    "a wrong rule": (
        f"{FRONT}policy:\n  rules:\n    - desicion: ask\n---\nGo.",
        r":5: a rule has no key 'desicion'; did .* 'decision'",
    ),
    "a wrong ceiling": (
        f"{FRONT}ceiling:\n  parent: boss\n---\nGo.",
        r":4: a ceiling has no key 'parent'; the keys are",
    ),
    "a wrong authority": (
        f"{FRONT}ceiling:\n  authority: {{pay: always}}\n---\nGo.",
        r":3: a ceiling cannot be read: authority",
    ),
    "no YAML": ("---\na: [1\n---\nGo.", r"shopper.worker.md:\d+ cannot be read"),
    "an anchor": ("---\ntools: &a [x]\ncapabilities: *a\n---\nGo.", r":2 cannot be read: anchors"),
    "no front matter": ("Go.", r":1 has no front matter; begin the file with a line '---'"),
    "a list": ("---\n- x\n---\nGo.", r":2: the front matter must be a mapping"),
    "an open end": ("---\nname: a\nGo.", r":1 has front matter without an end"),
    "no instructions": (f"{FRONT}---\n \n", r":4 has no instructions; write them below"),
    "other bytes": (b"---\nname: a\n---\n\xff", r":4 is not UTF-8"),
    "too many bytes": (b"---\n---\n" + b"x" * (1 << 20), r"more than 1048576 bytes"),
}


def test_a_text_with_a_colon_needs_no_quotes(tmp_path: Path) -> None:
    (tmp_path / "critic.worker.md").write_text("---\ndescription: Use it so: to judge\nmax_steps: 3\n---\nYou judge.\n")
    [worker] = load_workers(tmp_path)
    assert (worker.description, worker.max_steps) == ("Use it so: to judge", 3)


@pytest.mark.parametrize("what", BAD)
def test_invalid_file_is_named_with_its_line_and_a_remedy(tmp_path: Path, what: str) -> None:
    text, says = BAD[what]
    with pytest.raises(WorkerInvalid, match=says) as failed:
        load_workers(written(tmp_path, text))
    assert failed.value.remedy
    assert "shopper.worker.md" in failed.value.problem


def test_places_without_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerInvalid, match="has no worker files"):
        load_workers(tmp_path)
    with pytest.raises(WorkerInvalid, match=r"cannot be read: No such file"):
        load_workers(tmp_path / "none.worker.md")
    with pytest.raises(WorkerInvalid, match=r"not the name of a worker file; rename it to NAME.worker.md"):
        load_workers(written(tmp_path, WHOLE, "shopper.md"))
    written(tmp_path, WHOLE, "a.worker.md")
    written(tmp_path, WHOLE, "b.worker.md")
    with pytest.raises(WorkerInvalid, match=r"b.worker.md' and '.*a.worker.md' both name their worker 'shopper'"):
        load_workers(tmp_path)


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(MissingExtra, match=r"worldagent\[yaml\]"):
        load_workers(written(tmp_path, WHOLE))


async def test_workers_of_the_settings_are_added_and_a_path_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    folder.mkdir()
    written(folder, "---\ndescription: judges\n---\nYou judge.", "critic.worker.md")
    lm = ScriptedLM([{"result": "Fine."}])
    async with scripted_agent(
        tmp_path / "home", lm, settings={"workers": folder}, workers=[Worker("poet", "Go.")]
    ) as agent:
        assert await agent.call("critic", {"request": "Go."}) == "Fine."
    with pytest.raises(InvalidArgument, match="`workers` must be a list"):
        scripted_agent(tmp_path, lm, workers=folder)
    with pytest.raises(NameTaken, match="'critic'"):
        scripted_agent(tmp_path, lm, settings={"workers": folder}, workers=[Worker("critic", "Go.")])


@tool(risk="write")
async def put(path: str) -> str:
    return path


def taking(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}


# --- workers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["result", "calls", "model_dump", "_x", "a b"])
def test_a_param_that_no_worker_can_have_is_refused_at_once(name: str) -> None:
    error = refused(lambda: Worker("w", "Do it.", input=taking(name)))
    assert isinstance(error, FunctionInvalid)
    assert repr(name) in error.problem
    assert "'w'" in error.problem


async def test_glob_of_a_worker_that_matches_no_tool_yet_is_kept(tmp_path: Path) -> None:
    glob = Worker("w", "Do it.", tools=("later*", "put", "subagent"))
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[put], workers=[glob]):
        pass


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "w.worker.md"
    os.mkfifo(path)
    for place in (path, tmp_path):
        assert "not a regular file" in refused(lambda place=place: load_workers(place)).problem  # type: ignore[misc]  # mypy does not see what place is


# --- agents ---------------------------------------------------------------------------------------------------------


async def test_of_many_functions_those_that_are_nearest_are_named(tmp_path: Path) -> None:
    many = [Function(f"tool_{number}", put.body, put.params, put.result) for number in range(200)]
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[*many, put]) as agent:
        with pytest.raises(UnknownFunction) as caught:
            await agent.call("tool_19x" + "y" * 5000, {})
        assert len(str(caught.value)) < 600
        with pytest.raises(UnknownFunction, match=r"tool_199\b") as caught:
            await agent.call("tool_199x", {})
        assert "202 functions" in caught.value.remedy
        with pytest.raises(
            UnknownFunction, match=r"the closest of the 202 functions are: put; others are: (\w+, ){18}\w+$"
        ):
            await agent.call("putt", {})
        with pytest.raises(UnknownFunction, match=r"some of the 202 functions are: (\w+, ){19}\w+$"):
            await agent.call("zzz", {})
