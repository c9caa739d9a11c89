"""Yields every text that the scan looks at: in files, in the values of SQLite files, and in all that an object reaches.

An object reaches its items, attributes, closures, chained exceptions and log records. Databases that this process has
open are not affected.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import functools
import io
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from ..core.errors import InvalidArgument, StorageUnavailable

# --- files and databases ----------------------------------------------------------------------------------------------

_SQLITE_MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")
# Reads a list of [source, target] and prints a list of errors: null, or the name of the error's type.
_COPY = """
import json, shutil, sys
def copy(source, target):
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        return type(error).__name__
json.dump([copy(*pair) for pair in json.load(sys.stdin)], sys.stdout)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One file: its name for the report, and the copy to read. `database` is another copy, which SQLite can open."""

    place: str
    copy: Path
    database: Path | None = None


def listed(path: Path) -> list[Path]:
    """Return every regular file under `path`, or the file `path` with SQLite's companion files.

    Raises:
        InvalidArgument: `path` does not exist.
    """
    if path.is_dir():
        found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return sorted(file for file in found if file.is_file())
    if path.is_file():
        companion = (path.with_name(path.name + ending) for ending in _COMPANIONS)
        return [path, *(file for file in companion if file.is_file())]
    raise InvalidArgument(f"the path {str(path)!r} does not exist", remedy="pass a path that exists")


@contextlib.contextmanager
def snapshots(path: Path) -> Generator[Iterator[Snapshot], None, None]:
    """Yield copies of the files under `path`, except those deleted meanwhile. The copies are deleted at the end.

    Raises:
        InvalidArgument: `path` does not exist.
        StorageUnavailable: A file cannot be read.
    """
    files = listed(path)
    with tempfile.TemporaryDirectory(prefix="worldagent-scan-", ignore_cleanup_errors=True) as folder:
        targets = [Path(folder, str(number)) for number in range(len(files))]
        present = {
            source: target
            for source, target, error in zip(files, targets, _copy(files, targets), strict=True)
            if _was_copied(source, error)
        }
        yield (
            Snapshot(place=_name(path, source), copy=target, database=_database(source, target, present))
            for source, target in present.items()
        )


def rows(database: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every value of every table of a SQLite file that no other program has open, with its place.

    Raises:
        sqlite3.Error: The file is not a database, or is damaged.
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        connection.execute("PRAGMA query_only = ON")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in [b"sqlite_master", *names]:
            yield from _values(connection, name.decode("utf-8", "replace"))


def _values(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, bytes]]:
    quoted = table.replace('"', '""')
    try:
        cursor = connection.execute(f'SELECT * FROM "{quoted}"')
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):  # a virtual table of an extension; its data is in ordinary tables
            return
        raise
    columns = [column[0] for column in cursor.description]
    for number, row in enumerate(cursor, 1):
        for column, value in zip(columns, row, strict=True):
            if isinstance(value, bytes):
                yield f"{table}.{column}, row {number}", value


def _copy(sources: Sequence[Path], targets: Sequence[Path]) -> list[str | None]:
    if not sources:
        return []
    pairs = [(os.fspath(source.absolute()), os.fspath(target)) for source, target in zip(sources, targets, strict=True)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _COPY], input=json.dumps(pairs), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StorageUnavailable(
            f"the files could not be copied for the scan (exit code {done.returncode})",
            remedy="check the free space of the folder for temporary files",
        )
    errors: list[str | None] = json.loads(done.stdout)
    return errors


def _was_copied(source: Path, error: str | None) -> bool:
    if error is None:
        return True
    if error == FileNotFoundError.__name__:  # deleted since it was listed, as a WAL is with its last connection
        return False
    raise StorageUnavailable(f"file {str(source)!r} cannot be read ({error})", remedy="make it readable for the scan")


def _name(path: Path, source: Path) -> str:
    return source.name if source == path or path.is_file() else f"{path.name}/{source.relative_to(path).as_posix()}"


def _database(source: Path, copy: Path, present: dict[Path, Path]) -> Path | None:
    with copy.open("rb") as file:
        if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
            return None
    # SQLite changes files that it opens (it replays a WAL), so it gets its own copies.
    database = copy.with_name(f"{copy.name}.db")
    shutil.copyfile(copy, database)
    for ending in ("-wal", "-journal"):
        companion = present.get(source.with_name(source.name + ending))
        if companion is not None:
            shutil.copyfile(companion, database.with_name(database.name + ending))
    return database


# --- objects ----------------------------------------------------------------------------------------------------------

Named: TypeAlias = Iterator[tuple[str, Any]]

_BUFFERS = (bytearray, memoryview, array.array)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_NUMBERS = frozenset((int, float, bool, type(None)))  # most of what an object holds, and quickly told
_PLAIN = (int, float, complex, type(None), types.EllipsisType, types.NotImplementedType)
_LEFT_OUT = (
    type,
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.BuiltinFunctionType,
    threading.Thread,
    asyncio.AbstractEventLoop,
    weakref.ref,
)


def walk(
    root: object, place: str, *, skip: tuple[type, ...] = (), frame_locals: bool = False
) -> Iterator[tuple[str, str | bytes]]:
    """Yield every string and every bytes object reachable from `root`, each object once, with the path to it.

    Args:
        root: The object to begin with.
        place: The name of `root`.
        skip: Types to skip, with everything that only they refer to.
        frame_locals: Whether to search the local variables of tracebacks and of suspended coroutines.
    """
    # The objects are kept, not only their ids: the id of a temporary object would be used again.
    seen: dict[int, object] = {}
    left_out = _PLAIN + _LEFT_OUT + skip
    # Most of what objects hold is of these types, for which no more has to be asked.
    plain = {kind: parts for kind, parts in _PLAIN_PARTS.items() if not issubclass(kind, skip)}
    waiting: list[tuple[str, object]] = [(place, root)]
    while waiting:
        path, item = waiting.pop()
        kind = type(item)
        if kind in plain:
            if id(item) not in seen:
                seen[id(item)] = item
                waiting += [child for child in plain[kind](path, item) if type(child[1]) not in _NUMBERS]
        elif isinstance(item, str | bytes):
            yield path, item
        elif isinstance(item, _BUFFERS):
            yield path, bytes(item)
        elif isinstance(item, PurePath):
            yield path, str(item)
        elif isinstance(item, left_out) or hasattr(type(item), "_holds_prompts"):  # of a fake
            continue
        elif id(item) not in seen:
            seen[id(item)] = item
            waiting += [child for child in _children(path, item, frame_locals) if type(child[1]) not in _NUMBERS]


def _children(path: str, item: object, frame_locals: bool) -> Named:
    if isinstance(item, (Mapping, contextvars.Context)):
        yield from _entries(path, item)
    if isinstance(item, _SEQUENCES):
        yield from _elements(path, item)
    for kind, names in _PARTS:
        if isinstance(item, kind):
            yield from ((f"{path}.{name}", getattr(item, name, None)) for name in names)
    for kind, look in _SPECIAL:
        if isinstance(item, kind):
            yield from look(path, item)
    if frame_locals:
        yield from _locals(path, item)
    if type(item).__name__ == "LogCaptureFixture":  # pytest's caplog; its other attributes belong to pytest
        yield f"{path}.records", getattr(item, "records", None)
        yield f"{path}.text", getattr(item, "text", None)
        return
    yield from _attributes(path, item)
    yield from _shown(path, item)


def _elements(path: str, item: Iterable[Any]) -> Named:
    for number, part in enumerate(tuple(item)):
        yield f"{path}[{number}]", part


def _entries(path: str, item: Mapping[Any, Any] | contextvars.Context) -> Named:
    try:
        entries = tuple(item.items())
    except Exception:  # some mappings, such as urllib3's pool of connections, cannot be iterated over
        return
    for number, (key, value) in enumerate(entries):
        yield f"{path} (key {number})", key
        yield f"{path}[{key!r}]" if isinstance(key, str | int) else f"{path}[key {number}]", value


def _function(path: str, item: types.FunctionType) -> Named:
    for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
        if cell != _EMPTY_CELL:
            yield f"{path} (closure {name})", cell.cell_contents


def _log_record(path: str, item: logging.LogRecord) -> Named:
    try:
        yield f"{path}.getMessage()", item.getMessage()
    except (TypeError, ValueError):  # the arguments do not match the text; both are searched on their own
        return


def _buffer(path: str, item: io.StringIO | io.BytesIO) -> Named:
    if not item.closed:
        yield f"{path}.getvalue()", item.getvalue()


_PLAIN_PARTS: Mapping[type, Callable[[str, Any], Named]] = {
    dict: _entries,
    **dict.fromkeys((list, tuple, set, frozenset), _elements),
}
_EMPTY_CELL = types.CellType()
_PARTS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (BaseException, ("args", "__notes__", "__cause__", "__context__", "exceptions")),
    (types.FunctionType, ("__defaults__", "__kwdefaults__")),
    (types.MethodType, ("__self__", "__func__")),
    (functools.partial, ("func", "args", "keywords")),
)
_SPECIAL: tuple[tuple[Any, Callable[[str, Any], Named]], ...] = (
    (types.FunctionType, _function),
    (logging.LogRecord, _log_record),
    ((io.StringIO, io.BytesIO), _buffer),
)


def _locals(path: str, item: object) -> Named:
    trace = item.__traceback__ if isinstance(item, BaseException) else None
    while trace is not None:
        yield f"{path} (locals of {trace.tb_frame.f_code.co_name})", dict(trace.tb_frame.f_locals)
        trace = trace.tb_next
    frame: types.FrameType | None = None
    if isinstance(item, Coroutine):
        frame = getattr(item, "cr_frame", None)
    elif isinstance(item, Generator):
        frame = getattr(item, "gi_frame", None)
    elif isinstance(item, AsyncGenerator):
        frame = getattr(item, "ag_frame", None)
    if frame is not None:
        yield f"{path} (locals of {frame.f_code.co_name})", dict(frame.f_locals)


def _attributes(path: str, item: object) -> Named:
    for name, value in tuple(getattr(item, "__dict__", {}).items()):
        yield f"{path}.{name}", value
    kind: Any = type(item)
    for name, member in _slots(kind):
        try:
            yield f"{path}.{name}", member.__get__(item)
        except AttributeError:  # the slot is empty
            continue


@functools.lru_cache(4096)
def _slots(of: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    found: list[tuple[str, types.MemberDescriptorType]] = []
    for kind in of.__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = kind.__dict__.get(_mangled(kind, name))
            if isinstance(member, types.MemberDescriptorType):
                found.append((name, member))
    return tuple(found)


def _mangled(kind: type, name: str) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _shown(path: str, item: object) -> Named:
    """Yield the `repr` and `str` of an object, if its class defines them."""
    kind = type(item)
    if kind.__module__ == "builtins" and not isinstance(item, BaseException):
        return
    for name, show, default in (("repr", repr, object.__repr__), ("str", str, object.__str__)):
        if getattr(kind, f"__{name}__") is not default:
            try:
                yield f"{name}({path})", show(item)
            except Exception:  # an object whose repr fails shows nothing
                continue
