"""The tasks of MCP servers that calls of turns wait for, so that each is cancelled if its turn ends without it (T5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...core import Clock
from ...storage import Database, Transaction

TABLES: Final = (
    (
        """CREATE TABLE mcp_task(
             workspace TEXT NOT NULL,
             server TEXT NOT NULL,
             account TEXT NOT NULL,
             task TEXT NOT NULL,
             turn TEXT NOT NULL,
             at DOUBLE PRECISION NOT NULL,
             PRIMARY KEY(workspace, server, account, task))""",
    ),
)
_LONGEST: Final = 30 * 86_400.0  # seconds after which a task that nobody follows is forgotten
_MOST: Final = 100  # tasks that are cancelled at once; the rest is at the next time
_ADD: Final = "INSERT INTO mcp_task VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_AGED: Final = "DELETE FROM mcp_task WHERE at < ?"
_DROP: Final = "DELETE FROM mcp_task WHERE workspace=? AND server=? AND account=? AND task=?"
# A turn can be resumed if it is open and the newest of its thread.
_LEFT: Final = """SELECT m.server, m.account, m.task FROM mcp_task m LEFT JOIN wa_turn t ON t.id=m.turn
                  WHERE m.workspace=? AND (t.id IS NULL OR t.status IN ('done', 'cancelled', 'abandoned')
                    OR t.id < (SELECT MAX(id) FROM wa_turn n WHERE n.thread=t.thread)) LIMIT ?"""


@dataclass(frozen=True, slots=True)
class KeptTasks:
    """The tasks of the servers of one workspace.

    Attributes:
        workspace: The workspace.
        database: The agent's database.
        clock: Source of time.
    """

    workspace: str
    database: Database
    clock: Clock

    async def add(self, server: str, account: str | None, task: str, turn: str) -> None:
        """Keep a task of a server until it has ended; an `account` is that of the login which reaches it."""
        now = self.clock.now().timestamp()
        row = (self.workspace, server, account or "", task, turn, now)

        def work(transaction: Transaction) -> None:
            transaction.execute(_AGED, (now - _LONGEST,))
            transaction.execute(_ADD, row)

        await self.database.transact(work)

    async def drop(self, server: str, account: str | None, task: str) -> None:
        """Forget a task, which has ended or is cancelled."""
        await self.database.transact(lambda tx: tx.execute(_DROP, (self.workspace, server, account or "", task)))

    async def left(self) -> Sequence[tuple[Any, ...]]:
        """The tasks whose turns are over or removed: the server, the account or an empty text, and the task."""
        return await self.database.read(lambda tx: tx.execute(_LEFT, (self.workspace, _MOST)))
