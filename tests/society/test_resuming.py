"""Turns of members resume through each door of the library, and one that never can holds up nothing (T4, A13)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, open_pauses, scripted_agent
from support.role_specs import spec_of
from worldagent import Approve, WorldAgent, tool
from worldagent.agent import Thread, Turn
from worldagent.autonomy import Gateway
from worldagent.society import AuthorityConfig, Event, RoleSpec, Route, WorkspaceConfig
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

        config = WorkspaceConfig(id="novel", owner="charles", roles=roles or (seller(),))
        return scripted_agent(home, lm or ScriptedLM(selling), tools=[price], society=config, **more)


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
    """Set a price once for each message."""
    return {"result": "Set."} if "You called" in call.text else {"result": "", **calls(("price", {"amount": 3}))}


def mail(agent: WorldAgent) -> Thread:
    return agent.thread("member x", account="member:novel/x")


def event_thread(agent: WorldAgent, id_: str = "e1") -> Thread:
    return agent.thread(f"event {id_}", account="member:novel/x")


def event(id_: str = "e1") -> Event:
    given: dict[str, Any] = {"domain": "shop", "payload": {"amount": 3}, "timestamp": NOW}
    return Event(id=id_, type="price.changed", source="till", **given)


async def delivered(agent: WorldAgent) -> None:
    """Deliver until nothing can move."""
    gateway = Gateway(agent)
    while await gateway.deliver():
        pass


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
        if began == "event":
            await agent.society.events.post(event())
        else:
            await agent.society.send("root", "x", "Set the price.")
        await delivered(agent)
    async with shop.agent(tmp_path) as agent:
        thread = event_thread(agent) if began == "event" else mail(agent)
        [pause] = await open_pauses(thread)
        assert (await DOORS[door](thread, {pause.id: Approve()})).status == "done"
        assert shop.set == [3]
        await delivered(agent)
        assert await agent.society.waiting() == []
        assert await agent.society.events.next() == ()
        posted = await agent.society.events.get("e1")
        assert posted is None or posted.result == "done"
