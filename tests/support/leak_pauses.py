"""The agent, the model and the roles of a case whose turn pauses. What becomes of the turn is in `leak_paths`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.agents import CRITIC, open_pauses, scripted_agent
from support.canaries import repeated
from support.leak_paused_cases import PausedCase
from support.leak_turns import REQUEST, Review, ReviewParams, ReviewResult, Summarise
from support.leaks import Watch
from worldagent import Role, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core import ECHO_RUN
from worldagent.core.pauses import Approve, Pause, RunAgain
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

_WAIT = 60.0


class Paused:
    """Runs the turn of a case, in as many agents as its path needs, and keeps what they give in `seen`.

    Attributes:
        code_role: The role that the code of the handler passes, where the case has it from there.
        hold: Whether the next model call that has a role is held open.
        held: Set when one is.
        release: Lets it go on.
        fail: Whether the next model call that has a role fails, quoting all it was sent.
    """

    def __init__(self, case: PausedCase, home: Path, seen: Watch | None = None) -> None:
        self.case, self.home, self.seen = case, home, seen
        self.code_role = self.role("code") if case.source == "code" else None
        self.hold = self.fail = False
        self.held, self.release = asyncio.Event(), asyncio.Event()
        self.lm = ScriptedLM(self._reply)
        self.clock: VirtualClock | None = None

    # --- roles ------------------------------------------------------------------------------------------------------

    def role(self, which: str) -> Role:
        return Role(self.case.label(which), self.case.content(which), applies_to="*")

    @property
    def call_role(self) -> Role | None:
        """The role to pass, where the case has one of the call."""
        return self.role("call") if self.case.source in ("call", "both") else None

    def set_thread_role(self, thread: Thread) -> None:
        """Give the thread its role, where the case has one of the thread."""
        if self.case.source in ("thread", "both"):
            thread.role.set(self.role("thread"))

    @property
    def planted(self) -> list[str]:
        """The texts of the roles that the turn has."""
        return [self.case.content(which) for which in self.case.planted]

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
            **more,
        )

    def thread_of(self, agent: WorldAgent) -> Thread:
        """The thread of an agent that is open, with its role as it should be."""
        thread = agent.thread("t", account="ana", channel="den")
        self.set_thread_role(thread)
        return thread

    @asynccontextmanager
    async def on_thread(self, **settings: Any) -> AsyncGenerator[Thread]:
        """The thread of an agent that is open inside the block."""
        async with self.agent(**settings) as agent:
            yield self.thread_of(agent)

    async def begin(self, thread: Thread) -> Turn:
        """Ask for the turn."""
        role = self.call_role
        match self.case.surface:
            case "converse":
                return await thread.converse("Is it good?", role=role)
            case "stream":
                async with thread.stream("Is it good?", role=role) as stream:
                    return await stream.wait()
            case _:
                return await thread.task("job", {"text": "Draft."}, role=role)

    async def resume(self, thread: Thread, answers: Any = None, *, again: bool = True, **how: Any) -> Turn:
        """Go on with the turn, with the call's role `again` unless `how` names another."""
        if again and self.call_role is not None:
            how = {"role": self.call_role, **how}
        if self.case.surface != "stream":
            return await thread.resume(answers, **how)
        async with thread.stream_resume(answers, **how) as stream:
            return await stream.wait()

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

    async def told(self, work: Any) -> Any:
        """Wait for `work` inside a traced chain; what it gives or raises is kept, and given back."""
        if self.seen is None:
            return await work
        seen = self.seen
        return await asyncio.wait_for(seen.outcome(seen.inside_a_chain(lambda: work)), _WAIT)

    async def look(self, *threads: Thread) -> None:
        """Look for the roles in the files as they are by now, WALs too, and keep what `threads` show for the end."""
        if self.seen is None:
            return
        for thread in threads:
            self.seen.kept.append([await thread.history(), await thread.pauses()])
        found = self.seen.leaks_on_disk(*self.case.contents, *self.case.labels)
        assert not found, found

    def sent(self, since: int = 0) -> str:
        """All that the model was sent, from one of its calls on."""
        return "\n".join(call.text for call in self.lm.calls[since:])

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

        return [tool(approval=True)(pay), tool(risk="read_only")(write), flow(deep)]

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
        if "request" in call.fields:
            return {"result": said}
        if "verdict" in call.fields:
            return {"summary": said}
        if "text" in call.fields:
            return {"verdict": said, "score": 3}
        if "Reply to the message" not in call.system:
            return {"reply": said}
        done = any("summary" in text for _, text in call.messages)
        return {"reply": said, "calls": [] if done else [{"tool": "job", "arguments": {"text": "Draft."}}]}


_ENTRY: dict[str, Any] = {"entry": Review, "signatures": (Summarise,), "description": "reviews"}
