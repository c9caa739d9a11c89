"""The frameworks that `peers.py` compares, each doing the same turns, and the process that measures one of them.

Run as `python -m worldagent.benchmarks._peers JOB` in the peer's environment, where `JOB` is the JSON of a `Job`. It
prints the JSON of a `Measured`. Each peer is imported when it is opened, because this module runs in environments that
have only one of the peers and none of worldagent's dependencies. `peers.py` decides what runs, and when.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from worldagent.benchmarks._measure import Stopwatch
from worldagent.benchmarks._peers_stub import ANSWER, DELEGATE

Work = Literal["turn", "stream", "delegation"]

MODEL = "gpt-4o-mini"
KEY = "key-of-a-benchmark"
QUESTION = "Who rules Vell, and since when? Give the name, the year and the source. " * 3
SYSTEM = "You are a helpful assistant that answers concisely."
WORKER = "You are the worker. Do the subtask you are given and report back."
DOES = "does subtasks"
SESSION_TURNS = 10
"""Successive turns in one session, thread or conversation, for every peer that stores one."""
THRESHOLDS = (50_000, 10, 10)
"""Arguments of `gc.set_threshold` for jobs that set the collector. The command `worldagent` uses the same ones."""

RunTurn = Callable[[str, str], Awaitable[str]]
"""Runs one turn: takes the name of its session and a person's text, returns the answer."""
CheckedTurn = Callable[[str], Awaitable[None]]
"""Runs one turn in the session with that name and checks its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work that one process measures.

    Attributes:
        peer: The peer that runs the turns; a key of `PEERS`.
        work: What a turn does. A stream is a plain turn whose answer comes in pieces.
        stored: Whether the peer stores the conversation, in files in `folder`.
        url: The base of the stub's address, as the peer takes it.
        folder: An empty folder for the peer's files.
        warm: How many turns run before the measured ones.
        turns: How many turns are measured.
        concurrent: Whether all of them run concurrently, each in its own session.
        collector_set: Whether Python's garbage collector gets `THRESHOLDS` first.
        database: The URL of a Postgres database that worldagent stores in; None means SQLite in `folder`.
    """

    peer: str
    work: Work
    stored: bool
    url: str
    folder: str
    warm: int
    turns: int
    concurrent: bool = False
    collector_set: bool = False
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The cost of a job.

    Attributes:
        cpu: CPU seconds of one turn, of all threads.
        wall: Wall seconds of one turn; of all turns if they ran concurrently.
        failed: How many concurrent turns failed. If turns run one after the other, the process fails instead.
        problem: The error of the first failed turn.
        first: Median seconds from the start of all turns to the first piece of text of a turn; None without streams.
        memory: Bytes by which peak memory grew, divided by the turns; None if the system does not report it.
    """

    cpu: float
    wall: float
    failed: int = 0
    problem: str = ""
    first: float | None = None
    memory: float | None = None


class FirstPieces:
    """The times of each session's first piece of text."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, session: str) -> None:
        self._at.setdefault(session, time.perf_counter())

    def since(self, start: float, session: str) -> float:
        """Return the seconds from `start` to the first piece of a session."""
        return self._at[session] - start

    def median_since(self, start: float) -> float | None:
        since = [at - start for at in self._at.values() if at >= start]
        return statistics.median(since) if since else None


