"""The virtual clock moves only when it is told to, and wakes sleepers in order."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from worldagent.core import Clock
from worldagent.core.errors import InvalidArgument
from worldagent.testing import VirtualClock


def test_it_is_a_clock_that_moves_only_when_advanced() -> None:
    start = datetime(2026, 5, 4, 12, tzinfo=timezone(timedelta(hours=2)))
    clock = VirtualClock(start)
    assert isinstance(clock, Clock)
    assert clock.now() == clock.now() == datetime(2026, 5, 4, 10, tzinfo=UTC)
    assert clock.monotonic() == 0.0


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = VirtualClock(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("late", 30), ("early", 10), ("same", 10), ("never", 31)):
            tasks.create_task(sleeper(name, seconds))
        await clock.advance(30)
        assert woken == [("early", 10), ("same", 10), ("late", 30)]
        assert clock.sleepers == 1
        await clock.advance(1)
    assert woken[-1] == ("never", 31)


async def test_a_loop_that_sleeps_again_runs_at_each_of_its_times() -> None:
    clock, ticks = VirtualClock(), list[float]()

    async def tick() -> None:
        while True:
            await clock.sleep(5)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(21)
    task.cancel()
    assert ticks == [5, 10, 15, 20]
    assert clock.now() - VirtualClock().now() == timedelta(seconds=21)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.advance(1)
    assert clock.sleepers == 1
    task.cancel()
    await clock.advance(10)
    assert (clock.sleepers, task.cancelled()) == (0, True)


async def test_no_time_to_sleep_only_lets_others_run() -> None:
    clock = VirtualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0.0


async def test_wrong_times_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="negative"):
        await VirtualClock().advance(-1)
    with pytest.raises(InvalidArgument, match="must have a time zone"):
        VirtualClock(datetime(2026, 1, 1))
