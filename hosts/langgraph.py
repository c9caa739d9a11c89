"""The agent of `WORLDAGENT_APP` as a graph for a LangGraph server, such as `langgraph dev`.

In `langgraph.json` it is `"graphs": {"shop": "worldagent.hosts.langgraph:graph"}`.

The server calls `graph` for each request. The agent opens at the first one and stays open until the server ends. With
`"http": {"app": "worldagent.hosts.langgraph:app"}` the server drains it, so that running turns can resume later.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_sdk.runtime import ServerRuntime  # at run time: the server reads the annotations of `graph`

from ..agent.graph import refuse_sent
from ..core.errors import InvalidArgument
from .service.apps import made_agent, named_app

if TYPE_CHECKING:
    from ..agent import WorldAgent

APP: Final = "WORLDAGENT_APP"
"""The variable that names the agent as `MODULE:NAME`, as the option `--app` of the command line does."""

ACCOUNT: Final = "WORLDAGENT_ACCOUNT"
"""The variable with the account of a server that authenticates nobody."""

DRAIN_SECONDS: Final = 10.0  # for running turns to reach a point where they can resume


async def graph(runtime: ServerRuntime[Any]) -> Any:
    """Return the graph of the agent for one request of a server.

    Raises:
        RoleInvalid, InvalidArgument: The context of the run has a role, or names an account; the variable
            `WORLDAGENT_APP` is not set, or names no agent.
        WorldAgentError: The agent cannot be opened. The next request tries again.
    """
    running = runtime.execution_runtime
    if running is not None:
        sent = running.context or {}
        refuse_sent(sent.get("account"), sent.get("role"))
    agent = await _Held.here().agent()
    return agent.graph(account=os.environ.get(ACCOUNT) or None)


class _Held:
    """The agent of one event loop, which a task of its own holds open until that loop ends."""

    _all: ClassVar[dict[asyncio.AbstractEventLoop, _Held]] = {}

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[WorldAgent] = loop.create_future()
        self._end = asyncio.Event()
        # In a context of its own: that of the first request has its user and its graph.
        self._task = loop.create_task(self._hold(), context=Context())

    @classmethod
    def here(cls) -> _Held:
        """Return the agent of this event loop; it opens if no earlier request has opened it."""
        loop = asyncio.get_running_loop()
        if loop not in cls._all:
            cls._all[loop] = cls()
        return cls._all[loop]

    @classmethod
    async def drain(cls) -> None:
        """Close the agent of this event loop, if it is open; running turns can resume later."""
        held = cls._all.get(asyncio.get_running_loop())
        if held is not None:
            held._end.set()
            await asyncio.wait({held._task})

    async def agent(self) -> WorldAgent:
        """Return the agent once it is open.

        Raises:
            WorldAgentError: It cannot be opened.
        """
        return await asyncio.shield(self._opened)  # a request that is cancelled does not cancel the others

    async def _hold(self) -> None:
        try:
            agent = await asyncio.to_thread(_app)  # importing the app reads files
            async with agent:
                self._opened.set_result(agent)
                await self._end.wait()
                await agent.drain(DRAIN_SECONDS)
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
        finally:
            del self._all[asyncio.get_running_loop()]


def _app() -> WorldAgent:
    spec = os.environ.get(APP)
    if not spec:
        raise InvalidArgument(
            f"the variable {APP} does not name an agent",
            remedy=f'add "env": {{"{APP}": "shop:agent"}} to langgraph.json',
        )
    return made_agent(named_app(spec, APP), spec, APP)


@asynccontextmanager
async def _lifespan(_: object) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await _Held.drain()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from starlette.applications import Starlette  # it comes with the server

    return Starlette(lifespan=_lifespan)
