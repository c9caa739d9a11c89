"""Notes for each account: a capability of worldagent with a table, two tools and an input of the conversation.

`WorldAgent("shop", capabilities=[Notes()])` has it. Nothing in the agent knows of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from worldagent.core import Clock, Scope, digest
from worldagent.core.capability import Capability, InputField, Runtime
from worldagent.core.errors import CallRefused
from worldagent.harness import CallContext, Function, flow
from worldagent.memory.owned import OwnedTable
from worldagent.storage import Database, Transaction

SHOWN = 5  # notes that a turn begins with

TABLES = (
    # from version 0 to 1
    (
        """CREATE TABLE notes_note(
             workspace TEXT NOT NULL,
             account TEXT NOT NULL,
             id TEXT NOT NULL,
             text TEXT NOT NULL,
             at DOUBLE PRECISION NOT NULL,
             PRIMARY KEY(workspace, account, id))""",
    ),
)


class Notebook:
    """The notes of a workspace.

    Args:
        workspace: The workspace.
        database: The agent's database.
        clock: Source of time.
    """

    def __init__(self, workspace: str, database: Database, clock: Clock) -> None:
        self._workspace, self._database, self._clock = workspace, database, clock

    async def add(self, account: str, note_id: str, text: str) -> None:
        """Write a note. Writing it again, with the same id, changes nothing."""
        row = (self._workspace, account, note_id, text, self._clock.now().timestamp())

        def work(tx: Transaction) -> None:
            tx.execute("INSERT INTO notes_note VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

        await self._database.transact(work)

    async def find(self, account: str, words: str = "", *, limit: int = 100) -> list[str]:
        """Return the notes of an account that contain a text, newest first."""
        like = "%" + words.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"
        rows = await self._database.read(
            lambda tx: tx.execute(
                """SELECT text FROM notes_note WHERE workspace=? AND account=? AND text LIKE ? ESCAPE '!'
                   ORDER BY at DESC, id LIMIT ?""",
                (self._workspace, account, like, limit),
            )
        )
        return [text for (text,) in rows]


class Notes(Capability[Notebook]):
    """Lets an agent keep notes for each account."""

    name = "notes"
    migrations = TABLES
    owned = (OwnedTable(name="notes_note", account="account"),)  # they go with the account
    page = Path(__file__).with_suffix(".js")

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        """The tools. They pass the gate, as all tools do."""

        @flow(risk="write")
        async def write_note(ctx: CallContext, text: str) -> str:
            """Write a note for this person."""
            await _notebook(runtime).add(_account(ctx.scope), digest(ctx.path), text)
            return "Noted."

        @flow(risk="read_only")
        async def find_notes(ctx: CallContext, words: str) -> list[str]:
            """Find the notes of this person that contain some words."""
            return await _notebook(runtime).find(_account(ctx.scope), words)

        return write_note, find_notes

    def fields(self, runtime: Runtime) -> Iterable[InputField]:
        """The newest notes, which each message of the person comes with."""

        async def newest(scope: Scope) -> list[str] | None:
            notes = await _notebook(runtime).find(scope.account, limit=SHOWN) if scope.account else []
            return notes or None

        return [InputField(name="notes", type=list[str], description="the person's newest notes", fill=newest)]

    @classmethod
    def operations(cls) -> Iterable[Any]:
        """`worldagent notes add`, the tools `notes_add` and `notes_list`, and their paths."""
        from capability_notes_hosts import OPERATIONS

        return OPERATIONS

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[Notebook]:
        """What `agent.get(Notes)` returns."""
        yield _notebook(runtime)


def _notebook(runtime: Runtime) -> Notebook:
    return Notebook(runtime.workspace, runtime.database, runtime.clock)


def _account(scope: Scope) -> str:
    if scope.account is None:
        raise CallRefused("this conversation has no account whose note it could be", remedy="continue without it")
    return scope.account
