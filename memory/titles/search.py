"""Finds the threads whose current conversation contains a text, or a message of an account.

The database finds candidates, and Python checks them. The engines differ in which letters they fold, and a stored body
is JSON, whose field names are not part of the texts.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...core.errors import InvalidArgument
from ...core.validation import is_text
from ...storage import Database, Transaction

MAX_QUERY_CHARACTERS: Final = 200  # the most characters of a query
_AT_ONCE: Final = 100
_SAID: Final = ("text", "params", "result", "payload")
"""The fields of a body with the texts of persons and the agent, and with the params and results of tasks."""

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f\x7f-\U0010ffff]+')  # characters that JSON does not escape
_SPECIAL: Final = re.compile("[!%_]")
_ESCAPED: Final = r"!\g<0>"
_HEADS: Final = """SELECT t.thread, (SELECT m.id FROM wa_message m WHERE m.thread=t.thread AND m.turn=t.id
                                     ORDER BY m.depth DESC, m.at DESC LIMIT 1)
                   FROM wa_turn t WHERE t.id IN ({})"""
_CHAINS: Final = """WITH RECURSIVE chain(head, id, parent, depth) AS (
                      SELECT id, id, parent, depth FROM wa_message WHERE id IN ({})
                      UNION ALL
                      SELECT chain.head, m.id, m.parent, m.depth FROM chain
                      JOIN wa_message m ON m.id=chain.parent AND m.depth=chain.depth - 1)
                    SELECT chain.head, m.id FROM chain JOIN wa_message m ON m.id=chain.id WHERE """
_SAYING: Final = f"{_CHAINS} m.kind NOT IN ('summary', 'plan', 'role') AND LOWER(m.body) LIKE ? ESCAPE '!'"
_SPEAKING: Final = f"{_CHAINS} m.author=?"
_BODIES: Final = "SELECT id, body FROM wa_message WHERE id IN ({})"


class ThreadSearch:
    """Searches the conversations in a database that was opened with the schemas `CONVERSATION` and `TURNS`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def heads(self, turns: Sequence[str]) -> dict[str, str]:
        """The last message of each turn, by the key of its thread."""
        if not turns:
            return {}
        rows = await self._database.read(lambda tx: tx.execute(_HEADS.format(_marks(turns)), turns))
        return {thread: head for thread, head in rows if head is not None}

    async def saying(self, heads: Mapping[str, str], query: str) -> set[str]:
        """The threads with a message that contains a text. Case does not matter.

        Args:
            heads: The last message of each thread, by the key of the thread.
            query: The text to search for.
        """
        ends = sorted(set(heads.values()))
        found = await self._database.read(lambda tx: _saying(tx, ends, query)) if ends else set()
        return {thread for thread, head in heads.items() if head in found}

    async def speaking(self, heads: Mapping[str, str], account: str) -> set[str]:
        """The threads with a message of an account; see `saying`."""
        ends = sorted(set(heads.values()))
        if not ends:
            return set()
        given = (*ends, account)
        rows = await self._database.read(lambda tx: tx.execute(_SPEAKING.format(_marks(ends)), given))
        found = {head for head, _ in rows}
        return {thread for thread, head in heads.items() if head in found}


def check_query(value: object) -> str:
    """Return `value` if it is a valid query.

    Raises:
        InvalidArgument: It is not a valid query; the error does not show the value.
    """
    if isinstance(value, str) and is_text(value) and "\0" not in value and len(value) <= MAX_QUERY_CHARACTERS:
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`query` must be a text of 1 to {MAX_QUERY_CHARACTERS} characters, not only blanks, got {given}",
        remedy="shorten it, or leave it out",
    )


def _saying(transaction: Transaction, ends: Sequence[str], query: str) -> set[str]:
    wanted = query.lower()
    # Only the longest part that every engine folds in the same way and that JSON does not escape.
    part = max(_PLAIN.findall(wanted), key=len, default="")
    pattern = f"%{_SPECIAL.sub(_ESCAPED, part)}%"
    waiting: dict[str, set[str]] = {}  # the heads of the conversations that contain a message, by its id
    for head, message in transaction.execute(_SAYING.format(_marks(ends)), (*ends, pattern)):
        waiting.setdefault(message, set()).add(head)
    found: set[str] = set()
    for some in _portions(list(waiting)):
        left = [message for message in some if not waiting[message] <= found]
        for message, body in transaction.execute(_BODIES.format(_marks(left)), left) if left else ():
            if any(wanted in text.lower() for text in _texts(body)):
                found |= waiting[message]
    return found


def _texts(body: str) -> Iterator[str]:
    """All texts in a body. Nothing if it cannot be read; `history` raises an error for it."""
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(body)
    level = [value[name] for name in _SAID if name in value] if isinstance(value, dict) else []
    while level:
        one = level.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            level += one.values()
        elif isinstance(one, list):
            level += one


def _portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def _marks(some: Sequence[str]) -> str:
    return ", ".join("?" * len(some))


__all__ = ["ThreadSearch", "check_query"]
