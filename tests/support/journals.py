"""Turns that are nothing but calls: what drives a flow again and again, as owners that come one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from worldagent.core import Emitter, Scope, SystemClock
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Pause, call_id_of
from worldagent.harness import CallContext, Function, Registry, flow, tool
from worldagent.harness.journal import JOURNAL, Drive, Frame, SqlJournal, decision_of, pause_of
from worldagent.harness.pipeline import call_alone
from worldagent.storage import EPOCHS, Database, Lease, Leases

TURN = "turn_1"


class Turns:
    """Drives one turn again and again, as owners of its thread that come one after the other."""

    def __init__(self, database: Database, leases: Leases, registry: Registry) -> None:
        self.journal = SqlJournal(database)
        self._leases = leases
        self._registry = registry

    async def drive(self, name: str, input: Mapping[str, Any], turn: str = TURN) -> Any:
        """Run the function from the top; gives what it gives, or the pauses."""
        async with self._leases.hold(turn, wait=10) as lease:
            return await self.driven(name, input, turn, lease)

    async def driven(self, name: str, input: Mapping[str, Any], turn: str, lease: Lease) -> Any:
        clock = SystemClock()
        records = await self.journal.load(turn)
        drive = Drive(turn, records=records, journal=self.journal, lease=lease, clock=clock)
        root = CallContext(
            scope=Scope(workspace="w"),
            registry=self._registry,
            emit=Emitter(turn, clock, lambda event: None),
            frame=Frame(drive, turn, 0),
        )
        try:
            return await call_alone(name, input, root)
        except WorldAgentError as error:
            if error.code != "nobody_to_ask":
                raise
        finally:
            await lease.flush()  # as a turn's end does, however the turn ends
        return [pause_of(record) for record in (await self.journal.load(turn)).values() if record.open]

    async def answer(self, pause: Pause, answer: Any, turn: str = TURN) -> bool:
        return not await self.journal.answer(turn, {call_id_of(pause.id): decision_of(pause, answer)})


@asynccontextmanager
async def turns_of(home: Path, *functions: Function) -> AsyncGenerator[Turns]:
    database = await Database.open(home / "agent.db", schemas=[EPOCHS, JOURNAL])
    try:
        yield Turns(database, Leases(database, home / "locks"), Registry(functions))
    finally:
        await database.aclose()


def effects(done: list[str], *, approval: bool = False, name: str = "write") -> Function:
    async def body(what: str) -> str:
        done.append(what)
        return f"ok {what}"

    made: Function = tool(name=name, approval=approval)(body)
    return made


def flow_of(body: Callable[[CallContext], Awaitable[Any]], name: str = "main") -> Function:
    async def run(ctx: CallContext) -> Any:
        return await body(ctx)

    made: Function = flow(name=name)(run)
    return made
