"""How well and how fast turns recall memory entries: a labelled set in three languages, and 100,000 random entries.

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
from statistics import median, quantiles
from typing import Any

from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks._memory_peers import LIMIT, Fts5, FullText, Peer
from worldagent.benchmarks._memory_set import Question, labelled_set
from worldagent.benchmarks._postgres import new_database, server
from worldagent.memory.entries import ENTRIES, Draft, Entries, Reader
from worldagent.storage import Database, PostgresAddress

_SHAPES = {"one": 1, "many": 1000}  # how many accounts have the entries
_AIMS_MS = {"sqlite_one": 50, "sqlite_many": 10, "postgres_one": 100, "postgres_many": 20}
_ROUNDS, _SEARCHES = 5, 40
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


class Crowd:
    """Random entries of accounts in a new database, and the same texts in its peer.

    Args:
        place: Where the database is.
        peer: The peer.
        accounts: How many accounts take turns.
        server: The processes of the server, if there is one.
    """

    def __init__(self, place: Path | PostgresAddress, peer: Peer, accounts: int, server: Any) -> None:
        self._place, self._peer, self._accounts, self._server = place, peer, accounts, server
        self._source = random.Random(7)
        self._words = [f"w{number}" for number in range(_WORDS)]
        self._weights = list(accumulate(1 / (number + 1) for number in range(_WORDS)))

    def text(self, length: int) -> str:
        """Return random words."""
        return " ".join(self._source.choices(self._words, cum_weights=self._weights, k=length))

    async def measure(self, prefix: str, count: int) -> list[Row]:
        """Write `count` entries, then search and write single ones."""
        async with aclosing(await Database.open(self._place, schemas=[ENTRIES])) as database:
            entries = Entries(database)
            before = await _bytes(database, self._place)
            batch_ms = await self._fill(entries, count)
            peer_kb = self._peer.bytes() / count / 1e3
            size = (await _bytes(database, self._place) - before) / count / 1e3
            rows = await self._searches(prefix, entries)
            writes = await self._writes(entries)
        note = f"an entry of {_LENGTH} words with its index"
        return [
            *rows,
            Row(key=f"{prefix}_write_p50_ms", value=quantiles(writes, n=20)[9], unit="ms", note="one entry"),
            Row(key=f"{prefix}_batch_entry_ms", value=batch_ms, unit="ms", note=f"an entry in a batch of {_BATCH}"),
            Row(key=f"{prefix}_entry_kb", value=size, unit="kB", note=note),
            Row(key=f"{prefix}_peer_entry_kb", value=peer_kb, unit="kB", note="the database's own full text search"),
        ]

    async def _fill(self, entries: Entries, count: int) -> float:
        """Write the entries; returns the median time of an entry in a batch, in milliseconds."""
        taken = []
        for start in range(0, count, _BATCH):
            places = range(start, min(count, start + _BATCH))
            given = [(f"a{place % self._accounts}", self.text(_LENGTH)) for place in places]
            began = time.perf_counter()
            await entries.add("crowd", [Draft(text=text, account=account) for account, text in given])
            taken.append(1e3 * (time.perf_counter() - began) / len(given))
            self._peer.add(given)
        return median(taken)

    async def _searches(self, prefix: str, entries: Entries) -> list[Row]:
        """Search in rounds, in which the peer takes turns."""
        ours: list[float] = []
        theirs: list[float] = []
        cpu: list[tuple[float, float]] = []
        others = 0
        for _ in range(_ROUNDS):
            asked = [(f"a{self._source.randrange(self._accounts)}", self.text(8)) for _ in range(_SEARCHES)]
            began = self._cpu()
            for account, text in asked:
                start = time.perf_counter()
                found = await entries.search(Reader(workspace="crowd", account=account), text, limit=LIMIT)
                ours.append(1e3 * (time.perf_counter() - start))
                others += sum(entry.account != account for entry, _ in found)
            middle = self._cpu()
            for account, text in asked:
                start = time.perf_counter()
                self._peer.search(account, text.split())
                theirs.append(1e3 * (time.perf_counter() - start))
            cpu.append((1e3 * (middle - began) / _SEARCHES, 1e3 * (self._cpu() - middle) / _SEARCHES))
        wall, peer_wall = quantiles(ours, n=20), quantiles(theirs, n=20)
        ratios = [mine / max(peer, 0.001) for mine, peer in cpu]
        spread, note = (min(ratios), max(ratios)), "CPU of ours by that of the database's own full text search"
        return [
            Row(key=f"{prefix}_search_p50_ms", value=wall[9], unit="ms", note="a search of 8 words"),
            Row(key=f"{prefix}_search_p95_ms", value=wall[18], unit="ms", aim=_AIMS_MS.get(prefix)),
            Row(
                key=f"{prefix}_search_cpu_ms", value=median(mine for mine, _ in cpu), unit="ms", note="with the server"
            ),
            Row(key=f"{prefix}_peer_search_p95_ms", value=peer_wall[18], unit="ms"),
            Row(key=f"{prefix}_peer_search_cpu_ms", value=median(peer for _, peer in cpu), unit="ms"),
            Row(key=f"{prefix}_search_over_peer", value=median(ratios), spread=spread, note=note),
            Row(key=f"{prefix}_of_others", value=others, unit="", aim=0, note="found entries of another account"),
        ]

    async def _writes(self, entries: Entries) -> list[float]:
        taken = []
        for number in range(100):
            draft = Draft(text=self.text(_LENGTH), account=f"a{number % self._accounts}")
            began = time.perf_counter()
            await entries.add("crowd", [draft])
            taken.append(1e3 * (time.perf_counter() - began))
        return taken

    def _cpu(self) -> float:
        """CPU seconds of this process, and of the server's."""
        if self._server is None:
            return time.process_time()
        from psutil import Process

        times = [each.cpu_times() for each in Process(self._server.get_pid()).children(recursive=True)]
        return time.process_time() + float(sum(each.user + each.system for each in times))


