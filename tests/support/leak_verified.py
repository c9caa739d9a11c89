"""Turns whose answers are judged: the third product of the leak suite, a sample of it, and the agent of a case.

What becomes of a turn is in `leak_verified_paths`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy

from support.agents import scripted_agent
from support.canaries import LONG, SHORT, awkward_canary, canary, repeated
from support.jobs import shape
from support.leak_cases import MODES, PLANNED, covering
from support.leaks import Watch
from support.trace_places import TracePlaces
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Thread, Trigger, Turn
from worldagent.core import ECHO_RUN, Scope
from worldagent.graphs import TaskContext
from worldagent.harness import Worker
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM

SOURCES = ("call", "thread", "channel", "workspace", "account")
# What becomes of the turn, in the words of a test's name; `support.leak_verified_paths` carries it out.
NAMES = (
    "satisfied at once",
    "wanting once",
    "wanting to the last",
    "judge refuses and quotes the prompts",
    "judge crashes and quotes the prompts",
    "judge cannot be parsed and quotes the prompts",
    "model repeats the role and echo is fail",
    "judge repeats the role and echo is fail",
    "paused while it mends",
    "goes on under another role",
    "cancelled while judged",
    "cancelled while it mends",
    "drained while judged",
    "killed while judged",
    "killed while it mends",
)
FINDING = "The judge looked at this"
"""What all findings begin with, so that a test can see where they are kept."""
_WAIT = 60.0


@dataclass(frozen=True)
class VerifiedCase:
    """One turn to run, and to find nothing of its role after.

    Attributes:
        path: What becomes of it.
        surface: Through what it is asked for.
        source: The role's tier.
        length: Characters of the role.
        mode: LangGraph's durability.
    """

    path: str
    surface: str
    source: str
    length: int
    mode: str

    def __str__(self) -> str:
        return f"{self.path}-{self.surface}-{self.source}-{self.length}-{self.mode}"

    def role(self, which: str) -> Role:
        """One of its roles, `first` or `another`: its own, so that what one case leaves is not taken for another's."""
        label = canary(12, seed=f"label of {which} of {self}")
        applies_to = "*" if self.source in ("call", "thread", "channel") else ()
        return Role(label, awkward_canary(self.length, seed=f"{which} of {self}"), applies_to=applies_to)

    @property
    def roles(self) -> list[Role]:
        """All that must be nowhere."""
        return [self.role("first"), self.role("another")]


def every_case() -> list[VerifiedCase]:
    """The product of paths, surfaces, sources and lengths; modes take turns over it."""
    modes = itertools.cycle(MODES)
    product = itertools.product(NAMES, PLANNED, SOURCES, (len(SHORT), len(LONG)))
    # What a model says is withheld from 40 characters on; less is its own word (R16).
    possible = [four for four in product if four[3] >= ECHO_RUN or "repeats" not in four[0]]
    random.Random("verified leaks").shuffle(possible)
    return [VerifiedCase(*four, next(modes)) for four in possible]


def sample() -> list[VerifiedCase]:
    """Cases such that each path meets each length, and any two values of the rest each other; the same in every run."""

    def meetings(case: VerifiedCase) -> Iterator[tuple[tuple[int, object], ...]]:
        path, surface, source, length, mode = enumerate(astuple(case))
        # A process to kill takes a second to start, so each of those paths is there once.
        yield (path,) if case.path.startswith("killed") else (path, length)
        yield from itertools.combinations((surface, source, length, mode), 2)

    return covering(every_case(), meetings)


