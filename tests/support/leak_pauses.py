"""Turns that pause: the cases of the leak suite, their agent, model and roles, and a function for each path."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from support.agents import CRITIC, approving, open_pauses, scripted_agent
from support.leak_cases import ANOTHER, LENGTHS, MODES, Roled, Values, covering
from support.leak_turns import (
    REQUEST,
    HeldTurn,
    Paths,
    Review,
    ReviewParams,
    ReviewResult,
    Summarise,
    check_cancelled,
    fields,
)
from support.leaks import Watch, on_the_server, repeated
from worldagent import WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core import ECHO_RUN, errors
from worldagent.core.pauses import Approve, Happened, Pause, RunAgain
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.checkpoints.saver import Durability
from worldagent.harness import CallContext, Function, Policy, flow, tool
from worldagent.testing import ScriptedCall, VirtualClock

_WAIT = 60.0
SOURCES = ("call", "thread", "both", "code")
"""Where the role is from; `both` is one of the call over another of the thread, `code` is T8's."""
OF_THE_TURN = SOURCES[:3]
"""Where the role of the turn itself is from."""
PAUSES = ("approval", "question at depth", "siblings")
SURFACES = ("converse", "stream", "task")


@dataclass(frozen=True)
class PausedCase(Roled):
    """One turn to run, and to find nothing of its roles after.

    Attributes:
        path: What becomes of it.
        source: Where its role is from.
        pause: What it waits for.
        length: Characters of each role.
        mode: LangGraph's durability.
        surface: Through what it is asked for, and whether its resume is streamed.
    """

    path: str
    source: str
    pause: str
    length: int
    mode: Durability
    surface: str

    @property
    def planted(self) -> tuple[str, ...]:
        return ("call", "thread") if self.source == "both" else (self.source,)


class Paused(HeldTurn[PausedCase]):
    """Runs the turn of a case that pauses.

    Attributes:
        code_role: The role that the code of the handler passes, where the case has it from there.
        hold: Whether the next model call that has a role is held open.
        fail: Whether the next model call that has a role fails, quoting all it was sent.
    """

    kind = "paused"

    def __init__(self, case: PausedCase, home: Path, seen: Watch | None = None) -> None:
        super().__init__(case, home, seen)
        self.code_role = case.role("code") if case.source == "code" else None
        self.hold = self.fail = False
        self.clock: VirtualClock | None = None

    # --- roles ------------------------------------------------------------------------------------------------------

    @property
    def call_role(self) -> dict[str, Any]:
        return {"role": self.case.role("call")} if self.case.source in ("call", "both") else {}

    async def place_role(self, agent: WorldAgent, thread: Thread) -> None:
        self.set_thread_role(thread)

    def set_thread_role(self, thread: Thread) -> None:
        """Give the thread its role, where the case has one of the thread."""
        if self.case.source in ("thread", "both"):
            thread.role.set(self.case.role("thread"))

    @property
    def planted(self) -> list[str]:
        """The texts of the roles that the turn has."""
        return [self.case.role(which).content for which in self.case.planted]

    # --- the agent --------------------------------------------------------------------------------------------------

    def agent(self, **settings: Any) -> WorldAgent:
        """An agent on the home, to be opened."""
        more: dict[str, Any] = {} if self.clock is None else {"clock": self.clock}
        return scripted_agent(
            self.home,
            self.lm,
            settings=settings,
            workers=[CRITIC],
            tools=self._functions(),
            shapes=[Shape("job", ReviewParams, ReviewResult, self._job, **_ENTRY)],
            policy=Policy(rules=(approving("write"),)),
            **more,
        )

    @staticmethod
    def answers(pauses: Sequence[Pause]) -> dict[str, Any]:
        """What a person says to all of it."""
        said: dict[str, Any] = {"approval": Approve(), "question": "red", "uncertain": RunAgain()}
        return {pause.id: said[pause.kind] for pause in pauses}

    async def to_the_end(self, thread: Thread, **how: Any) -> Turn:
        """Resume and answer until the turn is over."""
        turn = await self.resume(thread, self.answers(await open_pauses(thread)), **how)
        while turn.status == "paused":
            turn = await self.resume(thread, self.answers(turn.pauses), **how)
        return turn

    # --- looking on -------------------------------------------------------------------------------------------------

    async def look(self, *threads: Thread) -> None:
        """Look for the roles by now, and keep what `threads` show for the end."""
        assert self.seen is not None
        for thread in threads:
            self.seen.kept.append([await thread.history(), await thread.pauses()])
        self.look_on_disk()

    # --- what it runs -----------------------------------------------------------------------------------------------

    def _functions(self) -> list[Function]:
        async def pay(what: str) -> str:
            return f"paid {what}"

        async def write(what: str) -> str:
            return f"wrote {what}"

        async def deep(ctx: CallContext, levels: int) -> str:
            if levels:
                return str(await ctx.call("deep", {"levels": levels - 1}))
            return await ctx.ask_person("Which colour?", ["red", "blue"])

        return [tool(approval=True)(pay), tool(risk="write")(write), flow(deep)]

    async def _job(self, params: ReviewParams, ctx: TaskContext) -> dict[str, Any]:
        await self._by_code(ctx, "before")
        made = await ctx.predict(Review, text=params.text)
        paid, asked = ctx.call("pay", {"what": made["verdict"]}), ctx.call("deep", {"levels": 2})
        match self.case.pause:
            case "approval":
                asked.close()
                await paid
            case "question at depth":
                paid.close()
                await asked
            case _:
                await asyncio.gather(paid, asked, ctx.call("write", {"what": made["verdict"]}))
        await self._by_code(ctx, "after")
        last = await ctx.predict(Summarise, verdict=made["verdict"])
        return {"score": made["score"], "summary": last["summary"]}

    async def _by_code(self, ctx: TaskContext, key: str) -> None:
        if self.code_role is not None:
            await ctx.task("subagent", REQUEST, role=self.code_role, key=key)

    async def _reply(self, call: ScriptedCall) -> Any:
        roled = [text for text in self.planted if text in call.text]
        if roled and self.hold:
            self.hold = False
            self.held.set()
            await self.release.wait()
        if roled and self.fail:
            self.fail = False
            return RuntimeError(f"no reply to {call.text}", call.text)
        # A model that repeats its role: from 40 characters on that is withheld, and less is its own word (R16).
        said = "\n".join(map(repeated, roled)) if roled and self.case.length >= ECHO_RUN else "Fine."
        given = fields(call, said)
        if "calls" in given and not any("summary" in text for _, text in call.messages):
            given["calls"] = [{"tool": "job", "arguments": {"text": "Draft."}}]
        return given


