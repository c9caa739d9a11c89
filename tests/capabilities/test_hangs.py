"""A capability that waits for the agent that waits for it, or for ever."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent import WorldAgent
from worldagent.agent import asking
from worldagent.core import Scope
from worldagent.core.capability import Capability, InputField, Runtime
from worldagent.core.errors import CapabilityFailed, FunctionInvalid, NameTaken
from worldagent.harness import Function, tool

pytestmark = pytest.mark.requirement("H10")

BOUND = 20  # seconds


class Waiting(Capability["Waiting"]):
    """Does something as it opens, as it closes and as an input is filled."""

    name = "waiting"

    def __init__(self, **steps: Callable[[], Awaitable[Any]]) -> None:
        self.steps = steps

    async def do(self, step: str) -> None:
        if step in self.steps:
            await self.steps[step]()

    def fields(self, runtime: Runtime) -> Iterable[InputField]:
        async def fill(scope: Scope) -> str:
            await self.do("fill")
            return "filled"

        return [InputField(name="waiting", description="waits", fill=fill)]

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator["Waiting"]:
        await self.do("opening")
        yield self
        await self.do("closing")


def agent_of(tmp_path: Path, capability: Waiting) -> WorldAgent:
    return scripted_agent(tmp_path, answering(), capabilities=[capability])


@pytest.mark.parametrize("step", ["opening", "closing"])
@pytest.mark.parametrize("call", ["start", "aclose", "drain"])
async def test_a_capability_cannot_start_or_close_the_agent_that_waits_for_it(
    tmp_path: Path, step: str, call: str
) -> None:
    capability = Waiting()
    agent = agent_of(tmp_path, capability)
    capability.steps[step] = getattr(agent, call)
    with pytest.raises(FunctionInvalid, match="cannot start or close its agent while the agent opens or closes"):
        async with asyncio.timeout(BOUND), agent:
            assert (await agent.thread("1").converse("Hi")).text == "Fine."
    capability.steps.clear()
    async with asyncio.timeout(BOUND), agent:  # it is closed, and starts again
        assert agent.is_open


async def test_a_task_that_it_begins_can_close_the_agent_later(tmp_path: Path) -> None:
    closing: list[asyncio.Task[None]] = []

    async def opening() -> None:
        async def close() -> None:
            await open_.wait()
            await agent.aclose()

        closing.append(asyncio.create_task(close()))

    open_, agent = asyncio.Event(), agent_of(tmp_path, Waiting(opening=opening))
    async with asyncio.timeout(BOUND):
        await agent.start()
        open_.set()
        await closing[0]
    assert not agent.is_open


async def test_a_drain_ends_although_a_capability_does_not_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "CLOSE_SECONDS", 0.05)
    agent = agent_of(tmp_path, Waiting(closing=asyncio.Event().wait))
    async with asyncio.timeout(BOUND):
        await agent.start()
        with pytest.raises(CapabilityFailed, match=r"closing of the capability 'waiting' was given up after 0\.05 sec"):
            await agent.drain(1)
    assert not agent.is_open


async def test_the_log_says_what_an_agent_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asking, "SLOW_SECONDS", 0.05)
    slow = {step: lambda: asyncio.sleep(0.3) for step in ("opening", "fill", "closing")}
    with caplog.at_level(logging.WARNING, "worldagent.agent"):
        async with agent_of(tmp_path, Waiting(**slow)) as agent:
            await agent.thread("1").converse("Hi")
    said = [each.getMessage() for each in caplog.records]
    for what in ("opening", "the input 'waiting'", "closing"):
        assert f"{what} of the capability 'waiting' has not ended after 0.05 seconds" in said


@tool
def pay() -> str:
    """Pay."""
    return "Paid."


@pytest.mark.parametrize(("name", "whose"), [("till", "the agent"), ("purse", "the capability 'till'")])
def test_a_function_whose_name_is_taken_names_its_capability(tmp_path: Path, name: str, whose: str) -> None:
    def functions(self: Any, runtime: Runtime) -> Iterable[Function]:
        return [pay]

    made = [type("Paying", (Capability,), {"name": each, "functions": functions})() for each in ("till", "purse")]
    own, brought = ([pay], made[:1]) if name == "till" else ([], made)
    with pytest.raises(NameTaken, match=f"the capability '{name}' has a function 'pay', and so has {whose}"):
        scripted_agent(tmp_path, answering(), tools=own, capabilities=brought)
