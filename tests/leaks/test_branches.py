"""Forks, replays and edits: the roles of neither time are anywhere afterwards, nor are they needed (R7, R13)."""

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, scripted_agent
from support.leak_cases import MODES
from support.leaks import LONG, SHORT, Watch, awkward_canary, canary, watch
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Thread
from worldagent.core import Scope
from worldagent.core.errors import ModelUnavailable, NameTaken, UnknownMessage
from worldagent.graphs import Shape, TaskContext, TurnEngine
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.graphs.checkpoints.saver import Durability
from worldagent.testing import ScriptedCall, ScriptedLM

WAYS = ("fork", "replay", "replay of a task that waits", "edit")
SOURCES = ("call", "thread", "channel")
ENDS = ("answers", "model fails and quotes the prompt", "refused", "error before its first step", "cancelled")
_WAIT = 60.0


@dataclass(frozen=True)
class Case:
    """One branch, after a turn that had a role.

    Attributes:
        way: How the thread is branched.
        source: Where the roles are from.
        end: How it goes.
        length: Characters of each role.
        mode: LangGraph's durability.
    """

    way: str
    source: str
    end: str
    length: int
    mode: Durability

    def __str__(self) -> str:
        return f"{self.way}-{self.source}-{self.end}-{self.length}-{self.mode}"

    def role(self, which: str) -> Role:
        content = awkward_canary(self.length, seed=f"{which} of {self}")
        return Role(canary(12, seed=f"label of {which} of {self}"), content, applies_to="*")


def cases() -> list[Case]:
    modes = itertools.cycle(MODES)
    product = itertools.product(WAYS, SOURCES, ENDS, (len(SHORT), len(LONG)))
    return [Case(*four, next(modes)) for four in product if four[0] != "fork" or four[2] in ("answers", "refused")]


class Branched:
    """An agent whose turns have a role each time, and a model that behaves as the case says."""

    def __init__(self, case: Case, home: Path, seen: Watch) -> None:
        self.case, self.home, self.seen = case, home, seen
        self.now = case.role("first")
        self.failing = self.holding = False
        self.held = asyncio.Event()
        self.lm = ScriptedLM(self._reply)

    def agent(self) -> WorldAgent:
        async def source(scope: Scope) -> Role:
            return self.now

        more: dict[str, Any] = {"roles": Roles(sources={Tier.CHANNEL: source})} if self.case.source == "channel" else {}
        return scripted_agent(self.home, self.lm, shapes=[Shape("ask", Nothing, Said, _ask)], **more)

    def roled(self, thread: Thread, which: str) -> dict[str, Any]:
        """How a surface is called to have the role; it is set here where it is the thread's or the channel's."""
        self.now = self.case.role(which)
        if self.case.source == "thread":
            thread.role.set(self.now)
        return {"role": self.now} if self.case.source == "call" else {}

    async def branch(self, thread: Thread, at: str | None) -> Any:
        role = self.roled(thread, "again")
        match self.case.way:
            case "fork":
                return await thread.fork(at=at, to="new")
            case "edit":
                return await thread.edit("Is it good, though?", at=at, keep_as="new", **role)
            case _:
                return await thread.replay(at, to="new", **role)

    async def look(self, agent: WorldAgent) -> None:
        """Keep all that a host can ask about its threads."""
        for state in await agent.threads():
            thread = agent.thread(state.thread, account="ana", channel="den")
            self.seen.kept += [state, await thread.history(), await thread.pauses()]
        self.seen.kept.append(repr(agent))

    async def _reply(self, call: ScriptedCall) -> Any:
        if self.holding:
            self.held.set()
            await asyncio.Event().wait()
        return RuntimeError(f"no reply to {call.text}", call.text) if self.failing else {"reply": "Fine."}


async def _ask(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=str(await ctx.calls.ask_person("Which?")))


async def _cut(*_: Any, **__: Any) -> Any:
    raise SystemError("a mistake of ours")


