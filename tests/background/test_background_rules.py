"""Random interleavings of a conversation and its background tasks follow the rules of the guide (T17)."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.agents import open_pauses, scripted_agent
from support.background_model import CHAIN, Rules
from support.inbox import texts
from worldagent import Approve, Worker, tool
from worldagent.agent import BackgroundTask, Task, Thread
from worldagent.core.errors import ModelUnavailable, WorldAgentError
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T17")

EXAMPLES = (settings.default or settings()).max_examples // 10
LIMIT = 60  # seconds until a conversation must do what the rules say
HAND = Worker("hand", "You work.", "works", tools=("pay",), background=True)
PAY = {"calls": [{"tool": "pay", "arguments": {}}]}
TOLD = re.compile(r"The background task (\w+) \(hand\) (is done|waits for a person|failed|was cancelled)")

Move = Callable[[], Coroutine[Any, Any, None]]


class Play:
    """A conversation whose model and workers do what the test says, and the rules beside it."""

    def __init__(self, home: Path) -> None:
        self.rules, self.said, self.sent, self.first = Rules(), 0, 0, 0
        self.thinking: dict[str, asyncio.Future[str]] = {}  # by the text that a model thinks about
        self.turns: list[asyncio.Task[Any]] = []
        self.names: dict[str, str] = {}  # the numbers of tasks, by their ids

        @tool(risk="write", approval=True)
        async def pay() -> str:
            """Pay."""
            return "paid"

        given: dict[str, Any] = {"tools": [pay], "workers": [HAND], "background": True}
        limits = {"report_chain": CHAIN, "background_of_thread": 1000, "background_of_account": 1000}
        self.agent = scripted_agent(home, ScriptedLM(self.reply), settings=limits, **given)

    async def reply(self, call: ScriptedCall) -> Any:
        text = self.named(str(call.fields["request"] if "request" in call.fields else call.fields["message"]))
        mine = self.thinking[text] = asyncio.get_running_loop().create_future()
        try:
            decided = await mine
        finally:
            if self.thinking.get(text) is mine:
                del self.thinking[text]
        if decided == "fail":
            raise ModelUnavailable("the service is down", remedy="try again")
        if "request" in call.fields:
            return PAY if decided == "ask" else {"result": "good"}
        if decided == "answer":
            return {"reply": f"re {text}"}
        return {"reply": "", "calls": [{"tool": "background_start", "arguments": {"name": "hand", "request": decided}}]}

    @property
    def thread(self) -> Thread:
        return self.agent.thread("t", account="ana")

    def named(self, text: str) -> str:
        """A text with the number of its task, if it is a report."""
        found = TOLD.match(text)
        return text if found is None else f"{self.names.get(found[1], found[1])} {found[2]}"

    def moves(self) -> list[tuple[str, Move]]:
        """What can be done now."""
        rules = self.rules
        found: list[tuple[str, Move]] = [("say", self.say)]
        if rules.turn is not None:
            found = [("answer", self.answer), ("call", self.call), ("steer", self.steer)]
        found += [(f"dispatch, {each}", partial(self.dispatch, each)) for each in ("turn", "next", "event")]
        for number, work in enumerate(rules.works):
            if work.phase == "working":
                found += [
                    (f"{number} is done", partial(self.decide, number, "done", "is done", "over")),
                    (f"{number} asks", partial(self.decide, number, "ask", "waits for a person", "paused")),
                    (f"{number} fails", partial(self.decide, number, "fail", "failed", "over")),
                ]
            if work.phase == "paused":
                found.append((f"{number} is approved", partial(self.approve, number)))
            if work.phase != "over":
                found.append((f"cancel {number}", partial(self.cancel_task, number)))
        if rules.turn is not None or any(work.phase != "over" for work in rules.works):
            found += [("cancel", self.cancel), ("remove", self.remove)]
        return found

    # --- moves ------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        self.said += 1
        return f"text {self.said}"

    def request(self) -> str:
        self.sent += 1
        return f"work {self.sent - 1}"

    async def task(self, number: int) -> BackgroundTask:
        return (await self.agent.background_tasks(self.thread))[number]

    async def say(self) -> None:
        text = self.text()
        self.turns.append(asyncio.ensure_future(self.thread.converse(text)))
        self.rules.say(text)

    async def steer(self) -> None:
        text = self.text()
        await self.thread.steer(text)
        self.rules.steer(text)

    async def dispatch(self, report: Any) -> None:
        request = Task("subagent", {"worker": "hand", "request": self.request()})
        await self.agent.background(request, thread=self.thread, report=report)
        self.rules.dispatch(report)

    async def call(self) -> None:
        assert self.rules.turn is not None
        self.thinking.pop(self.rules.turn).set_result(self.request())
        self.rules.call()

    async def answer(self) -> None:
        assert self.rules.turn is not None
        self.thinking.pop(self.rules.turn).set_result("answer")
        self.rules.answer()

    async def decide(self, number: int, decided: str, what: str, phase: str) -> None:
        self.thinking.pop(f"work {self.first + number}").set_result(decided)
        self.rules.tell(number, what, phase)

    async def approve(self, number: int) -> None:
        thread = (await self.task(number)).thread
        [pause] = await open_pauses(thread)
        self.turns.append(asyncio.ensure_future(thread.resume({pause.id: Approve()})))
        self.rules.works[number].phase = "working"

    async def cancel_task(self, number: int) -> None:
        assert await (await self.task(number)).cancel()
        self.rules.tell(number, "was cancelled", "over")

    async def cancel(self) -> None:
        assert await self.thread.cancel()
        self.rules.cancel()

    async def remove(self) -> None:
        assert await self.agent.upkeep.remove("t", cancel=True)
        self.first = self.sent
        self.rules.remove()

    # --- comparing --------------------------------------------------------------------------------------------------

    async def seen(self) -> tuple[Any, ...]:
        """What was said in the conversation, what waits, and what models think about."""
        tasks = await self.agent.background_tasks(self.thread)
        self.names = {task.id: str(number) for number, task in enumerate(tasks)}
        said = [(kind, self.named(text.removeprefix("re "))) for kind, text in await texts(self.thread)]
        said = [(kind, f"re {text}" if kind == "answer" else text) for kind, text in said]
        waiting = [self.named(each.text) for each in await self.thread.queued()]
        phases = [(await task.state()).status == "paused" for task in tasks]
        return said, waiting, phases, sorted(map(self.named, self.thinking))

    async def agrees(self, done: list[str]) -> None:
        """Wait until all is as the rules say."""
        rules, found = self.rules, None
        thinking = [f"work {self.first + n}" for n, work in enumerate(rules.works) if work.phase == "working"]
        thinking += [] if rules.turn is None else [rules.turn]
        paused = [work.phase == "paused" for work in rules.works]
        expected = (rules.log, [told.text for told in rules.unread], paused, sorted(thinking))
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMIT):
                while (found := await self.seen()) != expected:  # noqa: ASYNC110 -- what is seen sets no event
                    await asyncio.sleep(0.005)
                return
        raise AssertionError(f"after {done}:\n{found}\nand the rules say:\n{expected}")


async def play(home: Path, numbers: list[int]) -> None:
    """Do what the numbers choose, and compare after each move."""
    this, done = Play(home), list[str]()
    async with this.agent:
        for number in numbers:
            moves = this.moves()
            name, move = moves[number % len(moves)]
            done.append(name)
            await move()
            await this.agrees(done)
    for turn in this.turns:
        with suppress(WorldAgentError, asyncio.CancelledError):
            await turn


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@example([1, 1, 1, 25, 1, 1, 261, 341])  # a conversation that has said nothing is removed with its tasks
@given(st.lists(st.integers(0, 999), min_size=8, max_size=20))
def test_any_interleaving_of_tasks_follows_the_rules(numbers: list[int]) -> None:
    with TemporaryDirectory() as home:
        asyncio.run(play(Path(home), numbers))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@settings(max_examples=20 * EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 999), min_size=15, max_size=40))
def test_any_long_interleaving_of_tasks_follows_the_rules(numbers: list[int]) -> None:
    with TemporaryDirectory() as home:
        asyncio.run(play(Path(home), numbers))
