"""DBOS alone, as a yardstick: a queued workflow of one step that does nothing, with the same settings as ours."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import dbos._dbos
from dbos import DBOS, DBOSClient
from sqlalchemy import func, select

from worldagent.scheduling.dbos_queue import POLL_SECONDS, JsonSerializer

_QUEUE = "bare"


@DBOS.step()
async def _nothing(start: dict[str, Any]) -> dict[str, Any]:
    return {"turn": start["key"]}


@DBOS.workflow(name="bare_workflow")
async def _workflow(start: dict[str, Any]) -> dict[str, Any]:
    return await _nothing(start)


class Bare:
    """The tables of DBOS in a database of their own.

    Args:
        place: A new file, or the url of a Postgres database.
    """

    def __init__(self, place: Path | str) -> None:
        if isinstance(place, Path):
            with closing(sqlite3.connect(place)) as database:  # as ours, which would otherwise be the faster one
                database.execute("PRAGMA journal_mode=WAL").fetchall()
            self._url = f"sqlite:///{place}"
        else:
            self._url = place.replace("postgresql:", "postgresql+psycopg:", 1)
        DBOS.migrate(self._url)
        self._client = DBOSClient(system_database_url=self._url, serializer=JsonSerializer(), application_name="bare")

    async def enqueue(self, start: dict[str, Any]) -> None:
        """Enqueue one workflow."""
        options: Any = {"workflow_name": "bare_workflow", "queue_name": _QUEUE, "app_version": "1"}
        await self._client.enqueue_async(options, start)

    async def launch(self, concurrency: int) -> None:
        """Take workflows, in this process."""
        await asyncio.to_thread(self._launch, concurrency)

    def _launch(self, concurrency: int) -> None:
        DBOS(
            config={
                "name": "bare",
                "system_database_url": self._url,
                "application_version": "1",
                "serializer": JsonSerializer(),
                "log_level": "WARNING",
            }
        )
        DBOS.listen_queues([_QUEUE])
        DBOS.launch()
        DBOS.register_queue(_QUEUE, worker_concurrency=concurrency, polling_interval_sec=POLL_SECONDS)

    async def destroy(self) -> None:
        """Take no more."""
        await asyncio.to_thread(DBOS.destroy)

    def close(self) -> None:
        """Close the client."""
        self._client.destroy()


async def until_over(count: int) -> float:
    """Wait until so many workflows of this process's DBOS have succeeded since the start; gives the time of day."""
    instance = dbos._dbos._get_dbos_instance()
    table = instance._sys_db.tables.workflow_status

    def succeeded() -> int:
        query = select(func.count()).where(table.c.status == "SUCCESS")
        with instance._sys_db.engine.begin() as connection:
            return int(connection.execute(query).scalar() or 0)

    for _ in itertools.count():
        if await asyncio.to_thread(succeeded) >= count:
            break
        await asyncio.sleep(0.02)
    return time.perf_counter()
