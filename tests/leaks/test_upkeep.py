"""Exports, copies, pruning, removals and imports: a role of the turns before stands in none of them (R7)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Nothing, Said, answering, scripted_agent
from support.leaks import LONG, SHORT, Watch, awkward_canary, on_the_server, watch
from worldagent import Role, WorldAgent
from worldagent.core.errors import ExportInvalid, WorldAgentError
from worldagent.graphs import Shape, TaskContext
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "R13"), pytest.mark.on_every_database]

CONTENTS = {"short": SHORT, "long": LONG, "awkward": awkward_canary(300)}


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=await ctx.calls.ask_person("Which?", ["red", "blue"]))


async def _turns(agent: WorldAgent, content: str, seen: Watch) -> Any:
    """Turns that end in every way while a role of a call, and one of the thread, is active."""
    thread, role = agent.thread("t1", account="ana"), Role("keeper", content)
    await seen.outcome(thread.converse("Hello", role=role))
    await seen.outcome(thread.task("subagent", {"worker": "critic", "request": "Judge it."}, role=role))
    await seen.outcome(thread.task("no such shape", {}, role=role))
    thread.role.set(role)
    await seen.outcome(thread.converse("And now?"))
    return await seen.outcome(thread.task("ask", {}, role=role))


async def _upkeep(agent: WorldAgent, folder: Path, seen: Watch) -> None:
    upkeep, file = agent.upkeep, folder / "t1.jsonl"
    await seen.outcome(upkeep.export("t1", file))
    await seen.outcome(upkeep.back_up(folder / "copy", home_only=True))
    await seen.outcome(upkeep.back_up(folder / "copy"))
    await seen.outcome(upkeep.prune(keep=1))
    await seen.outcome(upkeep.remove("t1"))
    await seen.outcome(upkeep.remove("t1", cancel=True))
    await seen.outcome(upkeep.import_thread(file, to="t2"))
    cut = folder / "cut.jsonl"
    cut.write_bytes(file.read_bytes()[:-9])
    await seen.outcome(upkeep.import_thread(cut))
    await seen.outcome(agent.thread("t2").converse("And then?"))


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_role_is_nowhere_after_upkeep(tmp_path: Path, name: str) -> None:
    content, home, folder = CONTENTS[name], tmp_path / "home", tmp_path / "out"
    folder.mkdir()
    lm: ScriptedLM = answering()
    with watch(home) as seen:
        async with scripted_agent(home, lm, workers=[CRITIC], shapes=[Shape("ask", Nothing, Said, _ask)]) as agent:
            turn = await _turns(agent, content, seen)
            await _upkeep(agent, folder, seen)
            assert agent._runner.parts.pins.get(turn.id) is None, "a removed turn keeps its role in memory"
        assert any(content in call.text for call in lm.calls), "the role never reached the model"
        assert {type(error) for error in seen.errors} >= {ExportInvalid}
        assert all(isinstance(error, WorldAgentError) for error in seen.errors)
        seen.assert_clean(content)
    assert (folder / "copy" / "role.key").is_file()
    assert_no_role_leak([folder, on_the_server()], content)
