"""A member that decides about events, and the operators that it runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.agents import answering, scripted_agent
from support.role_specs import bdr_template, spec_of, workspace_of
from support.society import delivered
from worldagent import Policy, Rule, Worker, WorldAgent, tool
from worldagent.agent import Thread
from worldagent.harness import ToolContext
from worldagent.members import AuthorityConfig, Event, RoleSpec, Route, WorkspaceConfig
from worldagent.members.data.roles import TrustProfile
from worldagent.members.events.events import PostedEvent

NOW = datetime(2026, 2, 18, 3, 53, tzinfo=UTC)
APPROVED = Policy(rules=(Rule(decision="approve", function=("qualify", "price")),))


def event(id_: str = "e1", type_: str = "lead.created", domain: str = "revenue", **payload: Any) -> Event:
    """An event, whose payload has the name of a lead by default."""
    return Event(id=id_, type=type_, source="hubspot", domain=domain, payload=payload or {"lead": "Ada"}, timestamp=NOW)


def directive(id_: str, source: str = "charles", **payload: Any) -> Event:
    """A directive to make a member, from one that the host knows."""
    return replace(event(id_, "directive.spawn", **payload), source=source, source_verified=True)


def cro(**more: Any) -> RoleSpec:
    """The member of revenue. It qualifies leads, needs approval for prices, and must not sign."""
    given: dict[str, Any] = {
        "domains": ("revenue",),
        "reports_to": "charles",
        "operator_ids": ("qualify", "price", "write_up"),
        "authority": AuthorityConfig(
            autonomous=("qualify", "write_up"), needs_approval=("price",), forbidden=("sign",)
        ),
        "routes": (
            Route(event="lead.*", operator="qualify", capability="qualify"),
            Route(event="deal.price", operator="price", capability="price"),
            Route(event="deal.sign", operator="price", capability="sign"),
            Route(event="note.*", operator="write_up", capability="write_up"),
        ),
        "trust": TrustProfile(default=0.5),
    }
    given |= more
    return spec_of(given.pop("role_id", "cro"), **given)


def workspace(**policy: Any) -> WorkspaceConfig:
    """A workspace whose CRO can make BDRs."""
    given: dict[str, Any] = {"authority": AuthorityConfig(autonomous=("qualify",)), "operator_ids": ("qualify",)}
    return workspace_of(bdr_template(**given), **({"brief": "derived"} | policy))


class Desk:
    """What the operators of a test did.

    Attributes:
        done: The payloads, and for whom they ran.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def agent(self, home: Path, lm: Any = None, **more: Any) -> WorldAgent:
        """An agent with the operators."""

        @tool(risk="write")
        async def qualify(ctx: ToolContext, lead: str) -> str:
            self.done.append((ctx.on_behalf_of, lead))
            return f"{lead} is qualified"

        @tool(risk="write")
        async def price(ctx: ToolContext, lead: str) -> str:
            self.done.append((ctx.on_behalf_of, f"price for {lead}"))
            return "cheap"

        given: dict[str, Any] = {
            "society": workspace(),
            "policy": APPROVED,
            "tools": [qualify, price],
            "workers": [Worker("write_up", "You write notes.", "writes", offered=False)],
        }
        return scripted_agent(home, lm or answering("Noted."), **(given | more))


@asynccontextmanager
async def handled(
    desk: Desk, home: Path, *events: Event, role: RoleSpec | None = None, lm: Any = None, **more: Any
) -> AsyncGenerator[WorldAgent]:
    """An agent with a CRO, once these events are handled."""
    async with desk.agent(home, lm, **more) as agent:
        await agent.society.join(role or cro())
        for each in events:
            await agent.society.events.post(each)
        await delivered(agent)
        yield agent


async def found(agent: WorldAgent, id_: str = "e1") -> PostedEvent:
    """An event as it is stored."""
    posted: PostedEvent | None = await agent.society.events.get(id_)
    assert posted is not None
    return posted


def thread_of(agent: WorldAgent, id_: str = "e1", member: str = "cro") -> Thread:
    """The thread of an event's operator."""
    return agent.thread(f"event {id_}", account=f"member:novel/{member}")
