"""Transactions of a Postgres database that overlap: one begins in the middle of another."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from worldagent.storage import postgres as database_module

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname=current_database() AND wait_event_type='Lock'"
_BOUND = 30.0


class Between:
    """Begins work on the loop when a statement was run for the first time, and goes on once that is over or waits."""

    def __init__(self, patch: pytest.MonkeyPatch, url: str, statement: str, work: Coroutine[Any, Any, Any]) -> None:
        self.future: Future[Any] | None = None
        loop, execute = asyncio.get_running_loop(), database_module._PostgresTransaction.execute

        def hooked(
            transaction: database_module._PostgresTransaction, sql: str, params: Sequence[object] = ()
        ) -> list[tuple[Any, ...]]:
            rows = execute(transaction, sql, params)
            if self.future is None and sql.startswith(statement):
                self.future = asyncio.run_coroutine_threadsafe(work, loop)
                self._wait(url)
            return rows

        patch.setattr(database_module._PostgresTransaction, "execute", hooked)

    def _wait(self, url: str) -> None:
        assert self.future is not None
        until = time.monotonic() + _BOUND
        with psycopg.connect(url, autocommit=True) as connection:
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    self.future.exception(timeout=0.02)
                    return
                if connection.execute(_WAITS).fetchone() is not None:
                    return
        raise AssertionError("it neither ended nor waits")
