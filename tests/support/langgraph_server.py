"""LangGraph's development server with an agent of ours, as a process of its own."""

import asyncio
import json
import os
import shutil
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from support.house import ROOT
from support.install_langgraph import MISSING, find_server
from support.processes import clean_environment
from support.role_hosts import free_port

EXAMPLE = ROOT / "examples" / "langgraph_server"
BOUND = 90.0  # seconds


def made_app(folder: Path, home: Path) -> None:
    """Write the app of a server: the `langgraph.json` that ships, with users, and the shop of the tests."""
    config: dict[str, Any] = json.loads((EXAMPLE / "langgraph.json").read_text(encoding="utf-8"))
    taken = {name: value for name, value in os.environ.items() if name == "WORLDAGENT_DATABASE_URL"}
    config["env"] = {**config["env"], "SHOP_HOME": str(home), **taken}
    config["auth"] = {"path": "./shop.py:auth"}
    folder.mkdir(exist_ok=True)
    (folder / "langgraph.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("langgraph_shop.py"), folder / "shop.py")


class Server:
    """A server that runs.

    Attributes:
        folder: The folder of its app, in which it keeps what it stores.
        log: What it has printed so far.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        self.log = ""
        self.clients = AsyncExitStack()

    async def client(self, user: str | None = None) -> LangGraphClient:
        """Return a client, of a user if the server authenticates them. It is closed with the server."""
        headers: Mapping[str, str] = {} if user is None else {"authorization": f"Bearer token-of-{user}"}
        return await self.clients.enter_async_context(get_client(url=self._url, headers=headers))

    async def ready(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it serves, and fail with what it printed if it ends before."""
        assert process.stdout is not None
        while "Application started up" not in self.log:
            line = await asyncio.wait_for(process.stdout.readline(), BOUND)
            assert line, self.log
            self.log += line.decode()

    async def read(self, process: asyncio.subprocess.Process) -> None:
        """Read what it prints until it ends."""
        assert process.stdout is not None
        self.log += (await process.stdout.read()).decode()


@asynccontextmanager
async def running_server(folder: Path) -> AsyncGenerator[Server]:
    """Run the server of the app in a folder; skips the test where it is not installed."""
    command = find_server()
    if command is None:
        pytest.skip(MISSING)
    port = free_port()
    words = [str(command), "dev", "--allow-blocking", "--no-browser", "--no-reload", "--port", str(port)]
    # A user of LangSmith would be asked for, and counts of use are sent to LangChain.
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=folder, env=clean_environment(**quiet), stdout=PIPE, stderr=STDOUT
    )
    server = Server(folder, f"http://127.0.0.1:{port}")
    reading: asyncio.Task[None] | None = None
    try:
        await server.ready(process)
        reading = asyncio.create_task(server.read(process))
        async with server.clients:
            yield server
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), BOUND)
        except TimeoutError:
            process.kill()
            await process.wait()
        if reading is not None:
            await reading
