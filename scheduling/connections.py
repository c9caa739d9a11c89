"""The connections of DBOS to a Postgres server, which can be given up as those of the agent's database can.

DBOS waits for a server without a bound, and connects again without end. Neither a cancellation nor the end of the
process would end that. A SQLite file needs none of this: DBOS opens it itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Engine, create_engine, make_url

from ..core.clock import uninterrupted
from ..core.errors import StorageUnavailable
from ..storage import PostgresAddress, Storage
from ..storage.database import given_up_after
from ..storage.postgres import arguments, interrupt

POOL: Final = 5
_SET: Final = "SET idle_in_transaction_session_timeout='60s'"


class Connections:
    """The connections of one user of the queue: a worker, or an agent that submits turns.

    Args:
        storage: The agent's storage.

    Attributes:
        url: The address of the queue, for DBOS.
        engine: Makes the connections to a Postgres server; None for a SQLite file.
    """

    def __init__(self, storage: Storage) -> None:
        self._lock = threading.Lock()
        self._opened: list[psycopg.Connection] = []
        self._given_up = False
        self._place = place = storage.place
        self.engine: Engine | None = None
        url = URL.create("sqlite", database=str(storage.queue))
        if isinstance(place, PostgresAddress):
            url = make_url(place.url).set(drivername="postgresql+psycopg")
            self.engine = create_engine(
                url, creator=self._connect, pool_size=POOL, max_overflow=0, pool_timeout=30, pool_pre_ping=True
            )
        self.url = url.render_as_string(hide_password=False)

    def give_up(self) -> None:
        """End all that waits for the server, and make no more connections. It can be called from any thread."""
        with self._lock:
            self._given_up = True
            opened = tuple(self._opened)
        for connection in opened:
            interrupt(connection)

    async def opened(self, work: Callable[[], object]) -> None:
        """Do work that connects, in a thread. A cancelled caller waits for its end, but not for the server.

        Raises:
            BaseException: The work raised it.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            with given_up_after(0, self.give_up):
                await uninterrupted(asyncio.wait({opening}))
            raise

    def close(self, end: Callable[[], object] = lambda: None) -> None:
        """Close the connections; what still waits for the server fails. It blocks.

        Args:
            end: Ends what uses them.
        """
        end()
        if self.engine is not None:
            self.engine.dispose()
        self.give_up()

    def _connect(self) -> psycopg.Connection:
        assert isinstance(self._place, PostgresAddress)
        self._check()
        options: dict[str, Any] = {**arguments(self._place), "autocommit": False}
        connection = psycopg.connect(**options)
        with self._lock:
            self._opened = [*(each for each in self._opened if not each.closed), connection]
        try:
            self._check()
            connection.execute(_SET)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self) -> None:
        if self._given_up:
            raise StorageUnavailable(
                "the queue of submitted turns had not answered when it was closed",
                remedy="check that the database is up, and try again",
            )
