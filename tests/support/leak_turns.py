"""Runs one case of the leak suite: an agent, a role from its source, a model that behaves as the outcome says."""

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import dspy
from pydantic import BaseModel

from support.agents import CRITIC, scripted_agent
from support.leak_cases import Case, Roled
from support.leaks import Watch, kill_child, on_the_server, repeated, traces_of
from support.openai_stub import OpenAIStub, openai_stub
from support.role_hosts import reference
from worldagent import Role, Roles, Tier, Trace, WorldAgent
from worldagent.agent import Composed, Thread, Trigger, Turn
from worldagent.core import ECHO_RUN, Scope, errors
from worldagent.graphs import Shape, TaskContext
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

R = TypeVar("R", bound=Roled)
REQUEST = {"worker": "critic", "request": "Judge it."}
_HELD = ("cancelled in mid-call", "agent closed in mid-call")
_FAILURES: dict[str, Callable[[str], Exception]] = {
    "model refuses and quotes the prompt": lambda text: dspy.lm15.InvalidRequestError(f"400: you sent {text}"),
    "model crashes and quotes the prompt": lambda text: RuntimeError(f"no reply to {text}", text),
    "fails in passing and is tried again": lambda text: dspy.lm15.ServerError(f"503: busy with {text}"),
}
_WAIT = 60.0
_TOO_SLOW = 50.0  # seconds that a model may take; less than a write of traces may, which can be under way


class Review(dspy.Signature):
    """Judge a text."""

    text: str = dspy.InputField()
    verdict: str = dspy.OutputField()
    score: int = dspy.OutputField()
    trail: deque[str] = dspy.OutputField(default=deque())


class Summarise(dspy.Signature):
    """Put a verdict into a sentence."""

    verdict: str = dspy.InputField()
    summary: str = dspy.OutputField()


class ReviewParams(BaseModel):
    text: str
    depth: int = 1


class ReviewResult(BaseModel):
    score: int
    summary: str


def review_shape(case: Case) -> Shape[ReviewParams, ReviewResult]:
    """A shape with two Signatures whose handler goes wrong where the case says so."""

    async def handle(params: ReviewParams, ctx: TaskContext) -> dict[str, Any]:
        if case.source == "code":
            await ctx.task("subagent", REQUEST, role=Role(case.label, case.content))
        made = await ctx.predict(Review, text=params.text)
        if case.outcome.startswith("handler raises"):
            raise ValueError(f"cannot continue with {made['verdict']}", made)
        if case.outcome.startswith("role as value") and case.surface == "shape":
            return {"score": made["verdict"], "summary": "ok"}
        last = await ctx.predict(Summarise, verdict=made["verdict"])
        return {"score": made["score"], "summary": f"{last['summary']} {' '.join(made['trail'])}"}

    return Shape(
        "review", ReviewParams, ReviewResult, handle, entry=Review, signatures=(Summarise,), description="reviews"
    )


def fields(call: ScriptedCall, text: str = "Fine.") -> dict[str, Any]:
    """The output fields that a call asks for."""
    given = call.fields
    if "request" in given:
        return {"result": text}
    if "verdict" in given:
        return {"summary": text}
    if "text" in given:
        return {"verdict": text, "score": 3, "trail": [text]}
    return {"reply": text, "calls": []} if "Reply to the message" in call.system else {"reply": text}


