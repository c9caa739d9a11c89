"""Logins to MCP servers with OAuth in the browser: a path that begins one, and the path that the browser returns to.

The address to log in at is made for the caller who asks, and kept nowhere. What waits for a browser is in the memory of
this process, bound to its caller: nobody can end the login of another.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ...core.errors import InvalidArgument, WorldAgentError
from ...mcp_client.tools import Mcp
from ..service.arguments import WorkspaceArguments
from ..service.call import Caller, forbidden
from .errors import HttpRefused

if TYPE_CHECKING:
    from ...mcp_client.oauth import Return
    from ...mcp_client.tools import McpSource
    from .app import WebApp

MAX_WAITING: Final = 200
"""How many logins of a process can wait for a browser; the oldest makes room."""

FRESH_SECONDS: Final = 120.0
"""How long a caller who asks again gets the same address."""

_AGAIN: Final = "again"  # marks a request that a page of ours sent, with the cookies of the caller


class LoginArguments(WorkspaceArguments):
    """Arguments of `POST /oauth/start`."""

    server: str = Field(description="the MCP server to log in to")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A login that waits for a browser."""

    caller: Caller
    server: str
    back: Return
    link: asyncio.Future[str]
    began: float
    task: asyncio.Task[None] = field(init=False)

    def is_same(self, other: _Waiting) -> bool:
        """Whether it is for the same caller, and of the same server."""
        mine, others = self.caller, other.caller
        who = (mine.grant, mine.workspace, mine.account, self.server)
        return who == (others.grant, others.workspace, others.account, other.server)

    async def show(self, link: str) -> None:
        """Take the address at which the person logs in."""
        self.link.set_result(link)


class WebLogins:
    """The logins that wait for a browser.

    Args:
        web: The web app.
    """

    def __init__(self, web: WebApp) -> None:
        self._web = web
        self._waiting: list[_Waiting] = []

    def routes(self, body: Callable[[Request], Awaitable[dict[str, Any]]]) -> list[Route]:
        """Return the two paths.

        Args:
            body: Reads the JSON body of a request of a caller.
        """

        async def start(request: Request) -> Response:
            return await self._start(request, await body(request))

        return [
            Route("/oauth/start", self._web.checked(start), methods=["POST"]),
            Route("/oauth/callback", self._web.checked(self._returned), methods=["GET"]),
        ]

    def close(self) -> None:
        """Give all of them up."""
        for each in self._waiting:
            each.task.cancel()

    async def _start(self, request: Request, given: dict[str, Any]) -> Response:
        """Begin a login, and answer with the address at which the caller logs in."""
        from ...mcp_client.oauth import Return

        call = await self._web.call(request, LoginArguments, given)
        caller, name = call.caller, call.given.server
        async with self._web.parts.agents.use(caller.workspace) as agent:
            source: McpSource = agent.get(Mcp)[name]
            if caller.account is not None:
                source = source.of(caller.account)
        if source.account is None and not caller.grant.operator:
            raise forbidden("login of the workspace")
        loop = asyncio.get_running_loop()
        back = Return(f"{_origin(request)}/oauth/callback")
        made = self._begun(_Waiting(caller, name, back, loop.create_future(), loop.time()), source)
        first: set[asyncio.Future[Any]] = {made.link, made.task}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not made.link.done():
            raise await _outcome(made.task) or InvalidArgument(f"{name!r} needs no login now", remedy="use it")
        return JSONResponse({"contract": 1, "login": {"server": name, "link": made.link.result()}})

    def _begun(self, made: _Waiting, source: McpSource) -> _Waiting:
        """Begin a login, or find the one that its caller has just begun: a login can register a client."""
        for same in filter(made.is_same, self._waiting):
            if same.back.url == made.back.url and made.began - same.began < FRESH_SECONDS:
                return same
            same.task.cancel()
        for oldest in self._waiting[: len(self._waiting) + 1 - MAX_WAITING]:
            oldest.task.cancel()
        # The agent can be closed meanwhile. It is not in the context of this request, which ends sooner.
        work = source.log_in(made.show, nullcontext(made.back))
        made.task = asyncio.get_running_loop().create_task(work, context=Context())
        self._waiting.append(made)
        made.task.add_done_callback(lambda task: self._ended(made, task))
        return made

    async def _returned(self, request: Request) -> Response:
        """Take the answer of an authorization server, if it is for the caller."""
        given = dict(request.query_params)
        again = given.pop(_AGAIN, None) is not None
        found = next((each for each in self._waiting if each.back.is_for(given.get("state"))), None)
        if found is None:
            return _page(
                "This login is not known. It took too long, or the server has been restarted. Log in again.", 400
            )
        try:
            grant = await self._web.grant(request)
            await self._web.check_session(request, found.caller.workspace)
        except HttpRefused:
            # A browser that comes from another site brings no cookie of the session, but it does from a page of ours.
            return _page("Log in to this app, then begin again.", 401) if again else _same_again(request)
        if grant != found.caller.grant:
            what = "This login was begun by somebody else. Nothing was changed."
            return _page(f"{what} To log in yourself, begin again in the app.", 403)
        found.back.take(given)
        failure = await _outcome(found.task)
        if failure is not None:
            return _page(f"{failure.problem}; {failure.remedy}.", 400)
        return _page(
            f"You are logged in to {found.server!r}. Close this window, and continue where you were asked.", 200
        )

    def _ended(self, made: _Waiting, task: asyncio.Task[None]) -> None:
        self._waiting.remove(made)
        if not task.cancelled():
            task.exception()  # nobody waits for it if the time is over


async def _outcome(task: asyncio.Task[None]) -> WorldAgentError | None:
    """Wait for a login, and return why there is none."""
    await asyncio.wait({task})
    if task.cancelled():
        return InvalidArgument("the login was given up for others", remedy="begin it again")
    failure = task.exception()
    if failure is not None and not isinstance(failure, WorldAgentError):
        raise failure
    return failure


def _origin(request: Request) -> str:
    """The address of the app as the browser has it. Behind a proxy that ends TLS, only the page's origin says https."""
    origin, own = request.headers.get("origin", ""), f"{request.url.scheme}://{request.headers.get('host', '')}"
    root = request.scope.get("root_path", "")
    return f"{origin if origin.partition('://')[2] == own.partition('://')[2] else own}{root}"


def _same_again(request: Request) -> Response:
    query = request.url.include_query_params(**{_AGAIN: "1"}).query
    return _page("Please wait.", 200, head=f'<meta http-equiv=refresh content="0;url=?{html.escape(query)}">')


def _page(text: str, status: int, *, head: str = "") -> Response:
    from ...mcp_client.oauth import page

    content = page(text, head=head)
    return HTMLResponse(content, status, {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"})
