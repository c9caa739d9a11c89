"""A sidecar over a shop that asks people, and clients of both revisions that answer what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult, ErrorData
from pydantic import BaseModel, Field

from support.agents import scripted_agent
from support.sidecar_calls import check_answer
from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Policy, tool
from worldagent.harness.gate import Rule
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

Mode = Literal["legacy", "auto"]
MODES: Sequence[Mode] = ("legacy", "auto")

Reply = ElicitResult | ErrorData
Person = Callable[[ElicitRequestFormParams], Reply]


class Order(BaseModel):
    what: str


class Receipt(BaseModel):
    text: str


class Address(BaseModel):
    street: str = Field(min_length=3, description="where to")
    number: int = Field(ge=1)
    gift: bool = False
    floor: int | None = None


class Parcel(BaseModel):
    sizes: list[int]


@dataclass(slots=True)
class Shop:
    """What the shop did, and what its effects wait for."""

    done: list[str] = field(default_factory=list)

    def shapes(self) -> list[Shape[Any, Any]]:
        async def buy(order: Order, ctx: TaskContext) -> Receipt:
            return Receipt(text=str(await ctx.call("pay", {"what": order.what})))

        async def both(order: Order, ctx: TaskContext) -> Receipt:
            colour = await ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"])
            return Receipt(text=f"{colour}: {await ctx.call('pay', {'what': order.what})}")

        async def side(order: Order, ctx: TaskContext) -> Receipt:
            colour, paid = await asyncio.gather(
                ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"]), ctx.call("pay", {"what": order.what})
            )
            return Receipt(text=f"{colour}: {paid}")

        async def fit(order: Order, ctx: TaskContext) -> Receipt:
            address = await ctx.calls.ask_person("Where to?", form=Address)
            return Receipt(text=f"{address.street} {address.number} {address.gift} {address.floor}")

        async def pack(order: Order, ctx: TaskContext) -> Receipt:
            parcel = await ctx.calls.ask_person("Which sizes?", form=Parcel)
            return Receipt(text=f"{parcel.sizes}")

        async def say(order: Order, ctx: TaskContext) -> Receipt:
            return Receipt(text=await ctx.calls.ask_person(f"What about the {order.what}?"))

        handlers = (buy, both, side, fit, pack, say)
        return [Shape(each.__name__, Order, Receipt, each, description=each.__name__) for each in handlers]

    async def pay(self, what: str) -> str:
        """Pay for something."""
        self.done.append(what)
        return f"paid for the {what}"

    def agent(self, home: Path, *, approvers: Sequence[str] = (), **more: Any) -> WorldAgent:
        """The shop's agent, of the workspace `novel`."""
        policy = None
        if approvers:
            policy = Policy(rules=(Rule(decision="ask", function="pay", approvers=tuple(approvers), name="money"),))
        return scripted_agent(
            home,
            ScriptedLM(lambda call: {"reply": "Fine."}),
            tools=[tool(approval=True)(self.pay)],
            shapes=self.shapes(),
            policy=policy,
            **more,
        )


@dataclass(slots=True)
class Said:
    """What a client is asked, and what its person says: one reply after another, the last one again and again."""

    replies: list[Reply | Person] = field(default_factory=list)
    asked: list[ElicitRequestFormParams] = field(default_factory=list)

    async def __call__(self, context: ClientRequestContext, params: Any) -> Reply:
        self.asked.append(params)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(params) if callable(reply) else reply


def accept(**content: Any) -> ElicitResult:
    """A person fills in a form."""
    return ElicitResult(action="accept", content=content)


DECLINE, CANCEL = ElicitResult(action="decline"), ElicitResult(action="cancel")


@asynccontextmanager
async def asked(
    home: Path,
    mode: Mode,
    *replies: Reply | Person,
    shop: Shop | None = None,
) -> AsyncGenerator[tuple[Client, Said]]:
    """A client of a sidecar of its own; without replies it says that it cannot ask anybody."""
    shop, said = shop or Shop(), Said(list(replies))
    async with (
        Sidecar(lambda workspace: shop.agent(home)) as sidecar,
        Client(sidecar.server, mode=mode, elicitation_callback=said if replies else None) as client,
    ):
        yield client, said


async def call(client: Client, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool gives, an error too."""
    result = await client.call_tool(tool_name, {"workspace": "novel", **arguments})
    assert isinstance(result, CallToolResult)
    check_answer(tool_name, result.structured_content, failed=bool(result.is_error))
    assert result.structured_content is not None, result
    return dict(result.structured_content)


async def task(client: Client, shape: str, /, **arguments: Any) -> dict[str, Any]:
    """What a task of the shop gives."""
    return await call(client, "task", **{"thread": "t1", "shape": shape, "params": {"what": "hat"}, **arguments})


__all__ = [
    "CANCEL",
    "DECLINE",
    "MODES",
    "Mode",
    "Said",
    "Shop",
    "accept",
    "asked",
    "call",
    "task",
]
