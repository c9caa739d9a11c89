"""Search by vectors: what makes the vectors of entries, where they are stored, and the ranks by them (M3).

A vector is made after the transaction that writes its entry, so a failing embedder loses no entry. It is stored only if
the entry still has the version that it was made of.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextvars import Context
from datetime import datetime
from importlib import import_module
from inspect import isawaitable
from numbers import Real
from typing import Any, Final

from ...core import Embedder
from ...core.errors import EmbedderFailed, HostError, MissingExtra, StorageUnavailable, WorldAgentError
from ...storage import Database, Transaction, portions
from ...storage.schema import packed
from .entry import Reader
from .index import hash_of
from .nearest import NearestInFile

VECTOR_TABLES: Final = (
    # 0 means none; otherwise the one that made the vector of this version.
    "ALTER TABLE wa_entry ADD COLUMN embedder BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX wa_entry_embedder ON wa_entry(workspace, embedder) WHERE replaced IS NULL",
    # On SQLite a vector is a BLOB, see `packed`. `place` hashes embedder, dimension, workspace, owner and level.
    # `made` says when the vector was written: nanoseconds, with random low bits.
    """CREATE TABLE wa_entry_vector(
         entry BIGINT PRIMARY KEY,
         place BIGINT NOT NULL,
         made BIGINT NOT NULL,
         vector REAL[] NOT NULL)""",
    "CREATE INDEX wa_entry_vector_place ON wa_entry_vector(place, made)",
)

MAX_TEXTS: Final = 64
"""How many texts an embedder gets at once."""

MAX_DIMENSION: Final = 8192
MAX_EMBED_SECONDS: Final = 60.0
MAX_QUESTION_CHARACTERS: Final = 4000
"""How much of a question is embedded; as much as an entry can have."""

MAX_NEIGHBOURS: Final = 200
"""How many entries a search takes from the ranks by vectors."""

MAX_MADE_AT_ONCE: Final = 512
"""How many vectors the call that writes entries waits for. The others are made later."""

RANK_OFFSET: Final = 60
"""An entry at place n of a list counts 1 / (RANK_OFFSET + n): the constant of reciprocal rank fusion."""

_SIMILARITY_DIGITS: Final = 6  # both engines agree on so many, so that equal similarities are ranked by id on both
_LOG: Final = logging.getLogger("worldagent.memory")

_MISSING: Final = "SELECT key, version, text FROM wa_entry WHERE workspace=? AND replaced IS NULL AND embedder {} ?"
_SOME_MISSING: Final = f"{_MISSING.format('<')} UNION ALL {_MISSING.format('>')} LIMIT ?"  # two ranges of the index
_OF_KEYS: Final = f"{_MISSING.format('<>')} AND key IN ({{}})"
_MADE: Final = """UPDATE wa_entry SET embedder=? WHERE key=? AND version=? AND replaced IS NULL
                  RETURNING owner, level"""
_STORE: Final = """INSERT INTO wa_entry_vector(entry, place, made, vector) VALUES(?, ?, ?, ?)
                   ON CONFLICT(entry) DO UPDATE SET place=excluded.place, made=excluded.made, vector=excluded.vector"""
_STORED: Final = """SELECT vector FROM wa_entry_vector WHERE entry=(
                      SELECT key FROM wa_entry WHERE workspace=? AND replaced IS NULL AND embedder=? LIMIT 1)"""
_DROP: Final = "DELETE FROM wa_entry_vector WHERE entry=?"
_UNMAKE: Final = "UPDATE wa_entry SET embedder=0 WHERE key=?"
_ON_SERVER: Final = f"""SELECT entry, -(near <#> ?::vector) FROM wa_entry_vector
                        WHERE place IN ({{}}) AND entry NOT IN (SELECT key FROM wa_entry WHERE expires <= ?)
                        ORDER BY 2 DESC, entry LIMIT {MAX_NEIGHBOURS}"""
PGVECTOR: Final = """SELECT to_regtype('vector') IS NOT NULL,
                            (SELECT default_version FROM pg_available_extensions WHERE name='vector')"""
"""Whether a server can search vectors now, and the version that it has or could create."""

_HAS_NEAR: Final = """SELECT EXISTS(SELECT 1 FROM pg_attribute
                        WHERE attrelid=to_regclass('wa_entry_vector') AND attname='near' AND NOT attisdropped)"""
# A cast in the search would take five times as long as the search itself.
_ADD_NEAR: Final = """ALTER TABLE wa_entry_vector
                      ADD COLUMN IF NOT EXISTS near vector GENERATED ALWAYS AS (vector::vector) STORED"""

Ranked = Sequence[tuple[int, float]]
"""Keys of entries with their scores, the best first."""


def drop_vector(transaction: Transaction, key: int) -> None:
    """Delete the vector of an entry whose text changes, or that goes."""
    transaction.execute(_DROP, (key,))
    transaction.execute(_UNMAKE, (key,))


def fused(*lists: Ranked) -> list[tuple[int, float]]:
    """Join ranked lists by reciprocal rank fusion; equal scores by id."""
    scores: dict[int, float] = defaultdict(float)
    for ranked in lists:
        for place, (key, _) in enumerate(ranked, start=1):
            scores[key] += 1 / (RANK_OFFSET + place)
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))


class Vectors:
    """The vectors of the entries of one database, made by one embedder. `open` makes one.

    Args:
        database: The database.
        embedder: Makes the vectors.
        name: Its name. Stored vectors of other names are not used, and made again.
    """

    def __init__(self, database: Database, embedder: Embedder, name: str) -> None:
        self._database = database
        self._embedder = embedder
        self._name = name
        self._id = hash_of("embedder", name)
        self._in_file: NearestInFile | None = None
        self._filling = asyncio.Lock()  # so that two writers do not make the same vectors
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, database: Database, embedder: Embedder, name: str) -> Vectors | None:
        """Check that the database can be searched by vectors; None if it is a server without pgvector.

        Raises:
            MissingExtra: The database is a file, and numpy is not installed.
        """
        made = cls(database, embedder, name)
        if database.engine == "sqlite":
            made._in_file = NearestInFile(_numpy())
        elif not await _enable_pgvector(database):
            _LOG.warning("The server of %s has no pgvector, so memory is searched by words alone.", database.name)
            return None
        return made

    # --- making -----------------------------------------------------------------------------------------------------

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of up to `MAX_TEXTS` texts, of length 1.

        Raises:
            EmbedderFailed: The embedder raised, took too long, or returned something other than vectors.
        """
        # A context of its own: a connection that the embedder keeps would keep the turn, and its role, alive.
        asking = asyncio.create_task(self._ask([*texts]), context=Context())
        failure: EmbedderFailed
        try:
            return self._checked(await asking, len(texts))
        except EmbedderFailed:
            raise
        except WorldAgentError as error:
            failure = self._failed(f"failed: {error.problem}", error.remedy)
            if isinstance(error, HostError):
                failure.status, failure.service_code, failure.request_id = (
                    error.status,
                    error.service_code,
                    error.request_id,
                )
        except TimeoutError:
            failure = self._failed(f"did not answer within {MAX_EMBED_SECONDS:g} s", "check its service, and try again")
        except Exception as error:  # not named: an embedder of the host's can raise any type
            failure = self._failed(f"failed with {type(error).__name__}", "correct it, or try again if it was down")
        raise failure

    async def question(self, text: str, *, strict: bool) -> list[float] | None:
        """Return the vector of a question.

        Args:
            text: The question.
            strict: Whether a failing embedder is an error. Otherwise it is logged, and there is no vector.

        Raises:
            EmbedderFailed: The search is strict, and the embedder failed.
        """
        try:
            return (await self.embed([text[:MAX_QUESTION_CHARACTERS]]))[0]
        except EmbedderFailed as error:
            if strict:
                raise
            _log_words_alone(error)
        return None

    async def fill(self, workspace: str, keys: Sequence[int] = ()) -> None:
        """Make the vectors of entries that were just written, and some of those that are still missing.

        A failing embedder is logged: the entries stay without vectors until a later call.

        Args:
            workspace: The workspace.
            keys: The keys of the entries that were just written.
        """
        try:
            async with self._filling:
                for _, some in portions(keys[:MAX_MADE_AT_ONCE], MAX_TEXTS):
                    await self._make(workspace, some)
                await self._make(workspace)
        except WorldAgentError as error:  # the entries are written, whatever happens now
            _LOG.warning("Memory entries stay without vectors for now: %s", error)

    def start(self, workspace: str) -> None:
        """Make all vectors that are missing, in the background."""
        self._task = asyncio.create_task(self._fill_all(workspace), context=Context())

    async def aclose(self) -> None:
        """End the work in the background; a later opening continues it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _fill_all(self, workspace: str) -> None:
        more = True
        while more:
            try:
                async with self._filling:
                    more = await self._make(workspace)
            except WorldAgentError as error:
                _LOG.warning("Memory entries stay without vectors for now: %s", error)
                return

    async def _make(self, workspace: str, keys: Sequence[int] | None = None) -> bool:
        """Make a portion of missing vectors, of these entries or of any; returns whether there were any."""
        if keys is None:
            statement, given = _SOME_MISSING, [workspace, self._id, workspace, self._id, MAX_TEXTS]
        else:
            statement, given = _OF_KEYS.format(", ".join("?" * len(keys))), [workspace, self._id, *keys]
        rows = await self._database.read(lambda tx: tx.execute(statement, given))
        if not rows:
            return False
        vectors = await self.embed([text for _, _, text in rows])
        made = [(key, version, vector) for (key, version, _), vector in zip(rows, vectors, strict=True)]
        await self._database.transact(lambda tx: self._write(tx, workspace, made), synced=False)  # if lost, made again
        return True

    def _write(self, transaction: Transaction, workspace: str, made: Sequence[tuple[int, int, list[float]]]) -> None:
        """Store vectors of entries that did not change meanwhile."""
        self._check_dimension(transaction, workspace, made[0][2])
        for key, version, vector in made:
            for owner, level in transaction.execute(_MADE, (self._id, key, version)):
                transaction.execute(_STORE, self._row(key, vector, self._place(vector, workspace, owner, level)))

    def _check_dimension(self, transaction: Transaction, workspace: str, vector: Sequence[float]) -> None:
        for (stored,) in transaction.execute(_STORED, (workspace, self._id)):
            dimension = len(stored) if self._in_file is None else len(stored) // 4
            if dimension != len(vector):
                raise self._failed(
                    f"returned a vector of {len(vector)} numbers, and those that are stored have {dimension}",
                    "give an embedder that changed another name, so that all vectors are made again",
                )

    async def _ask(self, texts: list[str]) -> object:
        async with asyncio.timeout(MAX_EMBED_SECONDS):
            given: object = self._embedder(texts)
            if not isawaitable(given):
                raise self._failed("is not async", "make it an `async def` function")
            return await given

    def _checked(self, given: object, count: int) -> list[list[float]]:
        rows = _listed(given)
        if rows is None or len(rows) != count:
            found = "something other than a list" if rows is None else f"{len(rows)} vectors"
            raise self._failed(f"returned {found} for {count} texts", "return one vector for each text")
        vectors = [_unit(_listed(row)) for row in rows]
        made = [vector for vector in vectors if vector is not None]
        if len(made) < count or len({len(vector) for vector in made}) != 1:
            raise self._failed(
                "returned something other than vectors",
                f"return lists of finite numbers, all of the same length, from 1 to {MAX_DIMENSION:,}",
            )
        return made

    def _failed(self, problem: str, remedy: str) -> EmbedderFailed:
        return EmbedderFailed(f"the embedder {self._name!r} {problem}", remedy=remedy)

    def _row(self, key: int, vector: Sequence[float], place: int) -> tuple[object, ...]:
        made = time.time_ns() & ~0xFF | secrets.randbits(8)  # another one for each row, also if the clock is coarse
        return key, place, made, [*vector] if self._in_file is None else packed(vector)

    def _place(self, vector: Sequence[float], workspace: str, owner: str, level: int) -> int:
        return hash_of("place", self._name, len(vector), workspace, owner, level)

    # --- searching --------------------------------------------------------------------------------------------------

    def rank(
        self,
        transaction: Transaction,
        reader: Reader,
        owners: Sequence[str],
        question: Sequence[float],
        now: datetime,
        *,
        strict: bool,
    ) -> Ranked:
        """The entries nearest to a question, with their cosine similarities. Only what the reader may see is read.

        Raises:
            EmbedderFailed: The search is strict, and the stored vectors have another dimension.
        """
        try:
            self._check_dimension(transaction, reader.workspace, question)
        except EmbedderFailed as error:
            if strict:
                raise
            _log_words_alone(error)
            return ()
        places = [
            self._place(question, reader.workspace, owner, level)
            for owner in owners
            for level in reader.levels_of(owner)
        ]
        if self._in_file is None:
            marks, shown = ", ".join("?" * len(places)), f"[{','.join(map(repr, question))}]"
            found = transaction.execute(_ON_SERVER.format(marks), (shown, *places, now.timestamp()))
        else:
            found = self._in_file.rank(transaction, places, [*question], MAX_NEIGHBOURS)
        near = [(key, round(similarity, _SIMILARITY_DIGITS)) for key, similarity in found]
        ranked = sorted(near, key=lambda each: (-each[1], each[0]))
        return [(key, similarity) for key, similarity in ranked if similarity > 0]


def _log_words_alone(error: EmbedderFailed) -> None:
    _LOG.warning("Memory is searched by words alone: %s", error)


# --- values -----------------------------------------------------------------------------------------------------------


def _listed(given: Any) -> Sequence[Any] | None:
    """A list, also of numpy, which many models return; None for all else."""
    given = given.tolist() if hasattr(given, "tolist") else given
    return None if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence) else given


def _unit(row: Sequence[Any] | None) -> list[float] | None:
    """A vector with the length 1, or 0 if it has only zeros; None if it is not one."""
    if row is None or not 1 <= len(row) <= MAX_DIMENSION:
        return None
    if not all(isinstance(each, Real) and not isinstance(each, bool) for each in row):
        return None
    length = math.hypot(*row)
    return [float(each / (length or 1.0)) for each in row] if math.isfinite(length) else None


def _numpy() -> Any:
    try:
        return import_module("numpy")
    except ImportError:
        pass
    raise MissingExtra(
        "search by vectors in a SQLite file needs the extra 'memory', which is not installed",
        remedy="run pip install 'worldagent[memory]', or omit the embedder",
    )


async def _enable_pgvector(database: Database) -> bool:
    """Whether a server can search vectors. What it needs is created first, if the user of the url is allowed to."""

    def create(transaction: Transaction) -> bool:
        transaction.lock("schema")
        [(there, newest)] = transaction.execute(PGVECTOR)
        if not there and newest is not None:
            transaction.execute("CREATE EXTENSION IF NOT EXISTS vector")
            [(there, _)] = transaction.execute(PGVECTOR)  # it can be in a schema that the search path does not have
        if there:
            transaction.execute(_ADD_NEAR)
        return bool(there)

    if (await database.read(lambda tx: tx.execute(_HAS_NEAR))) == [(True,)]:
        return True
    try:
        return await database.transact(create)
    except StorageUnavailable:
        return False
