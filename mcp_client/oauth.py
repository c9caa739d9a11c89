"""Gets the tokens of a login, renews them, and sends them to an MCP server. The flows are those of the MCP library.

The library's own provider is not used on a connection: it sends one request at a time, keeps neither the time at which
a token expires nor the authorization server's metadata over a restart, and starts a login where a renewal would do. So
the provider logs in and renews, and `LoginAuth` sends the tokens. Texts of servers are in no error, as they can hold a
token or a code.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from pydantic import AnyUrl, BaseModel

from ..core import Clock
from .hosts import NOT_RENEWED, Failure, Failures, HttpHost
from .logins import KeptLogin, Login, LoginRecord, is_protected
from .tls import trusted
from .transports import FIRST_TRY, bound_body, quiet_context, replace_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

Show = Callable[[str], Awaitable[None]]
"""Shows the address at which a person logs in."""

LOGIN_SECONDS: Final = 300.0
"""How long a person has to log in."""

_SECONDS: Final = 20.0  # of one request to an authorization server
_PROTOCOL: Final = "2025-11-25"
_CALLBACK: Final = "/callback"
_LONGEST_LINE: Final = 16 << 10
_TAKEN: Final = "Go back to where you began: it says whether you are logged in. You can close this window."
_STRANGE: Final = "This is not the login that waits. Open the address that was shown last."
_HEAD: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>worldagent</title>"
    '<meta name=viewport content="width=device-width"><meta name=color-scheme content="light dark">'
)
# Asked without a token, so that the server answers with 401 and says where to log in.
_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_HEADERS: Final = {"Accept": "application/json, text/event-stream", MCP_PROTOCOL_VERSION_HEADER: _PROTOCOL}


class _Refused(Exception):
    """The person, or the authorization server, refused the login."""


class _Misled(OAuthFlowError):
    """The MCP server leads to another authorization server or client than the login allows."""


class _Memory:
    """The library's storage of a login, which is kept only when it is complete."""

    def __init__(self, tokens: OAuthToken | None = None, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens = tokens
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class _Provider(OAuthClientProvider):
    """Applies a login to what the library discovered, before anything is sent to the authorization server."""

    login: Login

    async def _perform_authorization(self) -> httpx2.Request:
        self._fit()
        return await super()._perform_authorization()

    def _fit(self) -> None:
        """Apply the login.

        Raises:
            _Misled: It is another authorization server or client than the login allows.
        """
        context, login = self.context, self.login
        client, server = context.client_info, context.oauth_metadata
        if login.client_id is not None and (client is None or client.client_id != login.client_id):
            raise _Misled("another client")
        if login.issuer is not None and (server is None or not issuers_match(str(server.issuer), login.issuer)):
            raise _Misled("another authorization server")
        if login.scope is not None:
            context.client_metadata.scope = login.scope  # the library takes the scopes that the server asks for
        methods = (server and server.token_endpoint_auth_methods_supported) or ()
        if client is not None and login.client_secret is not None and methods and "client_secret_basic" not in methods:
            client.token_endpoint_auth_method = "client_secret_post"


class _Person(_Provider):
    """Logs a person in, and renews the tokens."""

    def __init__(self, url: str, login: Login, memory: _Memory, redirect: str, **handlers: Any) -> None:
        asked = OAuthClientMetadata(
            redirect_uris=[AnyUrl(redirect)],
            client_name="worldagent",
            token_endpoint_auth_method="none",
            scope=login.scope,
        )
        super().__init__(url, asked, memory, client_metadata_url=login.client_metadata, **handlers)
        self.login = login

    async def renew(self, record: LoginRecord, client: httpx2.AsyncClient) -> int:
        """Use the refresh token of a record, and return the status of the answer."""
        await self._initialize()
        context = self.context
        context.protocol_version = _PROTOCOL
        context.oauth_metadata = _of(OAuthMetadata, record.server)
        context.protected_resource_metadata = _of(ProtectedResourceMetadata, record.resource)
        self._fit()
        response = await client.send(await self._refresh_token())
        if not await self._handle_refresh_response(response) and response.is_success:
            raise OAuthTokenError("the answer is not one of tokens")
        return response.status_code


class _Program(_Provider, ClientCredentialsOAuthProvider):
    """Logs the program itself in."""

    def __init__(self, url: str, login: Login, memory: _Memory) -> None:
        assert login.client_id is not None
        assert login.client_secret is not None
        super().__init__(url, memory, login.client_id, login.client_secret, scope=login.scope, issuer=login.issuer)
        self.login = login


def _of(kind: type[Any], value: Mapping[str, Any] | None) -> Any:
    return None if value is None else kind.model_validate(value)


def _json(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _record(provider: OAuthClientProvider, memory: _Memory, clock: Clock) -> LoginRecord:
    tokens, context = memory.tokens, provider.context
    assert tokens is not None
    return LoginRecord(
        tokens=_json(tokens),
        client=_json(context.client_info) or {},
        server=_json(context.oauth_metadata),
        resource=_json(context.protected_resource_metadata),
        expires=None if tokens.expires_in is None else clock.now().timestamp() + tokens.expires_in,
    )


def _client(url: str, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client for requests to the authorization server that the MCP server at `url` names."""

    async def asked(request: httpx2.Request) -> None:
        if not is_protected(str(request.url), beside=url):
            raise _Misled("an address without https")

    async def answered(response: httpx2.Response) -> None:
        bound_body(response)

    return httpx2.AsyncClient(
        auth=auth,
        verify=trusted(),
        timeout=_SECONDS,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"request": [asked], "response": [answered]},
    )


async def _ask(host: HttpHost, provider: OAuthClientProvider) -> None:
    """Send a request for which the server needs a login, so that the library gets the tokens."""
    async with _client(host.url, provider) as client:
        await client.post(host.url, json=_PING, headers={**host.headers, **_HEADERS})


# --- on a connection --------------------------------------------------------------------------------------------------


class LoginAuth(httpx2.Auth):
    """Sends the token of a login with each request, and renews it when it has expired or the server refuses it.

    Without a login, or if it is over, the server's refusal is the answer. A login that another process makes is found,
    and one that it removes is not used any more.

    Args:
        host: The server.
        login: How to log in.
        kept: Where the login is.
        clock: Decides whether a token has expired.
    """

    def __init__(self, host: HttpHost, login: Login, kept: KeptLogin, clock: Clock) -> None:
        self._host = host
        self._login = login
        self._kept = kept
        self._clock = clock
        self._held: LoginRecord | None = None
        self._stamp = 0
        self._one = asyncio.Lock()
        self._working: set[asyncio.Task[str | None]] = set()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        sent, failed = await self._token()
        request.extensions[FIRST_TRY] = True
        response = yield _with(request, sent)
        del request.extensions[FIRST_TRY]
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            return
        token = None
        if not failed:
            token, failed = await self._token(refused=sent)
        if token is None:
            replace_answer(response, {"code": NOT_RENEWED if failed else HTTPStatus.UNAUTHORIZED.value})
        else:
            yield _with(request, token)

    async def aclose(self) -> None:
        """Wait for renewals: the refresh token that one of them has used is of no use to anybody."""
        if self._working:
            await asyncio.wait(set(self._working))

    async def _token(self, *, refused: str | None = None) -> tuple[str | None, bool]:
        """A token other than the refused one, and whether getting one failed for now."""
        if (stamp := self._kept.stamp) != self._stamp:
            self._held, self._stamp = None, stamp  # somebody has logged in or out
        found = self._valid(self._held, refused)
        if found is not None:
            return found, False
        task = asyncio.create_task(self._next(refused))
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        try:
            # A caller that stops waiting must not stop it: the new tokens would be lost.
            return await asyncio.shield(task), False
        except Exception:  # any error: of the network, of storage, or of the library
            return None, True

    def _valid(self, record: LoginRecord | None, refused: str | None) -> str | None:
        found = None if record is None else record.token(self._clock.now())
        return None if found == refused else found

    async def _next(self, refused: str | None) -> str | None:
        async with self._one:
            if (found := self._valid(await self._read(), refused)) is not None:
                return found
            if self._login.by != "client" and (self._held is None or not self._held.renewable):
                return None
            async with self._kept.locked():
                if (found := self._valid(await self._read(), refused)) is None:
                    await self._renew()
                    found = self._valid(self._held, refused)
                return found

    async def _read(self) -> LoginRecord | None:
        self._held = await self._kept.read()
        return self._held

    async def _renew(self) -> None:
        """Get new tokens and keep them. If the authorization server refuses, there are none."""
        held = await (self._of_program() if self._login.by == "client" else self._refreshed(self._held))
        if held is not None:
            await self._kept.write(held)
        self._held = held

    async def _of_program(self) -> LoginRecord | None:
        memory = _Memory()
        provider = _Program(self._host.url, self._login, memory)
        with contextlib.suppress(OAuthTokenError):
            await _ask(self._host, provider)
        return None if memory.tokens is None else _record(provider, memory, self._clock)

    async def _refreshed(self, past: LoginRecord | None) -> LoginRecord | None:
        if past is None or not past.renewable:
            return past
        client = _registered(self._login) or _of(OAuthClientInformationFull, past.client)
        memory = _Memory(_of(OAuthToken, past.tokens), client)
        provider = _Person(self._host.url, self._login, memory, f"http://127.0.0.1{_CALLBACK}")
        async with _client(self._host.url) as sending:
            status = await provider.renew(past, sending)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise OAuthTokenError("not now")
        if status >= HTTPStatus.BAD_REQUEST:
            return past.model_copy(update={"tokens": None})
        return _record(provider, memory, self._clock)


def _with(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


# --- a person logs in -------------------------------------------------------------------------------------------------


async def log_in(
    host: HttpHost,
    login: Login,
    kept: KeptLogin,
    failures: Failures,
    *,
    clock: Clock,
    show: Show,
    back: AbstractAsyncContextManager[Return],
    seconds: float = LOGIN_SECONDS,
) -> None:
    """Log in, and keep the tokens.

    Args:
        host: The server.
        login: How to log in.
        kept: Where the login is kept.
        failures: Makes the errors.
        clock: Says when the tokens expire.
        show: Shows the person where to log in.
        back: Where the person is sent back to, such as `loopback()`.
        seconds: How long the person has.

    Raises:
        HostError: The server cannot be reached, needs no login, or the login was refused or is not valid.
        StorageUnavailable: The login cannot be kept.
    """

    async def work() -> Failure | None:
        memory = _Memory()
        try:
            if login.by == "client":
                provider: OAuthClientProvider = _Program(host.url, login, memory)
                await _ask(host, provider)
            else:
                memory.client = _registered(login)
                async with back as way, asyncio.timeout(seconds):
                    handlers = {"redirect_handler": way.sending_to(show), "callback_handler": way.answer}
                    provider = _Person(host.url, login, memory, way.url, **handlers)
                    if memory.client is not None:
                        memory.client.redirect_uris = [AnyUrl(way.url)]
                    await _ask(host, provider)
        except (OSError, httpx2.HTTPError, httpx2.StreamError, OAuthFlowError, ValueError, _Refused) as error:
            return _failure_of(error, failures, seconds)
        if memory.tokens is None:
            return failures.invalid("asked for no login", "use it without one, or check its address")
        async with kept.locked():
            await kept.write(_record(provider, memory, clock))
        return None

    failure = await asyncio.create_task(work(), context=quiet_context())
    if failure is not None:
        raise failure.error()


def _registered(login: Login) -> OAuthClientInformationFull | None:
    """The client that was registered beforehand."""
    if login.client_id is None:
        return None
    method = "none" if login.client_secret is None else "client_secret_basic"
    return OAuthClientInformationFull(
        client_id=login.client_id,
        client_secret=login.client_secret,
        issuer=login.issuer,
        token_endpoint_auth_method=method,
    )


def _failure_of(error: Exception, failures: Failures, seconds: float) -> Failure:
    match error:
        case _Misled():
            what = "leads to an authorization server that the login does not allow"
            return failures.invalid(what, "correct `issuer`, or ask those who run the server")
        case httpx2.TimeoutException():
            return failures.late(_SECONDS)
        case httpx2.HTTPError():
            return failures.unopened(error)
        case _Refused():
            why, remedy = "the login was refused", "log in again, and allow the access"
        case TimeoutError():
            why, remedy = f"nobody logged in within {seconds:g} s", "log in again"
        case OSError():
            why, remedy = "the port to return to is not free", "choose another one, or none"
        case OAuthRegistrationError():
            why = "its authorization server registers no clients"
            remedy = "register one there, and set client_id, or set client_metadata"
        case OAuthTokenError():
            why = "the authorization server did not accept the login"
            remedy = "log in again; if it has a client_id, check that and its secret"
        case _:
            return failures.invalid("or its authorization server breaks the rules of OAuth", "ask those who run it")
    return failures.not_logged_in(why, remedy)


class Return:
    """The address that a person's browser is sent back to. It takes one answer, which is of the login that waits.

    Args:
        url: The address.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._state: str | None = None
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    def sending_to(self, show: Show) -> Show:
        """Show the address to log in at, whose state the answer must have."""

        async def shown(url: str) -> None:
            if not is_protected(url):
                raise _Misled("an address without https")
            self._state = _query(url).get("state")
            await show(url)

        return shown

    async def answer(self) -> AuthorizationCodeResult:
        """Wait for the answer."""
        given = await self._answer
        if "error" in given or "code" not in given:
            raise _Refused
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))

    def is_for(self, state: str | None) -> bool:
        """Whether an answer with this state is of the login that waits."""
        return self._state is not None and state == self._state

    def take(self, given: Mapping[str, str]) -> bool:
        """Take the answer, as the parameters of the address.

        Returns:
            Whether it is of the login that waits. Any page can send a browser here, so another one changes nothing.
        """
        known = self.is_for(given.get("state"))
        if known and not self._answer.done():
            self._answer.set_result(given)
        return known


@contextlib.asynccontextmanager
async def loopback(port: int = 0) -> AsyncGenerator[Return]:
    """An address of this machine, served inside the block.

    Args:
        port: The port; 0 is any that is free.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                words = (await reader.readline()).decode("latin-1").split(" ")
                while (await reader.readline()).strip():
                    pass
            known = words[0] == "GET" and urlsplit(words[1]).path == _CALLBACK and way.take(_query(words[1]))
            writer.write(_response(_TAKEN if known else _STRANGE, known))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_LONGEST_LINE)
    way = Return(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_CALLBACK}")
    try:
        yield way
    finally:
        server.close()


def _query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def page(text: str, *, head: str = "") -> str:
    """The HTML of a page with one text, which can be read on a phone too.

    Args:
        text: What it says, not escaped.
        head: More HTML of its head.
    """
    return f"{_HEAD}{head}<p>{html.escape(text)}</p>"


def _response(text: str, found: bool) -> bytes:
    body = page(text).encode()
    head = [
        "HTTP/1.1 200 OK" if found else "HTTP/1.1 400 Bad Request",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
