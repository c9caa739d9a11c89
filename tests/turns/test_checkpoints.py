"""What is written of checkpoints: as many as are kept and a few more, and nothing that the next one says again."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.jobs import Nothing, Said
from support.tables import checkpoints_of, rows
from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext

pytestmark = pytest.mark.on_every_database

KEEP, SLACK, A_TURN = 20, 5, 2


async def count(agent: WorldAgent, place: int = 0) -> int:
    """How many rows a table of checkpoints has; they are counted from that of the checkpoints themselves."""
    return await rows(agent, checkpoints_of(agent).tables[place])


async def test_old_checkpoints_go_several_turns_at_once(tmp_path: Path) -> None:
    counts: list[int] = []
    async with scripted_agent(tmp_path, answering(), settings={"checkpoint_keep": KEEP}) as agent:
        for _ in range(20):
            await agent.thread("t").converse("Hi")
            counts.append(await count(agent))
        pruned = [after for before, after in itertools.pairwise(counts) if after != before + A_TURN]
        assert set(pruned) == {KEEP}
        assert len(pruned) <= 20 * A_TURN // SLACK
        assert max(counts) <= KEEP + SLACK
        assert counts[-1] != KEEP, "the last turn pruned, so what follows shows nothing"
        assert (await agent.upkeep.prune(keep=KEEP)).checkpoints == counts[-1] - KEEP
        assert await count(agent) == KEEP


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=await ctx.calls.ask_person("Which?", ["red", "blue"]))


async def test_what_a_node_gave_is_written_with_the_next_checkpoint_alone_and_that_it_waits_at_once(
    tmp_path: Path,
) -> None:
    shapes: list[Shape[Any, Any]] = [Shape("ask", Nothing, Said, _ask)]
    async with scripted_agent(tmp_path, answering(), shapes=shapes) as agent:
        thread = agent.thread("t")
        await thread.converse("Hi")
        assert await count(agent, 1) == 0
        turn = await thread.task("ask", {})
        assert await count(agent, 1) == 1
    async with scripted_agent(tmp_path, answering(), shapes=shapes) as agent:
        turn = await agent.thread("t").resume({turn.pauses[0].id: "red"})
        assert (turn.status, turn.text) == ("done", '{"text":"red"}')
        assert await count(agent, 1) == 1
