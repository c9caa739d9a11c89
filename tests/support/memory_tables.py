"""Whether the tables of memory entries agree with each other, wherever a process was killed (M1, M4).

A new table of the entries gets a function in `_CHECKS`.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from support.databases import rows_of
from worldagent.memory.entries import Entries
from worldagent.memory.entries.index import WORD_TABLES, post
from worldagent.memory.entries.store import _ONE, key_of_id, mark_replaced
from worldagent.memory.entries.words import words_of
from worldagent.storage import Transaction

Read = Callable[[str], Sequence[tuple[Any, ...]]]
"""Gives the rows that a query finds."""

_ENTRIES: Final = "SELECT key, workspace, owner, level, text, replaced, source, thread FROM wa_entry"
_INDEX: Final = {
    "a word": "SELECT entry, word, times, words FROM wa_entry_word",
    "a count": "SELECT workspace, owner, level, entries, words FROM wa_entry_count",
}


async def replace_entry(entries: Entries, workspace: str, entry_id: str, by: str) -> None:
    """Mark an entry as contradicted by a newer one, as a model does that distils a thread."""
    keys = key_of_id(entry_id), key_of_id(by)

    def work(transaction: Transaction) -> None:
        [older, _] = [row for key in keys for row in transaction.hold(_ONE, (key, workspace))]
        mark_replaced(transaction, older, keys[1])

    await entries._database.transact(work)


def problems_of(home: Path) -> list[str]:
    """Say what is wrong in the tables of a home that is not open."""
    return problems(lambda query: rows_of(home, query))


def problems(read: Read) -> list[str]:
    """Say what is wrong in the tables that `read` reads."""
    return [problem for check in _CHECKS for problem in check(read)]


def _words(read: Read) -> list[str]:
    """The index is as if the entries that count had just been written."""
    counting = [row for row in read(_ENTRIES) if row[5] is None]
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in WORD_TABLES:
            database.execute(statement)
        anew = _Scratch(database)
        post(anew, [((*place,), key, Counter(words_of(text))) for key, *place, text, _, _, _ in counting])
        wrong = list[str]()
        for what, query in _INDEX.items():
            expected, found = set(anew.execute(query)), {tuple(row) for row in read(query)}
            wrong += [f"{what} is missing: {row}" for row in expected - found]
            wrong += [f"{what} is too many: {row}" for row in found - expected]
    return wrong


def _replaced(read: Read) -> list[str]:
    """What replaced an entry is there, and no entry replaced itself."""
    newer = {row[0]: row[5] for row in read(_ENTRIES)}
    wrong = [f"{by}, which replaced {key}, is gone" for key, by in newer.items() if by is not None and by not in newer]
    for key in newer:
        seen, at = {key}, newer[key]
        while at in newer and at not in seen:
            seen.add(at)
            at = newer[at]
        wrong += [f"{key} was replaced by itself"] if at in seen else []
    return wrong


def _distilled(read: Read) -> list[str]:
    """A thread is distilled up to a turn that it has, and no further than its notes."""
    turns = {(thread, turn) for thread, turn in read("SELECT thread, id FROM wa_turn")}
    marks: dict[str, str] = dict(read("SELECT thread, turn FROM wa_distilled"))
    wrong = [f"{at} of {thread} is distilled, and gone" for thread, at in marks.items() if (thread, at) not in turns]
    for *_, given, thread in read(_ENTRIES):
        if thread is None:
            continue
        source = json.loads(given)
        if (thread, source["turn"]) not in turns:
            wrong.append(f"there is an entry of a turn of {thread} that is gone")
        if source["by"] == "distilled" and marks.get(thread, "") < source["turn"]:
            wrong.append(f"there is a note of {thread} that is not marked")
    return wrong


def _vectors(read: Read) -> list[str]:
    """An entry that counts has a vector if it says so, and no other entry has one."""
    made = {key for (key,) in read("SELECT key FROM wa_entry WHERE embedder<>0 AND replaced IS NULL")}
    found = {key for (key,) in read("SELECT entry FROM wa_entry_vector")}
    return [f"there is a vector too many or too few of the entry {key}" for key in sorted(made ^ found)]


_CHECKS: Final = (_words, _replaced, _distilled, _vectors)


class _Scratch:
    """A database in memory, as `post` takes it."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, params).fetchall()

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        return self.execute(sql, params)

    def lock(self, name: str) -> None:
        """Nothing else writes."""
