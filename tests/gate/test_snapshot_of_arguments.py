"""The arguments that the gate checked are those that run and are recorded; later changes do not reach them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Said, answering, scripted_agent, shape
from worldagent.core.pauses import Approve, Pause
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import map_shape
from worldagent.harness import CallContext, Policy, flow, tool
from worldagent.harness.gate import Rule
from worldagent.harness.limits import Retry

pytestmark = pytest.mark.requirement("H9")


class Item(BaseModel):
    name: str
    tags: list[str]


class Order(BaseModel):
    to: str
    items: list[Item]
    more: dict[str, Any] = {}


def order() -> Order:
    return Order(to="ada", items=[Item(name="pen", tags=["blue"])], more={"deep": [{"paid": False}]})


def tampered(given: Order) -> None:
    given.to = "evil"
    given.items[0].name = "gold"
    given.items[0].tags.append("red")
    given.items.append(Item(name="yacht", tags=[]))
    given.more["deep"][0]["paid"] = True


def tampered_fields(given: dict[str, Any]) -> None:
    given["to"] = "evil"
    given["items"][0].name = "gold"
    given["items"][0].tags.append("red")
    given["more"]["deep"][0]["paid"] = True


class Person:
    """An approver who takes their time: the caller changes what it gave meanwhile."""

    def __init__(self, change: Any = None) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.seen: list[Mapping[str, Any]] = []
        self.change = change

    async def __call__(self, pause: Pause) -> Approve:
        self.seen.append(dict(pause.arguments or {}))
        if self.change is not None:
            self.change(pause.arguments)
        self.asked.set()
        async with asyncio.timeout(10):
            await self.go.wait()
        return Approve()


ASK = Policy(
    rules=(Rule(decision="ask", function="send", optional=True), Rule(decision="ask", function="ship", optional=True))
)
WHOLE = order().model_dump(mode="json")


@pytest.mark.parametrize("given", ["model", "fields"])
async def test_changes_while_a_person_thinks_do_not_reach_the_body(tmp_path: Path, given: str) -> None:
    ran: list[Any] = []
    person = Person()

    @tool(risk="write", capture=True)
    async def send(to: str, items: list[Item], more: dict[str, Any]) -> str:
        ran.append({"to": to, "items": [item.model_dump() for item in items], "more": more})
        return to

    @flow
    async def shop(ctx: CallContext) -> str:
        fields: Any = order() if given == "model" else dict(order())
        if given == "model":
            fields = send.params.model_validate(fields.model_dump())

        async def change() -> None:
            async with asyncio.timeout(10):
                await person.asked.wait()
            (tampered if given == "model" else tampered_fields)(fields)
            person.go.set()

        changing = asyncio.create_task(change())
        said = str(await ctx.call("send", fields))
        await changing
        return said

    async with scripted_agent(tmp_path, answering(), tools=[send, shop], approver=person, policy=ASK) as agent:
        assert await agent.call("shop", {}) == "ada"
    assert ran == [WHOLE]
    assert [dict(seen) for seen in person.seen] == [WHOLE]


async def test_changes_by_a_concurrent_task_before_the_gate_do_not_reach_the_body(tmp_path: Path) -> None:
    ran: list[Any] = []

    @tool(risk="read_only")
    async def send(order: Order) -> str:
        ran.append(order.model_dump(mode="json"))
        return order.to

    @flow
    async def shop(ctx: CallContext) -> str:
        given = {"order": order()}
        sending = asyncio.create_task(ctx.call("send", given))
        await asyncio.sleep(0)  # the call has begun
        tampered(given["order"])
        return str(await sending)

    async with scripted_agent(tmp_path, answering(), tools=[send, shop]) as agent:
        assert await agent.call("shop", {}) == "ada"
        given = {"order": order()}
        calling = asyncio.create_task(agent.call("send", given))
        await asyncio.sleep(0)
        tampered(given["order"])
        assert await calling == "ada"
    assert ran == [WHOLE, WHOLE]


@pytest.mark.parametrize("over", ["task", "map"])
async def test_changes_to_the_params_of_a_task_do_not_reach_its_handler(tmp_path: Path, over: str) -> None:
    ran: list[Any] = []

    async def handle(params: Order, ctx: TaskContext) -> Said:
        ran.append(params.model_dump(mode="json"))
        return Said(text=params.to)

    async def job(ctx: TaskContext) -> str:
        given: Any = order() if over == "task" else {"shape": "ship", "items": [order().model_dump()]}
        running = asyncio.create_task(ctx.task("ship" if over == "task" else "map", given))
        await asyncio.sleep(0)
        if over == "task":
            tampered(given)
        else:
            given["items"][0]["to"] = "evil"
            given["items"][0]["items"][0]["tags"].append("red")
        await running
        return "done"

    shapes = [Shape("ship", Order, Said, handle), map_shape(), shape(job)]
    async with scripted_agent(tmp_path, answering(), shapes=shapes) as agent:
        turn = await agent.thread("t").task("job", {})
    assert (turn.status, ran) == ("done", [WHOLE])


async def test_an_approver_that_changes_what_it_is_shown_changes_nothing(tmp_path: Path) -> None:
    ran: list[Any] = []
    person = Person(lambda arguments: arguments.update(to="evil"))
    person.go.set()

    async def handle(params: Order, ctx: TaskContext) -> Said:
        ran.append(params.to)
        return Said(text=params.to)

    async def job(ctx: TaskContext) -> str:
        return str((await ctx.task("ship", order())).text)

    shapes = [Shape("ship", Order, Said, handle, risk=("write",)), shape(job)]
    async with scripted_agent(tmp_path, answering(), shapes=shapes, approver=person, policy=ASK) as agent:
        turn = await agent.thread("t").task("job", {})
    assert (turn.status, ran, len(person.seen)) == ("done", ["ada"], 1)


async def test_each_try_gets_what_was_checked(tmp_path: Path) -> None:
    ran: list[list[str]] = []

    @tool(risk="read_only", retry=Retry(attempts=2, backoff=0))
    async def send(to: list[str]) -> str:
        ran.append(list(to))
        to.append("evil")
        if len(ran) == 1:
            raise ConnectionError
        return "sent"

    async with scripted_agent(tmp_path, answering(), tools=[send]) as agent:
        assert await agent.call("send", {"to": ["ada"]}) == "sent"
    assert ran == [["ada"], ["ada"]]
