"""Logging in with a token, the cookie that stands for it, and logging out.

A cookie is signed with its token and kept nowhere, so every process accepts it. What is stored is when somebody last
logged out with a token: sessions of the token that began before have ended. It is in the databases of the agents that
the token reaches, where other processes find it, and later ones.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from math import ceil
from time import monotonic, time_ns
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from ...agent.runtime.inside import inside
from ..service.call import Grant, reaches
from ..service.pool import Agents
from ..serving import Session, Tokens
from .errors import HttpRefused, not_logged_in

SESSION_COOKIE: Final = "worldagent_session"
SESSION_SECONDS: Final = 12 * 3600

FREE_ATTEMPTS: Final = 5  # wrong tokens of an address without a delay
LONGEST_DELAY: Final = 60.0  # seconds
FORGOTTEN: Final = 600.0  # seconds without a wrong token after which an address begins anew
_ADDRESSES: Final = 10_000


class Sessions:
    """The sessions of tokens.

    Args:
        tokens: The tokens that are accepted.
        agents: Their databases say which sessions have ended.

    Attributes:
        tokens: The argument `tokens`.
    """

    def __init__(self, tokens: Tokens[Grant], agents: Agents) -> None:
        self.tokens = tokens
        self._agents = agents
        self._ended: dict[str, int] = {}  # by key of the token
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how many, and when the last one came

    async def log_in(self, request: Request, token: object) -> JSONResponse:
        """Exchange a token for a session, in a cookie that scripts cannot read.

        Raises:
            HttpRefused: The token is not accepted, or the address has sent too many wrong ones just now.
        """
        address = _network(request)
        self._check_delay(address)
        access = await self.tokens.verify_token(token) if isinstance(token, str) else None
        if access is None:
            self._note_wrong(address)
            raise HttpRefused(401, "invalid_token", "the token is not accepted", "send one that this server accepts")
        assert isinstance(token, str)
        response = JSONResponse({"contract": 1, "logged_in": True})
        # Behind a proxy that ends TLS, only the page's origin may tell.
        secure = "https" in (request.url.scheme, request.headers.get("origin", "").partition(":")[0])
        response.set_cookie(
            SESSION_COOKIE,
            self.tokens.session(token, began=_now()),
            max_age=SESSION_SECONDS,
            path=_path(request),
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return response

    def grant_of(self, request: Request) -> Grant | None:
        """Return the grant of a request's session; None without one, and for one that has ended as far as known here.

        `check` finds out the rest, once the workspace is known.
        """
        request.state.session = session = self._session(request)
        return None if session is None else session.grant

    async def check(self, request: Request, workspace: str) -> None:
        """Make sure that the request's session, if it has one, has not ended in another process.

        Args:
            request: The request.
            workspace: The workspace that it calls.

        Raises:
            HttpRefused: It has ended.
        """
        session: Session[Grant] | None = getattr(request.state, "session", None)
        if session is None:
            return
        async with self._agents.use(workspace) as agent:
            ended = await inside(agent).stores.leases.epoch(_key(session))
        if session.began <= ended:
            self._ended[session.key] = ended
            raise not_logged_in(accepts_tokens=True)

    async def log_out(self, request: Request, workspace: object) -> JSONResponse:
        """End all sessions of the token with which the request's session began.

        Args:
            request: The request.
            workspace: The workspace that it names, if any.
        """
        session = self._session(request)
        if session is not None:
            self._ended[session.key] = now = max(_now(), session.began)
            given = [*session.grant.workspaces] if len(session.grant.workspaces) == 1 else []
            names = {workspace, *given, *(agent.workspace for agent in self._agents.opened())}
            for name in names:
                if isinstance(name, str) and reaches(name, session.grant.workspaces):
                    async with self._agents.use(name) as agent:
                        await inside(agent).stores.leases.raise_epoch(_key(session), now)
        response = JSONResponse({"contract": 1, "logged_in": False})
        response.delete_cookie(SESSION_COOKIE, path=_path(request), samesite="strict")
        return response

    def _session(self, request: Request) -> Session[Grant] | None:
        session = self.tokens.session_of(request.cookies.get(SESSION_COOKIE, ""))
        if session is None or _now() >= session.began + 1000 * SESSION_SECONDS:
            return None
        return None if session.began <= self._ended.get(session.key, 0) else session

    def _check_delay(self, address: str) -> None:
        count, last = self._wrong.get(address, (0, 0.0))
        delay = min(2.0 ** (count - FREE_ATTEMPTS), LONGEST_DELAY) if count >= FREE_ATTEMPTS else 0.0
        left = last + delay - monotonic()
        if delay and left > 0:
            seconds = ceil(left)
            problem, remedy = "too many wrong tokens came from this address", f"try again in {seconds} s"
            raise HttpRefused(429, "too_many_logins", problem, remedy, retryable=True, retry_after=seconds)

    def _note_wrong(self, address: str) -> None:
        now = monotonic()
        count, last = self._wrong.pop(address, (0, now))
        # No more than is needed for the longest delay, so the number stays small.
        self._wrong[address] = (1 if now - last > FORGOTTEN else min(count + 1, 2 * FREE_ATTEMPTS + 1), now)
        while len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)


def _now() -> int:
    return time_ns() // 1_000_000


def _key(session: Session[Grant]) -> str:
    return f"session {session.key}"


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


def _network(request: Request) -> str:
    """Return the address of a client; of an IPv6 address the network, in which one client has very many."""
    host = "" if request.client is None else request.client.host
    try:
        return str(ipaddress.ip_network((host, 64), strict=False)) if ":" in host else host
    except ValueError:
        return host
