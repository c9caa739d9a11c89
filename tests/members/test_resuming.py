"""Turns of members resume through each door of the library, and one that never can holds up nothing (T4, A13)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, open_pauses, scripted_agent, state_of
from support.role_specs import spec_of, workspace_of
from support.society import delivered
from worldagent import Approve, Policy, WorldAgent, tool
from worldagent.agent import Thread, Turn
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import GraphChanged, NothingToResume, ThreadPaused
from worldagent.members import SEND_RULES, AuthorityConfig, Event, RoleSpec, Route
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

NOW = VirtualClock().now()


class Shop:
    """A shop whose members set prices, each of which a person approves.

    Attributes:
        set: What was set.
    """

    def __init__(self) -> None:
        self.set: list[int] = []

    def agent(self, home: Path, *roles: RoleSpec, lm: Any = None, **more: Any) -> WorldAgent:
        """An agent with the members of a workspace file, as a process that starts has it."""

        @tool(risk="write")
        async def price(amount: int) -> str:
            """Set the price."""
            self.set.append(amount)
            return f"the price is {amount}"

        config = workspace_of(roles=roles or (seller(),))
        given: dict[str, Any] = {"tools": [price], "society": config, **more}
        return scripted_agent(home, lm or ScriptedLM(selling), **given)


@tool(name="price", risk="write")
async def changed_price(amount: int, currency: str) -> str:
    """Set the price."""
    return f"the price is {amount} {currency}"


def seller(soul: str = "You sell.", **more: Any) -> RoleSpec:
    given: dict[str, Any] = {
        "soul": soul,
        "domains": ("shop",),
        "operator_ids": ("price",),
        "authority": AuthorityConfig(needs_approval=("price",)),
        "routes": (Route(event="price.*", operator="price", capability="price"),),
    }
    return spec_of("x", **given | more)


def selling(call: ScriptedCall) -> dict[str, Any]:
    """Set a price once for each message; the World Agent does nothing."""
    if "task" not in call.fields:
        return {"reply": "Fine."}
    return {"result": "Set."} if "You called" in call.text else {"result": "", **calls(("price", {"amount": 3}))}


def mail(agent: WorldAgent) -> Thread:
    return agent.thread("member x", account="member:novel/x")


def event_thread(agent: WorldAgent) -> Thread:
    return agent.thread("event e1", account="member:novel/x")


def event(id_: str = "e1", **more: Any) -> Event:
    given: dict[str, Any] = {"domain": "shop", "payload": {"amount": 3, **more}, "timestamp": NOW}
    return Event(id=id_, type="price.changed", source="till", **given)


def thread_of(agent: WorldAgent, began: str) -> Thread:
    return event_thread(agent) if began == "event" else mail(agent)


async def begun(agent: WorldAgent, began: str) -> Thread:
    """Have a member do something that waits for an approval, because of an event or a message."""
    if began == "event":
        await agent.society.events.post(event())
    else:
        await agent.society.mail.send("root", "x", "Set the price.", message_id="m1")
    await delivered(agent)
    return thread_of(agent, began)


async def streamed(thread: Thread, answers: Any) -> Turn:
    async with thread.stream_resume(answers) as stream:
        return await stream.wait()


DOORS: dict[str, Callable[[Thread, Any], Awaitable[Turn]]] = {"resume": Thread.resume, "stream_resume": streamed}


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("began", ["event", "message"])
async def test_a_process_without_a_gateway_resumes_the_turn_of_a_member(tmp_path: Path, door: str, began: str) -> None:
    shop = Shop()
    async with shop.agent(tmp_path) as agent:
        await begun(agent, began)
    async with shop.agent(tmp_path) as agent:
        thread = thread_of(agent, began)
        [pause] = await open_pauses(thread)
        assert (await DOORS[door](thread, {pause.id: Approve()})).status == "done"
        assert shop.set == [3]
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
        assert await agent.society.events.next() == ()
        posted = await agent.society.events.get("e1")
        assert posted is None or posted.result == "done"


# --- a turn that can never resume -------------------------------------------------------------------------------------

CHANGED = seller("You sell dear.")
DAY = 86_400.0


async def letters(agent: WorldAgent) -> list[tuple[str, str]]:
    """Whom the owner has letters from, and about which error or stall."""
    inbox = [(each.message.from_id, each.message.payload) for each in await agent.society.mail.inbox()]
    return [(sender, given.get("error") or given.get("stall", "")) for sender, given in inbox]


async def status(agent: WorldAgent, turn_id: str) -> str:
    state = await agent.turn(turn_id)
    assert state is not None
    return state.status


async def paused(agent: WorldAgent) -> str:
    """The id of the turn that waits on the thread of the member."""
    state = await state_of(mail(agent))
    assert state.status == "paused"
    return state.turn_id


@pytest.mark.requirement("A13")
@pytest.mark.on_every_database
async def test_a_message_whose_turn_can_never_resume_holds_up_no_later_one(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.agent(tmp_path) as agent:
        await agent.society.mail.send("root", "x", "Set the price.", message_id="m1")
        await delivered(agent)
        turn = await paused(agent)
    async with shop.agent(tmp_path, CHANGED) as agent:
        [pause] = await open_pauses(mail(agent))
        with pytest.raises(GraphChanged, match="'x' has changed since then"):
            await mail(agent).resume({pause.id: Approve()})
        await delivered(agent)
        assert await letters(agent) == [("x", "graph_changed")]
        reply = await agent.society.mail.reply_to("m1")
        assert reply is not None
        assert (reply.message.to_id, reply.message.payload["error"]) == ("root", "graph_changed")
        assert await status(agent, turn) == "paused"  # for the grace period
        await agent.society.mail.send("root", "x", "And now?", message_id="m2")
        await delivered(agent)
        second = await paused(agent)
        assert (second != turn, await status(agent, turn)) == (True, "failed")
        [pause] = await open_pauses(mail(agent))
        assert (await mail(agent).resume({pause.id: Approve()})).status == "done"
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
        assert await letters(agent) == [("x", "graph_changed")]
    assert shop.set == [3]


@pytest.mark.requirement("A13")
async def test_a_reply_to_a_turn_that_can_never_resume_is_a_message_of_its_own(tmp_path: Path) -> None:
    read: list[str] = []

    def act(call: ScriptedCall) -> dict[str, Any]:
        if "task" not in call.fields:
            return {"reply": "Fine."}
        read.append(str(call.fields["message"]))
        asks = ("request_role", {"to": "user", "content": "May I?", "seconds": 3600})
        return {"result": "", **calls(asks)} if len(read) == 1 else {"result": "Noted."}

    shop, clock = Shop(), VirtualClock()
    given: dict[str, Any] = {"lm": ScriptedLM(act), "clock": clock, "policy": Policy(rules=SEND_RULES)}
    async with shop.agent(tmp_path, **given) as agent:
        await agent.society.mail.send("root", "x", "Set the price.")
        await delivered(agent)
        turn = await paused(agent)
        [question] = await agent.society.mail.inbox()
    async with shop.agent(tmp_path, CHANGED, **given) as agent:
        await agent.society.mail.send("user", "x", "You may.", answers=question.message.id)
        await agent.society.mail.send("root", "x", "And later?")
        await delivered(agent)
        assert await agent.society.mail.waiting() == []
        assert await status(agent, turn) == "failed"
    assert ["You may." in read[1], "And later?" in read[2], len(read)] == [True, True, 3]


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("began", ["event", "message"])
async def test_a_turn_resumes_within_the_grace_period_if_the_old_declaration_is_back(
    tmp_path: Path, began: str
) -> None:
    shop, clock = Shop(), VirtualClock()
    async with shop.agent(tmp_path, clock=clock) as agent:
        await begun(agent, began)
        [pause] = await open_pauses(thread_of(agent, began))
    async with shop.agent(tmp_path, CHANGED, clock=clock, tools=[changed_price]) as agent:
        await clock.advance(DAY - 60)
        await delivered(agent)
        assert len(await letters(agent)) == 1
    async with shop.agent(tmp_path, clock=clock) as agent:
        thread = thread_of(agent, began)
        assert (await thread.resume({pause.id: Approve()})).status == "done"
        await clock.advance(2 * DAY)
        await delivered(agent)
        assert (await state_of(thread)).status == "done"
    assert shop.set == [3]


@pytest.mark.requirement("T4")
@pytest.mark.on_every_database
async def test_an_event_fails_with_its_turn_after_the_grace_period_and_holds_up_no_later_one(tmp_path: Path) -> None:
    shop, clock = Shop(), VirtualClock()
    async with shop.agent(tmp_path, clock=clock) as agent:
        await agent.society.events.post(event())
        await delivered(agent)
        state = await state_of(event_thread(agent))
    async with shop.agent(tmp_path, clock=clock, tools=[changed_price]) as agent:
        await delivered(agent)
        await agent.society.events.post(event("e2", currency="EUR"))
        await delivered(agent)
        assert await letters(agent) == [("root", "graph_changed")]
        assert [each.state for each in await agent.society.events.list()] == ["paused", "paused"]
        await clock.advance(DAY - 1)
        await delivered(agent)
        assert await status(agent, state.turn_id) == "paused"
        await clock.advance(1)
        await delivered(agent)
        assert await status(agent, state.turn_id) == "failed"
        first, second = await agent.society.events.list()
        assert ((first.result, first.code), second.state) == (("failed", "graph_changed"), "paused")
        assert await open_pauses(event_thread(agent)) == []
        with pytest.raises(NothingToResume, match="could not resume, and was ended"):
            await event_thread(agent).resume()
    assert shop.set == []


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("needs", ["NULL", "'99.0'"])
@pytest.mark.parametrize("began", ["event", "message"])
async def test_a_version_leaves_the_turns_of_a_newer_one_alone(tmp_path: Path, began: str, needs: str) -> None:
    shop, clock = Shop(), VirtualClock()
    async with shop.agent(tmp_path, clock=clock) as agent:
        state = await state_of(await begun(agent, began))
        noted = f"UPDATE wa_turn SET version='99.0', needs={needs}"
        await inside(agent).stores.database.transact(lambda tx: tx.execute(noted))
    changed: dict[str, Any] = {"tools": [changed_price]} if needs == "NULL" else {}
    async with shop.agent(tmp_path, CHANGED, clock=clock, **changed) as agent:
        await agent.society.mail.send("root", "x", "And now?")
        for _ in range(2):
            await delivered(agent)
            await clock.advance(2 * DAY)
        assert await status(agent, state.turn_id) == "paused"
        if began == "message":
            assert await letters(agent) == [("root", "mailbox")]
            assert [each.message.id for each in await agent.society.mail.waiting()] == ["m1"]


@pytest.mark.requirement("T4")
async def test_a_turn_of_a_person_waits_until_the_old_declaration_is_back(tmp_path: Path) -> None:
    shop, clock = Shop(), VirtualClock()
    script = ScriptedLM(
        lambda call: {"reply": "Set."} if call.steps else {"reply": "", **calls(("price", {"amount": 3}))}
    )
    async with shop.agent(tmp_path, lm=script, clock=clock) as agent:
        [pause] = (await agent.thread("t").converse("Set the price.")).pauses
    async with shop.agent(tmp_path, lm=script, clock=clock, tools=[changed_price]) as agent:
        for answers in ({pause.id: Approve()}, {}):
            with pytest.raises(GraphChanged, match="'price'"):
                await agent.thread("t").resume(answers)
            await clock.advance(2 * DAY)
            await delivered(agent)
            state = await state_of(agent.thread("t"))
            assert (state.status, state.pauses) == ("paused", 1)
        with pytest.raises(ThreadPaused):
            await agent.thread("t").converse("Go on.")
    async with shop.agent(tmp_path, lm=script, clock=clock) as agent:
        assert (await agent.thread("t").resume({pause.id: Approve()})).status == "done"
    assert shop.set == [3]


@pytest.mark.requirement("A12")
async def test_an_event_is_done_though_its_operator_takes_another_input_by_then(tmp_path: Path) -> None:
    @tool(name="price", risk="write")
    async def dated_price(amount: int, until: str = "") -> str:
        """Set the price."""
        return f"the price is {amount}"

    shop = Shop()
    async with shop.agent(tmp_path) as agent:
        await agent.society.events.post(event())
        await delivered(agent)
        [pause] = await open_pauses(event_thread(agent))
        await event_thread(agent).resume({pause.id: Approve()})
    async with shop.agent(tmp_path, tools=[dated_price]) as agent:
        await delivered(agent)
        posted = await agent.society.events.get("e1")
        assert posted is not None
        assert (posted.result, posted.code, shop.set) == ("done", "", [3])
        [outcome] = await agent.society.outcomes.list("x")
        assert outcome.succeeded
