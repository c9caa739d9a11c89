"""Watches a process while turns run, and then looks for a role in everything that could have kept it (R7)."""

import asyncio
import contextlib
import io
import json
import logging
import os
import random
import re
import sys
import traceback
import unicodedata
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import dspy
import pytest
import requests
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.utils.callback import BaseCallback
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support import forks
from support.processes import environment
from worldagent import Role
from worldagent.benchmarks._role_echo_set import labelled_roles
from worldagent.core import ECHO_RUN, Clock, Emitter
from worldagent.core.events import TurnEvent
from worldagent.harness.trace import OpenTelemetryTrace, Trace, Traced
from worldagent.role_resolution import ResolvedRole
from worldagent.testing import Finding, scan_for_roles


class _Recorder:
    """Answers every `on_...` method with one that keeps what it is called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def record(*args: Any, **kwargs: Any) -> None:
            self.seen.append((name, args, kwargs))

        return record


class ChainCallbacks(_Recorder, BaseCallbackHandler):
    """For LangChain: pass it as `config={"callbacks": [...]}`."""


class ModelCallbacks(_Recorder, BaseCallback):
    """For dspy: pass it to `dspy.context(callbacks=[...])` or to a module."""


class CapturedLogs(logging.Handler):
    """The records, and the text that a handler would have written, tracebacks included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self._text = io.StringIO()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._text.write(self.format(record) + "\n")

    @property
    def text(self) -> str:
        return self._text.getvalue()

    @property
    def scannable(self) -> list[object]:
        """What to hand to the scan for roles."""
        return [*self.records, self.text]


def _loggers() -> list[logging.Logger]:
    known = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return [logging.root, *known]


@contextlib.contextmanager
def capture_logs() -> Generator[CapturedLogs, None, None]:
    """Record everything that any logger says at DEBUG and above; then put all loggers back as they were."""
    captured = CapturedLogs()
    before = [(one, one.level, one.disabled) for one in _loggers()]
    disabled = logging.root.manager.disable
    holders = [one for one in _loggers() if one is logging.root or not one.propagate]
    logging.disable(logging.NOTSET)
    for one, _, _ in before:
        one.level, one.disabled = logging.DEBUG, False
    logging.root.setLevel(logging.DEBUG)  # which clears what all of them remember, once
    for one in holders:
        one.addHandler(captured)
    try:
        yield captured
    finally:
        for one in holders:
            one.removeHandler(captured)
        for one, level, was_disabled in before:
            one.level, one.disabled = level, was_disabled
        logging.disable(disabled)  # this clears it as well


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[InMemorySpanExporter, None, None]:
    """The spans of the MCP library."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("mcp-python-sdk"))
    yield exporter
    provider.shutdown()


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def canary(length: int, seed: int | str = 0) -> str:
    """Return `length` characters: words of random letters, such as a role may have."""
    source = random.Random(f"{length}/{seed}")
    text = ""
    while len(text) < length:
        text += "".join(source.choices(_LETTERS, k=source.randint(4, 11))) + " "
    return text[: length - 1] + source.choice(_LETTERS)


def awkward_canary(length: int, seed: int | str = 0) -> str:
    """Return `length` characters that every encoding writes in its own way.

    They are words with accents and of several scripts; line ends, tabs, quotes and backslashes between them come far
    closer to each other than 40 characters. No two quotes stand in one line, because what a role quotes may be said.
    """
    source = random.Random(f"awkward/{length}/{seed}")
    text = source.choice(_LETTERS)
    while len(text) < length:
        letters = source.choice(_SCRIPTS)
        text += "".join(source.choices(letters, k=source.randint(3, 8))) + source.choice(_BETWEEN)
    return text[: length - 1] + source.choice(_LETTERS)


_SCRIPTS = (_LETTERS, _LETTERS, _LETTERS + "äöüßéàçñåøž" * 3, "жщёйюяЖЩ", "αβγλμάέώΣς", "中文不要夸奖批评", "😀🚀é")
_BETWEEN = ("\n", "\n", "\t", '"\n', '"\n', "\\ ", "' ", "/", ",\n")

_OF_THE_SET = ("report-en-02-a", "code-en-02-a", "legal-de-02-b", "report-de-03-b", "tutor-de-02-b", "code-zh-02-b")


def planted(length: int, seed: int | str) -> str:
    """A text that is planted as a role: an awkward canary, or half of the long ones a role of the labelled set.

    Those of the set ask for nothing to be said, so that nothing of them may be anywhere.
    """
    source = random.Random(f"planted/{seed}")
    if length < ECHO_RUN or source.random() < 0.5:
        return awkward_canary(length, seed)
    chosen = source.choice(_OF_THE_SET)
    text = next(role.text for role in _labelled() if role.id == chosen)
    return f"{text}\n{canary(24, seed=seed)}"  # each is another one, because tests wait until theirs has arrived


_labelled = cache(labelled_roles)

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in capitals": str.upper,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "with soft hyphens": "\u00ad".join,
    "in JSON": lambda text: json.dumps({"rules": text}, ensure_ascii=False),
    "in JSON with ASCII escapes": json.dumps,
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False),
    "in JSON in JSON with ASCII escapes": lambda text: json.dumps(json.dumps([text])),
    "as a list": lambda text: "\n".join(f"{number}. {line}" for number, line in enumerate(words_of(text), 1)),
}
"""How a model may repeat a role."""


def words_of(text: str) -> list[str]:
    """The words of a role, each of them too short for a run."""
    return re.findall(r"\w+", text)


def repeated(text: str, seed: object = None) -> str:
    """A role as a model repeats it: in all `FORMS`, or in the one that a seed chooses."""
    chosen = FORMS if seed is None else [random.Random(f"form of {seed}").choice(list(FORMS))]
    return "\n".join(f"I am told, {form}: {FORMS[form](text)} So be it." for form in chosen)


def traces_of(text: str) -> list[str]:
    """What is looked for to find a role that was repeated in any of `FORMS`."""
    if len(text) < ECHO_RUN:
        return [text]
    return [text, *(FORMS[form](text) for form in ("in capitals", "decomposed", "with soft hyphens", "as a list"))]


# The two lengths that the leak suite plants: one that is searched as a whole, one of which any 40 characters count.
SHORT = canary(12)
LONG = canary(400)


class Kept:
    """A sink of an embedder that keeps what it gets."""

    def __init__(self) -> None:
        self.items: list[Traced] = []
        self.closed = 0

    async def write(self, items: Sequence[Traced]) -> None:
        self.items += items

    async def aclose(self) -> None:
        self.closed += 1


class TracePlaces:
    """The places, which several agents may trace to one after the other.

    Args:
        folder: Where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "traced.jsonl"
        self.kept, self.exporter = Kept(), InMemorySpanExporter()

    def trace(self) -> Trace:
        """What an agent traces with."""
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        capture: Sequence[Any] = ("inputs", "outputs", "prompts")
        return Trace.to(self.file, self.kept, OpenTelemetryTrace(provider), capture=capture)

    def in_memory(self) -> list[Any]:
        """What came to the sink and the spans."""
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        return [list(self.kept.items), repr(self.kept.items), spans]