async def first(turn: Branched, thread: Thread) -> None:
    """The turn that is branched."""
    role = turn.roled(thread, "first")
    await thread.converse("Is it good?", **role)
    assert turn.now.content in turn.lm.calls[-1].text, "the role never reached the model, so the case shows nothing"
    if turn.case.way == "replay of a task that waits":
        turn.seen.kept.append(await thread.task("ask", {}, **role))


async def branched(turn: Branched, thread: Thread, patched: pytest.MonkeyPatch) -> Any:
    """Branch the thread as the case says; give what came of it."""
    case, outcome = turn.case, turn.seen.outcome
    match case.end:
        case "refused":
            refused = await outcome(turn.branch(thread, "no such message"))
            assert isinstance(refused, UnknownMessage)
            await thread.fork(to="new")
            refused = await outcome(turn.branch(thread, None))
            assert isinstance(refused, NameTaken)
            return None
        case "error before its first step":
            with patched.context() as cutting:
                cutting.setattr(TurnEngine, "run", _cut)
                assert isinstance(await outcome(turn.branch(thread, None)), SystemError)
            return None
        case "model fails and quotes the prompt":
            turn.failing = True
            failed = await outcome(turn.branch(thread, None))
            turn.failing = False
            return failed
        case "cancelled":
            turn.holding = True
            running = asyncio.create_task(outcome(turn.branch(thread, None)))
            if "task" not in case.way:  # which asks no model
                await asyncio.wait_for(turn.held.wait(), _WAIT)
                running.cancel()
            ended = await running
            turn.holding = False
            return ended
        case _:
            return await outcome(turn.branch(thread, None))


def check_outcome(turn: Branched, outcome: Any) -> None:
    """See that the case went as it says, and that a role was there where one should be."""
    case = turn.case
    if case.way == "fork" and case.end == "answers":
        assert outcome.scope.thread == "new"
    if case.end == "model fails and quotes the prompt" and "task" not in case.way:
        assert isinstance(outcome, ModelUnavailable)
    if case.end in ("answers", "model fails and quotes the prompt") and case.way in ("replay", "edit"):
        # A replay's thread is new, and has no role of its own.
        roled = case.source != "thread" or case.way == "edit"
        assert (turn.now.content in turn.lm.calls[-1].text) == roled


async def on_without_a_role(turn: Branched) -> None:
    """Another process forks what there is and continues; it has no role and needs none."""
    case = turn.case
    lm = ScriptedLM(lambda call: {"reply": "Fine."})
    async with scripted_agent(turn.home, lm) as agent:
        thread = agent.thread("t", account="ana", channel="den")
        fork = await thread.fork(to="without")
        await fork.converse("And now?")
        if case.way != "replay of a task that waits":  # which would wait again
            assert (await thread.replay(to="without, again")).role_tiers == ()
        for which in ("first", "again"):
            assert case.role(which).content not in "".join(call.text for call in lm.calls)
        await turn.look(agent)


async def check(case: Case, home: Path, patched: pytest.MonkeyPatch) -> None:
    DURABILITY.set(case.mode)
    with watch(home) as seen:
        turn = Branched(case, home, seen)
        async with turn.agent() as agent:
            thread = agent.thread("t", account="ana", channel="den")
            await first(turn, thread)
            check_outcome(turn, await branched(turn, thread, patched))
            await turn.look(agent)
        await on_without_a_role(turn)
    roles = [case.role("first"), case.role("again")]
    seen.assert_clean(*(role.content for role in roles), names=[role.name for role in roles])


SAMPLE = cases()[::7]  # each way, source, length and mode, and each end
REST = [case for case in cases() if case not in SAMPLE]


@pytest.mark.on_every_database
@pytest.mark.requirement("R7", "R13")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_is_nowhere_after_its_thread_was_branched(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check(case, tmp_path / "home", monkeypatch)


@pytest.mark.soak
@pytest.mark.on_every_database
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_is_nowhere_after_any_thread_was_branched(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check(case, tmp_path / "home", monkeypatch)


def test_the_sample_has_every_value_of_a_case() -> None:
    for name in ("way", "source", "end", "length", "mode"):
        assert {getattr(case, name) for case in SAMPLE} == {getattr(case, name) for case in cases()}, name
