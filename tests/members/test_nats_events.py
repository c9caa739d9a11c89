"""Events that other programs publish over NATS are posted once, and kept while no gateway runs (A12)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import NoStreamResponseError

from support.agents import answering, scripted_agent
from support.brokers import nats_server
from support.role_specs import spec_of
from worldagent import Policy, WorldAgent, tool
from worldagent.members import AuthorityConfig, Gateway, Route, WorkspaceConfig
from worldagent.members.events.events import PostedEvent
from worldagent.members.mail.nats import event_subject

pytestmark = [pytest.mark.requirement("A12"), pytest.mark.timeout(120)]

LEAD = {"id": "e1", "type": "lead.created", "source": "shop", "domain": "revenue", "payload": {"lead": "Ada"}}


@tool(risk="read_only")
async def qualify(lead: str) -> str:
    return f"{lead} fits"


@asynccontextmanager
async def team(home: Path, url: str) -> AsyncGenerator[WorldAgent]:
    cro = spec_of(
        "cro",
        domains=("revenue",),
        operator_ids=("qualify",),
        authority=AuthorityConfig(autonomous=("lead.created",)),
        routes=(Route(event="lead.*", operator="qualify"),),
    )
    config, settings = WorkspaceConfig(id="novel", owner="charles"), {"nats_url": url}
    async with scripted_agent(
        home, answering(), settings=settings, society=config, policy=Policy(), tools=[qualify]
    ) as agent:
        await agent.society.join(cro)
        yield agent


async def published(client: Any, *events: bytes) -> None:
    """Publish events, once a gateway has made their stream."""
    for event in events:
        async with asyncio.timeout(30):
            while True:
                try:
                    await client.jetstream().publish(event_subject("novel"), event)
                    break
                except NoStreamResponseError:
                    await asyncio.sleep(0.05)


async def over(agent: WorldAgent, event_id: str) -> PostedEvent:
    async with asyncio.timeout(60):
        while True:
            found: PostedEvent | None = await agent.society.events.get(event_id)
            if found is not None and found.state == "done":
                return found
            await asyncio.sleep(0.05)


async def test_events_that_are_published_are_handled_once_and_others_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with nats_server(tmp_path / "nats") as server:
        client = await nats.connect(server.url)
        async with team(tmp_path / "home", server.url) as agent:
            async with Gateway(agent, poll=3600):
                bad = (b"no JSON", b"\xff", json.dumps({**LEAD, "domain": ""}).encode())
                spawn = {**LEAD, "id": "d1", "type": "directive.spawn", "source": "charles", "source_verified": True}
                await published(client, *bad, json.dumps(spawn).encode())
                await published(client, *[json.dumps(LEAD).encode()] * 2)
                assert (await over(agent, "e1")).result == "done"
            await published(client, json.dumps({**LEAD, "id": "e2"}).encode())
            async with Gateway(agent, poll=3600):
                assert (await over(agent, "e2")).result == "done"
            assert [each.event.id for each in await agent.society.events.list()] == ["e1", "e2"]
        await client.close()
    dropped = [each.message for each in caplog.records if "is dropped" in each.message]
    assert len(dropped) == 4
    assert "no field 'source_verified'" in dropped[-1]


def test_a_workspace_with_any_id_has_a_subject() -> None:
    assert event_subject("vibe-team_1") == "worldagent.events.vibe-team_1"
    for workspace in ("a.b", "a b", "*", ">"):
        subject = event_subject(workspace)
        assert subject.count(".") == 2
        assert not {" ", "*", ">"} & {*subject}
