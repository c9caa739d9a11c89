"""A process ends at SIGTERM although its database takes what it sends and answers nothing, as behind a dead network."""

import asyncio
import signal
import time
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest

from support.command_line import started
from support.postgres import drop_database, new_database
from support.processes import ending, next_line, start_script
from support.sidecar_clients import BOUND
from support.sidecars import THREAD, over_http, shared
from support.stalled import StallingProxy, stalling

pytestmark = pytest.mark.requirement("T5")

_WORKER = """
from worldagent import Storage, WorldAgent
from worldagent.scheduling import Queue
from worldagent.testing import ScriptedLM

def agent():
    return WorldAgent("shop", lm=ScriptedLM([]), storage=Storage(home="data"), queue=QUEUE)
"""

_HOST = """
import asyncio, signal, sys
from contextlib import nullcontext
from pathlib import Path
from support.submissions import HELLO, queued_agent
from worldagent.scheduling import QueueWorker
from worldagent.testing import ScriptedLM

async def submit(agent):
    while True:
        await agent.submit(HELLO, thread=agent.thread("t"))
        await asyncio.sleep(0.05)

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with queued_agent(Path(sys.argv[1]), ScriptedLM([])) as agent:
        async with QueueWorker(agent).running(drain=0) if sys.argv[2] == "works" else nullcontext():
            await agent.submit(HELLO, thread=agent.thread("t"))
            submitting = asyncio.create_task(submit(agent))
            print("there", flush=True)
            await stop.wait()
        await agent.drain(1)
        await asyncio.gather(submitting, return_exceptions=True)

asyncio.run(main())
sys.exit(143)
"""


@pytest.fixture
def proxy() -> Generator[StallingProxy]:
    """A proxy in front of a database of its own."""
    url = new_database()
    with stalling(url) as found:
        yield found
    drop_database(url)


async def until_stalled(proxy: StallingProxy) -> None:
    """Stall the proxy, and wait until the process has sent something since."""
    proxy.stalled.set()
    assert await asyncio.to_thread(proxy.taken.wait, BOUND)


async def ends(process: asyncio.subprocess.Process, within: float, *, signals: int = 1) -> None:
    """Send signals, and see the process end in time."""
    began = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 1)
    async with asyncio.timeout(within - (time.monotonic() - began)):
        assert await process.wait() in (143, -signal.SIGTERM)


def worker(home: Path, proxy: StallingProxy, queue: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """A process of `worldagent worker`, whose database is behind the proxy."""
    home.mkdir()
    (home / "app.py").write_text(_WORKER.replace("QUEUE", queue))
    return started(home, "worker", "--app", "app:agent", "--home-roles", **shared(proxy.url))


@pytest.mark.parametrize(("web", "signals", "within"), [(False, 1, 15), (True, 1, 15), (False, 2, 3)])
async def test_a_sidecar_ends(tmp_path: Path, proxy: StallingProxy, web: bool, signals: int, within: float) -> None:
    words = ["--drain", "1", *(["--web"] if web else [])]
    async with over_http(tmp_path / "home", *words, **shared(proxy.url)) as sidecar, sidecar.client() as client:
        assert (await client.ask("converse", thread=THREAD, text="Hello"))["turn"]["status"] == "done"
        asking = asyncio.ensure_future(client.ask("converse", thread=THREAD, text="Hello again"))
        await until_stalled(proxy)
        await ends(sidecar.process, within, signals=signals)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.soak
@pytest.mark.parametrize("queue", ["None", "Queue()"])
async def test_a_worker_ends(tmp_path: Path, proxy: StallingProxy, queue: str) -> None:
    async with worker(tmp_path / "home", proxy, queue) as process:
        assert process.stderr is not None
        assert b"0 schedules" in await asyncio.wait_for(process.stderr.readline(), BOUND)
        await until_stalled(proxy)
        await ends(process, 45)


@pytest.mark.parametrize(
    ("queue", "at", "within"),
    [("None", b"worldagent schema", 15), pytest.param("Queue()", b"dbos_migrations", 45, marks=pytest.mark.soak)],
)
async def test_a_worker_that_makes_its_tables_ends(
    tmp_path: Path, proxy: StallingProxy, queue: str, at: bytes, within: float
) -> None:
    proxy.at = at
    async with worker(tmp_path / "home", proxy, queue) as process:
        assert await asyncio.to_thread(proxy.taken.wait, BOUND)
        await ends(process, within)


@pytest.mark.parametrize("does", ["submits", "works"])
async def test_a_host_with_a_queue_ends(
    tmp_path: Path, proxy: StallingProxy, does: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in shared(proxy.url).items():
        monkeypatch.setenv(name, value)
    async with ending(await start_script(_HOST, tmp_path, does)) as process:
        assert await next_line(process) == "there"
        await until_stalled(proxy)
        await ends(process, 20)
