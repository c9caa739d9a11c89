"""The console: pages that show what agents do, for people. `static` has them; they call the paths of the web app.

Everything that a model, a tool or a person wrote is set as text, and the policy of the pages forbids inline code and
other origins, so hostile text stays text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sse_starlette import ServerSentEvent
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from ...agent import WorldAgent
from ...agent.runtime.inside import inside
from ...core.errors import WorldAgentError
from ..service.arguments import WorkspaceArguments
from ..service.call import Grant, Refused
from ..service.members import society_of
from ..service.operation import is_owner
from ..service.operations import of_others
from ..service.society import society_graph, society_spawns
from ..service.threads import reached_threads
from .errors import HttpRefused
from .turns import EventStream, WebCall, begun

if TYPE_CHECKING:
    from .app import WebApp

STATIC: Final = Path(__file__).parent / "static"
LIVE_SECONDS: Final = 1.0  # between two looks for changes
LIVE_THREADS: Final = 100  # threads whose changes are noticed
LIVE_EVENTS: Final = 20
LIVE_REPORTS: Final = 50  # newest reports of work in the background
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def console_routes(web: WebApp) -> list[BaseRoute]:
    """Return the pages and the paths that only they need."""
    looks = _Looks(web)

    async def live(request: Request) -> Response:
        """Tell what has changed since, by the names of the pages that show it, and the newest reports of work."""
        call = await web.call(request, WorkspaceArguments, dict(request.query_params))
        return EventStream(await begun(_changes(web, looks, call, request)), web.parts.limits)

    async def index(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/console/")

    pages = {name: each.page for name, each in of_others().items() if each.page is not None}

    async def more(request: Request) -> Response:
        """The names of the capabilities of other packages that have a page."""
        return JSONResponse([*pages])

    async def page(request: Request) -> Response:
        found = pages.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return FileResponse(found, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    return [
        Route("/live", web.checked(live), methods=["GET"]),
        Route("/console/capabilities", more, methods=["GET"]),
        Route("/console/capabilities/{name}.js", page, methods=["GET"]),
        Route("/", index, methods=["GET"]),
        Route("/console", index, methods=["GET"]),
        Mount("/console", _Pages(directory=STATIC, html=True)),
    ]


class _Pages(StaticFiles):
    """The files of the pages, with their policy."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = _POLICY
                headers["Cache-Control"] = "no-cache"
            await send(message)

        await super().__call__(scope, receive, sent)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a caller sees.

    Attributes:
        digests: One of what each page shows, by its name.
        reports: The newest reports of work in the background, oldest first.
    """

    digests: dict[str, str]
    reports: list[dict[str, Any]]


class _Looks:
    """Looks for changes, each for all streams of a caller together: a person can have the console open in many tabs."""

    def __init__(self, web: WebApp) -> None:
        self._agents = web.parts.agents
        self._last: dict[tuple[str, str | None, Grant], tuple[float, asyncio.Task[_Seen]]] = {}

    async def look(self, call: WebCall[Any]) -> _Seen:
        """Return what was seen less than `LIVE_SECONDS` ago.

        Raises:
            Refused, WorldAgentError: The server ends, or its database cannot be reached now.
        """
        caller, now = call.caller, time.monotonic()
        self._last = {each: one for each, one in self._last.items() if now - one[0] < LIVE_SECONDS}
        key = (caller.workspace, caller.account, caller.grant)
        if key not in self._last:
            # Not in the context of this stream, which can end while others wait.
            self._last[key] = now, self._agents.spawn(self._look(call), context=Context())
        return await asyncio.shield(self._last[key][1])

    async def _look(self, call: WebCall[Any]) -> _Seen:
        async with self._agents.use(call.caller.workspace) as agent:
            reports = await _reports(call, agent)
            looks = {"threads": (await _threads(call, agent), reports), "society": await _society(call, agent)}
            return _Seen({name: _digest(seen) for name, seen in looks.items()}, reports)


async def _changes(web: WebApp, looks: _Looks, call: WebCall[Any], request: Request) -> AsyncGenerator[ServerSentEvent]:
    # The first notice names every page: something may have changed since the page loaded, or while it was away.
    before = _Seen({}, [])
    with web.parts.agents.reader(call.caller.workspace, call.caller.account):
        while not web.parts.ending.is_set():
            try:
                await web.check_session(request, call.caller.workspace)
                now = await looks.look(call)
            except (Refused, WorldAgentError):
                if not before.digests:
                    raise
                now = before
            except HttpRefused:  # the person has logged out
                return
            changed = [name for name, one in now.digests.items() if one != before.digests.get(name)]
            if changed:
                yield ServerSentEvent(data=json.dumps({"changed": changed, "reports": now.reports}), sep="\n")
            before = now
            await asyncio.sleep(LIVE_SECONDS)


def _digest(seen: Any) -> str:
    return hashlib.sha256(json.dumps(seen, default=str).encode()).hexdigest()


async def _threads(call: WebCall[Any], agent: WorldAgent) -> Any:
    grant = call.caller.grant
    states = await reached_threads(grant, agent, limit=LIVE_THREADS, archived=None)
    waiting = await inside(agent).stores.inbox.places(agent.workspace)
    return [each for each in waiting if grant.allows_thread(each[0])], [
        (state.thread, state.turn_id, state.status, state.pauses, state.answers, state.title, state.archived)
        for state in states
    ]


async def _reports(call: WebCall[Any], agent: WorldAgent) -> list[dict[str, Any]]:
    grant, background = call.caller.grant, inside(agent).stores.background
    found = await background.told(agent.workspace, call.caller.account, limit=LIVE_REPORTS)
    return [
        {"id": each.id, "thread": each.to.name, "task": each.to.task, "name": each.to.of, "status": each.status}
        for each in found
        if grant.allows_thread(each.to.name)
    ]


async def _society(call: WebCall[Any], agent: WorldAgent) -> Any:
    society = society_of(agent)
    if society is None or not (call.caller.grant.operator or is_owner(call, society)):
        return None
    events = await society.events.list(limit=LIVE_EVENTS)
    briefs = await society.board.list(limit=LIVE_EVENTS)
    shown = await society_graph(call, agent), await society_spawns(call, agent), events, briefs
    return repr(shown)
