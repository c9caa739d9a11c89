"""Sidecars as processes, as people start them, with the app of the tests in them; and clients of theirs."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from support import forks
from support.processes import clean_environment, eventually, lines
from support.sidecar_app import HOME, SEEN, WORKSPACE
from support.sidecar_calls import LEGACY, MODERN, Asked, Call, Revision, Served
from support.sidecar_clients import BOUND, HttpClient, StdioClient, get

TOKEN = "token-of-the-sidecar-which-nobody-may-see"
TASKS = "WORLDAGENT_TESTS_TASKS"

# Everything that the libraries log at DEBUG reaches the sidecar's standard error, which is what people would look at.
# On SIGUSR1 it writes how many tasks its loop has.
_WATCHED = """
import asyncio, logging, os, runpy, signal, sys
if "WORLDAGENT_TESTS_LOGS" in os.environ:
    for name in ("anyio", "asyncio", "dspy", "httpx2", "langchain", "langgraph", "mcp", "server", "sse_starlette",
                 "starlette", "uvicorn", "worldagent"):
        logging.getLogger(name).setLevel(logging.DEBUG)

def count(*_):
    with open(os.environ["WORLDAGENT_TESTS_TASKS"], "a") as out:
        out.write(f"{len(asyncio.all_tasks())}\\n")

signal.signal(signal.SIGUSR1, count)
sys.argv[0] = "worldagent"
runpy.run_module("worldagent.hosts.cli", run_name="__main__")
"""
SERVE = (sys.executable, "-P", "-c", _WATCHED, "serve")


@dataclass
class Sidecar:
    """A sidecar that runs.

    Attributes:
        process: It.
        home: Its home.
        errors: The file with its standard error.
        url: Its address, where it serves HTTP.
        token: The bearer token that it takes.
    """

    process: asyncio.subprocess.Process
    home: Path
    errors: Path
    url: str = ""
    token: str = TOKEN
    _counts: int = field(default=0, init=False)

    def client(self, revision: Revision = MODERN, *, elicit: Asked | None = None) -> HttpClient:
        """A client over HTTP, to be opened."""
        return HttpClient(self.url, self.token, revision, elicit=elicit)

    async def get(self, path: str) -> tuple[int, Any]:
        """What it answers at another path than that of the protocol."""
        return await get(self.url, path)

    @property
    def memory(self) -> float:
        """Mebibytes that it holds."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / (1 << 20)

    @property
    def files(self) -> int:
        """Handles that it has open."""
        return int(psutil.Process(self.process.pid).num_fds())

    async def tasks(self) -> int:
        """Tasks of its loop."""
        file = self.home.with_name(f"{self.home.name}.tasks")
        self._counts += 1
        self.process.send_signal(signal.SIGUSR1)
        assert await eventually(lambda: len(lines(file)) >= self._counts, BOUND)
        return int(lines(file)[-1])

    @property
    def arguments(self) -> list[str]:
        """What everybody on this machine may see of it."""
        return list(psutil.Process(self.process.pid).cmdline())

    async def killed(self) -> None:
        """End it at once."""
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait_for(self.process.wait(), BOUND)


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a sidecar: this checkout, its home, and no setting of anybody's."""
    database = {name: os.environ[name] for name in ("WORLDAGENT_DATABASE_URL",) if name in os.environ}
    return clean_environment(**{HOME: str(home), SEEN: f"{home}.seen", TASKS: f"{home}.tasks"} | database | more)


async def _start(
    home: Path, options: Sequence[str], errors: Path, env: dict[str, str], *, fresh: bool
) -> asyncio.subprocess.Process:
    home.mkdir(parents=True, exist_ok=True)
    words = (*SERVE, "--app", "support.sidecar_app:make", "--home", str(home), *options)
    with errors.open("ab") as out:
        return await forks.start(words, stderr=out.fileno(), env=env, fresh=fresh)


@asynccontextmanager
async def over_http(
    home: Path, *options: str, workspaces: Sequence[str] = (WORKSPACE,), fresh: bool = False, **env: str
) -> AsyncGenerator[Sidecar]:
    """Run a sidecar on a free port, with a token that reaches `workspaces`.

    Args:
        home: Its home. Its standard error goes into a file beside it.
        options: More of the command's.
        workspaces: Those that it serves.
        fresh: Whether it is started as a process of its own from the first; a fork's memory and arguments are not its
            own.
        env: More of its environment; `WORLDAGENT_TESTS_LOGS` lets all libraries log what they do.
    """
    errors = home.with_name(f"{home.name}.err")
    words = ["--http", "127.0.0.1:0", *(word for name in workspaces for word in ("--workspace", name)), *options]
    process = await _start(home, words, errors, environment(home, WORLDAGENT_SIDECAR_TOKEN=TOKEN, **env), fresh=fresh)
    running = Sidecar(process, home, errors)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), BOUND)
        running.url = line.decode().strip()
        assert running.url.startswith("http"), f"it did not start: {errors.read_text()[-2000:]}"
        yield running
    finally:
        await running.killed()


