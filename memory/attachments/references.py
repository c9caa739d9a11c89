"""An index of which messages refer to which content, to find content without references quickly.

Its rows are written and deleted with the messages, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ...storage import Transaction

ATTACHMENT_TABLES: Final = (
    """CREATE TABLE wa_attachment(
         sha256 TEXT NOT NULL,
         message TEXT NOT NULL REFERENCES wa_message(id) ON DELETE CASCADE,
         PRIMARY KEY(sha256, message))""",
    "CREATE INDEX wa_attachment_message ON wa_attachment(message)",
)
"""A migration of the log's schema, after the one that makes `wa_message`."""

_NOTE = "INSERT INTO wa_attachment(sha256, message) VALUES(?, ?) ON CONFLICT DO NOTHING"
_ALL = "SELECT DISTINCT sha256 FROM wa_attachment"
_ONE = "SELECT 1 FROM wa_attachment WHERE sha256=? LIMIT 1"
_KEY: Final = '"attachments":'  # as canonical JSON writes it


def note_references(transaction: Transaction, message_id: str, body: str) -> None:
    """Index the references of a message. Call it in every transaction that inserts a row into `wa_message`.

    Args:
        transaction: The transaction that inserts the message.
        message_id: The message's id.
        body: Its body, as stored. Invalid references are ignored.
    """
    if _KEY not in body:
        return
    given = json.loads(body).get("attachments")
    for one in given if isinstance(given, list) else ():
        sha256 = one.get("sha256") if isinstance(one, dict) else None
        if isinstance(sha256, str):
            transaction.execute(_NOTE, (sha256, message_id))


def referred_to(transaction: Transaction) -> frozenset[str]:
    """The hashes of all content that a message refers to."""
    return frozenset(str(sha256) for (sha256,) in transaction.execute(_ALL))


def still_referred_to(transaction: Transaction, hashes: Iterable[str]) -> frozenset[str]:
    """Those of `hashes` that a message refers to."""
    return frozenset(sha256 for sha256 in hashes if transaction.execute(_ONE, (sha256,)))


__all__ = ["ATTACHMENT_TABLES", "note_references", "referred_to", "still_referred_to"]
