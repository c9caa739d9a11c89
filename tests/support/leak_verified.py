"""Turns whose answers are judged: the cases of the leak suite, their agent, and a function for each path."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import dspy

from support.agents import scripted_agent, shape
from support.leak_cases import LENGTHS, MODES, PLANNED, Roled, Values, covering
from support.leak_turns import HeldTurn, Paths, check_cancelled
from support.leaks import TracePlaces, Watch, repeated
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.agent import Thread
from worldagent.core import ECHO_RUN, Scope
from worldagent.core.errors import ModelUnavailable, RoleEchoed
from worldagent.graphs import TaskContext
from worldagent.graphs.checkpoints.saver import Durability
from worldagent.harness import Worker
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall

SOURCES = ("call", "thread", "channel", "workspace", "account")
FINDING = "The judge looked at this"
"""What all findings begin with, so that a test can see where they are kept."""


@dataclass(frozen=True)
class VerifiedCase(Roled):
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
    mode: Durability

    @property
    def planted(self) -> tuple[str, ...]:
        return ("first",)


class Verified(HeldTurn[VerifiedCase]):
    """Runs the turn of a case whose answers are judged.

    Attributes:
        now: The role that there is.
        hold: What to hold open: `judged` is the judge's call, `mends` the answer that is given again.
        out: Whether the judge fails in a way that ends the turn.
    """

    kind = "verified"

    def __init__(self, case: VerifiedCase, home: Path, seen: Watch | None = None) -> None:
        super().__init__(case, home, seen)
        self.now = case.role("first")
        self.hold, self.out = "", False
        self.places = TracePlaces(home)

    @property
    def held_in(self) -> str:
        """What the path of the case holds open."""
        return "judged" if self.case.path.endswith("judged") else "mends"

    # --- the agent --------------------------------------------------------------------------------------------------

    def agent(self, **settings: Any) -> WorldAgent:
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

    async def place_role(self, agent: WorldAgent, thread: Thread, which: str = "first") -> None:
        """Have one of the case's roles be where its source is; that of a call is passed with it."""
        self.now = self.case.role(which)
        if self.case.source == "thread":
            thread.role.set(self.now)
        elif self.case.source in ("workspace", "account"):
            scope_id = "ana" if self.case.source == "account" else None
            await agent.roles.put(Tier(self.case.source), self.now, scope_id=scope_id)

    @property
    def call_role(self) -> dict[str, Any]:
        return {"role": self.now} if self.case.source == "call" else {}

    # --- the model --------------------------------------------------------------------------------------------------

    @property
    def judged(self) -> list[ScriptedCall]:
        """The judge's calls."""
        return [call for call in self.lm.calls if "answer" in call.fields]

    async def _reply(self, call: ScriptedCall) -> Any:
        # A call is known by what it is sent: a process that resumes knows nothing of the one before.
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
        """What the planner has done before it answers again."""
        if self.case.path in ("paused while it mends", "resumes under another role"):
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

    async def look(self, agent: WorldAgent | None = None) -> None:
        """Look for the roles by now; keep what the agent shows, and all traces."""
        assert self.seen is not None
        if agent is not None:
            thread = agent.thread("t", account="ana", channel="den")
            traces = [await agent.traces.get(found.id) for found in await agent.traces.list()]
            self.seen.kept += [await thread.history(), await thread.pauses(), traces, repr(agent)]
        self.seen.kept += self.places.in_memory()
        self.look_on_disk()

    def traced(self) -> str:
        """What stands in the file of traces."""
        return self.places.file.read_text()


PATHS = path = Paths()


async def ends(turn: Verified, **how: Any) -> None:
    """Resume the turn in an agent of its own, to its end."""
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        ended = await turn.told(turn.resume(thread, **how))
        assert ended.status == "done", ended
        assert ended.text.startswith("Mended."), ended
        await turn.look(agent)


async def _is_judged(turn: Verified) -> None:
    # How many answers are judged, and whether another one stands at the end.
    judged, mended = {"wanting once": (2, True), "wanting to the last": (2, True)}.get(turn.case.path, (1, False))
    async with turn.agent() as agent:
        ended = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert ended.text.startswith("Mended." if mended else "Draft."), ended
        turn.seen.kept.append(agent.program("CheckAnswer").dump_state())  # type: ignore[union-attr]  # it is there
        await turn.look(agent)
    assert len(turn.judged) == judged


path("satisfied at once", "wanting once", "wanting to the last", "judge refuses and quotes the prompts")(_is_judged)


@path("judge crashes and quotes the prompts")
async def _(turn: Verified) -> None:
    turn.out = True
    async with turn.agent() as agent:
        failed = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert isinstance(failed, ModelUnavailable), failed
        await turn.look(agent)
    turn.out = False
    await ends(turn)


path("judge cannot be parsed and quotes the prompts")(_is_judged)


@path("model repeats the role and echo is fail", "judge repeats the role and echo is fail")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        failed = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert isinstance(failed, RoleEchoed), failed
        await turn.look(agent)


@path("paused while it mends")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        begun = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert begun.status == "paused", begun
        await turn.look(agent)
    await ends(turn, answers=dict.fromkeys((pause.id for pause in begun.pauses), "red"))


@path("resumes under another role")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        begun = await turn.told(turn.begin(thread))
        await turn.look(agent)
        await turn.place_role(agent, thread, "another")
        answers = dict.fromkeys((pause.id for pause in begun.pauses), "red")
        since = len(turn.lm.calls)
        ended = await turn.told(turn.resume(thread, answers, on_role_change="refresh"))
        assert ended.text.startswith("Mended."), ended
        assert turn.now.content in turn.sent(since)
        assert turn.case.role("first").content not in turn.sent(since)
        await turn.look(agent)


@path("cancelled while judged", "cancelled while it mends")
async def _(turn: Verified) -> None:
    turn.hold = turn.held_in
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        running = await turn.begin_held(thread)
        assert await thread.cancel()
        await check_cancelled(running)
        await turn.look(agent)
        assert (await turn.told(turn.begin(thread))).text.startswith("Mended.")
        await turn.look(agent)


@path("drained while judged")
async def _(turn: Verified) -> None:
    turn.hold = "judged"
    async with turn.agent() as agent:
        running = await turn.begin_held(await turn.thread_of(agent))
        await agent.drain(0.05)
        await running
        await turn.look()
    await ends(turn)


@path("killed while judged", "killed while it mends")
async def _(turn: Verified) -> None:
    await turn.kill()
    await turn.look()
    await ends(turn)


# --- cases ------------------------------------------------------------------------------------------------------------


def every_verified_case() -> list[VerifiedCase]:
    """The product of paths, surfaces, sources and lengths; modes take turns over it."""
    modes = itertools.cycle(MODES)
    product = itertools.product(PATHS, PLANNED, SOURCES, LENGTHS)
    # What a model says is withheld from 40 characters on; less is its own word (R16).
    possible = [four for four in product if four[3] >= ECHO_RUN or "repeats" not in four[0]]
    random.Random("verified leaks").shuffle(possible)
    return [VerifiedCase(*four, next(modes)) for four in possible]


def verified_sample() -> list[VerifiedCase]:
    """Cases such that each path meets each length, and any two values of the rest each other; the same in every run."""

    def meetings(case: VerifiedCase) -> Iterator[Values]:
        path, surface, source, length, mode = enumerate(astuple(case))
        # A process to kill takes a second to start, so each of those paths is there once.
        yield (path,) if case.path.startswith("killed") else (path, length)
        yield from itertools.combinations((surface, source, length, mode), 2)

    return covering(every_verified_case(), meetings)
