"""Random interleavings of what people, models and tools do with a thread follow the rules of the guide (T15, T16)."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agents import approving, open_pauses, scripted_agent
from support.homes import selected
from support.inbox import texts
from support.inbox_model import Rules
from worldagent import Approve, WorldAgent, tool
from worldagent.agent import Edit, Say, Thread
from worldagent.core.errors import ModelUnavailable, NothingToSteer, WorldAgentError
from worldagent.harness import Function, Policy
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T15", "T16")

EXAMPLES = (settings.default or settings()).max_examples // 10
LIMIT = 30  # seconds until a thread must do what the rules say

CALLS = {
    "call": {"reply": "", "calls": [{"tool": "paint", "arguments": {}}]},
    "ask": {"reply": "", "calls": [{"tool": "pay", "arguments": {}}]},
}
DOOMED = "SELECT id FROM wa_turn WHERE gentle=1 AND cancel=1 AND status='running'"
FAILING = ("outage", "nonsense")  # the model cannot be reached, or gives nothing usable to the end of the turn


Move = Callable[[], Coroutine[Any, Any, None]]


class Play:
    """A thread whose model and tool do what the test says, and the rules beside it.

    Args:
        home: The home of its agents.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.rules, self.said, self.mad = home, Rules(), 0, ""
        self.thinking: tuple[str, asyncio.Future[str]] | None = None
        self.acting: asyncio.Future[None] | None = None
        self.turns: list[asyncio.Task[Any]] = []
        self.agent: WorldAgent

    async def reply(self, call: ScriptedCall) -> Any:
        if self.mad == call.fields["message"]:
            return {"reply": ""}
        asked = self.thinking = (str(call.fields["message"]), asyncio.get_running_loop().create_future())
        try:
            decided = await asked[1]
        finally:
            self.thinking = None if self.thinking is asked else self.thinking
        if decided == "outage":
            raise ModelUnavailable("the service is down", remedy="try again")
        if decided == "nonsense":
            self.mad = asked[0]
            return {"reply": ""}
        return CALLS.get(decided, {"reply": f"re {asked[0]}"})

    def functions(self) -> list[Function]:
        async def paint() -> str:
            mine = self.acting = asyncio.get_running_loop().create_future()
            try:
                await mine
            finally:
                self.acting = None if self.acting is mine else self.acting
            return "painted"

        async def pay() -> str:
            return "paid"

        return [tool(risk="read_only")(paint), tool(risk="read_only", approval=True)(pay)]

    def open(self) -> WorldAgent:
        lm = ScriptedLM(self.reply)
        return scripted_agent(self.home, lm, tools=self.functions(), policy=Policy(rules=(approving("paint"),)))

    @property
    def thread(self) -> Thread:
        return self.agent.thread("t", account="ana")

    # --- moves ------------------------------------------------------------------------------------------------------

    def moves(self) -> list[tuple[str, Move]]:
        """What can be done now."""
        rules, phase = self.rules, self.rules.phase
        found: list[tuple[str, Move]] = [
            ("steer", partial(self.steer, begin=False)),
            ("steer or begin", partial(self.steer, begin=True)),
            ("queue", partial(self.queue, interrupt=False)),
            ("queue and interrupt", partial(self.queue, interrupt=True)),
            ("reopen", self.reopen),
        ]
        of_phase: dict[str, list[tuple[str, Move]]] = {
            "thinking": [(what, partial(self.decide, what)) for what in ("answer", *CALLS, *FAILING)],
            "acting": [("finish", self.finish)],
            "paused": [("approve", self.approve)],
            "failed": [("resume", self.resume)],
        }
        nothing_runs = phase in ("idle", "failed")
        further: list[tuple[bool, str, Move]] = [
            (nothing_runs, "say", self.say),
            (nothing_runs and bool(rules.log), "edit", self.edit),
            (not nothing_runs and rules.waiting is None, "stop and say", self.stop_and_say),
            (phase != "idle", "cancel", self.cancel),
            (bool(rules.unread), "withdraw", self.withdraw),
            (len(rules.queue) > 1, "reorder", self.reorder),
            (bool(rules.log), "fork", self.fork),
        ]
        return [*found, *of_phase.get(phase, []), *((name, move) for can, name, move in further if can)]

    def text(self) -> str:
        self.said += 1
        return f"text {self.said}"

    def run(self, turn: Coroutine[Any, Any, Any]) -> None:
        self.turns.append(asyncio.ensure_future(turn))

    async def say(self) -> None:
        text = self.text()
        self.run(self.thread.converse(text))
        self.rules.say(text)

    async def stop_and_say(self) -> None:
        text = self.text()
        self.run(self.thread.run(Say(text, interrupt=True)))
        self.rules.stop_and_say(text)
        if self.rules.phase == "acting":  # nothing else shows that the message has come
            async with asyncio.timeout(LIMIT):
                while not await selected(self.agent, DOOMED):  # noqa: ASYNC110 -- a commit sets no event
                    await asyncio.sleep(0.005)

    async def edit(self) -> None:
        text = self.text()
        self.run(self.thread.run(Edit(text)))
        self.rules.edit(text)

    async def steer(self, *, begin: bool) -> None:
        text = self.text()
        if self.rules.steer(text, begin=begin):
            await self.thread.steer(text, begin=begin)
            return
        with pytest.raises(NothingToSteer):
            await self.thread.steer(text, begin=begin)

    async def queue(self, *, interrupt: bool) -> None:
        text = self.text()
        self.rules.put(text, interrupt=interrupt)
        await self.thread.queue(text, interrupt=interrupt)

    async def withdraw(self) -> None:
        waiting = await self.thread.queued()
        chosen = waiting[self.said % len(waiting)]
        self.rules.withdraw(chosen.text)
        assert await self.thread.withdraw(chosen.id)

    async def reorder(self) -> None:
        ids = [each.id for each in await self.thread.queued() if each.kind == "queue"]
        self.rules.queue.reverse()
        await self.thread.reorder(ids[::-1])

    async def decide(self, what: str) -> None:
        assert self.thinking is not None
        self.thinking[1].set_result(what)
        self.rules.decide(what)

    async def finish(self) -> None:
        assert self.acting is not None
        self.acting.set_result(None)
        self.rules.finish()

    async def approve(self) -> None:
        [pause] = await open_pauses(self.thread)
        self.run(self.thread.resume({pause.id: Approve()}))
        self.rules.approve()

    async def resume(self) -> None:
        self.run(self.thread.resume({}))
        self.rules.resume()

    async def cancel(self) -> None:
        await self.thread.cancel()
        self.rules.cancel()

    async def fork(self) -> None:
        fork = await self.thread.fork()
        assert await texts(fork) == self.rules.log
        assert await fork.queued() == ()

    async def reopen(self) -> None:
        await self.agent.aclose()
        await self.over()
        waiting, self.agent = self.rules.waiting, self.open()
        await self.agent.start()
        began = waiting is not None and ("message", waiting) in await texts(self.thread)
        self.rules.reopen(began=began)

    async def over(self) -> None:
        """Wait for what was awaited of the agent that is closed."""
        for turn in self.turns:
            with suppress(WorldAgentError, asyncio.CancelledError):
                await turn
        self.turns = []

    # --- comparing --------------------------------------------------------------------------------------------------

    async def seen(self) -> tuple[str, list[tuple[str, str]], list[str]]:
        """What the thread does, what was said on it, and what waits."""
        state = await self.thread.state()
        status: str = "idle" if state is None else state.status
        if status == "failed" and self.rules.phase == "idle":  # the state does not say whether the error can pass
            status = "idle"
        if status == "running":
            status = "acting" if self.acting is not None else f"thinking {self.thinking and self.thinking[0]}"
        if status in ("done", "cancelled", "abandoned"):
            status = "idle"
        return status, await texts(self.thread), [each.text for each in await self.thread.queued()]

    async def agrees(self, done: list[str]) -> None:
        """Wait until the thread is as the rules say."""
        rules = self.rules
        phase = f"thinking {rules.turn.text}" if rules.turn is not None and rules.phase == "thinking" else rules.phase
        expected, found = (phase, rules.log, rules.unread), None
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMIT):
                while (found := await self.seen()) != expected:  # noqa: ASYNC110 -- what is seen sets no event
                    await asyncio.sleep(0.005)
                return
        raise AssertionError(f"after {done}:\n{found}\nand the rules say:\n{expected}")


async def play(home: Path, numbers: list[int]) -> None:
    """Do what the numbers choose, and compare after each move."""
    this, done = Play(home), list[str]()
    this.agent = this.open()
    await this.agent.start()
    try:
        for number in numbers:
            moves = this.moves()
            name, move = moves[number % len(moves)]
            done.append(name)
            await move()
            await this.agrees(done)
    finally:
        await this.agent.aclose()
        await this.over()


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 999), min_size=8, max_size=20))
def test_any_interleaving_follows_the_rules(numbers: list[int]) -> None:
    with TemporaryDirectory() as home:
        asyncio.run(play(Path(home), numbers))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@settings(max_examples=20 * EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 999), min_size=15, max_size=40))
def test_any_long_interleaving_follows_the_rules(numbers: list[int]) -> None:
    with TemporaryDirectory() as home:
        asyncio.run(play(Path(home), numbers))
