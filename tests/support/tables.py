"""What stands in the tables of an agent's database, where no method tells of it. `support.branches` counts by home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worldagent import WorldAgent
from worldagent.agent.upkeep.checkpoints import CheckpointRows
from worldagent.storage import Database, Transaction


def database_of(agent: WorldAgent) -> Database:
    """The database of an agent that is open."""
    return agent._runner.parts.upkeep.database


def checkpoints_of(agent: WorldAgent) -> CheckpointRows:
    """The tables of checkpoints in it."""
    return agent._runner.parts.upkeep.checkpoints


async def selected(agent: WorldAgent, query: str, *given: object) -> list[tuple[Any, ...]]:
    """The rows that a query gives, with a value for each `?`."""
    return await database_of(agent).read(lambda transaction: transaction.execute(query, given))


async def rows(agent: WorldAgent, table: str, where: str = "1=1", *given: object) -> int:
    """How many rows a table has."""
    [(found,)] = await selected(agent, f"SELECT COUNT(*) FROM {table} WHERE {where}", *given)
    return int(found)


async def change(agent: WorldAgent, statement: str, *given: Sequence[object]) -> None:
    """Run a statement with each of `given`, in one transaction."""

    def work(transaction: Transaction) -> None:
        for values in given:
            transaction.execute(statement, values)

    await database_of(agent).transact(work)


__all__ = ["change", "checkpoints_of", "database_of", "rows", "selected"]
