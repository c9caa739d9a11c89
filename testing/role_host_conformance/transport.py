"""The last points: about every answer of the check, about hosts over HTTP, and about host programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mcp.client.stdio import get_default_environment

from ...mcp_client import HttpHost, StdioHost
from .connection import Mode
from .kit import Kit
from .points import Failed, Points, Skipped, Warned

POINTS: Final = Points()

_PAGE: Final = "pages.example"
_FIRST: Final[tuple[tuple[str, Mode], ...]] = (("initialize", "legacy"), ("tools/call", "2026-07-28"))
"""The first request of a connection, and the mode that sends it."""
_PAUSE: Final = 0.01  # seconds between two polls
_CONNECTED: Final = ("connect.time",)


# --- every answer -----------------------------------------------------------------------------------------------------


async def _of_all(kit: Kit, *, point: str) -> str | None:
    """Report the first answer that broke a point."""
    counted, what = ("errors", "refused") if point.startswith("error.") else ("answers", "answered")
    if point in kit.flaws:
        raise kit.flaws[point]
    if not kit.count[counted]:
        raise Skipped(f"no call was {what}", "see the points that failed or were left out")
    return f"{kit.count[counted]} {counted}"


for _id, _title in (
    ("answer.contract", "every answer says contract 1"),
    ("answer.fields", "answers have the contract's fields only"),
    ("answer.text", "texts for people hold no role"),
    ("error.code", "errors have a code of the contract"),
    ("error.values", "errors repeat no value that was sent"),
):
    POINTS.add(_id, _title, needs=("protocol.revision",))(partial(_of_all, point=_id))


# --- HTTP -------------------------------------------------------------------------------------------------------------


@POINTS.add("http.token", "401 without the token, and with another", needs=_CONNECTED, when="http")
async def http_token(kit: Kit) -> None:
    """A request without the token, or with another one, is answered with 401, whatever it asks."""
    host = kit.host
    assert isinstance(host, HttpHost), "this point is for hosts over HTTP"
    if host.token is None:
        raise Warned("it answers without a token", "require one, unless every program that reaches it can use it")
    for who, token in (("without a token", None), ("with a wrong token", f"wrong-{kit.marker}")):
        for what, mode in _FIRST:
            how = await kit.refusal(replace(host, token=token), mode)
            if how != "HTTP 401":
                raise Failed(f"{what} {who} was answered with {how or 'a result'}", "answer 401 before anything else")


@POINTS.add("http.page", "it refuses a page of another site", needs=_CONNECTED, when="http")
async def http_page(kit: Kit) -> None:
    """On loopback, a page in a browser must not be able to call the host (DNS rebinding)."""
    host = kit.host
    assert isinstance(host, HttpHost), "this point is for hosts over HTTP"
    if not _is_loopback(urlsplit(host.url).hostname or ""):
        raise Skipped("it is not on this machine's loopback, so its token keeps it")
    what, mode = _FIRST["2026-07-28" in kit.revisions]
    for name, value in (("Host", _PAGE), ("Origin", f"http://{_PAGE}")):
        if not await kit.refusal(replace(host, headers={**host.headers, name: value}), mode):
            raise Warned(
                f"{what} with {name} of another site was answered",
                f"refuse a {name} that is not yours: a page in a browser could call this host",
            )


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


# --- programs ---------------------------------------------------------------------------------------------------------


@POINTS.add("stdio.output", "it writes nothing but MCP to its output", needs=_CONNECTED, when="stdio")
async def stdio_output(kit: Kit) -> None:
    """All lines of the entire check were messages."""
    if kit.stray:
        raise Failed(
            f"{kit.stray:,} lines on its standard output are not MCP messages",
            "write everything else to standard error",
        )


@POINTS.add("stdio.end", "it ends when its input ends", needs=_CONNECTED, when="stdio")
async def stdio_end(kit: Kit) -> None:
    """Start the host again, close its input after one request, and check that it ends with all its child processes."""
    await kit.disconnect()  # some hosts do not support two instances
    host, limit = kit.host, kit.start_seconds + kit.options.ending
    assert isinstance(host, StdioHost), "this point is for hosts over stdio"
    child = subprocess.Popen(  # noqa: ASYNC220 -- it is polled: asyncio would wait for its own children too
        host.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=get_default_environment() | dict(host.env or {}),
        cwd=host.cwd,
        start_new_session=True,  # its own process group, which its children share
    )
    try:
        assert child.stdin is not None
        with contextlib.suppress(OSError), child.stdin:
            child.stdin.write(_HELLO)
        if not await _becomes(lambda: child.poll() is not None, limit):
            raise Failed(f"it still ran {limit:g} s after its input was closed", "end when standard input ends")
        kit.left_processes = not await _becomes(lambda: not _alive(child.pid), kit.options.ending)
    finally:
        child.kill()
        if os.name == "posix":
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
        await _becomes(lambda: child.poll() is not None, limit)


@POINTS.add("stdio.children", "it leaves no process behind", needs=("stdio.end",), when="stdio")
async def stdio_children(kit: Kit) -> None:
    """The processes that the host started have ended with it."""
    if os.name != "posix":
        raise Skipped("this system has no process groups")
    if kit.left_processes:
        raise Failed("processes that it started are still there", "end them before it ends itself")


_HELLO: Final = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", '
    b'"capabilities": {}, "clientInfo": {"name": "worldagent-doctor", "version": "1"}}}\n'
)
"""A request that every host answers, if only with an error."""


async def _becomes(true: Callable[[], bool], limit: float) -> bool:
    """Whether a condition becomes true within `limit` seconds. The end of a process sets no event of ours."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            while not true():  # noqa: ASYNC110 -- as above
                await asyncio.sleep(_PAUSE)
    return true()


def _alive(group: int) -> bool:
    """Whether a process of the group still runs."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    # `killpg` counts a process that has ended until its parent has waited for it, and some parents never do.
    return sys.platform != "linux" or any(_runs(stat, group) for stat in Path("/proc").glob("[0-9]*/stat"))


def _runs(stat: Path, group: int) -> bool:
    with contextlib.suppress(OSError):
        state, _, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        return of_group == str(group) and state not in "ZX"
    return False


__all__ = ["POINTS"]
