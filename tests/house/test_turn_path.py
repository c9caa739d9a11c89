"""How much of the package one plain turn goes through before its model is called: so much must be read to follow it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from support.house import ROOT
from worldagent import Role, Storage, WorldAgent
from worldagent.testing import ScriptedLM

_MOST_ENTERED = 45
_LONGEST_PATH = 8
_NOT_THE_TURN = ("tests/", ".dev/", ".venv/", "testing/")  # `testing` is the model here


class _Way:
    """Watches one task, and those that it creates, until the model is called.

    What timers do meanwhile, such as writing traces, is not part of the turn.

    Attributes:
        entered: The files whose functions were called.
        path: The files on the stack of the predictor's call, and on the stacks where its tasks were created.
    """

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.path: list[str] = []
        self._created: dict[asyncio.Task[Any] | None, list[str]] = {asyncio.current_task(): []}
        self._over = True

    def begin(self) -> None:
        """Begin the watch."""
        self._over = False

    def model(self, _: object) -> str:
        """Answer as the model: here the watch ends."""
        self._over = True
        return "Yes."

    def task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task, and note the stack that it is created on."""
        task = asyncio.Task(work, loop=loop, **options)
        if asyncio.current_task() in self._created:
            self._created[task] = self._stack(sys._getframe(1))
        return task

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, as a profile function."""
        if event != "call" or self._over or asyncio.current_task() not in self._created:
            return
        name, function = _file(frame), frame.f_code.co_name
        if name is None:
            return
        self.entered.add(name)
        if (name, function) == ("signatures/predictor.py", "__call__"):
            self.path = self._stack(frame)

    def _stack(self, frame: FrameType | None) -> list[str]:
        found: list[str] = []
        while frame is not None:
            if (name := _file(frame)) is not None:
                found.append(name)
            frame = frame.f_back
        return [*self._created[asyncio.current_task()], *reversed(found)]


async def test_a_plain_turn_goes_through_few_files_before_its_model_is_called(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    way, loop = _Way(), asyncio.get_running_loop()
    async with WorldAgent("w", lm=ScriptedLM(way.model), storage=Storage(tmp_path)) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("First.")
        way.begin()
        loop.set_task_factory(way.task)
        sys.setprofile(way.called)
        try:
            await thread.converse("Second.", role=Role("calm", "Speak calmly."))
        finally:
            sys.setprofile(None)
            loop.set_task_factory(None)
    path = list(dict.fromkeys(way.path))
    record_property("entered", len(way.entered))
    record_property("path", " > ".join(path))
    assert path[0] == "agent/thread.py"
    assert path[-1] == "signatures/predictor.py"
    assert len(path) <= _LONGEST_PATH, path
    assert len(way.entered) <= _MOST_ENTERED, sorted(way.entered)


def _file(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_absolute() or not (real := path.resolve()).is_relative_to(ROOT):
        return None
    name = real.relative_to(ROOT).as_posix()
    return None if name.startswith(_NOT_THE_TURN) or frame.f_code.co_name == "<module>" else name