def _pass(seconds: float) -> None:
    """Let the loop's clock be ahead by so much from now on."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # the timers of `asyncio.timeout` go by it


class Behaviour:
    """What the scripted model does: every call that has the role goes as the case says, every other one well."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.held = asyncio.Event()  # set when a call is held open
        self._roled = 0

    async def __call__(self, call: ScriptedCall) -> Any:
        outcome = self.case.outcome
        if self.case.content not in call.text:
            return fields(call)
        self._roled += 1
        if outcome in _HELD:
            self.held.set()
            await asyncio.Event().wait()
        if outcome == "model is too slow":
            _pass(_TOO_SLOW)
            await asyncio.Event().wait()
        if outcome in _FAILURES and (self._roled == 1 or "tried again" not in outcome):
            return _FAILURES[outcome](call.text)
        said: dict[str, Callable[[ScriptedCall], Any]] = {
            "calls": self._dispatching,
            "cannot be parsed and quotes the role": self._broken,
            "role as value that does not fit": self._misplaced,
            "handler raises what predict gave": lambda call: fields(call, self.case.content),
            "model repeats the role": self._repeated,
            "model repeats the role and echo is fail": self._repeated,
        }
        return said[outcome](call) if outcome in said else fields(call)

    def _dispatching(self, call: ScriptedCall) -> Any:
        if self._roled > 1:
            return fields(call)
        dispatches = [
            {"tool": "critic", "arguments": {"request": "Judge."}},
            {"tool": "review", "arguments": {"text": "Draft."}},
        ]
        return {"reply": "I will ask.", "calls": dispatches}

    def _broken(self, call: ScriptedCall) -> Any:
        if "score" in call.system:
            return {"verdict": self._said, "score": f"{self.case.content} of ten"}
        if "Reply to the message" in call.system:
            return {"reply": self._said, "calls": f"as {self.case.content}"}
        return fields(call)

    def _misplaced(self, call: ScriptedCall) -> Any:
        if "score" in call.system:
            return {"verdict": self.case.content, "score": 3}
        if "Reply to the message" not in call.system or not call.may_call:
            return fields(call)
        params = {"text": "Draft.", "depth": self.case.content}
        if self._roled > 1 and len(self.case.content) >= ECHO_RUN:
            return {"reply": "", "calls": [{"tool": self.case.content, "arguments": {self.case.content: 1, **params}}]}
        return {"reply": "", "calls": [{"tool": "review", "arguments": params}]}

    def _repeated(self, call: ScriptedCall) -> Any:
        text = repeated(self.case.content, self._form)
        said = fields(call, text)
        if self._roled == 1 and "calls" in said:
            said["calls"] = [
                {"tool": "critic", "arguments": {"request": text}},
                {"tool": "review", "arguments": {"text": text}},
            ]
        # Some models answer with a JSON object, whatever they are asked for.
        return json.dumps(said) if self.case.mode == "async" else said

    @property
    def _form(self) -> str | None:
        """Where the turn fails of it the model repeats its role in one form: another one would do it as well."""
        return str(self.case) if self.case.outcome.endswith("echo is fail") else None

    @property
    def _said(self) -> str:
        # What a model says word for word is withheld from 40 characters on; a shorter role is its own word (R16).
        return self.case.content if len(self.case.content) >= ECHO_RUN else "Hm."


EXPECTED: dict[str, type[Exception] | None] = {
    "model refuses and quotes the prompt": errors.ModelRefused,
    "model crashes and quotes the prompt": errors.ModelUnavailable,
    "service answers 400 and quotes the prompt": errors.ModelRefused,
    "model repeats the role and echo is fail": errors.RoleEchoed,
    "model is too slow": errors.ModelTimeout,
    "handler raises what predict gave": errors.TaskFailed,
}
_EXPECTED_OF_SHAPES: dict[str, type[Exception]] = {
    "cannot be parsed and quotes the role": errors.OutputInvalid,
    "role as value that does not fit": errors.ResultInvalid,
}


def expected_error(case: Case) -> type[Exception] | None:
    """What the case raises, if it does."""
    found = EXPECTED.get(case.outcome)
    return _EXPECTED_OF_SHAPES.get(case.outcome, found) if case.surface == "shape" else found


async def run_case(case: Case, seen: Watch) -> str:
    """Run the turns of a case and keep what they give in `seen`.

    Returns:
        All that the model was sent, to see that the role did get there.
    """
    async with contextlib.AsyncExitStack() as stack:
        behaviour = Behaviour(case)
        stub = await stack.enter_async_context(openai_stub()) if case.outcome in _MODELS else None
        native = case.mode == "sync" and not case.outcome.startswith("cannot be parsed")
        scripted = ScriptedLM(behaviour, form="native" if native else "chat")
        lm: Any = scripted if stub is None else _MODELS[case.outcome]
        callbacks = (seen.chain, seen.model)  # they see the turn itself, too
        agent = await stack.enter_async_context(opened(case, seen.home, lm, stub, callbacks=callbacks))
        role = await put_role(case, agent)
        threads = [agent.thread(f"t{n}", account="ana", channel="den") for n in (1, 2)]
        if case.outcome == "two at once":
            await asyncio.gather(*(seen.outcome(ask(case, thread, role)) for thread in threads))
        elif "in mid-call" in case.outcome:
            held = behaviour.held if stub is None else stub.arrived
            await _interrupted(case, agent, seen, ask(case, threads[0], role), held)
        else:
            await seen.outcome(seen.inside_a_chain(lambda: ask(case, threads[0], role)))
        if case.outcome != "agent closed in mid-call":
            seen.kept.append([await thread.history() for thread in threads])
            seen.kept.append([agent.program(name).dump_state() for name in ("Converse", "critic", "Review")])
        # Before the databases are closed, so that their WALs are looked into too.
        seen.assert_clean(*traces_of(case.content))
        if stub is not None:
            return "\n".join(message["content"] for body in stub.requests for message in body["messages"])
        return "\n".join(call.text for call in lm.calls)


