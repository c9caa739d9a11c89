"""What a host over HTTP must refuse before it looks at a message. The requests are made by hand."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from .....mcp_client import HttpHost
from ..._outcomes import Failed, Skipped, Warned
from .._kit import Kit
from .._streams import authorised, certificates

_PAGE: Final = "pages.example"
_UNAUTHORISED: Final = 401
_FAREWELL: Final = 2.0  # seconds; nobody waits for the end of a session


async def token(kit: Kit) -> str | None:
    """A request without the token, or with another one, is answered with 401, whatever it asks."""
    host = _http(kit)
    if host.token is None:
        raise Warned("it answers without a token", "ask for one, unless every program that reaches it may use it")
    for who, shown in (("without a token", None), ("with a wrong token", f"wrong-{kit.marker}")):
        for asked, message, headers in _messages(kit):
            status = await _status(kit, message, headers | authorised(shown))
            if status != _UNAUTHORISED:
                raise Failed(f"{asked} {who} was answered with HTTP {status}", "answer 401 before anything else")
    return None


async def page(kit: Kit) -> str | None:
    """On loopback, a page in somebody's browser is no caller (DNS rebinding)."""
    host = _http(kit)
    if not _is_loopback(urlsplit(host.url).hostname or ""):
        raise Skipped("it is not on this machine's loopback, so its token keeps it")
    asked, message, headers = _messages(kit)[-1]
    for what, foreign in (("Host", {"Host": _PAGE}), ("Origin", {"Origin": f"http://{_PAGE}"})):
        status = await _status(kit, message, headers | authorised(host.token) | foreign)
        if status < 400:
            raise Warned(
                f"{asked} with {what} of another site was answered with HTTP {status}",
                f"refuse a {what} that is not yours: a page in a browser could call this host",
            )
    return None


def _messages(kit: Kit) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """What is asked, the message, and its headers: the handshake and a call."""
    modern, tool = "2026-07-28", kit.name("role_list")
    client = {"name": "worldagent-doctor", "version": "1"}
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    meta = {
        "io.modelcontextprotocol/protocolVersion": modern,
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"name": tool, "arguments": {"scope_ids": {}}, "_meta": meta}
    headers = {"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    asked = [("tools/call", _request("tools/call", call), headers)]
    if modern not in kit.heard:
        return [*asked, ("initialize", _request("initialize", greeting), {})]
    return [("initialize", _request("initialize", greeting), {}), *asked]


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def _status(kit: Kit, message: dict[str, Any], headers: dict[str, str]) -> int:
    """The status that a request is answered with. The time limit is one for all, not for each read: heads can drip."""
    host, limit = _http(kit), kit.options.timeout
    accept = {"Accept": "application/json, text/event-stream"}
    try:
        async with (
            asyncio.timeout(limit + _FAREWELL),  # also of the end of a connection
            httpx2.AsyncClient(timeout=limit, verify=certificates()) as client,
        ):
            async with (
                asyncio.timeout(limit),
                client.stream("POST", host.url, json=message, headers=accept | headers) as response,
            ):
                session = response.headers.get("mcp-session-id")
                status: int = response.status_code
            if session is not None:  # it need not keep what nobody goes on with
                gone = {**headers, "Mcp-Session-Id": session}
                with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                    async with asyncio.timeout(_FAREWELL), client.stream("DELETE", host.url, headers=gone):
                        pass  # no body is read
            return status
    except TimeoutError:
        why = f"within {limit:g} s"
    except (httpx2.HTTPError, OSError) as error:
        why = f"({type(error).__name__})"
    raise Failed(f"a request had no answer {why}", "see what the host itself reports")


def _http(kit: Kit) -> HttpHost:
    assert isinstance(kit.host, HttpHost), "these points are for hosts over HTTP"
    return kit.host


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


CHECKS = {"http.token": token, "http.page": page}

__all__ = ["CHECKS"]
