"""What a turn did before it was cut off is in the conversation, so that no model does it again unknowingly (T16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import approving, scripted_agent
from worldagent import Approve, WorldAgent, tool
from worldagent.agent import Say, Thread
from worldagent.harness import Policy
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T16", "T4")

STEP: dict[str, Any] = {"calls": [{"tool": name, "arguments": {}} for name in ("pay", "look", "sign", "ship")]}
PAID, SHOWN, NOT_MADE = "paid 12 dollars", "a page", "it was not made"
MAYBE = "it can have been done, in part or as a whole"


class Office:
    """An agent whose first turn pays, looks at a page, asks a person before it signs, and ships until it may end."""

    def __init__(self, *, ships: bool = False) -> None:
        self.shipping, self.may, self.paid = asyncio.Event(), asyncio.Event(), 0
        if not ships:
            self.may.set()
        self.read: list[str] = []

        @tool(risk="write")
        async def pay() -> str:
            """Pay."""
            self.paid += 1
            return "paid 12 dollars"

        @tool(untrusted=True)
        async def look() -> str:
            """Look at a page."""
            return "a page"

        @tool(risk="write", approval=True)
        async def sign() -> str:
            """Sign."""
            return "signed"

        @tool(risk="write")
        async def ship() -> str:
            """Ship."""
            self.shipping.set()
            await self.may.wait()
            return "shipped"

        self.tools = [pay, look, sign, ship]

    def reply(self, call: ScriptedCall) -> dict[str, Any]:
        self.read.append("\n".join(str(message) for message in call.messages))
        orders = "Order." in str(call.fields["message"]) and not call.steps
        return {"reply": ""} | STEP if orders else {"reply": "Fine."}

    def agent(self, home: Path) -> WorldAgent:
        policy = Policy(rules=(approving("pay", "look", "ship"),))
        return scripted_agent(home, ScriptedLM(self.reply), tools=self.tools, policy=policy)


async def statuses(thread: Thread) -> list[tuple[str, str, list[str]]]:
    """The results in the log, with their marks."""
    found = [each.body for each in await thread.history() if each.kind == "result"]
    return [(each["to"], each["status"], each.get("untrusted", [])) for each in found]


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("end", ["interrupt", "cancel"])
async def test_results_of_a_turn_that_ended_while_it_waited_are_read_by_the_next(
    tmp_path: Path, end: str, guard: bool
) -> None:
    office = Office()
    async with office.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        assert (await thread.converse("Order.", guard=guard)).status == "paused"
        if end == "interrupt":
            await thread.run(Say("no, stop", interrupt=True, guard=guard))
        else:
            assert await thread.cancel()
            await thread.run(Say("no, stop", guard=guard))
        marks = ["look"]
        assert await statuses(thread) == [
            ("pay", "done", marks),
            ("look", "done", marks),
            ("sign", "failed", marks),
            ("ship", "done", marks),
        ]
        shown, read = 0 if guard else 1, office.read[1]  # a guarded model reads an outline of each
        assert [read.count(text) for text in (PAID, SHOWN, NOT_MADE)] == [shown] * 3
        assert read.index("Result of 'pay'" if guard else PAID) < read.rindex("no, stop")
        await thread.converse("And now?", guard=guard)
        assert office.read[2].count(PAID) == shown
    assert office.paid == 1


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_fork_of_a_turn_that_waits_or_was_cut_off_knows_what_it_did(tmp_path: Path, cancelled: bool) -> None:
    office = Office()
    async with office.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("Hello?")
        await thread.converse("Order.")
        if cancelled:
            assert await thread.cancel()
        other = await thread.fork()
        await other.converse("And now?")
        assert [office.read[2].count(text) for text in (PAID, SHOWN, NOT_MADE)] == [1, 1, 1]
        assert [to for to, _, _ in await statuses(other)] == ["pay", "look", "sign", "ship"]
        await other.converse("And then?")
        assert office.read[3].count(PAID) == 1
    assert office.paid == 1


async def test_a_call_that_ran_as_its_turn_was_cancelled_can_have_been_done(tmp_path: Path) -> None:
    office = Office(ships=True)
    async with office.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("Order.") as stream:
            await asyncio.wait_for(office.shipping.wait(), 20)
            assert await thread.cancel()
            assert (await stream.wait()).status == "cancelled"
        await thread.converse("What is done?")
        assert office.read[1].count(PAID) == office.read[1].count(MAYBE) == 1


async def test_a_turn_that_was_answered_leaves_nothing_behind(tmp_path: Path) -> None:
    office = Office()
    async with office.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        paused = await thread.converse("Order.")
        assert (await thread.resume({pause.id: Approve() for pause in paused.pauses})).status == "done"
        await thread.converse("And now?")
        assert office.read[-1].count(PAID) == 1
        assert len(await statuses(thread)) == 4
