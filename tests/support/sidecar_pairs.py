"""Sidecars beside each other on one Postgres database, as on several machines, and what is looked at from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from support.sidecar_calls import Call
from support.sidecar_clients import HttpClient
from support.sidecar_wire import BOUND
from support.sidecars import Sidecar, over_http

THREAD = "t1"
_TICK = 0.02
_OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND application_name='worldagent'"
_STUCK = """SELECT 1 FROM pg_stat_activity
            WHERE datname=current_database() AND wait_event_type='Lock' AND query LIKE %s"""


def shared(url: str) -> dict[str, Any]:
    """What all sidecars on a database have in common."""
    return {"WORLDAGENT_DATABASE_URL": url, "WORLDAGENT_ROLE_KEY": "the same key everywhere"}


@dataclass(frozen=True)
class Pair:
    """Two sidecars on one database, each with a home of its own, and a client of each.

    Attributes:
        url: The database.
        sidecars: They.
        here, there: Their clients.
    """

    url: str
    sidecars: tuple[Sidecar, Sidecar]
    here: HttpClient
    there: HttpClient

    def let(self, name: str) -> None:
        """Let the models go on that `hold=NAME` keeps waiting."""
        let([sidecar.home for sidecar in self.sidecars], name)

    @property
    def bought(self) -> list[str]:
        """What was bought, wherever."""
        return [what for sidecar in self.sidecars for what in bought(sidecar.home)]


@asynccontextmanager
async def pair(folder: Path, url: str) -> AsyncGenerator[Pair]:
    """Run two sidecars on a database."""
    async with AsyncExitStack() as opened:
        homes = (folder / "here", folder / "there")
        starting = [over_http(home, **shared(url)) for home in homes]
        one, two = [await opened.enter_async_context(each) for each in starting]
        clients = [await opened.enter_async_context(each.client()) for each in (one, two)]
        yield Pair(url, (one, two), *clients)


def bought(home: Path) -> list[str]:
    """What was paid for by agents of a home."""
    file = home / "bought"
    return file.read_text().split() if file.exists() else []


def let(homes: Sequence[Path], name: str) -> None:
    """Let the models of these homes go on that `hold=NAME` keeps waiting."""
    for home in homes:
        (home / name).touch()


async def until(condition: Callable[[], Awaitable[Any]], limit: float = BOUND) -> Any:
    """Ask again and again until the answer is a yes; gives it."""
    async with asyncio.timeout(limit):
        while not (found := await condition()):  # noqa: ASYNC110 -- they are other processes
            await asyncio.sleep(_TICK)
    return found


async def ready(sidecar: Sidecar, expected: bool) -> dict[str, Any]:
    """Wait until `/ready` says so, by its status and its body; gives what it tells."""

    async def look() -> dict[str, Any] | None:
        status, told = await sidecar.get("/ready")
        assert (status, told["ready"]) in ((200, True), (503, False))
        return told if told["ready"] is expected else None

    return dict(await until(look))


async def events_of(call: Call, count: int) -> list[dict[str, Any]]:
    """Wait for so many events of a call."""

    async def take() -> None:
        async for _ in call:
            if len(call.events) >= count:
                return

    await asyncio.wait_for(take(), BOUND)
    return call.events


def numbers(events: Sequence[dict[str, Any]]) -> list[int]:
    """The numbers of events."""
    return [event["seq"] for event in events]


async def status(client: HttpClient, thread: str = THREAD) -> str:
    """Where a thread stands."""
    found = (await client.ask("threads"))["threads"]
    [standing] = [each["status"] for each in found if each["thread"] == thread] or ["none"]
    return str(standing)


def connections(url: str) -> int:
    """How many connections agents have to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_OURS).fetchone()
    assert row is not None
    return int(row[0])


async def stuck(url: str, like: str) -> None:
    """Wait until a statement like this waits for a lock, which the test has."""

    def look() -> bool:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(_STUCK, (like,)).fetchone() is not None

    await until(lambda: asyncio.to_thread(look))


__all__ = [
    "THREAD",
    "Pair",
    "bought",
    "connections",
    "events_of",
    "let",
    "numbers",
    "pair",
    "ready",
    "shared",
    "status",
    "stuck",
    "until",
]
