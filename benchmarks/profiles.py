"""What profiles cost: tokens of a turn's prompt with each profile, counted by the embedded model's tokenizer (P1).

Run `python benchmarks/profiles.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from worldagent import Settings, Storage, WorldAgent
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.signatures.engines.local import LocalModel, close_model, open_model
from worldagent.testing import ScriptedLM
from worldagent.tools import BUILTIN, BuiltinTools

_QUESTION = "Which paper introduced the transformer, and where was it presented?"


async def _prompt(profile: str, tools: BuiltinTools, **more: Any) -> list[dict[str, str]]:
    """Return the messages of the first call with a profile."""
    lm = ScriptedLM(lambda call: {"reply": "Attention Is All You Need, at NeurIPS 2017.", "satisfied": True})
    with tempfile.TemporaryDirectory() as home:
        storage, settings = Storage(home=Path(home)), Settings(trace=False)
        async with WorldAgent(
            "bench", lm=lm, profile=profile, builtin_tools=tools, storage=storage, settings=settings, **more
        ) as agent:
            await agent.thread("t").converse(_QUESTION)
    call = lm.calls[0]
    return [
        {"role": "system", "content": call.system},
        *({"role": role, "content": text} for role, text in call.messages),
    ]


async def _tokens(model: LocalModel, messages: Sequence[Mapping[str, str]]) -> float:
    found: list[int] = []

    def on_chunk(chunk: Mapping[str, Any]) -> bool:
        if usage := chunk.get("usage"):
            found.append(usage["prompt_tokens"])
        return False

    body = {"messages": list(messages), "max_tokens": 1, "stream_options": {"include_usage": True}}
    await asyncio.wrap_future(model.submit(body, on_chunk))
    return float(found[-1])


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    with tempfile.TemporaryDirectory() as folder:
        tools = BuiltinTools(roots=(Path(folder),))
        everything = tools.named(BUILTIN)
        cases: dict[str, tuple[str, dict[str, Any], str]] = {
            "general": ("general", {}, "the default agent without a profile, no tools"),
            "all_tools": ("general", {"workers": everything}, "general, with all built-in tools always present"),
            "searcher": ("searcher", {}, "five tools, no sections on tasks and AGENTS.md"),
            "debugger": ("debugger", {}, "four tools"),
            "coder": ("coder", {}, "all tools, all sections"),
        }
        model = await open_model(None)
        counted: dict[str, float] = {}
        for name, (profile, more, _) in cases.items():
            counted[name] = await _tokens(model, await _prompt(profile, tools, **more))
        await close_model(model)
    rows = [Row(key=f"{name}_tokens", value=counted[name], unit="", note=note) for name, (_, _, note) in cases.items()]
    for name in ("searcher", "debugger", "coder"):
        over = counted[name] / counted["all_tools"]
        rows.append(Row(key=f"{name}_over_all_tools", value=over, note="with all tools is 1"))
    report.section("Tokens of the prompt for one short question", rows)


if __name__ == "__main__":
    main("profiles", "What profiles cost in tokens.", run)