@asynccontextmanager
async def over_stdio(
    home: Path,
    revision: Revision = MODERN,
    *options: str,
    elicit: Asked | None = None,
    roles: Served | None = None,
    workspaces: Sequence[str] = (WORKSPACE,),
    fresh: bool = False,
    **env: str,
) -> AsyncGenerator[tuple[Sidecar, StdioClient]]:
    """Run a sidecar as a child, as its one client; it ends when it is left."""
    errors = home.with_name(f"{home.name}.err")
    words = ["--stdio", *(word for name in workspaces for word in ("--workspace", name)), *options]
    process = await _start(home, words, errors, environment(home, **env), fresh=fresh)
    running = Sidecar(process, home, errors)
    try:
        async with StdioClient(process, revision, elicit=elicit, roles=roles) as client:
            yield running, client
    finally:
        with contextlib.suppress(ProcessLookupError):
            await running.killed()


REVISIONS: tuple[Revision, ...] = (MODERN, LEGACY)


THREAD = "t1"
_TICK = 0.02
_OURS = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND application_name='worldagent'"
_STUCK = """SELECT 1 FROM pg_stat_activity
            WHERE datname=current_database() AND wait_event_type='Lock' AND query LIKE %s"""


def shared(url: str) -> dict[str, Any]:
    """What all sidecars on a database have in common."""
    return {"WORLDAGENT_DATABASE_URL": url, "WORLDAGENT_ROLE_KEY": "the same key everywhere"}


@dataclass(frozen=True)
class Pair:
    """Two sidecars on one database, each with a home of its own, and a client of each.

    Attributes:
        url: The database.
        sidecars: They.
        here, there: Their clients.
    """

    url: str
    sidecars: tuple[Sidecar, Sidecar]
    here: HttpClient
    there: HttpClient

    def let(self, name: str) -> None:
        """Let the models go on that `hold=NAME` keeps waiting."""
        let([sidecar.home for sidecar in self.sidecars], name)

    @property
    def bought(self) -> list[str]:
        """What was bought, wherever."""
        return [what for sidecar in self.sidecars for what in bought(sidecar.home)]


@asynccontextmanager
async def pair(folder: Path, url: str) -> AsyncGenerator[Pair]:
    """Run two sidecars on a database."""
    async with AsyncExitStack() as opened:
        homes = (folder / "here", folder / "there")
        starting = [over_http(home, **shared(url)) for home in homes]
        one, two = [await opened.enter_async_context(each) for each in starting]
        clients = [await opened.enter_async_context(each.client()) for each in (one, two)]
        yield Pair(url, (one, two), *clients)


def bought(home: Path) -> list[str]:
    """What was paid for by agents of a home."""
    return lines(home / "bought")


def let(homes: Sequence[Path], name: str) -> None:
    """Let the models of these homes go on that `hold=NAME` keeps waiting."""
    for home in homes:
        (home / name).touch()


async def until(condition: Callable[[], Awaitable[Any]], limit: float = BOUND) -> Any:
    """Ask again and again until the answer is a yes; gives it."""
    async with asyncio.timeout(limit):
        while not (found := await condition()):  # noqa: ASYNC110 -- they are other processes
            await asyncio.sleep(_TICK)
    return found


async def ready(sidecar: Sidecar, expected: bool) -> dict[str, Any]:
    """Wait until `/ready` says so, by its status and its body; gives what it tells."""

    async def look() -> dict[str, Any] | None:
        status, told = await sidecar.get("/ready")
        assert (status, told["ready"]) in ((200, True), (503, False))
        return told if told["ready"] is expected else None

    return dict(await until(look))


async def events_of(call: Call, count: int) -> list[dict[str, Any]]:
    """Wait for so many events of a call."""

    async def take() -> None:
        async for _ in call:
            if len(call.events) >= count:
                return

    await asyncio.wait_for(take(), BOUND)
    return call.events


def numbers(events: Sequence[dict[str, Any]]) -> list[int]:
    """The numbers of events."""
    return [event["seq"] for event in events]


async def status(client: HttpClient) -> str:
    """The status of the thread."""
    found = (await client.ask("threads"))["threads"]
    [standing] = [each["status"] for each in found if each["thread"] == THREAD] or ["none"]
    return str(standing)


def connections(url: str) -> int:
    """How many connections agents have to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_OURS).fetchone()
    assert row is not None
    return int(row[0])


async def stuck(url: str, like: str) -> None:
    """Wait until a statement like this waits for a lock, which the test has."""

    def look() -> bool:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(_STUCK, (like,)).fetchone() is not None

    await until(lambda: asyncio.to_thread(look))
