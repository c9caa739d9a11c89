"""A service that asks to slow down is given the time it asks for, by all turns of the process together (H4)."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dspy import lm15

from support.agents import scripted_agent
from worldagent.core.errors import ModelRateLimited
from worldagent.signatures.engines.costs import RateLimiter, RateLimitWait, duration
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("H4")

BOUND = 60


def limited(seconds: float | None = None) -> ModelRateLimited:
    return ModelRateLimited("slow down", remedy="wait", retry_after=seconds)


@dataclass
class Service:
    """A service that refuses so many calls first, on a clock that is moved by hand."""

    refusals: int = 1
    retry_after: float | None = 10
    clock: VirtualClock = field(default_factory=VirtualClock)
    at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pace = RateLimiter(self.clock)
        self.held = asyncio.Event()
        self.held.set()

    async def call(self, patience: float = 1000, backoff: float = 1) -> str:
        async with self.pace.place(patience, backoff=backoff, model="m"):
            self.at.append(self.clock.monotonic())
            await self.held.wait()
            if self.refusals > 0:
                self.refusals -= 1
                raise limited(self.retry_after)
            return "fine"

    async def persistent(self) -> str:
        while True:
            try:
                return await self.call()
            except RateLimitWait:
                raise
            except ModelRateLimited:
                continue


async def test_a_service_that_names_an_hour_is_tried_in_between() -> None:
    service = Service(refusals=1, retry_after=3600)
    with pytest.raises(ModelRateLimited):
        await service.call()
    with pytest.raises(RateLimitWait, match=r"wait 5 minutes and"):
        await service.call(patience=120)
    call = asyncio.create_task(service.call(patience=600))
    await service.clock.advance(0)
    await service.clock.advance(300)
    assert await asyncio.wait_for(call, BOUND) == "fine"
    assert [round(at - service.at[0]) for at in service.at] == [0, 300]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1 second"),
        (2.5, "2.5 seconds"),
        (90, "90 seconds"),
        (200, "4 minutes"),
        (3600, "1 hour"),
        (9000, "3 hours"),
    ],
)
def test_a_wait_is_named_as_people_name_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


async def test_after_a_refusal_one_call_goes_first_and_the_others_follow() -> None:
    service = Service()
    turns = [asyncio.create_task(service.persistent()) for _ in range(50)]
    service.held.clear()
    await service.clock.advance(0)
    assert len(service.at) == 50  # nobody knew yet
    service.refusals = 50
    service.held.set()
    await service.clock.advance(9.9)
    assert service.at == [0] * 50
    service.held.clear()
    service.refusals = 0
    await service.clock.advance(5)
    assert service.at[50:] == [10]  # the first, whose answer is awaited
    late = asyncio.create_task(service.call())
    await service.clock.advance(5)
    assert len(service.at) == 51
    service.held.set()
    assert await asyncio.gather(*turns, late) == ["fine"] * 51
    assert service.at[51:] == [19.9] * 50


async def test_where_the_service_names_no_time_the_wait_grows_and_ends_with_the_first_that_goes_well() -> None:
    service = Service(refusals=4, retry_after=None)
    turn = asyncio.create_task(service.persistent())
    await service.clock.advance(100)
    assert await turn == "fine"
    assert service.at == [0, 1, 3, 7, 15]
    service.refusals = 1
    turn = asyncio.create_task(service.persistent())
    await service.clock.advance(100)
    assert await turn == "fine"
    assert service.at[5:] == [100, 101]


async def test_if_the_first_fails_otherwise_or_is_cancelled_the_next_goes() -> None:
    service = Service()
    with pytest.raises(ModelRateLimited):
        await service.call()
    service.held.clear()
    first, second, third = (asyncio.create_task(service.call()) for _ in range(3))
    await service.clock.advance(10)
    assert service.at == [0, 10]
    first.cancel()
    await service.clock.advance(1)
    assert service.at == [0, 10, 10]
    service.held.set()
    assert [await second, await third] == ["fine", "fine"]
    assert first.cancelled()


async def test_a_call_is_held_back_no_longer_than_it_may_be() -> None:
    service = Service(retry_after=30)
    with pytest.raises(ModelRateLimited):
        await service.call()
    with pytest.raises(
        RateLimitWait, match="'m' is rate limited, and its calls are held back; wait 30 seconds"
    ) as caught:
        await service.call(patience=29)
    assert caught.value.code == "model_rate_limited"
    assert caught.value.retry_after == 30
    await service.clock.advance(30)
    service.held.clear()
    first = asyncio.create_task(service.call())
    await service.clock.advance(0)
    behind = asyncio.create_task(service.call(patience=5))
    await service.clock.advance(5)
    with pytest.raises(RateLimitWait):
        await behind
    service.held.set()
    assert await first == "fine"


class Limited(ScriptedLM):
    """A model whose service refuses one call and wants to be left alone for a time; it counts who does not."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.until, self.early = seconds, 0.0, 0
        self.refused = asyncio.Event()
        super().__init__(self.reply)

    def reply(self, call: ScriptedCall) -> Any:
        now = time.monotonic()
        if not self.refused.is_set():
            self.refused.set()
            self.until = now + self.seconds
            return lm15.RateLimitError("slow down", retry_after=self.seconds)
        self.early += now < self.until
        return {"reply": "Fine."}


async def test_fifty_turns_of_two_agents_leave_the_service_in_peace_for_the_time_it_asks_for(tmp_path: Path) -> None:
    lm = Limited(1.5)
    async with AsyncExitStack() as agents:
        opened = [
            await agents.enter_async_context(scripted_agent(tmp_path / name, lm, settings={"model_attempts": 2}))
            for name in ("one", "two")
        ]
        first = asyncio.create_task(opened[0].thread("first").converse("Hello"))
        await asyncio.wait_for(lm.refused.wait(), BOUND)
        turns = [opened[place % 2].thread(f"t{place}").converse("Hello") for place in range(50)]
        done = await asyncio.wait_for(asyncio.gather(first, *turns), BOUND)
    assert [turn.text for turn in done] == ["Fine."] * 51
    assert (len(lm.calls), lm.early) == (52, 0)
