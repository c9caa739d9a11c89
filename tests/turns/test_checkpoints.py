"""What is written of checkpoints: as many as are kept and a few more."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.homes import checkpoints_of, rows
from worldagent import WorldAgent

pytestmark = pytest.mark.on_every_database

KEEP, SLACK, A_TURN = 20, 5, 2


async def count(agent: WorldAgent) -> int:
    """How many checkpoints there are."""
    return await rows(agent, checkpoints_of(agent).tables[0])


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
