"""Sinks of an embedder: what they get, and that none of them holds up or fails a turn (H5)."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.core import Emitter, Scope, SystemClock
from worldagent.core import events as ev
from worldagent.core.errors import InvalidArgument, StorageUnavailable
from worldagent.harness.trace import Dropped, JsonLinesTrace, Trace, Traced, read_trace
from worldagent.harness.trace.tracer import Tracer

pytestmark = pytest.mark.requirement("H5")

SCOPE = Scope(workspace="novel", thread="t1")
BOUND = 10  # seconds


class Kept:
    """Keeps what it gets, once it may."""

    def __init__(self, *, held: bool = False) -> None:
        self.items: list[Traced] = []
        self.may = asyncio.Event()
        self.asked = asyncio.Event()
        if not held:
            self.may.set()

    async def write(self, items: Sequence[Traced]) -> None:
        self.asked.set()
        await self.may.wait()
        self.items += items

    async def aclose(self) -> None:
        pass


class Broken:
    """Raises, with words that must not get into a log."""

    calls = 0

    async def write(self, items: Sequence[Traced]) -> None:
        self.calls += 1
        raise RuntimeError("words that may hold anything")

    async def aclose(self) -> None:
        raise OSError("other words")


def emitter(tracer: Tracer, turn_id: str = "turn_1") -> Emitter:
    tap = tracer.tap(SCOPE)
    return Emitter(turn_id, SystemClock(), tap, tap)


async def test_failing_sink_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken, kept = Broken(), Kept()
    with caplog.at_level(logging.DEBUG):
        async with scripted_agent(tmp_path, answering(), trace=[broken, kept]) as agent:
            for _ in range(2):
                assert (await agent.thread("t1").converse("Hello")).status == "done"
                await agent.traces.list()
    told = [record.getMessage() for record in caplog.records if record.name == "worldagent.traces"]
    assert told == [
        "the trace sink Broken failed with RuntimeError; it will be tried again after growing pauses, "
        "and the events that it misses are counted",
        "the trace sink Broken still fails while the agent closes; it missed 8 events",
        "the trace sink Broken failed with OSError while it was closed",
    ]
    assert "words" not in caplog.text
    assert broken.calls == 2  # the first write, and one more as the agent closes: the pause is longer than this test
    assert [type(item.what) for item in kept.items].count(ev.TurnEnded) == 2


class FullDisk(Kept):
    """Raises as long as the disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True
        self.failed = asyncio.Event()
        self.took = asyncio.Event()
        self.calls = 0

    async def write(self, items: Sequence[Traced]) -> None:
        self.calls += 1
        if self.full:
            self.failed.set()
            raise OSError(28, "No space left on device")
        await super().write(items)
        self.took.set()


async def test_sink_gets_events_again_once_the_disk_has_space(caplog: pytest.LogCaptureFixture) -> None:
    sink = FullDisk()
    tracer = Tracer([sink])
    async with asyncio.timeout(BOUND):
        for turn, full in (("turn_1", True), ("turn_2", False), ("turn_3", True), ("turn_4", False)):
            sink.full = full
            sink.failed.clear()
            sink.took.clear()
            emit = emitter(tracer, turn)
            emit(ev.TurnStarted, thread="t1", kind="message")
            emit(ev.TurnEnded, status="done")
            await (sink.failed if full else sink.took).wait()
        await tracer.aclose()
    what = [(type(item.what), item.what.turn_id) for item in sink.items]
    assert what == [
        (Dropped, "turn_1"),
        (ev.TurnStarted, "turn_2"),
        (ev.TurnEnded, "turn_2"),
        (Dropped, "turn_3"),
        (ev.TurnStarted, "turn_4"),
        (ev.TurnEnded, "turn_4"),
    ]
    assert [item.what.count for item in sink.items if isinstance(item.what, Dropped)] == [2, 2]
    told = [record.getMessage() for record in caplog.records if record.name == "worldagent.traces"]
    outage = [
        "the trace sink FullDisk failed with OSError; it will be tried again after growing pauses, "
        "and the events that it misses are counted",
        "the trace sink FullDisk is working again; it missed 2 events",
    ]
    assert told == outage * 2


async def test_a_turn_does_not_wait_for_a_sink(tmp_path: Path) -> None:
    kept = Kept(held=True)
    async with scripted_agent(tmp_path, answering(), trace=kept, settings={"trace": False}) as agent:
        async with asyncio.timeout(BOUND):
            turn = await agent.thread("t1").converse("Hello")
            await kept.asked.wait()
        assert (turn.status, kept.items) == ("done", [])
        kept.may.set()
    assert [type(item.what) for item in kept.items] == [ev.TurnStarted, ev.Usage, ev.StepEnded, ev.TurnEnded]


async def test_slow_sink_receives_the_count_of_missed_events(tmp_path: Path) -> None:
    kept = Kept(held=True)
    tracer = Tracer([kept], limit=3)
    emit = emitter(tracer)
    emit(ev.TurnStarted, thread="t1", kind="message")
    for number in range(5):
        emit(ev.CallEnded, call_id=f"turn_1/c:{number}", status="done")
    emit(ev.TurnEnded, status="done")
    kept.may.set()
    await tracer.aclose()
    what = [item.what for item in kept.items]
    assert [type(each) for each in what] == [ev.TurnStarted, ev.CallEnded, ev.CallEnded, Dropped, ev.TurnEnded]
    [dropped] = [each for each in what if isinstance(each, Dropped)]
    assert (dropped.turn_id, dropped.count) == ("turn_1", 3)
    lines = JsonLinesTrace(tmp_path / "t.jsonl")
    await lines.write(kept.items)
    [record] = [record for record in read_trace(tmp_path / "t.jsonl").records if record.kind == "dropped"]
    assert (record.count, record.turn) == (3, "turn_1")
    with pytest.raises(StorageUnavailable, match=r"the trace file .* cannot be written"):
        await JsonLinesTrace(tmp_path).write(kept.items)


@pytest.mark.parametrize("given", ["here", [object], {"capture": ["texts"]}, {"limit": 0}], ids=repr)
def test_invalid_trace_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(InvalidArgument):
        scripted_agent(tmp_path, answering(), trace=Trace(**given) if isinstance(given, dict) else given)
