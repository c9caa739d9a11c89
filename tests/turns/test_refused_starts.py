"""A turn that is refused before it begins leaves nothing behind: no row, no lock file and no trace (T4, H5)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.homes import rows, selected
from support.web import client_of, served
from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.agent.runtime.inside import inside
from worldagent.agent.stores import SCHEMAS
from worldagent.core.errors import AttachmentMissing, LimitReached, ModelNotConfigured, WorldAgentError
from worldagent.hosts.web import Grant, WebApp
from worldagent.memory.attachments import Attachment
from worldagent.storage.copies import tables_of

pytestmark = pytest.mark.requirement("T4", "H5")

TABLES = sorted({table.name for table in tables_of(SCHEMAS)} - {"wa_epoch"})
GONE = Attachment(name="gone.txt", media_type="text/plain", sha256="0" * 64, size=3)


async def left(agent: WorldAgent) -> dict[str, Any]:
    """What a home holds, as far as turns can leave something there."""
    locks = inside(agent).stores.storage.locks  # of a home with SQLite
    return {
        **{table: await rows(agent, table) for table in TABLES},
        "epochs": await selected(agent, "SELECT key FROM wa_epoch WHERE key<>'' ORDER BY key"),
        "locks": len([*locks.glob("*")]),
        "traces": len(await agent.traces.list(limit=1000)),
    }


@asynccontextmanager
async def at_its_limit(home: Path) -> AsyncGenerator[WorldAgent]:
    """An agent on whose thread `old` the account `ana` has begun all threads of the day."""
    settings = {"account_limits": {"threads": 1}}
    async with scripted_agent(home, answering(), settings=settings) as agent:
        await agent.thread("old", account="ana").converse("Hello.")
        yield agent


async def in_part(thread: Thread, **how: Any) -> None:
    async with thread.stream("Hello.", detach=True, **how) as stream:
        await stream.wait()


STARTS: dict[str, tuple[type[WorldAgentError], Callable[[Thread, Thread], Awaitable[object]]]] = {
    "model": (ModelNotConfigured, lambda new, _: new.converse("Hello.", model="nobody/such-a-model")),
    "attachment": (AttachmentMissing, lambda new, _: new.converse("Hello.", attachments=[GONE])),
    "threads": (LimitReached, lambda new, _: new.converse("Hello.")),
    "key": (LimitReached, lambda new, _: new.converse("Hello.", key="k1")),
    "detached": (LimitReached, lambda new, _: in_part(new)),
    "fork": (LimitReached, lambda _, old: old.fork(to="new")),
    "replay": (LimitReached, lambda _, old: old.replay(to="new")),
    "edit": (LimitReached, lambda _, old: old.edit("Hi.", keep_as="new")),
}


@pytest.mark.on_every_database
@pytest.mark.parametrize("start", STARTS)
async def test_a_refused_start_leaves_nothing_behind(tmp_path: Path, start: str) -> None:
    kind, refused = STARTS[start]
    async with at_its_limit(tmp_path) as agent:
        old, before = agent.thread("old", account="ana"), await left(agent)
        for _ in range(2):
            with pytest.raises(kind):
                await refused(agent.thread("new", account=None if start == "attachment" else "ana"), old)
            assert await left(agent) == before
        assert (await old.converse("It goes on.")).status == "done"
        assert (await agent.thread("new").converse("So does its name.")).status == "done"


async def test_refused_starts_do_not_disturb_others_that_wait_for_the_same_name(tmp_path: Path) -> None:
    async with at_its_limit(tmp_path) as agent:
        starts = [agent.thread("new", account=("ana", "bob")[number % 2]).converse("Hello.") for number in range(12)]
        found = await asyncio.gather(*starts, return_exceptions=True)
        done = [each for each in found if not isinstance(each, BaseException)]
        assert len(done) >= 6, found
        assert len(await agent.thread("new").history()) == 2 * len(done)


async def test_requests_that_are_refused_leave_nothing_of_the_names_that_they_use(tmp_path: Path) -> None:
    async with at_its_limit(tmp_path) as agent:
        app = WebApp(agent, login=lambda _: Grant(("novel",), ("ana",)))
        async with served(app) as url, client_of(url) as client:
            before = await left(agent)
            for number in range(5):
                for more in ({}, {"key": f"k{number}"}, {"model": "nobody/such-a-model"}):
                    body = {"text": "Hello.", **more}
                    sent = await client.post(f"/threads/new-{number}/messages", json=body)
                    assert sent.status_code in (400, 429), sent.text
            assert await left(agent) == before
