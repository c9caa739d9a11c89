"""The blocking door: `ask` and `run_sync` open the agent, run one turn and close it, for scripts and notebooks (T1)."""

import asyncio
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, paying, scripted_agent, shape
from worldagent import Approve, Resume, Role, Say, Storage, Task, WorldAgent, tool
from worldagent.agent import assembly
from worldagent.core.errors import AgentClosed, InvalidArgument, ModelNotConfigured, ThreadPaused
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T1")

PAYING = [calls(("pay", {"what": "hat"})), {"reply": "Paid."}]


def test_a_script_asks_and_the_conversation_continues(tmp_path: Path) -> None:
    lm = answering("Felt.")
    agent = WorldAgent(lm=lm, storage=Storage(home=tmp_path))
    assert (agent.workspace, agent.ask("What are hats made of?")) == ("default", "Felt.")
    assert not agent.is_open
    turn = agent.run_sync(Say("And ropes?"))
    assert (turn.status, turn.thread) == ("done", "default")
    assert "What are hats made of?" in str(lm.calls[-1].messages)
    agent.ask("Hello.", thread=agent.thread("t1", account="ana"), role=Role("brief", "Be brief."))
    assert "What are hats made of?" not in str(lm.calls[-1].messages)
    with pytest.raises(InvalidArgument, match="`text` must be a non-empty string"):
        agent.ask("")
    assert not agent.is_open


async def test_where_a_loop_runs_the_turn_has_one_of_its_own(tmp_path: Path) -> None:
    agent = scripted_agent(tmp_path, answering())
    assert agent.ask("Hello.") == "Fine."
    async with agent:
        with pytest.raises(AgentClosed, match=r"'novel'\) is open already.*; await thread\.run\(\.\.\.\) in that loop"):
            agent.ask("Hello.")
        with pytest.raises(AgentClosed, match="is open already"):
            await asyncio.to_thread(agent.ask, "Hello.")
        assert (await agent.thread("default").converse("And?")).text == "Fine."
        assert len(await agent.thread("default").history()) == 4
    assert agent.ask("Hello.") == "Fine."


def test_a_pause_says_how_to_answer(tmp_path: Path) -> None:
    done: list[str] = []
    agent = scripted_agent(tmp_path, ScriptedLM(PAYING), tools=[paying(done)])
    with pytest.raises(
        ThreadPaused, match=r"waits for a person: '(.+)' \(pay\); answer with agent\.run_sync"
    ) as caught:
        agent.ask("Buy a hat.")
    assert caught.value.turn_id is not None
    with pytest.raises(ThreadPaused):
        agent.ask("And?")
    pause = str(caught.value).partition("Resume({'")[2].partition("'")[0]
    turn = agent.run_sync(Resume({pause: Approve()}))
    assert (turn.id, turn.status, turn.text, done) == (caught.value.turn_id, "done", "Paid.", ["hat"])


@pytest.mark.requirement("T5")
def test_an_interrupt_stops_the_turn_as_a_drain_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draining = asyncio.Event()

    @tool(risk="read_only")
    async def step() -> str:
        """Take a step."""
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)  # as Ctrl-C does
        await asyncio.wait_for(draining.wait(), 20)
        return "taken"

    lm = ScriptedLM([calls(("step", {})), {"reply": "Done."}])
    agent = scripted_agent(tmp_path, lm, tools=[step])
    drain = agent.drain

    async def noted() -> None:
        asyncio.get_running_loop().call_soon(draining.set)
        await drain()

    monkeypatch.setattr(agent, "drain", noted)
    with pytest.raises(KeyboardInterrupt):
        agent.ask("Go.")
    assert len(lm.calls) == 1
    assert not agent.is_open
    with pytest.raises(ThreadPaused, match="is stopped; resume it"):
        agent.ask("More.")
    assert agent.run_sync(Resume()).text == "Done."
    assert len(lm.calls) == 2


@pytest.mark.requirement("H9")
async def test_a_turn_within_a_turn_is_refused_and_that_of_another_agent_knows_its_caller(tmp_path: Path) -> None:
    done: list[str] = []
    refused: list[Any] = []

    async def buy(ctx: TaskContext) -> str:
        return str(await ctx.call("pay", {"what": "hat"}))

    other = scripted_agent(tmp_path / "other", answering(), tools=[paying(done)], shapes=[shape(buy)])

    @tool(risk="read_only")
    def hop() -> str:
        """Let the other agent buy."""

        def nested() -> None:
            with pytest.raises(AgentClosed) as caught:
                agent.ask("Hello.", thread="other")
            refused.append(caught.value)

        nested()
        apart = threading.Thread(target=nested)
        apart.start()
        apart.join(20)
        return other.run_sync(Task("job", {})).status

    agent = scripted_agent(tmp_path, ScriptedLM([calls(("hop", {})), {"reply": "Done."}]), tools=[hop])
    assert agent.ask("Go.") == "Done."
    assert len(refused) == 2
    assert done == [], "a call that a model has influenced ran without an approval"
    async with other:
        assert [pause.function for pause in await other.thread("default").pauses()] == ["pay"]


def test_without_a_model_the_embedded_one_is_used_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assembly._embedded_model.cache_clear()
    monkeypatch.setattr("worldagent.signatures.engines.local.is_installed", lambda: True)
    with caplog.at_level(logging.WARNING, logger="worldagent.agent"):
        WorldAgent("novel")
        WorldAgent()
    assert [record.getMessage() for record in caplog.records] == [
        "no model is configured, so agents use the embedded one, which is tiny; set WORLDAGENT_LM to another"
    ]
    assembly._embedded_model.cache_clear()
    monkeypatch.setattr("worldagent.signatures.engines.local.is_installed", lambda: False)
    with pytest.raises(ModelNotConfigured, match=r"no model is configured; pass lm='local'.*WORLDAGENT_LM"):
        WorldAgent("novel")