@contextlib.asynccontextmanager
async def opened(
    case: Case, home: Path, lm: Any, stub: OpenAIStub | None = None, *, callbacks: Sequence[object] = ()
) -> AsyncGenerator[WorldAgent, None]:
    """The agent of a case."""
    settings: dict[str, Any] = {"model_attempts": 2 if "tried again" in case.outcome else 1}
    if case.outcome == "model is too slow":
        settings["model_timeout"] = _TOO_SLOW
    if case.outcome.endswith("echo is fail"):
        settings["echo"] = "fail"
    if stub is not None:
        settings["api_base"] = stub.url

    async def source(scope: Scope) -> Role | None:
        return role_of(case)

    sources = {Tier(case.source): source} if case.source in ("thread", "channel") and not _hosted(case) else {}
    with _host_of(case, home) as host:
        if host is not None:
            settings["role_timeout"] = 60
        async with scripted_agent(
            home,
            lm,
            settings=settings,
            workers=[CRITIC],
            shapes=[review_shape(case)],
            roles=Roles(host=host, sources=sources),
            trace=Trace(callbacks=callbacks),
        ) as agent:
            yield agent


def host_log(home: Path) -> Path:
    """What the host of a case writes to its standard error."""
    return home.with_name(f"host of {home.name}") / "host.log"


@contextlib.contextmanager
def _host_of(case: Case, home: Path) -> Generator[HttpHost | StdioHost | None]:
    """The reference host, a process that is not looked into, where the case has its role from one."""
    if case.store == "embedded":
        yield None
        return
    log = host_log(home)
    log.parent.mkdir(parents=True, exist_ok=True)
    kind: Literal["stdio", "http"] = "stdio" if case.store == "stdio" else "http"
    with reference(kind, log.parent, errors=log, mode=case.revision) as host:
        yield host


def _hosted(case: Case) -> bool:
    return case.store != "embedded"


async def ask(case: Case, thread: Thread, role: Role | None) -> Any:
    """Run one turn through the case's surface."""
    match case.surface:
        case "converse":
            return await thread.converse("Is it good?", role=role)
        case "stream":
            async with thread.stream("Is it good?", role=role) as stream:
                given = [event async for event in stream]
            return [given, stream.turn]
        case "task":
            return await thread.task("subagent", REQUEST, role=role)
        case "shape":
            return await thread.task("review", {"text": "Draft."}, role=role)
        case "skill":
            return await thread.run_skill(Composed("Count syllables.", params=REQUEST), role=role)
        case _:
            fired = datetime(2026, 11, 21, 8, tzinfo=UTC)
            return await thread.run_scheduled(Trigger(schedule="daily", fired_at=fired, payload={"n": 1}), role=role)


_MODELS = {
    "service answers 400 and quotes the prompt": "openai/echo-400",
    "cancelled in mid-call over HTTP": "openai/slow",
}


def role_of(case: Case) -> Role:
    # A stored role attaches where the default says, which is the shape's first Signature.
    free = case.source in ("call", "thread", "channel") and not _hosted(case)
    applies_to = "*" if case.surface == "shape" and free else ()
    return Role(case.label, case.content, applies_to=applies_to)


async def put_role(case: Case, agent: WorldAgent) -> Role | None:
    """Put the role where the case has it from; give the call's own, if it is that."""
    if case.source in ("workspace", "account") or _hosted(case):
        scope_id = {"account": "ana", "channel": "den"}.get(case.source)
        await agent.roles.put(Tier(case.source), role_of(case), scope_id=scope_id)
    return role_of(case) if case.source == "call" else None


async def _interrupted(case: Case, agent: WorldAgent, seen: Watch, turn: Awaitable[Any], held: asyncio.Event) -> None:
    """Start the turn; when the model has the prompt, cancel it or close the agent."""

    async def asked() -> Any:
        return await seen.inside_a_chain(lambda: turn)

    task = asyncio.create_task(asked())
    await asyncio.wait_for(held.wait(), _WAIT)
    if case.outcome == "agent closed in mid-call":
        await agent.aclose()
    else:
        task.cancel()
    await asyncio.wait_for(seen.outcome(task), _WAIT)


# --- turns that are held, or wait for a person ------------------------------------------------------------------------