T = TypeVar("T")
_WAIT = 90.0  # seconds until a child is taken for one that does not come to the call in which it is held

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
    events: list[TurnEvent] = field(default_factory=list)
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
        found = [*_in_home(self.home, (*contents, *names), self.objects())]
        if self.errors:
            found += scan_for_roles([frame_locals(error) for error in self.errors], contents, skip=_APART).findings
        return [str(finding) for finding in found]

    def leaks_on_disk(self, *texts: str) -> list[str]:
        """Say where one of `texts` stands by now below the home."""
        return [str(finding) for finding in _in_home(self.home, texts)]

    def objects(self) -> dict[str, object]:
        """All of it by name."""
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


def _in_home(home: Path, contents: tuple[str, ...], *others: object) -> Iterator[Finding]:
    """Findings in files below `home` but the role store's, which is there to keep roles, on the server, in others."""
    for finding in scan_for_roles([home, on_the_server(), *others], contents).findings:
        if not finding.place.partition("/")[2].startswith("roles.db"):
            yield finding


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
        constants: Any = asyncio.constants  # type: ignore[attr-defined]  # typeshed leaves it out
        stack.callback(setattr, constants, "DEBUG_STACK_DEPTH", constants.DEBUG_STACK_DEPTH)
        constants.DEBUG_STACK_DEPTH = 1  # a message names one line
        whole = traceback.walk_stack
        stack.callback(setattr, traceback, "walk_stack", whole)
        traceback.walk_stack = lambda f: iter([next(whole(f))])  # a future, written in C, asks for all of its stack
        loop.set_debug(True)
        loop.slow_callback_duration = 0  # so that every callback is logged, with the results it hands on
        yield seen


@contextlib.contextmanager
def _tee(events: list[TurnEvent]) -> Generator[None, None, None]:
    """Keep the events of all turns; only one surface gives them to its caller."""
    original = Emitter.__init__

    def init(self: Emitter, turn_id: str, clock: Clock, sink: Any, capture: Any = None) -> None:
        def teed(event: TurnEvent) -> None:
            events.append(event)
            sink(event)

        original(self, turn_id, clock, teed if capture is not None else sink, capture)

    Emitter.__init__ = init  # type: ignore[method-assign]  # no public way to see the events of a plain call
    try:
        yield
    finally:
        Emitter.__init__ = original  # type: ignore[method-assign]  # put back as it was


Plant = Callable[[Watch, str], Awaitable[None]]
"""Makes the mistake on what is watched, with this text of a role."""


class Plants(dict[str, tuple[Plant, str]]):
    """Each mistake, and a part of the place where it must be found."""

    def __call__(self, name: str, place: str) -> Callable[[Plant], Plant]:
        """Register the mistake that is decorated."""

        def register(plant: Plant) -> Plant:
            self[name] = (plant, place)
            return plant

        return register

    async def assert_found(self, name: str, home: Path, text: str) -> None:
        """Make the mistake with this text; where it must be found it is, and before it was nowhere."""
        plant, place = self[name]
        with watch(home) as seen:
            assert seen.leaks(text) == []
            await plant(seen, text)
            found = seen.leaks(text)
        assert [finding for finding in found if place in finding], found


async def start_child(kind: str, case: Any, home: Path, cwd: Path | None = None, **more: str) -> Process:
    """Start `leak_child` with a case, in a folder of its own if `cwd` is given."""
    return await forks.start(
        (sys.executable, "-P", Path(__file__).with_name("leak_child.py"), kind, json.dumps(asdict(case)), home),
        cwd=cwd,
        env=environment(**more),
    )


async def kill_child(kind: str, case: Any, home: Path) -> list[object]:
    """Kill a process of a case where it is held; gives its folder and what it printed."""
    apart = home.with_name(f"child of {home.name}")
    apart.mkdir()
    # A core, or what it keeps for itself for a while, would be left in its folder.
    child = await start_child(kind, case, home, apart, TMPDIR=str(apart), DSPY_CACHEDIR=str(apart))
    assert child.stdout is not None
    async with asyncio.timeout(_WAIT):
        line = await child.stdout.readline()
        child.kill()
        out, err = await child.communicate()
    assert line == b"held\n", (line, err.decode()[-2000:])
    return [apart, out, err]
