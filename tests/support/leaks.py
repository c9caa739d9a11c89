"""Watches a process while turns run, and then looks for a role in everything that could have kept it (R7)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dspy
import requests
from dspy.clients.base_lm import GLOBAL_HISTORY
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client

from support.callbacks import ChainCallbacks, ModelCallbacks
from support.logs import CapturedLogs, capture_logs
from worldagent import Role
from worldagent.core import Clock, Emitter
from worldagent.core.events import Event
from worldagent.role_resolution import ResolvedRole
from worldagent.testing import Finding, scan_for_roles

T = TypeVar("T")

# In frames: the two sealed types, which show nothing to a reporter that prints local variables, and what looks on.
_APART = (Role, ResolvedRole, ChainCallbacks, ModelCallbacks, LangChainTracer)
_HERE = str(Path(__file__).parents[1])


class _Sent(requests.Session):
    """A session that keeps what LangSmith's client would send."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[Any] = []

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        self.bodies.append((method, url, args, kwargs.get("data"), kwargs.get("json"), kwargs.get("files")))
        answer = requests.Response()
        answer.status_code = 200
        answer._content = b"{}"
        return answer


@dataclass
class Watch:
    """Everything that looked on while turns ran.

    Attributes:
        home: The agent's home.
        logs: Every logger at DEBUG; asyncio in debug mode names each callback that ran.
        kept: What the turns gave: turns, pages of the log, programs.
        errors: What they raised.
        events: All events of all turns, on every surface.
        chain: LangChain's callbacks of a chain that the agent is called in.
        traced: What LangSmith's tracer would have sent.
        model: dspy's callbacks of the embedder.
        trace: dspy's trace of the embedder.
    """

    home: Path
    logs: CapturedLogs
    kept: list[object] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    chain: ChainCallbacks = field(default_factory=ChainCallbacks)
    traced: _Sent = field(default_factory=_Sent)
    model: ModelCallbacks = field(default_factory=ModelCallbacks)
    trace: list[object] = field(default_factory=list)

    async def inside_a_chain(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await `work` as an embedder would who calls the agent inside a traced LangChain chain."""
        client = Client(
            api_url="http://127.0.0.1:9", api_key="x", session=self.traced, auto_batch_tracing=False, info={}
        )
        tracer = LangChainTracer(project_name="leaks", client=client)

        async def step(_: object) -> list[T]:
            return [await work()]

        chain: RunnableLambda[object, list[T]] = RunnableLambda(step)
        [result] = await chain.ainvoke("begin", {"callbacks": [self.chain, tracer]})
        tracer.wait_for_futures()
        return result

    async def outcome(self, work: Awaitable[Any]) -> Any:
        """Await `work` and keep what it gives or raises; give it back either way."""
        try:
            given = await work
        except (Exception, asyncio.CancelledError) as error:
            self.errors.append(error)
            return error
        self.kept.append(given)
        return given

    def assert_clean(self, *contents: str, names: Sequence[str] = ()) -> None:
        """Fail with every place where one of `contents` or `names` stands."""
        found = self.leaks(*contents, names=names)
        if found:
            raise AssertionError("\n".join(["a role stands in", *found]))

    def leaks(self, *contents: str, names: Sequence[str] = ()) -> list[str]:
        """Say where one of `contents` stands, or one of `names`, which a frame may show: a role's repr does."""
        found = [*_in_home(self.home, (*contents, *names))]
        found += scan_for_roles(self._objects(), (*contents, *names)).findings
        found += scan_for_roles([frame_locals(error) for error in self.errors], contents, skip=_APART).findings
        return [str(finding) for finding in found]

    def leaks_on_disk(self, *texts: str) -> list[str]:
        """Say where one of `texts` stands by now below the home."""
        return [str(finding) for finding in _in_home(self.home, texts)]

    def _objects(self) -> dict[str, object]:
        return {
            "kept": self.kept,
            "errors": self.errors,
            "shown": [[repr(item), str(item)] for item in (*self.kept, *self.errors)],
            "printed": ["".join(traceback.format_exception(error)) for error in self.errors],
            "events": [(event, event.model_dump_json()) for event in self.events],
            "logs": self.logs.scannable,
            "chain": self.chain.seen,
            "traced": self.traced.bodies,
            "model": self.model.seen,
            "trace": self.trace,
            "GLOBAL_HISTORY": list(GLOBAL_HISTORY),
            "settings": {
                name: item for name, item in dspy.settings.config.items() if name not in ("callbacks", "trace")
            },
        }


def _in_home(home: Path, contents: tuple[str, ...]) -> Iterator[Finding]:
    """Findings in every file below `home` but the role store's, which is there to keep roles, and on the server."""
    for finding in scan_for_roles(home, contents).findings:
        if not finding.place.partition("/")[2].startswith("roles.db"):
            yield finding
    yield from scan_for_roles(on_the_server(), contents).findings


def on_the_server() -> dict[str, bytes]:
    """What the test's Postgres database holds, and the server's log; nothing where the test has none (D10)."""
    url = os.environ.get("WORLDAGENT_DATABASE_URL")
    if not url:
        return {}
    from support.postgres import server, table_bytes  # it starts a server

    return {"the log of the server": server().log.read_bytes(), **table_bytes(url)}


def frame_locals(error: BaseException) -> list[tuple[str, dict[str, Any]]]:
    """The local variables of every frame that an error and its chain hold, but those of tests."""
    found: list[tuple[str, dict[str, Any]]] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        at = waiting.pop()
        if at is None:
            continue
        waiting += [at.__cause__, at.__context__, *getattr(at, "exceptions", ())]
        for frame, _ in traceback.walk_tb(at.__traceback__):
            if not frame.f_code.co_filename.startswith(_HERE):
                found.append((frame.f_code.co_qualname, dict(frame.f_locals)))
    return found


@contextlib.contextmanager
def watch(home: Path) -> Generator[Watch, None, None]:
    """Look on for the block; call it inside the running loop."""
    home.mkdir(exist_ok=True)
    with capture_logs() as logs, contextlib.ExitStack() as stack:
        seen = Watch(home, logs)
        stack.enter_context(_tee(seen.events))
        stack.enter_context(dspy.context(callbacks=[seen.model], trace=seen.trace, track_usage=True))
        loop = asyncio.get_running_loop()
        stack.callback(loop.set_debug, loop.get_debug())
        stack.callback(setattr, loop, "slow_callback_duration", loop.slow_callback_duration)
        loop.set_debug(True)
        loop.slow_callback_duration = 0  # so that every callback is logged, with the results it hands on
        yield seen


@contextlib.contextmanager
def _tee(events: list[Event]) -> Generator[None, None, None]:
    """Keep the events of all turns; only one surface gives them to its caller."""
    original = Emitter.__init__

    def init(self: Emitter, turn_id: str, clock: Clock, sink: Any, capture: Any = None) -> None:
        def teed(event: Event) -> None:
            events.append(event)
            sink(event)

        original(self, turn_id, clock, teed if capture is not None else sink, capture)

    Emitter.__init__ = init  # type: ignore[method-assign]  # no public way to see the events of a plain call
    try:
        yield
    finally:
        Emitter.__init__ = original  # type: ignore[method-assign]  # put back as it was