class Paths(dict[str, Callable[[Any], Awaitable[None]]]):
    """What becomes of a turn, by the paths' names.

    Attributes:
        sources: Where the role is from on the paths that not every role can meet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, tuple[str, ...]] = {}

    def __call__(
        self, *names: str, sources: tuple[str, ...] = ()
    ) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
        """Register the function that is decorated."""
        if sources:
            self.sources.update(dict.fromkeys(names, sources))
        return lambda work: self.update(dict.fromkeys(names, work))


class HeldTurn(ABC, Generic[R]):
    """Runs the turn of a case, in as many agents as its path needs, and keeps what they give in `seen`.

    Attributes:
        held: Set when a call of the model is held open.
        release: Lets it go on.
    """

    kind = ""
    """What the child is called with."""

    def __init__(self, case: R, home: Path, seen: Watch | None = None) -> None:
        self.case: R = case
        self.home, self.seen = home, seen
        self.held, self.release = asyncio.Event(), asyncio.Event()
        self.lm = ScriptedLM(self._reply)

    @abstractmethod
    async def _reply(self, call: ScriptedCall) -> Any:
        """What the model says."""

    @abstractmethod
    def agent(self, **settings: Any) -> WorldAgent:
        """An agent on the home, to be opened."""

    @abstractmethod
    async def place_role(self, agent: WorldAgent, thread: Thread) -> None:
        """Have the role be where its source is; that of a call is passed with it."""

    @property
    @abstractmethod
    def call_role(self) -> dict[str, Any]:
        """How a surface is called to have the role."""

    async def thread_of(self, agent: WorldAgent) -> Thread:
        """The thread of an agent that is open, with its role as it should be."""
        thread = agent.thread("t", account="ana", channel="den")
        await self.place_role(agent, thread)
        return thread

    @contextlib.asynccontextmanager
    async def on_thread(self, **settings: Any) -> AsyncGenerator[Thread]:
        """The thread of an agent that is open inside the block."""
        async with self.agent(**settings) as agent:
            yield await self.thread_of(agent)

    async def begin(self, thread: Thread) -> Turn:
        """Ask for the turn."""
        match self.case.surface:
            case "converse":
                return await thread.converse("Is it good?", **self.call_role)
            case "stream":
                async with thread.stream("Is it good?", **self.call_role) as stream:
                    return await stream.wait()
            case "task":
                return await thread.task("job", {"text": "Draft."}, **self.call_role)
            case _:
                trigger = Trigger(schedule="daily", fired_at=datetime(2026, 11, 21, 8, tzinfo=UTC))
                return await thread.run_scheduled(trigger, unattended="pause", **self.call_role)

    async def resume(self, thread: Thread, answers: Any = None, *, again: bool = True, **how: Any) -> Turn:
        """Resume the turn, with the call's role `again` unless `how` names another."""
        if again:
            how = {**self.call_role, **how}
        if self.case.surface != "stream":
            return await thread.resume(answers, **how)
        async with thread.stream_resume(answers, **how) as stream:
            return await stream.wait()

    async def told(self, work: Any) -> Any:
        """Wait for `work` inside a traced chain; what it gives or raises is kept, and given back."""
        assert self.seen is not None
        seen = self.seen
        return await asyncio.wait_for(seen.outcome(seen.inside_a_chain(lambda: work)), _WAIT)

    async def begin_held(self, thread: Thread) -> asyncio.Task[Any]:
        """Begin the turn, and wait until its call is held."""
        running = asyncio.create_task(self.told(self.begin(thread)))
        await asyncio.wait_for(self.held.wait(), _WAIT)
        return running

    def look_on_disk(self) -> None:
        """Look for the roles in the files as they are by now, WALs too."""
        assert self.seen is not None
        found = self.seen.leaks_on_disk(*self.case.contents, *self.case.labels)
        assert not found, found

    async def kill(self) -> None:
        """Kill a process of the turn where it is held or waits; no role is in anything that is left."""
        left: list[object] = await kill_child(self.kind, self.case, self.home)
        assert_no_role_leak([*left, on_the_server()], [*self.case.contents, *self.case.labels])
        self.look_on_disk()

    def sent(self, since: int = 0) -> str:
        """All that the model was sent, from one of its calls on."""
        return "\n".join(call.text for call in self.lm.calls[since:])


async def check_cancelled(ended: asyncio.Task[Any]) -> None:
    """Wait for a turn that was cancelled."""
    found = await asyncio.wait_for(ended, _WAIT)
    assert isinstance(found, asyncio.CancelledError) or found.status == "cancelled", found
