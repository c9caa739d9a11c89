"""Turns that only a newer version of the package can resume are left alone, and can be resumed by that (D15)."""

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from support.agents import answering, calls, paying, scripted_agent
from support.databases import Engine, execute, made, on_every_database, rows_of, storage_of
from support.processes import eventually
from support.submissions import HELLO, queued_agent, two_looks
from worldagent import Settings, WorldAgent
from worldagent.agent.runtime.versions import LEAST
from worldagent.core.errors import GraphChanged, VersionTooOld, WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.scheduling import QueueWorker
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T4")

NEEDED = rf"needs version 99\.0 of worldagent, and this process has {version('worldagent')}"


def agent_of(home: Path, done: list[str]) -> WorldAgent:
    def reply(call: Any) -> dict[str, Any]:
        return {"reply": "Paid."} if call.steps else {"reply": "", **calls(("pay", {"what": "hat"}))}

    settings = Settings(model_attempts=1)
    return WorldAgent("novel", lm=ScriptedLM(reply), tools=[paying(done)], storage=storage_of(home), settings=settings)


def test_the_least_version_that_can_resume_is_one_that_there_is() -> None:
    assert Version(LEAST) <= Version(version("worldagent"))


@on_every_database
async def test_a_turn_that_waits_says_which_version_it_needs(engine: Engine, tmp_path: Path) -> None:
    home, done = made(engine, tmp_path / "home"), list[str]()
    async with agent_of(home, done) as agent:
        [pause] = (await agent.thread("t").converse("A hat.")).pauses
    assert rows_of(home, "SELECT needs FROM wa_turn") == [(LEAST,)]
    execute(home, "UPDATE wa_turn SET needs='99.0', version='99.0'")
    async with agent_of(home, done) as agent:
        thread = agent.thread("t")
        for tried in (thread.resume({pause.id: Approve()}), thread.resume(), thread.converse("And a coat?")):
            with pytest.raises(VersionTooOld, match=NEEDED) as caught:
                await tried
            assert isinstance(caught.value, GraphChanged)
            assert caught.value.code == "version_too_old"
        assert [each.answered for each in await thread.pauses()] == [False]
    execute(home, f"UPDATE wa_turn SET needs='{LEAST}'")
    async with agent_of(home, done) as agent:
        assert (await agent.thread("t").resume({pause.id: Approve()})).text == "Paid."
    assert done == ["hat"]
    assert rows_of(home, "SELECT needs, version FROM wa_turn") == [(LEAST, "99.0")]


async def test_an_interrupted_turn_of_a_newer_version_is_not_ended_by_a_message(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.thread("t").converse("Hello.", key="once")
    execute(tmp_path, "UPDATE wa_turn SET status='running', needs='99.0', graph='turn/9'")
    async with scripted_agent(tmp_path, answering()) as agent:
        for key in ("once", None):
            with pytest.raises(VersionTooOld, match=NEEDED):
                await agent.thread("t").converse("Hello.", key=key)
    assert rows_of(tmp_path, "SELECT status FROM wa_turn") == [("running",)]


async def test_a_turn_of_0_1_0_needs_no_version_until_it_is_resumed(tmp_path: Path) -> None:
    done: list[str] = []
    async with agent_of(tmp_path, done) as agent:
        [pause] = (await agent.thread("t").converse("A hat.")).pauses
    execute(tmp_path, "UPDATE wa_turn SET needs=NULL, version=NULL")
    async with agent_of(tmp_path, done) as agent:
        await agent.thread("t").resume({pause.id: Approve()})
    assert rows_of(tmp_path, "SELECT needs FROM wa_turn") == [(LEAST,)]


@pytest.mark.requirement("T10")
async def test_a_worker_leaves_a_submitted_turn_to_a_newer_one(tmp_path: Path) -> None:
    async with queued_agent(tmp_path, answering()) as agent:
        await agent.thread("t", account="ana").converse("Hello.", key="greeting", unattended=True)
    execute(tmp_path, "UPDATE wa_turn SET status='running', needs='99.0'")
    async with queued_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t", account="ana")
        submission = await agent.submit(HELLO, thread=thread, key="greeting")
        worker = QueueWorker(agent)
        async with worker.running(drain=0), asyncio.timeout(20):
            assert await eventually(lambda: worker.counts.begun == 1)
            await two_looks(worker)
            assert (worker.counts.running, worker.counts.failed) == (1, 0)
        execute(tmp_path, "UPDATE wa_turn SET needs=NULL")
        async with QueueWorker(agent).running(drain=0):
            assert (await asyncio.wait_for(submission.wait(), 20)).status == "done"


def test_the_error_of_an_older_process_is_known_by_its_code() -> None:
    assert WorldAgentError.kind_of("version_too_old") is VersionTooOld
