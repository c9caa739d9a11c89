"""Whether tool search finds the right tool among 300, and the tokens of requests with 10, 100 and 300 tools (T11).

Run `python benchmarks/tool_search.py [--quick] [--json]`. It uses the tools and requests of tool_search.toml, and no
model. README.md explains the figures.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from worldagent.benchmarks._measure import Report, Row, Stopwatch, main
from worldagent.graphs.loop.finding import MAX_FOUND, ToolIndex, ToolSearch
from worldagent.graphs.loop.tools import Tools
from worldagent.harness import Function, Policy, Registry
from worldagent.harness.schema import params_of
from worldagent.signatures.adapter import CallMade, RoleAdapter, StepMade
from worldagent.signatures.calling import FIND_TOOLS, TOOLS
from worldagent.signatures.converse import converse_signature

_TOKEN: Final = 4  # characters of a token, an estimate
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "#": {"type": "number"},
    "?": {"type": "boolean"},
    "[]": {"type": "array", "items": {"type": "string"}},
}
_HISTORY: Final = [{"message": "What is new?", "reply": "Nothing of note. " * 40}] * 20


Asked = list[tuple[str, str, str]]
"""Requests: the tool of each, what a person says, and the query of a model."""


def read_set() -> tuple[list[Function], Asked]:
    """The tools and the requests."""
    given = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    tools = [
        _function(f"{server}_{name}", line) for server, each in given["servers"].items() for name, line in each.items()
    ]
    return tools, [(name.replace(".", "_"), each["request"], each["query"]) for name, each in given["asked"].items()]


def _function(name: str, line: str) -> Function:
    about, _, params = line.partition(" |")
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for each in filter(None, params.strip().split("; ")):
        shown, _, text = each.partition(": ")
        plain = shown.rstrip("*#?[]")
        kind: dict[str, Any] = next((kind for mark, kind in _KINDS.items() if mark in shown), {"type": "string"})
        schema["properties"][plain] = {**kind, "description": text}
        schema["required"] += [plain] if "*" in shown else []

    async def body(**_: Any) -> None: ...

    return Function(name=name, body=body, params=params_of(name, schema), result=TypeAdapter(Any), description=about)


def prompt(tools: Tools, *, native: bool, found: Sequence[str] = ()) -> str:
    """A request as a service reads it: tools, system message, messages.

    Args:
        tools: The tools.
        native: Whether they are sent natively.
        found: What a search in the step before has found.
    """
    made, steps = [], []
    if found:
        value = [{"name": name, "description": tools.functions[name].description[:120]} for name in found]
        made = [({"tool": FIND_TOOLS}, {"value": value})]
        steps = [
            StepMade(calls=[CallMade(tool=FIND_TOOLS, arguments={"query": "read a message"}, result=json.dumps(value))])
        ]
    inputs = {**tools.inputs(made), "history": _HISTORY, "message": "Where is the mail about the heating?"}
    adapter = RoleAdapter().for_call(inputs, native=native, steps=steps)
    messages = adapter.format(tools.signature, [], inputs)
    return (json.dumps(list(inputs[TOOLS])) if native else "") + json.dumps(messages)


def _row(name: str, value: float, unit: str = "", *, aim: float | None = None, least: float | None = None) -> Row:
    return Row(key=name, value=value, unit=unit, aim=aim, least=least)


async def run(report: Report) -> None:
    """Measure."""
    functions, asked = read_set()
    report.section(f"{len(asked)} requests, {len(functions)} tools", shares(functions, asked))
    report.section("a request", [row for count in (10, 100, 300) for row in tokens(functions, count)])


def shares(functions: Sequence[Function], asked: Asked) -> list[Row]:
    """How often the right tool is found, and the time of a search."""
    index = ToolIndex(functions)
    watch = Stopwatch()
    found = [index.find(query) for _, _, query in asked]
    taken = watch.read(len(asked)).cpu
    ten = [tool in names for (tool, _, _), names in zip(asked, found, strict=True)]
    first = [names[:1] == [tool] for (tool, _, _), names in zip(asked, found, strict=True)]
    said = [tool in index.find(request) for tool, request, _ in asked]
    return [
        _row("tool_search_found", sum(ten) / len(asked), least=0.95),
        _row("tool_search_first", sum(first) / len(asked)),
        _row("tool_search_requests", sum(said) / len(asked)),
        _row("tool_search_ms", taken * 1000, "ms"),
    ]


def tokens(functions: Sequence[Function], count: int) -> list[Row]:
    """The tokens that some tools take of a request, all of them offered and searched."""
    registry, signature = Registry(functions[:: len(functions) // count][:count]), converse_signature(None)
    whole, searched = (Tools.of_conversation(signature, registry, Policy(), ToolSearch(above)) for above in (None, 1))
    ten = list(registry.functions)[:MAX_FOUND]
    texts = {
        "whole": prompt(whole, native=True),
        "before": prompt(searched, native=True),
        "found": prompt(searched, native=True, found=ten),
    }
    bare = len(texts["whole"]) - len(json.dumps(list(whole.offered.inputs[TOOLS])))
    taken = {name: (len(text) - bare) / _TOKEN for name, text in texts.items()}
    rows = [_row(f"tool_search_{name}_{count}", round(value)) for name, value in taken.items()]
    if count < len(functions):
        return rows
    rows.append(_row("tool_search_part", taken["found"] / taken["whole"], aim=0.1))
    for name, native in (("native", True), ("words", False)):
        before, after = prompt(searched, native=native), prompt(searched, native=native, found=ten)
        rows.append(_row(f"tool_search_prefix_{name}", _kept(before, after)))
    return rows


def _kept(before: str, after: str) -> float:
    """The part of a prompt that the next one begins with too."""
    same = next(
        (place for place, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(before)
    )
    return same / len(before)


if __name__ == "__main__":
    main("tool_search", "Whether tool search finds the right tool, and what tools take of a request.", run)
