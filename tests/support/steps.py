"""Work that is taken step by step: cancelled or abandoned where it waits, or driven again by another owner."""

import asyncio
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from worldagent.core import Emitter, Scope, SystemClock
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Pause, call_id_of
from worldagent.harness import CallContext, Function, Registry, flow, tool
from worldagent.harness.journal import JOURNAL, Drive, Frame, Journal, decision_of, pause_of
from worldagent.harness.pipeline import call_alone
from worldagent.storage import EPOCHS, Database, Lease, Leases


class Steps:
    """Does something once after so many steps of the loop, or so many passes of an effect.

    Attributes:
        count: How many there were.
    """

    def __init__(self, at: int, unit: str, do: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._at, self._unit, self._do = at, unit, do

    def passed(self) -> None:
        if self._unit == "effects":
            self._count()

    def watch(self) -> Callable[[], None]:
        """Count the steps of the running loop; what is given ends that."""
        loop: Any = asyncio.get_running_loop()
        if self._unit != "steps":
            return lambda: None
        real = loop.call_soon

        def call_soon(*args: Any, **kwargs: Any) -> Any:
            self._count()
            return real(*args, **kwargs)

        loop.call_soon = call_soon

        def end() -> None:
            del loop.call_soon

        return end

    def _count(self) -> None:
        self.count += 1
        if self.count == self._at:
            self._do()


T = TypeVar("T")


class Abandoned(Exception):
    """It did not come to its end."""


async def abandon(coroutine: Coroutine[Any, Any, T], suspension: int) -> T:
    """Let a coroutine run up to its suspension of this number, and let the collector have it there.

    The collector comes while a thread pool takes a job: who hands one over then waits for a lock of its own thread.

    Args:
        coroutine: It has not begun yet.
        suspension: The first one is 1.

    Returns:
        What it gives, where it has fewer suspensions.

    Raises:
        Abandoned: It was closed there, as it should be.
    """
    result: T = await _up_to(coroutine, suspension)
    return result


@types.coroutine
def _up_to(coroutine: Coroutine[Any, Any, T], suspension: int) -> Generator[Any, None, T]:
    failed: BaseException | None = None
    for number in range(1, suspension + 1):
        try:
            waits = coroutine.send(None) if failed is None else coroutine.throw(failed)
        except StopIteration as end:
            found: T = end.value
            return found
        failed = None
        if number < suspension:
            try:
                yield waits
            except BaseException as error:  # not by name: what it waited for failed, and it is told
                failed = error
    yield from asyncio.ensure_future(_collected(coroutine)).__await__()  # it runs in no task of the coroutine's
    raise Abandoned


@types.coroutine
def cut_off(coroutine: Coroutine[Any, Any, object], suspension: int) -> Generator[Any, None, bool]:
    """Run a coroutine to its end, but cancel it at its suspension of this number, as `Task.cancel()` does.

    Returns:
        Whether it had so many.
    """
    number, failed = 0, None
    while True:
        try:
            waits = coroutine.send(None) if failed is None else coroutine.throw(failed)
        except StopIteration:
            return number >= suspension
        except asyncio.CancelledError:
            if number < suspension:
                raise
            return True
        number += 1
        failed = None
        try:
            if number == suspension and (waits is None or not waits.cancel()):
                raise asyncio.CancelledError
            yield waits
        except BaseException as error:  # not by name: as above
            failed = error


async def _collected(coroutine: Coroutine[Any, Any, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", _locked)
        coroutine.close()


def _locked(self: ThreadPoolExecutor, *job: object) -> None:
    raise AssertionError("a job is handed to a pool where the thread may hold the lock of all pools")


TURN = "turn_1"


class Turns:
    """Drives one turn again and again, as owners of its thread that come one after the other."""

    def __init__(self, database: Database, leases: Leases, registry: Registry) -> None:
        self.journal = Journal(database)
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


def flow_of(body: Callable[[CallContext], Awaitable[Any]]) -> Function:
    async def run(ctx: CallContext) -> Any:
        return await body(ctx)

    made: Function = flow(name="main")(run)
    return made