# --- the floors -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def openai_client(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """A hand-written loop on the openai client. It stores nothing."""
    client = import_module("openai").AsyncOpenAI(base_url=job.url, api_key=KEY)
    parameters = {"type": "object", "properties": {"request": {"type": "string"}}, "required": ["request"]}
    tools = [{"type": "function", "function": {"name": "worker", "description": DOES, "parameters": parameters}}]

    async def complete(system: str, *messages: Any, **more: Any) -> Any:
        first = {"role": "system", "content": system}
        return await client.chat.completions.create(model=MODEL, messages=[first, *messages], **more)

    async def turn(session: str, said: str) -> str:
        answer = await complete(SYSTEM, {"role": "user", "content": said})
        return str(answer.choices[0].message.content)

    async def stream(session: str, said: str) -> str:
        text = ""
        async for chunk in await complete(SYSTEM, {"role": "user", "content": said}, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.note(session)
                text += chunk.choices[0].delta.content
        return text

    async def delegation(session: str, said: str) -> str:
        messages: list[Any] = [{"role": "user", "content": said}]
        while calls := (answer := (await complete(SYSTEM, *messages, tools=tools)).choices[0].message).tool_calls:
            messages.append(answer.model_dump(exclude_none=True))
            for call in calls:
                request = json.loads(call.function.arguments)["request"]
                result = (await complete(WORKER, {"role": "user", "content": request})).choices[0].message.content
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return str(answer.content)

    works: dict[Work, RunTurn] = {"turn": turn, "stream": stream, "delegation": delegation}
    yield works[job.work]


@asynccontextmanager
async def dspy_predict(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """A bare `dspy.Predict` of two text fields, without cache, history and trace."""
    dspy = import_module("dspy")
    lm = dspy.LM(f"openai/{MODEL}", api_base=job.url, api_key=KEY, cache=False)
    program = dspy.Predict(dspy.Signature("question -> answer", SYSTEM))

    async def turn(session: str, said: str) -> str:
        with dspy.context(lm=lm, disable_history=True, trace=None):
            return str((await program.acall(question=said)).answer)

    yield turn


# --- frameworks -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def openai_agents(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """openai-agents; the worker is an agent `as_tool`. Its traces are off: they go to the vendor's service."""
    agents, openai = import_module("agents"), import_module("openai")
    model = agents.OpenAIChatCompletionsModel(
        model=MODEL, openai_client=openai.AsyncOpenAI(base_url=job.url, api_key=KEY)
    )
    worker = agents.Agent(name="worker", instructions=WORKER, model=model)
    tools = [worker.as_tool("worker", DOES)] if job.work == "delegation" else []
    agent = agents.Agent(name="main", instructions=SYSTEM, model=model, tools=tools)
    sessions: dict[str, Any] = {}

    async def turn(session: str, said: str) -> str:
        if job.stored and session not in sessions:
            sessions[session] = agents.SQLiteSession(session, Path(job.folder) / "sessions.db")
        return str((await agents.Runner.run(agent, said, session=sessions.get(session))).final_output)

    yield turn
    for session in sessions.values():
        session.close()


@asynccontextmanager
async def agno(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """agno: an `Agent`, or a `Team` of one member. With storage it is configured to send the session's history."""
    chat = import_module("agno.models.openai").OpenAIChat
    one, team = import_module("agno.agent").Agent, import_module("agno.team").Team
    given: dict[str, Any] = {"instructions": SYSTEM, "telemetry": False}
    if job.stored:
        given["db"] = import_module("agno.db.sqlite").SqliteDb(db_file=str(Path(job.folder) / "agno.db"))
        given |= {"add_history_to_context": True, "num_history_runs": SESSION_TURNS}

    def model() -> Any:
        return chat(id=MODEL, base_url=job.url, api_key=KEY)

    if job.work == "delegation":
        worker = one(name="worker", id="worker", model=model(), instructions=WORKER, role=DOES, telemetry=False)
        agent = team(members=[worker], model=model(), **given)
    else:
        agent = one(model=model(), **given)

    async def turn(session: str, said: str) -> str:
        return str((await agent.arun(said, session_id=session if job.stored else None)).content)

    yield turn


@asynccontextmanager
async def deepagents(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """deepagents, which delegates with its tool `task`; storage is LangGraph's `AsyncSqliteSaver`."""
    async with AsyncExitStack() as stack:
        saver: Any = None
        if job.stored:
            opened = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver.from_conn_string(
                str(Path(job.folder) / "checkpoints.db")
            )
            saver = await stack.enter_async_context(opened)
        model = import_module("langchain_openai").ChatOpenAI(
            model=MODEL, base_url=job.url, api_key=KEY, use_responses_api=False
        )
        agent = import_module("deepagents").create_deep_agent(
            model=model,
            tools=[],
            system_prompt=SYSTEM,
            checkpointer=saver,
            subagents=[{"name": "worker", "description": DOES, "system_prompt": WORKER, "tools": []}],
        )

        async def turn(session: str, said: str) -> str:
            config = {"configurable": {"thread_id": session}}
            state = await agent.ainvoke({"messages": [{"role": "user", "content": said}]}, config)
            return str(state["messages"][-1].content)

        yield turn


@asynccontextmanager
async def agent_framework(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """Microsoft's agent-framework; the worker is an agent `as_tool`."""
    framework, openai = import_module("agent_framework"), import_module("openai")
    client = import_module("agent_framework.openai").OpenAIChatCompletionClient(
        model=MODEL, async_client=openai.AsyncOpenAI(base_url=job.url, api_key=KEY)
    )
    worker = framework.Agent(client, instructions=WORKER, name="worker", description=DOES)
    tools = [worker.as_tool()] if job.work == "delegation" else None
    agent = framework.Agent(client, instructions=SYSTEM, tools=tools)

    async def turn(session: str, said: str) -> str:
        return str((await agent.run(said)).text)

    yield turn


@asynccontextmanager
async def pydantic_ai(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """pydantic-ai; the worker is an agent that a function tool runs."""
    agent_type = import_module("pydantic_ai").Agent
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=job.url, api_key=KEY)
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel(MODEL, provider=provider)
    sub = agent_type(model, instructions=WORKER)

    async def worker(request: str) -> str:
        """Does subtasks."""
        return str((await sub.run(request)).output)

    agent = agent_type(model, instructions=SYSTEM, tools=[worker] if job.work == "delegation" else [])

    async def turn(session: str, said: str) -> str:
        return str((await agent.run(said)).output)

    yield turn


# --- worldagent -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def ours(job: Job, pieces: FirstPieces) -> AsyncGenerator[RunTurn]:
    """worldagent with its defaults. Without storage it is only the turn graph and the model call, as in `turn.py`."""
    from worldagent import Settings, Storage, Worker, WorldAgent
    from worldagent.benchmarks._stubs import BareTurns
    from worldagent.core.events import TextDelta

    lm = f"openai/{MODEL}"
    workers = [Worker("worker", WORKER, DOES)] if job.work == "delegation" else []
    if not job.stored:
        bare = await BareTurns.open(lm, api_base=job.url, workers=workers)

        async def bare_turn(session: str, said: str) -> str:
            return str((await bare.run(text=said)).text)

        yield bare_turn
        return
    settings, storage = Settings(api_base=job.url), Storage(home=Path(job.folder), url=job.database)
    async with WorldAgent(
        "peers", identity=SYSTEM, lm=lm, workers=workers, settings=settings, storage=storage
    ) as agent:

        async def turn(session: str, said: str) -> str:
            return str((await agent.thread(session).converse(said)).text)

        async def stream(session: str, said: str) -> str:
            async with agent.thread(session).stream(said) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        pieces.note(session)
                return str((await events.wait()).text)

        yield stream if job.work == "stream" else turn


PEERS: dict[str, Callable[[Job, FirstPieces], AbstractAsyncContextManager[RunTurn]]] = {
    "openai": openai_client,
    "dspy": dspy_predict,
    "agent-framework": agent_framework,
    "agno": agno,
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "deepagents": deepagents,
    "ours": ours,
}
"""The function that opens each peer for a job, in the order of the tables."""


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure(job: Job) -> Measured:
    """Run a job in this process.

    Raises:
        AssertionError: The answer of a turn differs from that of the service.
    """
    pieces = FirstPieces()
    async with warmed(job, pieces) as turn:
        return await (at_once(job, turn, pieces) if job.concurrent else _in_sequence(job, turn))


@asynccontextmanager
async def warmed(job: Job, pieces: FirstPieces) -> AsyncGenerator[CheckedTurn]:
    """Open the peer and run the turns before the measured ones.

    Raises:
        AssertionError: The answer of a turn differs from that of the service.
    """
    said = f"{DELEGATE} {QUESTION}" if job.work == "delegation" else QUESTION
    async with PEERS[job.peer](job, pieces) as ask:

        async def turn(session: str) -> None:
            answer = await ask(session, said)
            assert answer.strip() == ANSWER, f"the answer was {answer!r}"

        for number in range(job.warm):
            await turn(f"warm{number // SESSION_TURNS}")
        yield turn


async def _in_sequence(job: Job, turn: CheckedTurn) -> Measured:
    watch = Stopwatch()
    for number in range(job.turns):
        await turn(f"s{number // SESSION_TURNS}")
    cost = watch.read(job.turns)
    return Measured(cpu=cost.cpu, wall=cost.wall)


async def at_once(job: Job, turn: CheckedTurn, pieces: FirstPieces) -> Measured:
    """Run the turns of a job concurrently, each in its own session."""
    if job.collector_set:
        gc.set_threshold(*THRESHOLDS)
    gc.collect()
    memory, watch = _peak_memory(reset=True), Stopwatch()
    start = time.perf_counter()
    ends = await asyncio.gather(*(turn(f"s{number}") for number in range(job.turns)), return_exceptions=True)
    cost, peak = watch.read(), _peak_memory()
    failures = [end for end in ends if end is not None]
    return Measured(
        cpu=cost.cpu / job.turns,
        wall=cost.wall,
        failed=len(failures),
        problem=repr(failures[0])[:200] if failures else "",
        first=pieces.median_since(start) if job.work == "stream" else None,
        memory=None if peak is None or memory is None else (peak - memory) / job.turns,
    )


def _peak_memory(*, reset: bool = False) -> int | None:
    """Peak memory of this process in bytes since its start or the last `reset`; None if the system has no figure."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(measure(Job(**json.loads(sys.argv[1])))))))