_ENTRY: dict[str, Any] = {"entry": Review, "signatures": (Summarise,), "description": "reviews"}


WaitingPath = Callable[[Paused, Thread, Any], Awaitable[None]]
"""A path that begins where the turn waits, on an open thread, with the answers that it waits for."""
PATHS = path = Paths()
_EMPTY = 21  # bytes that `COPY` gives of a table without rows


def waiting(
    name: str, *, elsewhere: bool = False, sources: tuple[str, ...] = ()
) -> Callable[[WaitingPath], WaitingPath]:
    """A path of a turn that waits, in the agent that began it, or `elsewhere`: in another one after that was closed."""

    def add(work: WaitingPath) -> WaitingPath:
        async def whole(turn: Paused) -> None:
            async with turn.on_thread() as thread:
                answers = await paused(turn, thread)
                if not elsewhere:
                    return await work(turn, thread, answers)
            async with turn.on_thread() as thread:
                await work(turn, thread, answers)

        path(name, sources=sources)(whole)
        return work

    return add


# --- resumed --------------------------------------------------------------------------------------------------------


async def paused(turn: Paused, thread: Thread) -> Any:
    """Begin the turn, see that it waits, and that there is much to look into; gives the answers."""
    begun = await turn.told(turn.begin(thread))
    assert begun.status == "paused", begun
    found = {file.name for file in turn.home.rglob("*")}
    if tables := on_the_server():
        assert all(len(tables[name]) > _EMPTY for name in ("wa_message", "wa_turn", "wa_call", "checkpoints")), tables
        assert "agent.db" not in found
    else:
        assert {"agent.db", "agent.db-wal", "agent.db-shm"} <= found, found
        assert any(name.endswith(".lock") for name in found), found
    assert "role.key" in found
    await turn.look(thread)
    return turn.answers(begun.pauses)


