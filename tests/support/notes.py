"""A table of notes in two versions, and what tests of storage do with it."""

from __future__ import annotations

from worldagent.storage import Schema, Transaction

NOTES = Schema("notes", (("CREATE TABLE note(id BIGINT NOT NULL, text TEXT NOT NULL)",),))
NOTES_2 = Schema("notes", (*NOTES.migrations, ("ALTER TABLE note ADD COLUMN tag TEXT", "UPDATE note SET tag='old'")))
ADD = "INSERT INTO note(id, text) SELECT COALESCE(MAX(id), 0) + 1, ? FROM note"


def add(text: str, transaction: Transaction) -> None:
    transaction.execute(ADD, (text,))


def texts(transaction: Transaction) -> list[str]:
    return [row[0] for row in transaction.execute("SELECT text FROM note ORDER BY id")]
