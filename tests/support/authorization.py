"""A real authorization server, authlib's on flask, and an MCP server that takes its tokens; both in threads."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9207 import IssuerParameter
from flask import Flask, Response, jsonify, request
from starlette.responses import JSONResponse
from werkzeug.serving import WSGIRequestHandler, make_server

from support.mcp_tool_server import ToolServer, server_of
from support.role_host_stub import in_thread
from worldagent.core import SystemClock
from worldagent.mcp_client import HttpHost
from worldagent.mcp_client.logins import KeptLogin, LoginStore
from worldagent.mcp_client.oauth import log_in, loopback
from worldagent.mcp_client.tools import Login
from worldagent.mcp_client.tools.results import ServerFailures

SCOPE = "notes"
DOCUMENT = "https://client.example/metadata.json"
"""The id of a client by the address of its document, which the server here knows beforehand."""


@dataclass
class Client(ClientMixin):
    client_id: str
    client_secret: str = ""
    redirect_uris: list[str] | None = None  # None allows each of the loopback interface
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: Any) -> str:
        return str(scope)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        if self.redirect_uris is None:
            return urlsplit(redirect_uri).hostname == "127.0.0.1"
        return redirect_uri in self.redirect_uris

    def check_client_secret(self, client_secret: str) -> bool:
        return self.client_secret == client_secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method == "none") == (not self.client_secret)

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types


@dataclass
class Code:
    """An authorization code, with what authlib reads of one."""

    code: str
    client_id: str
    redirect_uri: str
    user: str
    code_challenge: str
    code_challenge_method: str = "S256"
    scope: str = SCOPE

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Token(TokenMixin):
    access_token: str
    refresh_token: str | None
    client_id: str
    user: str
    revoked: bool = False

    def check_client(self, client: Any) -> bool:
        return bool(client.client_id == self.client_id)

    def get_scope(self) -> str:
        return SCOPE


@dataclass
class Authorization:
    """The server.

    Attributes:
        origin: Its address, which is its issuer.
        url: The MCP server.
        clients: Its clients by id.
        tokens: All tokens it has issued.
        verifiers: The proofs that its token endpoint got with codes.
        grants: What was asked of its token endpoint, the types of grants.
        users: Whose tokens the MCP server was called with.
        bodies: What was sent to the MCP server, with whose token.
        registers: Whether it registers clients.
        documents: Whether it takes documents of metadata as ids.
        down: Whether its token endpoint is out of order.
        expires_in: Seconds that it says an access token is valid.
        issuer: The issuer that it says it is.
    """

    origin: str = ""
    url: str = ""
    clients: dict[str, Client] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    verifiers: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    registers: bool = True
    documents: bool = False
    down: bool = False
    expires_in: int = 3600
    issuer: str = ""

    def revoke(self, *, refresh: bool = False, user: str | None = None) -> None:
        """Refuse all access tokens, or those of a user, from now on, and the refresh tokens too."""
        for token in (each for each in self.tokens if user in (None, each.user)):
            token.revoked = True
            token.refresh_token = None if refresh else token.refresh_token

    def accepts(self, header: str) -> Token | None:
        return next((t for t in self.tokens if header == f"Bearer {t.access_token}" and not t.revoked), None)

    @property
    def secrets(self) -> list[str]:
        """Everything that must be seen nowhere."""
        found = [each for t in self.tokens for each in (t.access_token, t.refresh_token)]
        return [*filter(None, [*found, *(c.client_secret for c in self.clients.values())]), *self.codes]

    async def visit(
        self, link: str, user: str = "ana", *, allow: bool = True, back: dict[str, str] | None = None
    ) -> str:
        """Log in as a person does, and return where the browser was sent back to. `back` changes that address."""
        async with httpx2.AsyncClient() as browser:
            at = await browser.get(f"{link}&{urlencode({'user': user if allow else ''})}")
            assert at.status_code == 302, at.text
            target = httpx2.URL(at.headers["location"])
            target = target.copy_merge_params(back or {})
            await browser.get(target)
        return str(target)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing: a request line has the code in it."""


