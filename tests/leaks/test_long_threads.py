"""A role is nowhere after turns whose beginning was summed up, and none of it reaches a summary or a compaction."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import CRITIC, scripted_agent
from support.leak_cases import MODES
from support.leaks import LONG, SHORT, Watch, awkward_canary, canary, watch
from worldagent import Role, Tier, WorldAgent
from worldagent.agent import Thread
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.graphs.checkpoints.saver import Durability
from worldagent.graphs.shapes import compaction_shape
from worldagent.harness.trace import Trace
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles

SOURCES = ("call", "thread", "workspace", "account")
_WAIT = 60.0
_WORK = {"shape": "subagent", "params": {"worker": "critic", "request": "Judge it."}}


class Model:
    """Sums up as the test says, and answers everything else well."""

    def __init__(self, summary: Callable[[ScriptedCall], Any]) -> None:
        self.summary = summary
        self.lm = ScriptedLM(self._reply)
        self.held = asyncio.Event()

    def _reply(self, call: ScriptedCall) -> Any:
        if "earlier" in call.fields:
            return self.summary(call)
        if "wanted" in call.fields:
            return {"text": "Short."}
        if "request" in call.fields:
            return {"result": "A long result."}
        return {"reply": "Fine.", "calls": []} if "Reply to the message" in call.system else {"reply": "Fine."}

    async def hold(self, call: ScriptedCall) -> Any:
        self.held.set()
        await asyncio.Event().wait()

    @property
    def summed(self) -> list[ScriptedCall]:
        return [call for call in self.lm.calls if "earlier" in call.fields]


async def fill(agent: WorldAgent, thread: Thread, role: Role, source: str) -> Role | None:
    """Put a role where the case has it from, and let the thread come to where its next turn sums up."""
    given = role if source == "call" else None
    if source == "thread":
        thread.role.set(role)
    elif source != "call":
        await agent.roles.put(Tier(source), role, scope_id="ana" if source == "account" else None)
    for number in range(4):
        await thread.converse(f"Message {number}.", role=given)
    return given


async def _well(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    await seen.outcome(thread.converse("And now?", role=role))
    assert len(model.summed) == 1


async def _kept_and_forked(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    await thread.keep(next(message.id for message in await thread.history() if message.kind == "message"))
    await _well(agent, thread, role, model, seen)
    fork = await thread.fork(to="fork")
    for number in range(4):
        await seen.outcome(fork.converse(f"On the fork {number}.", role=role))
    seen.kept.append([await fork.history(), await fork.kept()])
    assert len(model.summed) > 1


async def _quoting(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    model.summary = lambda call: RuntimeError(f"cannot sum up {call.text}", call.text)
    await _well(agent, thread, role, model, seen)
    assert [event.type for event in seen.events].count("summary_failed") == 1


async def _too_long(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    model.summary = lambda call: dspy.lm15.ContextLengthError(f"too long: {call.text}")
    await seen.outcome(thread.converse("And now?", role=role))
    assert model.summed


async def _cancelled(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    model.summary = model.hold
    turn = asyncio.create_task(thread.converse("And now?", role=role))
    await asyncio.wait_for(model.held.wait(), _WAIT)
    turn.cancel()
    assert isinstance(await asyncio.wait_for(seen.outcome(turn), _WAIT), asyncio.CancelledError)


async def _drained(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    model.summary = model.hold
    turn = asyncio.create_task(seen.outcome(thread.converse("And now?", role=role)))
    await asyncio.wait_for(model.held.wait(), _WAIT)
    await agent.drain(seconds=0.05)
    assert (await turn).status == "stopped"


async def _compacted(agent: WorldAgent, thread: Thread, role: Role | None, model: Model, seen: Watch) -> None:
    await seen.outcome(thread.task("compaction", _WORK, role=role))
    assert [call.role for call in model.lm.calls if "wanted" in call.fields] == [None]


Way = Callable[[WorldAgent, Thread, "Role | None", Model, Watch], Awaitable[None]]
PATHS: dict[str, Way] = {
    "is summed up": _well,
    "keeps a message and is forked": _kept_and_forked,
    "fails to be summed up and the error quotes the prompt": _quoting,
    "is too long to be summed up": _too_long,
    "is cancelled while it is summed up": _cancelled,
    "is drained while it is summed up": _drained,
    "has a compaction": _compacted,
}
# Each path with each length; sources and modes take turns.
CASES = [
    (path, SOURCES[(place + shift) % len(SOURCES)], MODES[(place + shift) % len(MODES)], length)
    for place, path in enumerate(PATHS)
    for shift, length in enumerate((len(SHORT), len(LONG)))
]


@pytest.mark.requirement("R6", "R7")
@pytest.mark.parametrize(("path", "source", "mode", "length"), CASES)
async def test_a_role_is_nowhere_after_a_thread(
    tmp_path: Path, path: str, source: str, mode: Durability, length: int
) -> None:
    DURABILITY.set(mode)
    content, label = awkward_canary(length, seed=f"{path}/{source}"), canary(12, seed=f"label/{path}/{source}")
    model = Model(lambda call: {"summary": "What was said."})
    role = Role(label, content, applies_to="*" if source in ("call", "thread") else ())
    with watch(tmp_path / "home") as seen:
        settings = {"history_limit": 8}
        async with scripted_agent(
            tmp_path / "home", model.lm, workers=[CRITIC], shapes=[compaction_shape()], settings=settings
        ) as agent:
            thread = agent.thread("t1", account="ana")
            given = await fill(agent, thread, role, source)
            await PATHS[path](agent, thread, given, model, seen)
            if path != "is drained while it is summed up":
                seen.kept.append([await thread.history(), agent.program("SummariseHistory").dump_state()])
            seen.assert_clean(content, names=[] if source == "thread" else [label])
        seen.assert_clean(content)
    assert any(content in call.text for call in model.lm.calls), "the role never reached the model"
    assert not [call for call in model.summed if content in call.text]


@pytest.mark.requirement("R7", "R10")
async def test_a_persons_message_that_is_the_role_gets_no_second_copy_in_a_summary(tmp_path: Path) -> None:
    content = awkward_canary(len(LONG), seed="said")
    model = Model(lambda call: {"summary": f"They said: {call.fields['messages']}"})
    home = tmp_path / "home"
    trace = Trace(capture=["prompts"])
    async with scripted_agent(home, model.lm, settings={"history_limit": 8}, trace=trace) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse(content)
        thread.role.set(Role("said", content))
        turns = [await thread.converse(f"Message {number}.") for number in range(4)]
        told = await thread.history()
        trees = [await agent.traces.get(turn.id) for turn in turns]
    [made] = [message for message in told if message.kind == "summary"]
    assert made.body["text"].startswith("They said: ")
    assert [message.kind for message in told if not _clean(message.body, content)] == ["message"]
    assert content in model.summed[0].text, "the model saw the message, and repeated it"
    prompts = [(record.name, record.prompt) for tree in trees for record in tree.records if record.kind == "model"]
    assert {name for name, _ in prompts} == {"Converse", "SummariseHistory"}
    assert _clean(prompts, content)


def _clean(body: object, content: str) -> bool:
    return not scan_for_roles([body], content).findings


@pytest.mark.requirement("R7")
async def test_a_summary_that_a_planted_role_got_into_would_be_found(tmp_path: Path) -> None:
    content = awkward_canary(len(LONG), seed="planted")
    model = Model(lambda call: {"summary": content})
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(tmp_path / "home", model.lm, settings={"history_limit": 8}) as agent:
            thread = agent.thread("t1")
            for number in range(6):
                await thread.converse(f"Message {number}.")
            found = seen.leaks(content)
    assert [finding for finding in found if re.search(r"agent\.db", finding)], found
