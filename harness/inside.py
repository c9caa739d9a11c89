"""Which body of a call is running here, also in its thread and its tasks, and the origin of a turn that it begins.

A context variable carries it, so a thread that a body starts without copying its context is not recognised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

from anyio import CapacityLimiter, to_thread

from ..core.errors import FunctionInvalid, ThreadUnavailable

T = TypeVar("T")


class Exited(Exception):
    """The code tried to end the process, such as by `sys.exit()`."""

    def __init__(self, original: BaseException) -> None:
        super().__init__()
        self.original = original


async def without_exit(running: Awaitable[T]) -> T:
    """Wait for code that must not end the process, in the task that runs it; `guarded` handles the `Exited`.

    An event loop ends if a task raises something that is not an `Exception`. A cancellation and Ctrl+C pass through.

    Raises:
        Exited: The code raised `SystemExit` or another exception that is not an `Exception`.
    """
    task = asyncio.current_task()
    try:
        return await running
    except BaseException as error:  # broad: `SystemExit`, and other subclasses of `BaseException`
        if isinstance(error, Exception | asyncio.CancelledError | KeyboardInterrupt):
            raise
        if isinstance(error, GeneratorExit) and asyncio.current_task() is not task:  # the coroutine is being closed
            raise
        exited = error
    raise Exited(exited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The call that a turn was begun or resumed from.

    Attributes:
        caller: The function that was called. If `model_influenced`, the calls of the turn count as its calls.
        model_influenced: Whether a model influenced that call, and so the turn.
        depth: How deep that call is nested; the calls of the turn are deeper.
        marks: The untrusted functions whose results had been read there.
        workers: The workers that the call was made for. Their policies narrow the turn's calls as well.
        handed: Whether a member speaks there in the conversation of a person, for whom the turn is then, too (A21).
    """

    caller: str
    model_influenced: bool
    depth: int
    marks: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    handed: bool = False

    def to_json(self) -> dict[str, Any]:
        """The origin as JSON."""
        return {
            "caller": self.caller,
            "modelled": self.model_influenced,
            "depth": self.depth,
            "marks": list(self.marks),
            "workers": list(self.workers),
            **({"handed": True} if self.handed else {}),
        }

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Origin | None:
        """Read what `to_json` returned."""
        if kept is None:
            return None
        return cls(
            caller=kept["caller"],
            model_influenced=kept["modelled"],
            depth=kept["depth"],
            marks=tuple(map(str, kept["marks"])),
            workers=tuple(map(str, kept.get("workers", ()))),
            handed=kept.get("handed") is True,
        )

    @staticmethod
    def both(first: Origin | None, then: Origin | None) -> Origin | None:
        """Combine the origins of a turn that was begun from one call and resumed from another."""
        if first is None or then is None:
            return first or then
        return Origin(
            caller=first.caller if first.model_influenced else then.caller,
            model_influenced=first.model_influenced or then.model_influenced,
            depth=max(first.depth, then.depth),
            marks=tuple(sorted({*first.marks, *then.marks})),
            workers=tuple(dict.fromkeys((*first.workers, *then.workers))),
            handed=first.handed or then.handed,
        )


class Begins(Protocol):
    """The context of a body that can begin turns; see `CallContext`."""

    @property
    def on_behalf_of(self) -> str:
        """The member that its turn runs for."""
        ...

    @property
    def origin(self) -> Origin:
        """The origin of a turn that it begins now."""
        ...


class Inside:
    """Marks the running body of a call: `with Inside(name, ctx): ...`, in the body's own task.

    Args:
        name: The name of the function.
        ctx: The context of its body.
        leaf: Whether it is a leaf, which cannot call anything.

    Attributes:
        on_behalf_of: The member that its turn runs for. A turn that the body begins runs for the same one.
    """

    _now: ClassVar[ContextVar[Inside | None]] = ContextVar("worldagent_inside", default=None)

    __slots__ = ("_ctx", "_ended", "_running", "leaf", "name", "on_behalf_of")

    def __init__(self, name: str, ctx: Begins, *, leaf: bool) -> None:
        self.name = name
        self.leaf = leaf
        self.on_behalf_of = ctx.on_behalf_of
        self._ctx: Begins | None = ctx
        self._ended: Origin | None = None
        self._running: set[object] = set()  # the body's task, and threads that outlive it

    def __enter__(self) -> Self:
        self._running.add(self)
        self._now.set(self)  # never reset: the task belongs to the body
        return self

    def __exit__(self, *_: object) -> None:
        # A task that the body has started and not awaited still takes its first step as part of the body.
        try:
            asyncio.get_running_loop().call_soon(self._end, self)
        except RuntimeError:  # the loop is closed, and the body is being discarded
            self._end(self)

    def _end(self, part: object) -> None:
        """A part of the body has ended. After the last one, tasks that the body left behind must not keep its role."""
        self._running.discard(part)
        if not self._running:
            self._ended, self._ctx = self.origin, None

    @classmethod
    def now(cls) -> Inside | None:
        """The innermost body that the running code is part of; None for the host's code and after the body ended."""
        inside = cls._now.get()
        return inside if inside is not None and inside._running else None

    @classmethod
    @contextmanager
    def as_host(cls) -> Generator[None]:
        """Run a block as the host's code, although a body of a call waits for it."""
        before = cls._now.get()
        cls._now.set(None)
        try:
            yield
        finally:
            cls._now.set(before)

    @classmethod
    def refuse(cls, name: str) -> None:
        """Refuse a call on the agent by a body, which must use its own context.

        Args:
            name: The name that is called.

        Raises:
            FunctionInvalid: The running code is part of a body.
        """
        inside = cls.now()
        if inside is not None:
            raise FunctionInvalid(
                f"{inside.name!r} cannot call {str(name)[:200]!r} on the agent",
                remedy="make it a @flow and use ctx.call",
            )

    @classmethod
    def on_thread(cls, work: Callable[[], T]) -> Callable[[], T]:
        """Wrap `work` for a thread: the body counts as running until `work` ends, even after a cancellation."""
        inside = cls.now()
        if inside is None:
            return work

        def run() -> T:
            mark = object()
            inside._running.add(mark)
            try:
                return work()
            finally:
                inside._end(mark)

        return run

    @property
    def origin(self) -> Origin:
        """The origin of a turn that this body begins now."""
        if self._ctx is not None:
            return self._ctx.origin
        assert self._ended is not None, "see `_end`"
        return self._ended


async def run_on_thread(work: Callable[[], T], limiter: CapacityLimiter) -> T:
    """Run `work` on a thread as part of the running body. After a cancellation it runs on, and its result is dropped.

    Args:
        work: What to run.
        limiter: How many threads run at once.

    Raises:
        ThreadUnavailable: The process cannot start a thread, so `work` did not begin.
    """
    begun: list[bool] = []
    marked = Inside.on_thread(work)

    def run() -> T:
        begun.append(True)
        return marked()

    try:
        return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    except (RuntimeError, MemoryError):
        if begun:
            raise
    error = ThreadUnavailable(
        "the process cannot start another thread, so a function that is not async did not run",
        remedy="raise the process's limits of threads and memory, or make the function async; then try again",
    )
    error.unsent = ""
    raise error