async def ends(turn: Paused, thread: Thread, answers: Any = None, *, roled: bool = True, **how: Any) -> None:
    """Resume the turn to its end, under its role where it is `roled`."""
    since = len(turn.lm.calls)
    resumed = await turn.told(turn.resume(thread, answers, **how))
    assert resumed.status == "done", resumed
    sent = turn.sent(since)
    assert [text in sent for text in turn.planted] == [roled] * len(turn.planted), "the role came back, or did not"
    await turn.look(thread)


async def fails(turn: Paused, error: type[Exception], thread: Thread, answers: Any = None, **how: Any) -> None:
    """See that the turn cannot go on in this way, and that no model was asked."""
    since = len(turn.lm.calls)
    assert type(await turn.told(turn.resume(thread, answers, **how))) is error
    # What code passes is looked at where it passes it, which may be after a call that has no role.
    assert not [call for call in turn.lm.calls[since:] if any(text in call.text for text in turn.case.contents)]
    await turn.look(thread)


@waiting("resumed here")
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    await ends(turn, thread, answers)


@path("resumed elsewhere")
async def _(turn: Paused) -> None:
    """One answer at a time, each in an agent of its own."""
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    await turn.look()
    *first, last = answers.items()
    for answer in first:
        async with turn.on_thread() as thread:
            resumed = await turn.told(turn.resume(thread, dict([answer])))
            assert resumed.status == "paused"
            await turn.look(thread)
    async with turn.on_thread() as thread:
        await ends(turn, thread, dict([last]))


@path("resumed by two at once")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as one, turn.on_thread() as other:
        answers = await paused(turn, one)
        outcomes = await asyncio.gather(*(turn.told(turn.resume(thread, answers)) for thread in (one, other)))
        told = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [type(error) for error in told] == [errors.AlreadyAnswered]
        await turn.look(one, other)


@waiting("answers are refused")
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    await fails(turn, errors.UnknownPause, thread, {"call_1": "red"})
    await fails(turn, errors.AnswerInvalid, thread, dict.fromkeys(answers, Happened("red")))
    await ends(turn, thread, answers)


@waiting("role changed")
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    another, role = turn.case.role(ANOTHER), {}
    match turn.case.source:
        case "call":
            role = {"role": another}
        case "code":
            turn.code_role = another
        case _:
            thread.role.set(another)
    await fails(turn, errors.RoleChanged, thread, answers, **role)
    turn.set_thread_role(thread)
    turn.code_role = turn.case.role("code") if turn.code_role is not None else None
    await ends(turn, thread, answers)


@path("key changed")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    async with turn.on_thread(role_key="another key of some length") as thread:
        await fails(turn, errors.RoleKeyMismatch, thread, answers)
    async with turn.on_thread() as thread:
        await ends(turn, thread, answers)


@path("model fails after the resume")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        turn.fail = True
        failed = await turn.told(turn.resume(thread, answers))
        assert isinstance(failed, errors.ModelUnavailable) or turn.case.source == "code", failed
        await turn.look(thread)
    if not isinstance(failed, BaseException):
        return  # the planner was told that the task failed, and answered
    async with turn.on_thread() as thread:
        await ends(turn, thread)


# --- cancelled, drained ---------------------------------------------------------------------------------------------


@waiting("cancelled while paused")
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    assert await thread.cancel()
    await fails(turn, errors.NothingToResume, thread, answers)
    assert (await turn.told(turn.begin(thread))).status == "paused"
    await turn.look(thread)


@path("cancelled while paused from elsewhere")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread, turn.on_thread() as other:
        answers = await paused(turn, thread)
        assert await other.cancel()
        await fails(turn, errors.NothingToResume, thread, answers)
        await turn.look(thread, other)


async def _cancelled(turn: Paused, thread: Thread, by: Thread) -> None:
    turn.hold = True
    running = await turn.begin_held(thread)
    assert await by.cancel()
    await check_cancelled(running)
    assert all(text in turn.sent() for text in turn.planted[:1])
    await turn.look(thread, by)
    assert (await turn.told(turn.begin(thread))).status == "paused"
    await turn.look(thread, by)


@path("cancelled while running")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        await _cancelled(turn, thread, thread)


@path("cancelled while running from elsewhere")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread, turn.on_thread() as other:
        await _cancelled(turn, thread, other)