async def measured(prefix: str, place: Path | PostgresAddress, report: Report) -> list[int | None]:
    """Measure the labelled set on one database engine; returns the places of the right entries."""
    texts, questions = labelled_set()
    async with aclosing(await Database.open(place, schemas=[ENTRIES])) as database:
        found = await ranks(Entries(database), texts, questions)
    report.section(f"The labelled set, {prefix}", recalls(prefix, found, questions))
    return found


async def _bytes(database: Database, place: Path | PostgresAddress) -> float:
    if isinstance(place, Path):
        await database.scrub()
        return float(sum(file.stat().st_size for file in place.parent.iterdir()))
    tables = ("wa_entry", "wa_entry_word", "wa_entry_count")
    sizes = f"SELECT {' + '.join(f'pg_total_relation_size({name!r})' for name in tables)}"
    [(found,)] = await database.read(lambda tx: tx.execute(sizes))
    return float(found)


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        started = opened.enter_context(server())
        count = 2000 if report.quick else 100_000
        ranked = [await measured("sqlite", folder / "set" / "agent.db", report)]
        if started is not None:
            ranked.append(await measured("postgres", PostgresAddress(new_database(started, "bench_set")), report))
        same = float(ranked[0] == ranked[1]) if started is not None else None
        report.section("Both", [Row(key="same_ranks", value=same, unit="", least=1, note="1 if they rank alike")])
        for shape, accounts in _SHAPES.items():
            crowd = Crowd(folder / shape / "agent.db", Fts5(folder / f"{shape}-peer.db"), accounts, None)
            rows = await crowd.measure(f"sqlite_{shape}", count)
            report.section(f"{count:,} entries, accounts: {accounts:,}, sqlite", rows)
            if started is not None:
                url = new_database(started, f"bench_{shape}")
                crowd = Crowd(PostgresAddress(url), FullText(url), accounts, started)
                rows = await crowd.measure(f"postgres_{shape}", count)
                report.section(f"{count:,} entries, accounts: {accounts:,}, postgres", rows)


if __name__ == "__main__":
    main("memory", "How well and how fast turns recall memory entries.", run)
