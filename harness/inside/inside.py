"""Whose body runs, on its thread and in the tasks that it makes too, and what a turn is told that it begins.

A context variable carries it: it knows nothing of a thread that a body makes without handing its context on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from ...core.errors import FunctionInvalid

if TYPE_CHECKING:
    from ..context import CallContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The call that a turn was begun or resumed from.

    Attributes:
        caller: What was called; the turn's own calls are by it where `modelled`.
        modelled: Whether a model had a say in that call, and so in the turn.
        depth: How deep it stands; what the turn does stands deeper.
        marks: The untrusted functions whose results had been read there.
        workers: The workers that the call was made for: their own policies narrow the turn's calls, too.
    """

    caller: str
    modelled: bool
    depth: int
    marks: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "caller": self.caller,
            "modelled": self.modelled,
            "depth": self.depth,
            "marks": list(self.marks),
            "workers": list(self.workers),
        }

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Origin | None:
        """What `to_json` gave."""
        if kept is None:
            return None
        return cls(
            caller=kept["caller"],
            modelled=kept["modelled"],
            depth=kept["depth"],
            marks=tuple(map(str, kept["marks"])),
            workers=tuple(map(str, kept.get("workers", ()))),
        )

    @staticmethod
    def both(first: Origin | None, then: Origin | None) -> Origin | None:
        """That of a turn that was begun from one call and resumed from another."""
        if first is None or then is None:
            return first or then
        return Origin(
            caller=first.caller if first.modelled else then.caller,
            modelled=first.modelled or then.modelled,
            depth=max(first.depth, then.depth),
            marks=tuple(sorted({*first.marks, *then.marks})),
            workers=tuple(dict.fromkeys((*first.workers, *then.workers))),
        )


class Inside:
    """A body of a call while it runs: `with Inside(name, ctx): ...`, in a task of the body's own.

    Args:
        name: What is called.
        ctx: What its body runs under.
        leaf: Whether it is one, which calls nothing.
    """

    _now: ClassVar[ContextVar[Inside | None]] = ContextVar("worldagent_inside", default=None)

    __slots__ = ("_ctx", "_running", "leaf", "name")

    def __init__(self, name: str, ctx: CallContext, *, leaf: bool) -> None:
        self.name = name
        self.leaf = leaf
        self._ctx = ctx
        self._running: set[object] = set()  # the body's task, and threads that outlive it

    def __enter__(self) -> Self:
        self._running.add(self)
        self._now.set(self)  # for good: the task is the body's own
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A task that the body has made and not waited for takes its first step yet as a part of it.
        try:
            asyncio.get_running_loop().call_soon(self._running.discard, self)
        except RuntimeError:  # the loop is gone, and the body is thrown away
            self._running.discard(self)

    @classmethod
    def now(cls) -> Inside | None:
        """The innermost body that whoever asks is part of; None once it is over, and for the host's own code."""
        inside = cls._now.get()
        return inside if inside is not None and inside._running else None

    @classmethod
    @contextmanager
    def left(cls) -> Generator[None]:
        """What is done here is the host's own, though a body of a call waits for it."""
        before = cls._now.get()
        cls._now.set(None)
        try:
            yield
        finally:
            cls._now.set(before)

    @classmethod
    def refuse(cls, name: str) -> None:
        """Refuse a call that is made past the context of the body that makes it.

        Args:
            name: What is called.

        Raises:
            FunctionInvalid: A body runs here.
        """
        inside = cls.now()
        if inside is not None:
            raise FunctionInvalid(
                f"{inside.name!r} calls {str(name)[:200]!r} on the agent", remedy="make it a @flow and use ctx.call"
            )

    @classmethod
    def on_thread(cls, work: Callable[[], T]) -> Callable[[], T]:
        """`work` for a thread: the body runs for as long as that does, though nobody waits for it any more."""
        inside = cls.now()
        if inside is None:
            return work

        def run() -> T:
            mark = object()
            inside._running.add(mark)
            try:
                return work()
            finally:
                inside._running.discard(mark)

        return run

    @property
    def origin(self) -> Origin:
        """What a turn is told that is begun here and now."""
        ctx = self._ctx
        return Origin(
            caller=ctx.caller.name,
            modelled=ctx.told_caller.modelled,
            depth=ctx.frame.depth,
            marks=tuple(sorted(ctx.gate.marks)),
            workers=ctx.caller.workers,
        )


__all__ = ["Inside", "Origin"]