def _grants(state: Authorization) -> list[tuple[Any, list[Any]]]:
    class ByCode(grants.AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["none", "client_secret_basic"]  # noqa: RUF012 -- authlib's

        def save_authorization_code(self, code: str, request: Any) -> None:
            data = request.payload.data
            uri, challenge = request.payload.redirect_uri, data["code_challenge"]
            state.codes[code] = Code(code, request.client.client_id, uri, request.user, challenge)

        def query_authorization_code(self, code: str, client: Any) -> Any:
            found = state.codes.get(code)
            return found if found is not None and found.client_id == client.client_id else None

        def delete_authorization_code(self, authorization_code: Any) -> None:
            del state.codes[authorization_code.code]

        def authenticate_user(self, authorization_code: Any) -> Any:
            return authorization_code.user

    class Refresh(grants.RefreshTokenGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["none", "client_secret_basic"]  # noqa: RUF012
        INCLUDE_NEW_REFRESH_TOKEN = True

        def authenticate_refresh_token(self, refresh_token: str) -> Any:
            return next((token for token in state.tokens if token.refresh_token == refresh_token), None)

        def authenticate_user(self, refresh_token: Any) -> Any:
            return refresh_token.user

        def revoke_old_credential(self, refresh_token: Any) -> None:
            refresh_token.revoked, refresh_token.refresh_token = True, None

    return [(ByCode, [CodeChallenge(required=True)]), (Refresh, []), (grants.ClientCredentialsGrant, [])]


def _extensions(state: Authorization) -> list[Any]:
    class Issuer(IssuerParameter):
        def get_issuer(self) -> str:
            return state.origin

    class Registration(ClientRegistrationEndpoint):
        def authenticate_token(self, request: Any) -> bool:
            return state.registers

        def get_server_metadata(self) -> None:
            return None

        def generate_client_secret(self, request: Any) -> str:
            return ""

        def save_client(self, client_info: dict[str, Any], client_metadata: dict[str, Any], request: Any) -> Client:
            made = Client(client_info["client_id"], redirect_uris=client_metadata["redirect_uris"])
            return state.clients.setdefault(made.client_id, made)

    return [lambda server: server.register_extension(Issuer()), lambda server: server.register_endpoint(Registration)]


def _app(state: Authorization) -> Flask:
    app = Flask("authorization")
    app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True

    def save(token: dict[str, Any], asked: Any) -> None:
        refresh = token.get("refresh_token")
        state.tokens.append(Token(token["access_token"], refresh, asked.client.client_id, str(asked.user or "program")))
        token["expires_in"] = state.expires_in

    server = AuthorizationServer(app, query_client=state.clients.get, save_token=save)
    for grant, extensions in _grants(state):
        server.register_grant(grant, extensions)

    for extension in _extensions(state):
        extension(server)

    @app.get("/.well-known/oauth-authorization-server")
    def metadata() -> Response:
        return jsonify(
            issuer=state.issuer or state.origin,
            authorization_endpoint=f"{state.origin}/authorize",
            token_endpoint=f"{state.origin}/token",
            registration_endpoint=f"{state.origin}/register",
            response_types_supported=["code"],
            code_challenge_methods_supported=["S256"],
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=state.documents,
        )

    @app.get("/authorize")
    def authorize() -> Any:
        person = request.args["user"] or None
        return server.create_authorization_response(grant=server.get_consent_grant(), grant_user=person)

    @app.post("/token")
    def token() -> Any:
        state.grants.append(request.form["grant_type"])
        state.verifiers += filter(None, [request.form.get("code_verifier")])
        return Response("secret words", 503) if state.down else server.create_token_response()

    @app.post("/register")
    def register() -> Any:
        return server.create_endpoint_response("client_registration")

    return app


def _guarded(state: Authorization) -> Any:
    inner = server_of(ToolServer()).streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        token = state.accepts(dict(scope["headers"]).get(b"authorization", b"").decode())
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            found = {"resource": state.url, "authorization_servers": [state.origin], "scopes_supported": [SCOPE]}
            await JSONResponse(found)(scope, receive, send)
        elif token is None:
            await JSONResponse({"error": "secret words"}, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            state.users.append(token.user)

            async def heard() -> Any:
                message = await receive()
                state.bodies.append((token.user, message.get("body", b"")))
                return message

            await inner(scope, heard, send)

    return guarded


@contextlib.contextmanager
def authorization(**more: Any) -> Generator[tuple[Authorization, HttpHost]]:
    """Both servers, and the address of the MCP server."""
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # http, as both are on this machine
    state = Authorization(**more)
    serving = make_server("127.0.0.1", 0, _app(state), threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        state.origin = f"http://127.0.0.1:{serving.server_port}"
        state.clients[DOCUMENT] = Client(DOCUMENT)
        with in_thread(_guarded(state)) as origin:
            state.url = f"{origin}/mcp"
            yield state, HttpHost(state.url)
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join(20)


def kept_in(home: Path, host: HttpHost, account: str | None = None) -> KeptLogin:
    """The place where an agent of `agent_over` looks for the login of its server `t`."""
    return LoginStore(home, "novel").of("t", host.url, account)


async def logged_in(
    home: Path,
    state: Authorization,
    host: HttpHost,
    login: Login | None = None,
    *,
    account: str | None = None,
    **visit: Any,
) -> list[str]:
    """Log in as a person, and return where the person was sent and came back to."""
    seen: list[str] = []
    visits: set[asyncio.Task[str]] = set()

    async def show(link: str) -> None:
        seen.append(link)
        visits.add(asyncio.create_task(state.visit(link, **visit)))

    failures = ServerFailures("t", login="log in")
    kept = kept_in(home, host, account)
    try:
        await log_in(
            host, login or Login(), kept, failures, clock=SystemClock(), show=show, back=loopback(), seconds=20
        )
    finally:
        seen += await asyncio.gather(*visits)
    return seen
