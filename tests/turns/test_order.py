"""The newest turn of a thread is the one that began last, in whatever order turns got their ids (T4, T9, T10)."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.agents import Thinking, answering, calls, pay, scripted_agent, state_of
from worldagent.agent import Resume, Say
from worldagent.core.pauses import Approve
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4", "T9", "T10")

HOW: dict[str, dict[str, Any]] = {"plain": {}, "detached": {"detach": True}, "keyed": {"key": "one"}}


def buys(asked: ScriptedCall) -> dict[str, Any]:
    if "ink" in str(asked.fields["message"]) and not asked.steps:
        return calls(("pay", {"what": "ink"}))
    return {"reply": "Done."}


@contextmanager
def clock_ahead(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let turns get ids of an hour from now: a process got them later, or a machine whose clock is ahead."""
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + 3_600 * 10**9)
    with monkeypatch.context() as ahead:
        ahead.setattr("worldagent.core.validation.time", clock)  # its own alone: LangGraph keeps the latest time it saw
        yield


@pytest.mark.parametrize("how", HOW)
async def test_turn_that_began_last_is_answered_whatever_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    done: list[str] = []
    async with scripted_agent(tmp_path, ScriptedLM(buys), tools=[pay(done)]) as agent:
        thread = agent.thread("t")
        earlier = thread.stream(Say("Buy ink", **HOW[how]))
        with clock_ahead(monkeypatch):
            first = await thread.converse("Hello")
        async with earlier as stream:
            turn = await stream.wait()
        assert turn.status == "paused"
        assert stream.turn_id == turn.id > first.id
        assert (await state_of(thread)).turn_id == turn.id
        [pause] = await thread.pauses()
        assert (await thread.run(Resume({pause.id: Approve()}))).text == "Done."
        assert done == ["ink"]


@pytest.mark.parametrize("how", HOW)
async def test_turn_that_began_last_is_steered_followed_and_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    thinking = Thinking()
    async with scripted_agent(tmp_path, thinking.lm) as agent:
        thread = agent.thread("t")
        earlier = thread.stream(Say("Think", **HOW[how]))
        thinking.may.set()
        with clock_ahead(monkeypatch):
            first = await thread.converse("Hello")
        thinking.may.clear()
        thinking.asked.clear()
        async with earlier as stream:
            begun = [await anext(stream)]
            await asyncio.wait_for(thinking.asked.wait(), 20)
            assert (await thread.steer("Quickly")).waits_for == "turn"
            if how != "plain":
                begun.append(await anext(agent.events(stream.turn_id)))
            assert await stream.cancel()
        assert {event.turn_id for event in begun} == {stream.turn_id}
        assert stream.turn_id > first.id
        state = await state_of(thread)
        assert (state.turn_id, state.status) == (stream.turn_id, "cancelled")


async def test_turns_begin_one_after_the_other_though_a_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_agent(tmp_path, answering("Fine.")) as agent:
        thread = agent.thread("t")
        with clock_ahead(monkeypatch):
            ids = [(await thread.converse("Hello")).id]
        ids += [(await thread.converse("Hello")).id for _ in range(3)]
        assert ids == sorted(ids)
        assert (await state_of(thread)).turn_id == ids[-1]
