"""The web app: finds the caller of a request, checks its arguments, and answers with a record or a stream."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ...agent import WorldAgent
from ...core.bounds import Bounds, OutOfBounds
from ...core.errors import AgentClosed, AttachmentInvalid, InvalidArgument, MissingExtra, WorldAgentError
from ..bounds import CALL
from ..service.arguments import WorkspaceArguments
from ..service.call import Call, Caller, CallFacts, Grant, Refused, with_own_thread
from ..service.pool import Agents, Limits
from ..service.records import Answer
from ..service.validation import validated
from ..serving import Tokens
from ..sidecar import Sidecar
from ..sidecar.following import SidecarParts
from .ag_ui import ag_ui_routes
from .console import console_routes
from .errors import HttpRefused, error_response, internal
from .logins import WebLogins
from .openai import openai_routes
from .routes import ENDPOINTS, Endpoint, openapi
from .security import LOOPBACK, Guard, Login, grant_of
from .sessions import Sessions
from .turns import (
    Failed,
    WebCall,
    add_attachment,
    check_attachment,
    failed,
    follow_turn,
    run_turn,
    turn_response,
    wants_stream,
)

MAX_BODY_BYTES: Final = 4 << 20
DRAIN_SECONDS: Final = 5.0
_JSON: Final = "application/json"
_UNTYPED: Final = ("", "application/x-www-form-urlencoded")  # the second is what curl says of every body

_BAD_BODY: Final = (400, 413, 415)  # statuses of requests that are refused for what they send

log = logging.getLogger("worldagent.web")


class WebApp:
    """All surfaces of agents over HTTP, as an ASGI app.

    Mount it in another app, and let that app's lifespan open it: `FastAPI(lifespan=web.lifespan)` and
    `app.mount("/agent", web)`. Or run it by itself: `uvicorn module:web`.

    Args:
        agents: The agent, not yet open, which the app opens and closes; or a function that makes the agent of a
            workspace, for several. A `Sidecar`, to serve its agents to its callers over both.
        login: Says who sends a request, from your own login: the id of an account, which then reaches only its own
            threads; a `Grant`; or None for a person who is not logged in. It can be `async`.
        tokens: The tokens that are accepted as `Authorization: Bearer TOKEN`, each with its grant.
        grant: What every caller of this machine can use if there is neither `login` nor `tokens`.
        limits: The limits of this process, among them those of an account; None means `Limits()`. A `Sidecar` brings
            its own.
        origins: Origins of other apps whose pages can call this one, such as `https://app.example.com`.
        names: The names of hosts, without a port, under which it is reached. None accepts every name, or only those of
            this machine if there is neither `login` nor `tokens`.
        console: Whether it has the pages at `/console`.
        a2a: The members that callers reach as agents of A2A, at `/a2a/MEMBER`.

    Raises:
        MissingExtra: `a2a` names members, and the extra `a2a` is not installed.
        InvalidArgument: None of `login`, `tokens` and `grant` says who can call.
    """

    def __init__(
        self,
        agents: WorldAgent | Callable[[str], WorldAgent] | Sidecar,
        *,
        login: Login | None = None,
        tokens: Tokens[Grant] | None = None,
        grant: Grant | None = None,
        limits: Limits | None = None,
        origins: Collection[str] = (),
        names: Collection[str] | None = None,
        console: bool = True,
        a2a: Collection[str] = (),
    ) -> None:
        if login is None and tokens is None and grant is None:
            raise InvalidArgument(
                "a web app must know who calls it",
                remedy="pass `login`, a function that returns the account of a request, or `tokens`",
            )
        self._login, self._grant = login, grant
        self.workspace = agents.workspace if isinstance(agents, WorldAgent) else None
        self.console = console
        self._offered = tuple(a2a)
        self._owned = not isinstance(agents, Sidecar)
        self.parts = agents.parts if isinstance(agents, Sidecar) else _parts(agents, limits or Limits())
        self._sessions = None if tokens is None else Sessions(tokens, self.parts.agents)
        self._logins = WebLogins(self)
        if names is None and login is None and tokens is None:
            names = LOOPBACK
        middleware = [Middleware(Guard, origins=origins, names=names)]
        if origins:
            cors = Middleware(
                CORSMiddleware,
                allow_origins=list(origins),
                allow_credentials=True,
                allow_methods=["*"],
                allow_headers=["*"],
            )
            middleware.append(cors)
        self._app = Starlette(
            routes=[*self._routes(), *(console_routes(self) if console else ())],
            middleware=middleware,
            lifespan=self.lifespan,
            exception_handlers={404: _not_found, 405: _not_allowed},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Open the agent, and close it after the block; turns then stop at their next step and can be resumed."""
        if self.workspace is not None:
            async with self.parts.agents.use(self.workspace):
                pass
        try:
            yield
        finally:
            self._logins.close()
            if self._owned:
                self.parts.ending.set()
                await self.parts.agents.drain(DRAIN_SECONDS)

    async def grant(self, request: Request) -> Grant:
        """Return what the sender of a request can use.

        Raises:
            HttpRefused: The sender is unknown.
        """
        if self._sessions is None and self._login is None:
            assert self._grant is not None, "the constructor requires one of the three"
            return self._grant
        if not hasattr(request.state, "grant"):
            request.state.grant = await grant_of(
                request, sessions=self._sessions, login=self._login, workspace=self.workspace
            )
        found: Grant = request.state.grant
        return found

    async def call(self, request: Request, model: type[WorkspaceArguments], given: Mapping[str, Any]) -> WebCall[Any]:
        """Check the arguments of a request and whether its sender reaches what they name.

        Args:
            request: The request.
            model: The model of the arguments.
            given: The arguments.

        Raises:
            HttpRefused: The sender is unknown.
            Refused: The sender does not reach what the arguments name.
            InvalidArgument: The arguments are invalid.
        """
        grant = await self.grant(request)
        texts = request.method in ("GET", "DELETE")
        arguments = validated(model, given, texts=texts)
        caller = grant.caller(arguments.workspace, arguments.account)
        await self.check_session(request, caller.workspace)
        facts = CallFacts(workspace=caller.workspace)
        arguments = with_own_thread(grant, arguments, facts)
        return WebCall(given=arguments, caller=caller, facts=facts, parts=self.parts)

    async def check_session(self, request: Request, workspace: str) -> None:
        """Make sure that the sender has not logged out since, in any process.

        Raises:
            HttpRefused: It has.
        """
        if self._sessions is not None:
            await self._sessions.check(request, workspace)

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route(each.path, self._answering(each), methods=[each.method], name=each.operation.name)
            for each in ENDPOINTS
        ]
        return [
            *routes,
            Route("/me", self.checked(self._me), methods=["GET"]),
            Route("/login", self.checked(self._log_in), methods=["POST"]),
            Route("/logout", self.checked(self._log_out), methods=["POST"]),
            Route("/attachments", self.checked(self._attach), methods=["POST"]),
            Route("/attachments/{sha256}", self.checked(self._attachment), methods=["GET"]),
            Route("/openapi.json", self.checked(self._openapi), methods=["GET"]),
            *self._logins.routes(self._body_of_caller),
            *openai_routes(self, self.checked, self._body_of_caller),
            *ag_ui_routes(self, self.checked, self._body_of_caller),
            *(self._a2a_routes() if self._offered else ()),
        ]

    def _a2a_routes(self) -> list[Route]:
        try:
            from ..a2a import a2a_routes  # few apps offer members
        except ImportError:
            raise MissingExtra(
                "members are offered over A2A, and the extra 'a2a' is not installed",
                remedy="pip install 'worldagent[a2a]'",
            ) from None
        how: dict[str, Any] = {"caller_of": self._caller, "checked": self.checked, "body": self._raw_body_of_caller}
        return a2a_routes(self._offered, self.parts, **how)

    async def _caller(self, request: Request) -> Caller:
        """Return who sends a request that names neither a workspace nor an account."""
        caller = (await self.grant(request)).caller(self.workspace, None)
        await self.check_session(request, caller.workspace)
        return caller

    async def _raw_body_of_caller(self, request: Request) -> bytes:
        """Return the body of a request that another library reads, within bounds."""
        self.parts.agents.refusals.check(await self.grant(request))
        return await read_bytes(request, CALL)

    async def _body_of_caller(self, request: Request, bounds: Bounds = CALL) -> dict[str, Any]:
        """Return the JSON object in the body of a request, which counts if it is refused."""
        grant = await self.grant(request)
        self.parts.agents.refusals.check(grant)
        request.state.counted = grant
        return await read_object(request, bounds)

    def _answering(self, endpoint: Endpoint) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            await self.grant(request)  # before anything is read
            body = await self._body_of_caller(request) if endpoint.has_body else {}
            given = {**_query(request, endpoint), **body, **request.path_params}
            if endpoint.operation.kind == "events" and "last-event-id" in request.headers:
                given["after"] = request.headers["last-event-id"]
            call = await self.call(request, endpoint.arguments, given)
            if endpoint.operation.kind == "turn":
                return await turn_response(request, run_turn(call), call)
            if endpoint.operation.kind == "events" and wants_stream(request):
                return await turn_response(request, follow_turn(call), call)
            return JSONResponse((await self._run(call, endpoint.run)).model_dump(mode="json"))

        return self.checked(answer)

    async def _run(self, call: Call[Any], run: Callable[[Any, WorldAgent], Any]) -> Answer:
        async with self.parts.agents.use(call.caller.workspace) as agent:
            try:
                answer: Answer = await run(call, agent)
                return answer
            except WorldAgentError as error:
                failure = await failed(call, agent, error)
        raise failure

    def checked(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that answers with the record of an error, and logs a line for each request."""

        async def checked(request: Request) -> Response:
            began = time.perf_counter()
            code, response = await self._answered(request, answer)
            ms = (time.perf_counter() - began) * 1000
            # The path as the table has it: that of the request, and its query, can have what a person wrote.
            log.info("%s %s %s %.1f ms", request.method, path_of(request), code, ms)
            return response

        return checked

    async def _answered(self, request: Request, answer: Callable[[Request], Any]) -> tuple[str, Response]:
        """Return `ok` or the code of the error, and the response."""
        failure: WorldAgentError | Refused
        advice: Mapping[str, Any] = {}
        status: int | None = None
        try:
            return "ok", await answer(request)
        except HttpRefused as refused:
            if refused.status in _BAD_BODY:
                self._count_refused(request)
            return refused.code, refused.response()
        except Failed as error:
            failure, advice, status = error.failure, error.advice, error.status
        except AgentClosed as error:
            failure = self.parts.agents.refusal() if self.parts.agents.draining else error
        except (WorldAgentError, Refused) as error:
            if isinstance(error, InvalidArgument):
                self._count_refused(request)
            failure = error
        except Exception as error:  # broad: custom code runs below; the text can hold what the client sent
            log.error("a request failed: %s", type(error).__name__)
            failure = internal()
        return failure.code, error_response(failure, advice, status=status)

    def _count_refused(self, request: Request) -> None:
        if hasattr(request.state, "counted"):
            self.parts.agents.refusals.note(request.state.counted)

    # --- endpoints that no tool of the sidecar has --------------------------------------------------------------------

    async def _me(self, request: Request) -> Response:
        """Who the caller is, as this app sees it."""
        call = await self.call(request, WorkspaceArguments, dict(request.query_params))
        caller = call.caller
        return JSONResponse(
            {
                "contract": 1,
                "workspace": caller.workspace,
                "account": caller.account,
                "operator": caller.grant.operator,
                "thread_prefix": caller.grant.new_thread(""),
                "session": getattr(request.state, "session", None) is not None,
            }
        )

    async def _log_in(self, request: Request) -> Response:
        """Exchange a token for a session cookie, so that a page need not keep the token."""
        body = await read_object(request)
        if self._sessions is None:
            raise HttpRefused(
                401, "invalid_token", "the token is not accepted", "log in to the app that has these pages"
            )
        return await self._sessions.log_in(request, body.get("token"))

    async def _log_out(self, request: Request) -> Response:
        """End the sessions of the caller's token."""
        body = await read_object(request)
        if self._sessions is None:
            return JSONResponse({"contract": 1, "logged_in": False})
        return await self._sessions.log_out(request, body.get("workspace"))

    async def _attach(self, request: Request) -> Response:
        """Store the body of the request, to attach to a message later."""
        query = dict(request.query_params)
        name = query.pop("name", None)
        call = await self.call(request, WorkspaceArguments, query)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        async with self.parts.agents.use(call.caller.workspace) as agent:
            data = await _read(request, agent.attachments.limit)
            if not data:
                raise AttachmentInvalid("the request has no content", remedy="send the file as the body of the request")
            media_type = None if kind in _UNTYPED else kind
            stored = await add_attachment(call.caller, agent, data, name=name, media_type=media_type)
        return JSONResponse({"contract": 1, "attachment": stored.to_json()})

    async def _attachment(self, request: Request) -> Response:
        """The content of an attachment, which a browser saves and does not show."""
        call = await self.call(request, WorkspaceArguments, dict(request.query_params))
        async with self.parts.agents.use(call.caller.workspace) as agent:
            await check_attachment(call.caller, agent, request.path_params["sha256"])
            data = await agent.attachments.read(request.path_params["sha256"])
        headers = {"Content-Disposition": "attachment", "Content-Security-Policy": "sandbox; default-src 'none'"}
        return Response(data, media_type="application/octet-stream", headers=headers)

    async def _openapi(self, request: Request) -> Response:
        """The OpenAPI document, which is public."""
        servers = [{"url": request.scope.get("root_path") or "/"}]
        return JSONResponse({**openapi(), "servers": servers})


def _parts(agents: WorldAgent | Callable[[str], WorldAgent], limits: Limits) -> SidecarParts:
    def one(workspace: str) -> WorldAgent:
        assert isinstance(agents, WorldAgent)
        return agents

    make = one if isinstance(agents, WorldAgent) else agents
    return SidecarParts(agents=Agents(make, limits), limits=limits, ending=asyncio.Event())


def path_of(request: Request) -> str:
    """Return the path of a request as the table of paths has it, with names in the place of values."""
    route = request.scope.get("route")
    return route.path if isinstance(route, Route) else ""


def _query(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    query = request.query_params
    many = {name for name, field in endpoint.arguments.model_fields.items() if "list[" in str(field.annotation).lower()}
    return {name: query.getlist(name) if name in many and not endpoint.has_body else query[name] for name in query}


async def read_object(request: Request, bounds: Bounds = CALL) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Args:
        request: The request.
        bounds: What the body can have.

    Raises:
        HttpRefused: The body is too large, has too many values, or is of another type.
        InvalidArgument: It is not a JSON object.
    """
    data = await read_bytes(request, bounds)
    if not data:
        return {}
    found: Any = None
    with suppress(ValueError, RecursionError):  # their messages quote the body
        found = json.loads(data)
    await asyncio.sleep(0)  # what checks it gets a step of the event loop of its own
    if not isinstance(found, dict):
        raise InvalidArgument("the body must be a JSON object", remedy="send one in UTF-8")
    return found


async def read_bytes(request: Request, bounds: Bounds) -> bytes:
    """Return the JSON text in the body of a request, which is not read yet.

    Args:
        request: The request.
        bounds: What the body can have.

    Raises:
        HttpRefused: The body is too large, has too many values, or is of another type.
    """
    data = await _read(request, MAX_BODY_BYTES)
    if not data:
        return data
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise HttpRefused(
            415, "unsupported_media_type", "the body must be JSON", f"send the header `Content-Type: {_JSON}`"
        )
    refusal = None  # raised outside the handler, so that its traceback has no frame with the body
    try:
        await bounds.check(data)
    except OutOfBounds as error:
        refusal = HttpRefused(413, "too_large", f"the body has {error}", error.remedy)
    if refusal is not None:
        raise refusal
    return data


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise HttpRefused(413, "too_large", f"the body has more than {limit:,} bytes", "send less at once")
        parts.append(part)
    return b"".join(parts)


async def _not_found(request: Request, error: Exception) -> Response:
    return HttpRefused(
        404, "not_found", "there is no such path", "see /openapi.json for the paths of this server"
    ).response(request.scope)


async def _not_allowed(request: Request, error: Exception) -> Response:
    return HttpRefused(
        405, "method_not_allowed", "the path does not take this method", "see /openapi.json for what it takes"
    ).response(request.scope)
