"""The scan for roles (R7): nothing that the package wrote, kept or said can contain 40 characters of a role in a row.

`walk` finds the texts, and `Matcher` decides whether a role occurs in them. White space and case are compared
as they are; compressed and encrypted data are not searched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import cast

from ..core import ECHO_RUN
from ..core.errors import InvalidArgument
from .needles import LONGEST_CHARACTER, Needle, needles
from .walk import Snapshot, rows, snapshots, walk

SHORTEST_CANARY = 4
# A chunk of a long text must begin this many bytes before the end of the previous one: more than any relevant run in
# its longest encoding.
OVERLAP = LONGEST_CHARACTER * ECHO_RUN + 32

_SHORTEST_GRAM = 8
# Shorter runs would need a look-up every few bytes, and a plain search for each complete needle is faster.
_SHORTEST_SAMPLED = 20


class Matcher:
    """Searches bytes for a set of canaries."""

    def __init__(self, canaries: Sequence[str]) -> None:
        """Prepare the search.

        Raises:
            InvalidArgument: `canaries` is empty, or one is not a string of at least 4 characters.
        """
        if not canaries:
            raise InvalidArgument("`canaries` must not be empty", remedy="pass the texts to look for")
        groups: dict[int, list[Needle]] = {}
        for number, canary in enumerate(canaries):
            if not isinstance(canary, str) or len(canary) < SHORTEST_CANARY:
                raise InvalidArgument(
                    f"canary {number} must be a string of {SHORTEST_CANARY} characters or more",
                    remedy="pass a longer one; shorter ones are found everywhere by chance",
                )
            need = min(len(canary), ECHO_RUN)
            groups.setdefault(need, []).extend(needles(canary, number, need))
        self.shortest = min(groups)
        self._searches = [
            _Sampled(need, group) if need >= _SHORTEST_SAMPLED else _PlainSearch(group)
            for need, group in groups.items()
        ]

    def search(self, data: bytes, known: set[tuple[int, str]]) -> Iterator[tuple[Needle, int, int]]:
        """Yield runs in `data`, one for each canary and encoding that is not in `known`, and add these to `known`.

        Yields:
            The needle, where in the data the run begins, and how many characters it has.
        """
        for search in self._searches:
            for at, own, needle in search.candidates(data):
                key = (needle.canary, needle.encoding)
                if key in known:
                    continue
                offset, length = needle.run(data, at, own)
                if length >= needle.need:
                    known.add(key)
                    yield needle, offset, length


class _Sampled:
    """Looks up the bytes at every nth position."""

    def __init__(self, need: int, group: list[Needle]) -> None:
        # Long grams seldom match by chance; short ones allow long steps.
        self._gram = max(_SHORTEST_GRAM, need // 2)
        self._step = need - self._gram + 1
        self._grams: set[bytes] = set()
        for needle in group:
            part, data, size = needle.certain(), needle.data, self._gram
            self._grams.update([data[at : at + size] for at in range(part.start, part.stop - size + 1)])
        self._group = group

    def candidates(self, data: bytes) -> Iterator[tuple[int, int, Needle]]:
        grams, size = self._grams, self._gram
        for at in range(0, len(data) - size + 1, self._step):
            if (gram := data[at : at + size]) in grams:  # seldom, so whose it is need not be kept
                for needle in self._group:
                    for own in _places(needle.data, gram, needle.certain()):
                        yield at, own, needle


class _PlainSearch:
    """Searches for each complete needle."""

    def __init__(self, group: list[Needle]) -> None:
        parts = [(needle, needle.certain()) for needle in group]
        self._pieces = [(needle, part.start, needle.data[part.start : part.stop]) for needle, part in parts]

    def candidates(self, data: bytes) -> Iterator[tuple[int, int, Needle]]:
        for needle, start, piece in self._pieces:
            if piece in data:
                for at in _places(data, piece, range(len(data))):
                    yield at, start, needle


def _places(data: bytes, piece: bytes, part: range) -> Iterator[int]:
    at = data.find(piece, part.start, part.stop)
    while at >= 0:
        yield at
        at = data.find(piece, at + 1, part.stop)


_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first place where one canary was found in one encoding.

    Attributes:
        place: File, `file: table.column, row`, or path into an object.
        encoding: The encoding of the text: `utf-8`, `json`, `repr`, `utf-16-le`, `utf-16-be`, `base64`, `hex`.
        canary: The number of the canary, counted from 0.
        length: How many characters of the canary occur there in a row.
        offset: Where the run begins, in bytes from the start of the place.
    """

    place: str
    encoding: str
    canary: int
    length: int
    offset: int

    def __str__(self) -> str:
        return f"{self.place}, byte {self.offset}: {self.length} characters of canary {self.canary} as {self.encoding}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The extent of a scan, and its findings.

    Attributes:
        bytes_scanned: Total bytes of all files, database values and texts.
        places: The number of files, database values and texts.
        findings: The findings, at most one for each place, canary and encoding.
        raw_only: SQLite files that could not be opened as databases, so that only their bytes were searched.
    """

    bytes_scanned: int
    places: int
    findings: tuple[Finding, ...]
    raw_only: tuple[str, ...] = ()


class RoleLeak(AssertionError):
    """Text of a role was found where none is allowed (R7).

    Attributes:
        report: The full report.
    """

    def __init__(self, report: ScanReport) -> None:
        shown = [f"\n  {finding}" for finding in report.findings[:_LINES]]
        more = len(report.findings) - len(shown)
        rest = f"\n  and {more} more" if more > 0 else ""
        super().__init__(f"text of a role was found {len(report.findings)} times:{''.join(shown)}{rest}")
        self.report = report

    def __reduce__(self) -> tuple[type[RoleLeak], tuple[ScanReport]]:
        return (RoleLeak, (self.report,))


_CHUNK = 4 << 20


def assert_no_role_leak(
    paths_or_objects: object,
    canaries: str | Iterable[str],
    *,
    skip: type | tuple[type, ...] = (),
    frame_locals: bool = False,
) -> ScanReport:
    """Check that no text of a role occurs in files, databases, objects or captured logs (R7).

    Args:
        paths_or_objects: One thing or a list of things: a `Path` is a file or a folder to read (with the databases in
            it), everything else an object to walk through. A string is a text, not a path.
        canaries: The roles' contents, or one of them. In a long one any 40 characters in a row are a finding; a
            shorter one (at least 4 characters) is searched for in full.
        skip: Types of objects that can hold a role, such as `Role` itself.
        frame_locals: Whether to search the local variables of tracebacks and suspended coroutines too.

    Returns:
        The extent of the scan.

    Raises:
        RoleLeak: Something was found; the error names each place, never the text.
        InvalidArgument: A path does not exist, or a canary cannot be searched for.
        StorageUnavailable: A file cannot be read.
    """
    report = scan_for_roles(paths_or_objects, canaries, skip=skip, frame_locals=frame_locals)
    if report.findings:
        raise RoleLeak(report)
    return report


def scan_for_roles(
    paths_or_objects: object,
    canaries: str | Iterable[str],
    *,
    skip: type | tuple[type, ...] = (),
    frame_locals: bool = False,
) -> ScanReport:
    """Search as `assert_no_role_leak` does, and return the report whatever was found.

    Raises:
        InvalidArgument: A path does not exist, or a canary cannot be searched for.
        StorageUnavailable: A file cannot be read.
    """
    search = _Search(_matcher((canaries,) if isinstance(canaries, str) else tuple(canaries)))
    skipped = skip if isinstance(skip, tuple) else (skip,)
    several = isinstance(paths_or_objects, list | tuple | set | frozenset)
    things = cast("Iterable[object]", paths_or_objects if several else [paths_or_objects])
    for number, thing in enumerate(things):
        if isinstance(thing, PathLike):
            search.path(Path(thing))
        else:
            name = f"{type(thing).__name__} {number}"
            for place, text in walk(thing, name, skip=skipped, frame_locals=frame_locals):
                search.text(place, text)
    return search.report()


_matcher = lru_cache(8)(Matcher)  # a test looks for the same roles in one place after the other


class _Search:
    """The state of a scan."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._bytes = self._places = 0
        self._findings: list[Finding] = []
        self._raw_only: list[str] = []
        self._clean: set[str | bytes] = set()  # objects share most of their texts

    def path(self, path: Path) -> None:
        """Search a file or a folder: names, bytes, and the values of databases."""
        with snapshots(path) as found:
            for snapshot in found:
                self.text("name of a file", snapshot.place)
                self._chunks(snapshot.place, _chunks(snapshot.copy))
                if snapshot.database is not None:
                    self._values(snapshot)

    def text(self, place: str, text: str | bytes) -> None:
        """Search one text."""
        if len(text) < self._matcher.shortest or text in self._clean:  # no encoding makes a text shorter
            self._places += 1
            self._bytes += len(text)
            return
        if not self._chunks(place, [(0, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)]):
            self._clean.add(text)

    def report(self) -> ScanReport:
        return ScanReport(
            bytes_scanned=self._bytes,
            places=self._places,
            findings=tuple(self._findings),
            raw_only=tuple(self._raw_only),
        )

    def _values(self, snapshot: Snapshot) -> None:
        assert snapshot.database is not None
        try:
            for place, value in rows(snapshot.database):
                self.text(f"{snapshot.place}: {place}", value)
        except sqlite3.Error:
            self._raw_only.append(self._shown(snapshot.place))

    def _chunks(self, place: str, chunks: Iterable[tuple[int, bytes]]) -> int:
        """Search a place; gives how many findings it has."""
        self._places += 1
        known: set[tuple[int, str]] = set()
        end, before = 0, len(self._findings)
        for start, chunk in chunks:
            end = start + len(chunk)
            for needle, offset, length in self._matcher.search(chunk, known):
                finding = Finding(
                    place=self._shown(place),
                    encoding=needle.encoding,
                    canary=needle.canary,
                    length=length,
                    offset=start + offset,
                )
                self._findings.append(finding)
        self._bytes += end
        return len(self._findings) - before

    def _shown(self, place: str) -> str:
        """Return the name of a place for the report; keys, files and tables can have a role in their names."""
        if any(self._matcher.search(place.encode("utf-8", "surrogatepass"), set())):
            return f"(a place of {len(place)} characters, whose name holds a role)"
        return place


def _chunks(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as source:
        start, chunk = 0, source.read(_CHUNK)
        while chunk:
            yield start, chunk
            fresh = source.read(_CHUNK)
            if not fresh:
                return
            kept = chunk[-OVERLAP:]
            start += len(chunk) - len(kept)
            chunk = kept + fresh
