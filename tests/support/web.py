"""A web app on a real port, in the test's own loop, and a client of it."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import uvicorn

from support.agents import scripted_agent
from worldagent.hosts.web import WebApp

BOUND = 60  # seconds


class Server(uvicorn.Server):
    """uvicorn without its handling of signals, which belong to pytest."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:
    """Serve an ASGI app; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(BOUND):
            while not server.started:
                assert not serving.done(), serving
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, BOUND)
        listener.close()


def by_header(request: Any) -> str | None:
    """A login that believes the header `x-user`."""
    name: str | None = request.headers.get("x-user")
    return name


@asynccontextmanager
async def web(home: Any, lm: Any, **more: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    """A web app over a scripted agent, and a client that is logged in as `ana`."""
    agent = scripted_agent(home, lm, **more.pop("agent", {}))
    more.setdefault("login", by_header)
    async with served(WebApp(agent, **more)) as url, client_of(url) as client:
        yield client


def client_of(url: str, user: str = "ana", **headers: str) -> httpx2.AsyncClient:
    """A client of a person."""
    return httpx2.AsyncClient(base_url=url, timeout=BOUND, headers={"x-user": user, **headers})


STREAM = {"Accept": "text/event-stream"}


def events_in(text: str) -> list[dict[str, Any]]:
    """The data of the server-sent events in a text, each with its id as `id`."""
    found: list[dict[str, Any]] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in fields:
            found.append({**json.loads(fields["data"]), **({"id": fields["id"]} if "id" in fields else {})})
    return found


async def say(
    client: httpx2.AsyncClient, text: str, thread: str = "main", headers: Mapping[str, str] = STREAM, **more: Any
) -> list[dict[str, Any]]:
    """Send a message, and return the events of the turn."""
    response = await client.post(f"/threads/{thread}/messages", json={"text": text, **more}, headers=dict(headers))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_in(response.text)