class Verified:
    """Runs the turn of a case, in as many agents as its path needs, and keeps what they give in `seen`.

    Attributes:
        now: The role that there is.
        hold: What to hold open: `judged` is the judge's call, `mends` the answer that is given anew.
        held: Set when one is.
        release: Lets it go on.
        out: Whether the judge fails in a way that ends the turn.
    """

    def __init__(self, case: VerifiedCase, home: Path, seen: Watch | None = None) -> None:
        self.case, self.home, self.seen = case, home, seen
        self.now = case.role("first")
        self.hold, self.out = "", False
        self.held, self.release = asyncio.Event(), asyncio.Event()
        self.lm = ScriptedLM(self._reply)
        self.places = TracePlaces(home)

    # --- the agent --------------------------------------------------------------------------------------------------

    def agent(self) -> WorldAgent:
        """An agent on the home, to be opened; it traces all that can be captured, to all places."""

        async def source(scope: Scope) -> Role:
            return self.now

        async def ask(ctx: TaskContext) -> str:
            return f"They said: {await ctx.calls.ask_person('Which?', ['red', 'blue'])}"

        return scripted_agent(
            self.home,
            self.lm,
            settings={"echo": "fail"} if self.case.path.endswith("echo is fail") else {},
            profile=Profile("checked", verification=Verification(max_iterations=2)),
            workers=[Worker("critic", "You judge what you are given.", "judges texts", capture=True)],
            shapes=[shape(ask, key="ask", description="asks a person", capture=True)],
            roles=Roles(sources={Tier.CHANNEL: source} if self.case.source == "channel" else {}),
            trace=self.places.trace(),
        )

    @asynccontextmanager
    async def on_thread(self) -> AsyncGenerator[Thread]:
        """The thread of an agent that is open inside the block, with its role as it should be."""
        async with self.agent() as agent:
            yield await self.thread_of(agent)

    async def thread_of(self, agent: WorldAgent) -> Thread:
        """The thread of an agent that is open."""
        thread = agent.thread("t", account="ana", channel="den")
        await self.roled(agent, thread)
        return thread

    async def roled(self, agent: WorldAgent, thread: Thread, which: str = "first") -> None:
        """Have one of the case's roles be where its source is; that of a call is passed with it."""
        self.now = self.case.role(which)
        if self.case.source == "thread":
            thread.role.set(self.now)
        elif self.case.source in ("workspace", "account"):
            scope_id = "ana" if self.case.source == "account" else None
            await agent.roles.put(Tier(self.case.source), self.now, scope_id=scope_id)

    @property
    def call_role(self) -> dict[str, Any]:
        """How a surface is called to have the role."""
        return {"role": self.now} if self.case.source == "call" else {}

    async def begin(self, thread: Thread) -> Turn:
        """Ask for the turn."""
        match self.case.surface:
            case "converse":
                return await thread.converse("Is it good?", **self.call_role)
            case "stream":
                async with thread.stream("Is it good?", **self.call_role) as stream:
                    return await stream.wait()
            case _:
                fired = datetime(2026, 11, 21, 8, tzinfo=UTC)
                trigger = Trigger(schedule="daily", fired_at=fired)
                return await thread.run_scheduled(trigger, unattended="pause", **self.call_role)

    async def resume(self, thread: Thread, answers: Any = None, **how: Any) -> Turn:
        """Go on with the turn, under the role that there is."""
        if self.case.surface != "stream":
            return await thread.resume(answers, **self.call_role, **how)
        async with thread.stream_resume(answers, **self.call_role, **how) as stream:
            return await stream.wait()

    # --- the model --------------------------------------------------------------------------------------------------

    @property
    def judged(self) -> list[ScriptedCall]:
        """The judge's calls."""
        return [call for call in self.lm.calls if "answer" in call.fields]

    def sent(self, since: int = 0) -> str:
        """All that the model was sent, from one of its calls on."""
        return "\n".join(call.text for call in self.lm.calls[since:])

    async def _reply(self, call: ScriptedCall) -> Any:
        # Whoever answers or mends is known by what it is sent: a process that goes on knows nothing of the one before.
        at = "judged" if "answer" in call.fields else "mends" if "A check of it found" in call.text else ""
        if at and at == self.hold:
            self.hold = ""
            self.held.set()
            await self.release.wait()
        if "request" in call.fields and at != "judged":
            return {"result": "Looked at."}
        return self._verdict(call) if at == "judged" else self._answer(call, mends=at == "mends")

    def _verdict(self, call: ScriptedCall) -> Any:
        # One service has seen all prompts, that with the role as well, and quotes them.
        everything = f"{self.sent()}\n{call.text}"
        if self.out:
            return RuntimeError(f"no reply to {everything}", everything)
        if "refuses" in self.case.path:
            return dspy.lm15.InvalidRequestError(f"400: you sent {everything}")
        if "parsed" in self.case.path:
            return f"I was sent {everything}"
        good = self.case.path != "wanting to the last" and call.fields["answer"].startswith("Mended")
        # Else the prompt's own marks of fields would end the finding.
        quiet = self.case.path == "model repeats the role and echo is fail"
        said = f"{FINDING}: {'' if quiet else self._said}\n{call.text.replace('##', '')}"
        return {"findings": said, "satisfied": good or self.case.path == "satisfied at once"}

    def _answer(self, call: ScriptedCall, *, mends: bool) -> Any:
        if not mends:
            fails = self.case.path.endswith("echo is fail")
            said = f"Draft. {'' if fails else self._said}"  # it is found wanting first
        else:
            said = f"Mended. {self._said}"
        if "Reply to the message" not in call.system:
            return {"reply": said}
        return {"reply": said, "calls": self._work(call) if mends else []}

    def _work(self, call: ScriptedCall) -> list[dict[str, Any]]:
        """What the planner has done before it answers anew."""
        if self.case.path in ("paused while it mends", "goes on under another role"):
            return [] if "They said" in call.text else [{"tool": "ask", "arguments": {}}]
        if self.case.path == "wanting once":
            return [] if "Looked at" in call.text else [{"tool": "critic", "arguments": {"request": "Judge it."}}]
        return []

    @property
    def _said(self) -> str:
        # A model that repeats its role: from 40 characters on that is withheld, and less is its own word (R16).
        return repeated(self.now.content, self._form) if self.case.length >= ECHO_RUN else "Fine."

    @property
    def _form(self) -> str | None:
        """Where the turn fails of it the model repeats its role in one form: another one would do it as well."""
        return str(self.case) if self.case.path.endswith("echo is fail") else None

    # --- looking on -------------------------------------------------------------------------------------------------

    async def told(self, work: Any) -> Any:
        """Wait for `work` inside a traced chain; what it gives or raises is kept, and given back."""
        assert self.seen is not None
        seen = self.seen
        return await asyncio.wait_for(seen.outcome(seen.inside_a_chain(lambda: work)), _WAIT)

    async def look(self, agent: WorldAgent | None = None) -> None:
        """Look for the roles in the files as they are by now, WALs too; keep what the agent shows, and all traces."""
        assert self.seen is not None
        if agent is not None:
            thread = agent.thread("t", account="ana", channel="den")
            traces = [await agent.traces.get(found.id) for found in await agent.traces.list()]
            self.seen.kept += [await thread.history(), await thread.pauses(), traces, repr(agent)]
        self.seen.kept += self.places.in_memory()
        names = [text for role in self.case.roles for text in (role.content, role.name)]
        found = self.seen.leaks_on_disk(*names)
        assert not found, found

    def traced(self) -> str:
        """What stands in the file of traces."""
        return self.places.file.read_text()
