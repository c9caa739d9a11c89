"""How well and how fast turns recall memory entries: a labelled set in three languages, and 100,000 entries.

Run `python benchmarks/memory.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from itertools import accumulate
from pathlib import Path
from statistics import quantiles

from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._memory_set import Question, labelled_set
from worldagent.benchmarks._postgres import server
from worldagent.memory.entries import ENTRIES, Draft, Entries, Reader
from worldagent.storage import Database, PostgresAddress

_ACCOUNTS = 1000
_WORDS = 20_000  # different words of the random entries, as frequent as words of a language are
_LENGTH = 30  # words of a random entry
_BATCH = 500


async def ranks(entries: Entries, texts: Sequence[str], questions: Sequence[Question]) -> list[int | None]:
    """The place of the right entry in the answer to each question; None if it is not among the first ten."""
    made: list[str] = []
    for start in range(0, len(texts), _BATCH):
        drafts = [Draft(text=text, key=str(start + place)) for place, text in enumerate(texts[start : start + _BATCH])]
        made += [entry.id for entry in await entries.add("set", drafts)]
    found: list[int | None] = []
    for question in questions:
        ids = [entry.id for entry, _ in await entries.search(Reader(workspace="set"), question.text, limit=10)]
        found.append(ids.index(made[question.answer]) if made[question.answer] in ids else None)
    return found


def recalls(prefix: str, found: Sequence[int | None], questions: Sequence[Question]) -> list[Row]:
    """The share of questions whose entry is among the first five and ten, in all and by language."""
    rows = []
    for language in ("all", "en", "de", "zh"):
        places = [place for place, each in zip(found, questions, strict=True) if language in ("all", each.language)]
        for first in (5, 10):
            share = sum(place is not None and place < first for place in places) / len(places)
            note = f"{len(places)} questions, words alone"
            rows.append(Row(key=f"{prefix}_recall_at_{first}_{language}", value=share, unit="", note=note))
    return rows


async def crowd(prefix: str, entries: Entries, size: float | None, count: int) -> list[Row]:
    """Write random entries of many accounts, and time searches and single writes."""
    source = random.Random(7)
    words = [f"w{number}" for number in range(_WORDS)]
    weights = list(accumulate(1 / (number + 1) for number in range(_WORDS)))

    def text(length: int) -> str:
        return " ".join(source.choices(words, cum_weights=weights, k=length))

    for start in range(0, count, _BATCH):
        # Half of them are of the workspace, so that one reader sees very many.
        accounts = [
            None if place % 2 else f"a{place % _ACCOUNTS}" for place in range(start, min(count, start + _BATCH))
        ]
        await entries.add("crowd", [Draft(text=text(_LENGTH), account=account) for account in accounts])
    writes, searches, others = list[float](), list[float](), 0
    for number in range(100):
        account = f"a{2 * number}"
        draft = Draft(text=text(_LENGTH), account=account)
        began = time.perf_counter()
        await entries.add("crowd", [draft])
        writes.append(1e3 * (time.perf_counter() - began))
        asked = text(8)
        began = time.perf_counter()
        found = await entries.search(Reader(workspace="crowd", account=account), asked, limit=8)
        searches.append(1e3 * (time.perf_counter() - began))
        others += sum(entry.account not in (None, account) for entry, _ in found)
    note = f"{count:,} entries, {_ACCOUNTS:,} accounts"
    return [
        Row(key=f"{prefix}_search_p50_ms", value=quantiles(searches, n=20)[9], unit="ms", note=note),
        Row(key=f"{prefix}_search_p95_ms", value=quantiles(searches, n=20)[18], unit="ms", note=note),
        Row(key=f"{prefix}_write_p50_ms", value=quantiles(writes, n=20)[9], unit="ms", note="one entry"),
        Row(key=f"{prefix}_entry_kb", value=size, unit="kB", note=f"an entry of {_LENGTH} words with its index"),
        Row(key=f"{prefix}_of_others", value=others, unit="", aim=0, note="entries of another account that were found"),
    ]


async def measured(prefix: str, place: Path | PostgresAddress, report: Report) -> list[int | None]:
    """Measure one database engine; returns the places of the right entries."""
    texts, questions = labelled_set()
    async with aclosing(await Database.open(place, schemas=[ENTRIES])) as database:
        entries = Entries(database)
        found = await ranks(entries, texts, questions)
        report.section(f"The labelled set, {prefix}", recalls(prefix, found, questions))
        count = 1000 if report.quick else 100_000
        before = await _bytes(database, place)
        rows = await crowd(prefix, entries, None, count)
        size = (await _bytes(database, place) - before) / (count + 100) / 1e3
        rows = [
            Row(key=row.key, value=size, unit=row.unit, note=row.note) if row.value is None else row for row in rows
        ]
        report.section(f"Many entries, {prefix}", rows)
    return found


async def _bytes(database: Database, place: Path | PostgresAddress) -> float:
    if isinstance(place, Path):
        await database.scrub()
        return float(sum(file.stat().st_size for file in place.parent.iterdir()))
    sizes = "SELECT pg_total_relation_size('wa_entry') + pg_total_relation_size('wa_entry_word')"
    [(found,)] = await database.read(lambda tx: tx.execute(sizes))
    return float(found)


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        in_file = await measured("sqlite", folder / "agent.db", report)
        found = opened.enter_context(server())
        same: float | None = None
        if found is not None:
            import psycopg

            with psycopg.connect(found.get_uri(), autocommit=True) as connection:
                connection.execute(b"CREATE DATABASE bench_memory")
            on_server = await measured("postgres", PostgresAddress(found.get_uri("bench_memory")), report)
            same = float(in_file == on_server)
        report.section("Both", [Row(key="same_ranks", value=same, unit="", least=1, note="1 if they rank alike")])


if __name__ == "__main__":
    main("memory", "How well and how fast turns recall memory entries.", run)
