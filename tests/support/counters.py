"""Counts what a stretch of work does: Python calls in every thread, what SQLite runs and writes, what is left behind.

Nothing here looks at a clock. What is counted and against which budget is in `support.budgets`.
"""

import asyncio
import contextlib
import gc
import heapq
import inspect
import sqlite3
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

import dspy

import worldagent
from worldagent.agent import Thread
from worldagent.core import ECHO_RUN

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_WEAK = "weakref.ReferenceType"  # sets of them are tidied up late; they hold nothing


def held() -> Counter[str]:
    """How many objects of each type the garbage collector knows, and how many entries are in the containers of each.

    Containers of plain values, which it does not follow, count as part of what refers to them.
    """
    tidy(asyncio.get_running_loop())
    for _ in range(2):  # what one round frees may have a finalizer that lets go of more
        gc.collect()
    found, seen = Counter[str](), set[int]()
    known = gc.get_objects()
    for each in known:
        if each is seen or each is known or isinstance(each, Counter):  # of this module alone
            continue
        found[_name(each)] += 1
        _count(found, each)
        for below in gc.get_referents(each):
            if isinstance(below, dict | tuple) and not gc.is_tracked(below) and id(below) not in seen:
                seen.add(id(below))
                _count(found, below)
    return found


def growing(looks: Sequence[Counter[str]], turns: int) -> dict[str, list[int]]:
    """What there is more of at each look than at the one before, by at least one for each turn between them.

    What comes and goes is not more each time.
    """
    found = {}
    for name in looks[-1]:
        more = [after[name] - before[name] for before, after in pairwise(looks)]
        if min(more) >= turns and name != _WEAK:
            found[name] = more
    return found


def tidy(loop: Any) -> None:
    """Let go of timers that were cancelled, as the loop does itself once they are more than the others."""
    for timer in loop._scheduled:
        timer._scheduled &= not timer.cancelled()
    loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


def _count(found: Counter[str], each: Any) -> None:
    if isinstance(each, _CONTAINERS):
        found[f"entries of {_name(each)}"] += len(each)


def _name(each: Any) -> str:
    kind = type(each)
    return f"{kind.__module__}.{kind.__qualname__}"


def holders(content: str) -> set[tuple[str, int]]:
    """The objects that refer to a text with a part of `content` in it, as their type's name and id.

    Parts of 40 characters from its beginning, middle and end count, in any case; a shorter content counts as a whole.
    """
    size = min(len(content), ECHO_RUN)
    # No comprehension: its closure would be one more holder.
    folded, middle = content.casefold(), (len(content) - size) // 2
    pieces = [folded[:size], folded[middle : middle + size], folded[-size:]]
    del folded
    gc.collect()
    found: set[tuple[str, int]] = set()
    for holder in gc.get_objects():
        if holder is pieces:
            continue
        for text in _texts(holder):
            if len(text) >= size:
                read = (text if isinstance(text, str) else text.decode("utf-8", "replace")).casefold()
                for piece in pieces:
                    if piece in read:
                        found.add((type(holder).__qualname__, id(holder)))
    return found


def _texts(holder: Any) -> Iterator[str | bytes]:
    for item in gc.get_referents(holder):
        if isinstance(item, str | bytes):
            yield item
        elif isinstance(item, dict | tuple) and not gc.is_tracked(item):  # it holds plain values alone
            yield from _texts(item)


_PACKAGE: Final = Path(worldagent.__file__).parent
_STUBS: Final = frozenset({"benchmarks", "testing", "tests"})
_RUN: Final = inspect.unwrap(Thread.run).__code__
_PREDICT: Final = dspy.Predict.acall.__code__
_LM: Final = dspy.LM.acall.__code__


class Calls:
    """The code of every Python function that is called or resumed, in all threads, in the order it happened."""

    def __init__(self) -> None:
        self.seen: list[CodeType] = []
        self._on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self._on and event == "call":
            self.note(frame)

    def note(self, frame: FrameType) -> None:
        self.seen.append(frame.f_code)

    @contextlib.contextmanager
    def in_threads(self) -> Generator[None]:
        """Include the threads that are started in the block."""
        threading.setprofile(self)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextlib.contextmanager
    def counting(self) -> Generator[None]:
        self.seen.clear()
        self._on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False


