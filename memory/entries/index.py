"""The index of words: which entries have a word, and the ranks by words (M3).

It is a table of ours, the same on both engines: the hash of a word, together with whose entry it is in, and the entries
that have it. So a search reads nothing of other accounts, counts only what its reader may see, ranks alike on both
engines, and a deleted entry leaves nothing in any index of a database's own.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from ...storage import Transaction, portions
from .entry import Reader

WORD_TABLES: Final = (
    # All columns are in the key, so that a search reads this one index and nothing else.
    """CREATE TABLE wa_entry_word(
         word BIGINT NOT NULL,
         entry BIGINT NOT NULL,
         times INTEGER NOT NULL,
         words INTEGER NOT NULL,
         PRIMARY KEY(word, entry, times, words)) WITHOUT ROWID""",
    # How many entries a place has in the index, and how many words they have.
    """CREATE TABLE wa_entry_count(
         workspace TEXT NOT NULL,
         owner TEXT NOT NULL,
         level BIGINT NOT NULL,
         entries BIGINT NOT NULL,
         words BIGINT NOT NULL,
         PRIMARY KEY(workspace, owner, level)) WITHOUT ROWID""",
)

MAX_POSTINGS: Final = 8_000
"""How many entries with one of the words a search looks at. Words that more have say little, and are left out."""

MAX_QUERY_WORDS: Final = 64
"""How many words of a question are looked up."""

MASK: Final = (1 << 63) - 1  # what a BIGINT holds

Place = tuple[str, str, int]
"""Whose an entry is: its workspace, owner and classification, as they are stored."""

_K1: Final = 1.2  # how fast a repeated word counts less
_B: Final = 0.75  # how much a long entry counts less
_PAGE: Final = 200

_POST: Final = "INSERT INTO wa_entry_word(word, entry, times, words) VALUES {}"
_UNPOST: Final = "DELETE FROM wa_entry_word WHERE entry=? AND word IN ({}) RETURNING words"
_ADD: Final = """INSERT INTO wa_entry_count(workspace, owner, level, entries, words) VALUES(?, ?, ?, ?, ?)
                 ON CONFLICT(workspace, owner, level) DO UPDATE
                 SET entries=wa_entry_count.entries + excluded.entries, words=wa_entry_count.words + excluded.words"""
_OF_PLACE: Final = "WHERE workspace=? AND owner=? AND level=?"
_SUBTRACT: Final = f"UPDATE wa_entry_count SET entries=entries - 1, words=words - ? {_OF_PLACE} RETURNING entries"
_EMPTY: Final = f"DELETE FROM wa_entry_count {_OF_PLACE}"
_COUNTS: Final = """SELECT owner, level, entries, words FROM wa_entry_count
                    WHERE workspace=? AND owner IN ({})"""
_HAVING: Final = """SELECT column1,
                           (SELECT COUNT(*) FROM (SELECT 1 FROM wa_entry_word WHERE word=column1 LIMIT ?) AS one)
                    FROM (VALUES {}) AS asked"""
# Each part is rounded to a multiple of 2^-32, so sums are exact, in any order, and both engines give the same.
_BEST: Final = """SELECT entry, SUM(column2 * times / (times + CAST(? AS DOUBLE PRECISION)
                                                       + CAST(? AS DOUBLE PRECISION) * words) + 1048576.0 - 1048576.0)
                  FROM (SELECT entry, times, words, column2
                        FROM (VALUES {}) AS asked JOIN wa_entry_word ON word=column1 {}) AS found
                  GROUP BY entry ORDER BY 2 DESC, entry LIMIT ?"""
_ASKED: Final = "(CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION))"
_FIRST: Final = "ORDER BY word, entry LIMIT ?"


def hash_of(*parts: object) -> int:
    """A hash of some values that a BIGINT holds."""
    return _number(_hashed(parts))


def _hashed(parts: Sequence[object]) -> blake2b:
    text = json.dumps(parts, ensure_ascii=False)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8)


def _number(hashed: blake2b) -> int:
    return int.from_bytes(hashed.digest(), "big") & MASK


def _hashes(place: Place, words: Iterable[str]) -> list[int]:
    """The hashes of words in a place, in their order."""
    begun, hashes = _hashed(place), list[int]()
    for word in words:
        hashed = begun.copy()
        hashed.update(word.encode(errors="surrogatepass"))
        hashes.append(_number(hashed))
    return hashes


def post(transaction: Transaction, entries: Iterable[tuple[Place, int, Counter[str]]]) -> None:
    """Add entries to the index.

    Args:
        transaction: The transaction.
        entries: The place, the key and the words of each.
    """
    added: dict[Place, list[int]] = defaultdict(list)
    rows: list[tuple[int, int, int, int]] = []
    for place, key, counts in entries:
        if total := counts.total():
            added[place].append(total)
            rows += [
                (word, key, times, total) for word, times in zip(_hashes(place, counts), counts.values(), strict=True)
            ]
    rows.sort()
    for start in range(0, len(rows), _PAGE):
        some = rows[start : start + _PAGE]
        given = [each for row in some for each in row]
        transaction.execute(_POST.format(", ".join(["(?, ?, ?, ?)"] * len(some))), given)
    for place, totals in sorted(added.items()):  # in one order, so that two writers do not wait for each other
        transaction.execute(_ADD, (*place, len(totals), sum(totals)))


def unpost(transaction: Transaction, place: Place, key: int, words: Iterable[str]) -> None:
    """Remove an entry from the index, if it is there.

    Args:
        transaction: The transaction.
        place: Its place.
        key: Its key.
        words: Its words.
    """
    found: list[tuple[int]] = []
    for marks, some in portions(sorted({*_hashes(place, words)}), _PAGE):
        found += transaction.execute(_UNPOST.format(marks), (key, *some))
    if found and transaction.execute(_SUBTRACT, (*found[0], *place)) == [(0,)]:
        transaction.execute(_EMPTY, place)  # it names an account


def rank(
    transaction: Transaction, reader: Reader, owners: Sequence[str], words: Sequence[str], most: int = MAX_POSTINGS
) -> list[tuple[int, float]]:
    """The keys of the entries with one of the words, and their scores (BM25), the best first; equal scores by key.

    Args:
        transaction: The transaction.
        reader: Who reads.
        owners: Whose entries.
        words: The words of the question, each once.
        most: The most to return.
    """
    found = transaction.execute(_COUNTS.format(", ".join("?" * len(owners))), (reader.workspace, *owners))
    counts = [row for row in found if row[1] in reader.levels_of(row[0])]
    entries, total = sum(each[2] for each in counts), sum(each[3] for each in counts)
    having = _having(transaction, [(reader.workspace, owner, level) for owner, level, _, _ in counts], words)
    if not having:
        return []
    asked, left = list[object](), MAX_POSTINGS
    for _, hashes in sorted(having.items(), key=lambda each: (each[1].total(), each[0])):
        count = hashes.total()
        if asked and count > left:
            break
        left -= count
        rare = (_K1 + 1) * math.log(1 + (entries - count + 0.5) / (count + 0.5))
        asked += [value for hashed in hashes for value in (hashed, rare)]
    first = [MAX_POSTINGS] if left < 0 else []
    statement = _BEST.format(", ".join([_ASKED] * (len(asked) // 2)), _FIRST if first else "")
    given = (_K1 * (1 - _B), _K1 * _B * entries / total, *asked, *first, most)
    return [(key, score) for key, score in transaction.execute(statement, given)]


def _having(transaction: Transaction, places: Sequence[Place], words: Sequence[str]) -> dict[str, Counter[int]]:
    """How many entries of some places have each of the words, by hashes; words that no entry has are left out.

    A word that more than `MAX_POSTINGS` entries have is counted to its end only if all of the words are so frequent.
    """
    word_of = {hashed: word for place in places for hashed, word in zip(_hashes(place, words), words, strict=True)}
    marks = ", ".join(["(CAST(? AS BIGINT))"] * len(word_of))
    having: dict[str, Counter[int]] = {}
    if not word_of:
        return having
    for most in (MAX_POSTINGS + 1, MASK):
        having = defaultdict(Counter)
        for hashed, count in transaction.execute(_HAVING.format(marks), (most, *word_of)):
            if count:
                having[word_of[hashed]][hashed] = count
        if not having or any(hashes.total() <= MAX_POSTINGS for hashes in having.values()):
            break
    return having