async def _drained(turn: Paused, seconds: float, *, released: bool) -> None:
    turn.hold = True
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        running = await turn.begin_held(thread)
        draining = asyncio.create_task(agent.drain(seconds))
        if released:
            await asyncio.sleep(0)
            turn.release.set()
        await draining
        await running
        await turn.look()
    turn.hold = False
    turn.release.set()
    await _resumed_to_the_end(turn)


@path("drained")
async def _(turn: Paused) -> None:
    await _drained(turn, _WAIT, released=True)


@path("drained and cut off")
async def _(turn: Paused) -> None:
    await _drained(turn, 0.05, released=False)


# --- killed ---------------------------------------------------------------------------------------------------------


@path("killed while running", "killed while paused", "killed in the resume")
async def _(turn: Paused) -> None:
    await turn.kill()
    await _resumed_to_the_end(turn)


async def _resumed_to_the_end(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        ended = await turn.told(turn.to_the_end(thread))
        assert ended.status == "done", ended
        assert all(text in turn.sent() for text in turn.planted)
        await turn.look(thread)


# --- another role of the turn -----------------------------------------------------------------------------------------


@waiting("role left out", elsewhere=True, sources=OF_THE_TURN)
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    if turn.case.source == "thread":
        thread.role.clear()
    await fails(turn, errors.RoleRequired, thread, answers, again=False)
    turn.set_thread_role(thread)
    await ends(turn, thread, answers)


@waiting("refreshed with another role", sources=OF_THE_TURN)
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    thread.role.set(turn.case.role(ANOTHER))
    since = len(turn.lm.calls)
    await ends(turn, thread, answers, roled=False, role=None, on_role_change="refresh")
    assert turn.case.role(ANOTHER).content in turn.sent(since)


@waiting("without a role on purpose", sources=("call", "both"))
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    thread.role.clear()
    await ends(turn, thread, answers, roled=False, role=None)


@waiting("pinned", sources=OF_THE_TURN)
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    thread.role.clear()
    await ends(turn, thread, answers, again=False, on_role_change="pin")


@waiting("pinned elsewhere", elsewhere=True, sources=OF_THE_TURN)
async def _(turn: Paused, thread: Thread, answers: Any) -> None:
    await fails(turn, errors.RoleRequired, thread, answers, on_role_change="pin")
    await ends(turn, thread, answers)


@path("thread role expired", sources=("thread", "both"))
async def _(turn: Paused) -> None:
    turn.clock = VirtualClock()
    async with turn.on_thread(thread_role_ttl=100) as thread:
        answers = await paused(turn, thread)
        await turn.clock.advance(100)
        await fails(turn, errors.RoleRequired, thread, answers)
        turn.set_thread_role(thread)
        await ends(turn, thread, answers)


@path("thread role replaced while running", sources=("thread", "both"))
async def _(turn: Paused) -> None:
    turn.hold = True
    async with turn.on_thread() as thread:
        running = await turn.begin_held(thread)
        thread.role.set(turn.case.role(ANOTHER))
        turn.release.set()
        begun = await running
        assert begun.status == "paused"
        answers = turn.answers(begun.pauses)
        await fails(turn, errors.RoleChanged, thread, answers)
        turn.set_thread_role(thread)
        await ends(turn, thread, answers)


# --- cases ------------------------------------------------------------------------------------------------------------


def every_paused_case() -> list[PausedCase]:
    """The product of paths, sources, pauses and lengths; modes and surfaces take turns over it."""
    product = itertools.product(PATHS, SOURCES, PAUSES, LENGTHS)
    possible = [four for four in product if four[1] in PATHS.sources.get(four[0], SOURCES)]
    turns = itertools.cycle(random.Random("turns").sample(list(itertools.product(MODES, SURFACES)), 9))
    return [PausedCase(*four, *next(turns)) for four in possible]


def paused_sample() -> list[PausedCase]:
    """Cases such that each path but one is met, and every two values of the rest; the same in every run."""

    def meetings(case: PausedCase) -> Iterator[Values]:
        path, *rest = enumerate(astuple(case))
        # A process to kill takes seconds to start; that it is gone with its pause differs little from resuming in
        # another agent.
        if case.path != "killed while paused":
            yield (path,)
        yield from itertools.combinations(rest, 2)

    return covering(every_paused_case(), meetings)