class Way(Calls):
    """How a turn gets to its first model call.

    The path is the call stack at the moment when `dspy.Predict.acall` is called, up to `Thread.converse`. Where a
    stack begins with a task, it continues with the stack that created the task.

    Attributes:
        entered: The own files in which a function ran, in any thread, before `dspy.LM.acall` was called.
        path: The own files on the path, the outermost first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []
        self.path: list[str] = []
        self._creators: WeakKeyDictionary[asyncio.Task[Any], list[CodeType]] = WeakKeyDictionary()

    def note(self, frame: FrameType) -> None:
        super().note(frame)
        if frame.f_code is _LM and not self.entered:
            self.entered = _files(self.seen)
        elif frame.f_code is _PREDICT and not self.path:
            stack = self._stack(frame)
            self.path = _files(reversed(stack[: stack.index(_RUN) + 1]))

    @contextlib.contextmanager
    def over_tasks(self) -> Generator[None]:
        """Remember the stack that creates each task of the running loop."""

        def created(loop: asyncio.AbstractEventLoop, body: Any, **more: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(body, loop=loop, **more)
            self._creators[task] = self._stack(sys._getframe(1))
            return task

        loop = asyncio.get_running_loop()
        loop.set_task_factory(created)
        try:
            yield
        finally:
            loop.set_task_factory(None)

    def _stack(self, frame: FrameType | None) -> list[CodeType]:
        found: list[CodeType] = []
        while frame is not None:
            found.append(frame.f_code)
            frame = frame.f_back
        task = asyncio.current_task()
        return found if task is None else [*found, *self._creators.get(task, ())]


class Databases:
    """What SQLite does in connections that are opened under `watched`.

    Attributes:
        statements: How many were run.
        transactions: How many changed something.
        synced: How many of those were synced to the disk at their commit.
    """

    def __init__(self) -> None:
        self.clear()
        self._logs: set[Path] = set()

    def clear(self) -> None:
        self.statements = self.transactions = self.synced = 0

    @property
    def written(self) -> int:
        """Bytes in all write-ahead logs, which only grow."""
        return sum(log.stat().st_size for log in self._logs if log.exists())

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect

        def opened(path: Any, *args: Any, **more: Any) -> sqlite3.Connection:
            connection = connect(path, *args, **more)
            connection.execute("PRAGMA wal_autocheckpoint=0")  # a checkpoint would let the log begin again
            connection.set_trace_callback(_Watch(self, connection))
            self._logs.add(Path(f"{path}-wal"))
            return connection

        with patch.object(sqlite3, "connect", opened):
            yield


class _Watch:
    """Receives the statements of one connection."""

    def __init__(self, databases: Databases, connection: sqlite3.Connection) -> None:
        self._databases, self._connection = databases, connection
        self._synced, self._changes = True, 0

    def __call__(self, statement: str) -> None:
        self._databases.statements += 1
        if statement.startswith("PRAGMA synchronous="):
            self._synced = statement.endswith("FULL")
        elif statement.startswith("BEGIN"):
            self._changes = self._connection.total_changes
        elif statement == "COMMIT" and self._connection.total_changes > self._changes:
            self._databases.transactions += 1
            self._databases.synced += self._synced


class Objects:
    """What the cyclic collector tracks and a stretch of work leaves.

    Attributes:
        left: How many more there are at its end, before anything is collected.
        garbage: How many of them only the collector can free.
    """

    left = garbage = 0

    @contextlib.contextmanager
    def counting(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        with uncollected():
            tidy(loop)  # the loop lets go of cancelled timers now and then, many at once
            before = gc.get_count()[0]
            yield
            tidy(loop)
            self.left = gc.get_count()[0] - before
            self.garbage = gc.collect()


@contextlib.contextmanager
def uncollected() -> Generator[None]:
    """Collect now, and not again before the end: finalizers would be called, and objects go, at any moment."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def stopped_clock() -> Generator[None]:
    """Stop the clock of the running loop: no timer is ever due, so nothing happens because time has passed."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    with patch.object(loop, "time", lambda: now):
        yield


def is_own(code: CodeType) -> bool:
    """Whether a function is part of what an agent runs on: the package without its stubs for tests."""
    path = Path(code.co_filename)
    return path.is_relative_to(_PACKAGE) and path.relative_to(_PACKAGE).parts[0] not in _STUBS


def _files(codes: Iterable[CodeType]) -> list[str]:
    """The own files of these functions, each once, in order."""
    return list(
        dict.fromkeys(Path(code.co_filename).relative_to(_PACKAGE).as_posix() for code in codes if is_own(code))
    )
