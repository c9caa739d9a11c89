"""A process ends at SIGTERM although its database takes what it sends and answers nothing, as behind a dead network."""

import asyncio
import signal
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from support.command_line import started
from support.postgres import drop_database, new_database
from support.sidecar_clients import BOUND
from support.sidecars import THREAD, over_http, shared
from support.stalled import StallingProxy, stalling

pytestmark = pytest.mark.requirement("T5")

_WORKER = """
from worldagent import Storage, WorldAgent
from worldagent.testing import ScriptedLM

def agent():
    return WorldAgent("shop", lm=ScriptedLM([]), storage=Storage(home="data"))
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
async def test_a_worker_ends(tmp_path: Path, proxy: StallingProxy) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "app.py").write_text(_WORKER)
    async with started(home, "worker", "--app", "app:agent", "--home-roles", **shared(proxy.url)) as process:
        assert process.stderr is not None
        assert b"0 schedules" in await asyncio.wait_for(process.stderr.readline(), BOUND)
        await until_stalled(proxy)
        await ends(process, 45)
