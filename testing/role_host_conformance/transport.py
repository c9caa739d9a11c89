"""The points about the connection: that the host can be reached, its revision of MCP and its tools, and every answer.

They are the first points and the last. The last also cover hosts over HTTP and host programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mcp.client.stdio import get_default_environment

from ...core import STORED_TIERS, Tier
from ...mcp_client import TOOLS, HttpHost, StdioHost
from .connection import REVISIONS, Failed, Mode, Points, Skipped, Unanswered, Warned
from .kit import CONTRACT_REMEDY, Kit

FIRST_POINTS: Final = Points()
LAST_POINTS: Final = Points()

_TEXT: Final = "text"
_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "role_list": {"scope_ids": {"workspace": _TEXT}},
    "role_get": {"tier": "workspace", "scope_id": _TEXT},
    "role_put": {"tier": "workspace", "scope_id": _TEXT, "name": _TEXT, "content": _TEXT},
    "role_delete": {"tier": "workspace", "scope_id": _TEXT},
}
_NO_TIER: Final = "no-such-tier"
_PARTS: Final = 1000  # keys; the contract's schemas have some thirty
_LENGTH: Final = 64 * 1024  # characters of a schema as JSON; the contract's have some thousand
_STEPS: Final = 10_000  # keywords evaluated for all values tried; the contract's schemas take some hundred
_KEYWORDS: Final = (
    *("$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "if", "maxLength", "maxProperties"),
    *("minLength", "minProperties", "not", "oneOf", "properties", "propertyNames", "required", "type"),
)
# These would make a part of a schema choose other rules than ours, or refer to something that is not in it.
DROPPED_KEYWORDS: Final = ("$schema", "$id", "id")

_PAGE: Final = "pages.example"
_FIRST: Final[tuple[tuple[str, Mode], ...]] = (("initialize", "legacy"), ("tools/call", "2026-07-28"))
"""The first request of a connection, and the mode that sends it."""
_PAUSE: Final = 0.01  # seconds between two polls
_CONNECTED: Final = ("connect.time",)


# --- the host and its tools -------------------------------------------------------------------------------------------


@FIRST_POINTS.add("connect.time", "it can be reached and answers within the limit")
async def connect(kit: Kit) -> None:
    """Speak 2025-11-25, then as an agent does. If one of them works, `protocol.revision` reports on the other."""
    problems: list[Unanswered] = []
    modes: tuple[Mode, ...] = ("legacy", "auto")
    for mode in modes:
        try:
            await kit.connect(mode)
        except Unanswered as error:
            problems.append(error)
    if not kit.revisions and not any(error.reached for error in problems):
        raise Failed(problems[-1].problem, problems[-1].remedy)


@FIRST_POINTS.add("protocol.revision", "it speaks a current revision of MCP", needs=("connect.time",))
async def revision(kit: Kit) -> str | None:
    """At least one of the current revisions works."""
    spoken = [each for each in REVISIONS if each in kit.revisions]
    if not spoken:
        known = " or ".join(REVISIONS)
        raise Failed(f"it speaks neither {' nor '.join(REVISIONS)}", f"let it speak {known}, or correct its address")
    return " and ".join(spoken)


@FIRST_POINTS.add("tools.present", "it has the four tools", needs=("protocol.revision",))
async def present(kit: Kit) -> None:
    """The host has the four tools."""
    missing = [tool for tool in TOOLS if tool not in kit.schemas]
    if missing:
        problem = f"it has no {' and no '.join(missing)}"
        raise Failed(problem, "offer the tool under this name, or give its own in the setting role_host_tools")


@FIRST_POINTS.add("tools.arguments", "their schemas take the contract's arguments", needs=("protocol.revision",))
async def arguments(kit: Kit) -> None:
    """The schemas accept what the contract sends, but not if a part is missing or of another type."""
    for tool, schema in _published(kit).items():
        takes, sample = schema.takes, _SAMPLES[tool]
        if not takes(sample):
            raise Failed(f"the schema of {tool} does not take the contract's arguments", CONTRACT_REMEDY)
        for name, value in sample.items():
            if takes({key: given for key, given in sample.items() if key != name}):
                raise Failed(f"the schema of {tool} does not require {name}", f"name {name} in its `required`")
            if takes(sample | {name: 5}):
                kind = "an object" if isinstance(value, dict) else "a string"
                raise Failed(f"the schema of {tool} takes a number as {name}", f"give {name} the type of {kind}")
        if "tier" in sample and takes(sample | {"tier": _NO_TIER}):
            raise Failed(f"the schema of {tool} takes any text as tier", "list the tiers as an enum")
        if schema.mirrors:
            raise Failed(f"the schema of {tool} copies arguments into HTTP headers", "omit x-mcp-header")


@FIRST_POINTS.add("tools.tiers", "they offer the same tiers", needs=("protocol.revision",))
async def tiers(kit: Kit) -> str | None:
    """The tools name the same tiers, and workspace and account are among them."""
    found = {tool: _tiers(tool, schema) for tool, schema in _published(kit).items()}
    named = {tool: each for tool, each in found.items() if each is not None}
    for tool, each in named.items():
        if foreign := each - set(STORED_TIERS):
            raise Failed(f"the schema of {tool} names the tier {min(foreign)}", "name only those that a host keeps")
        if missing := {Tier.WORKSPACE, Tier.ACCOUNT} - each:
            raise Failed(f"the schema of {tool} does not name the tier {min(missing)}", "keep roles of this tier too")
    if len(set(named.values())) > 1:
        raise Failed(f"the tiers of {' and '.join(named)} differ", "name the same tiers in each")
    if named:
        kit.tiers = tuple(tier for tier in STORED_TIERS if tier in next(iter(named.values())))
    return ", ".join(kit.tiers)


@FIRST_POINTS.add("protocol.same", "every revision that it speaks answers alike", needs=("protocol.revision",))
async def same(kit: Kit) -> None:
    """The host's answers do not depend on the revision."""
    spoken = [kit.revisions[each] for each in REVISIONS if each in kit.revisions]
    if len(spoken) < len(REVISIONS):
        raise Skipped(f"it speaks {kit.revision} only, which is enough")
    (tools, roles), (other_tools, other_roles) = spoken
    if tools != other_tools:
        raise Failed("its tools differ between the revisions", "give the same tools in both")
    if None in (roles, other_roles):
        raise Skipped("role_list was not answered", "see list.answer", reason="needs")
    if roles != other_roles:
        raise Failed("role_list answers differ between the revisions", "answer the same in both")


def _published(kit: Kit) -> dict[str, ToolSchema]:
    if not kit.schemas:
        raise Skipped("no tool was found", "see tools.present", reason="needs")
    return {tool: ToolSchema(tool, schema) for tool, schema in kit.schemas.items()}


def _tiers(tool: str, schema: ToolSchema) -> frozenset[Tier] | None:
    """Return the tiers that a tool's schema accepts; None if it names none."""

    def takes(name: str) -> bool:
        return schema.takes({"scope_ids": {name: _TEXT}} if tool == "role_list" else _SAMPLES[tool] | {"tier": name})

    if takes(_NO_TIER):
        return None
    found = frozenset(tier for tier in Tier if takes(tier.value))
    return found or None  # tools.arguments reports a schema that takes nothing


class ToolSchema:
    """The input schema of a tool, and whether it accepts a value, within limits: a host can publish anything.

    The keywords are those of the `jsonschema` library that can express the contract. Each evaluation is counted,
    since references can branch without end. Patterns are not evaluated, since a regular expression can also take for
    ever, and neither Ctrl-C nor a time limit ends it.

    Args:
        tool: The tool.
        schema: The schema that the host publishes.

    Attributes:
        mirrors: Whether it has arguments copied into HTTP headers.

    Raises:
        Failed: The schema is not a JSON Schema, or is too large.
    """

    def __init__(self, tool: str, schema: object) -> None:
        # Imported here, because only this check needs it.
        from jsonschema import Draft202012Validator as Draft  # type: ignore[import-untyped]  # it has no types
        from jsonschema.validators import create  # type: ignore[import-untyped]  # it has no types
        from referencing import Registry

        self._tool, self._left = tool, _STEPS
        keys: list[str] = []

        def in_itself(part: dict[str, Any]) -> dict[str, Any]:
            keys.extend(part)
            return {key: value for key, value in part.items() if key not in DROPPED_KEYWORDS}

        text = json.dumps(schema, ensure_ascii=False)
        own = json.loads(text, object_hook=in_itself)
        if not isinstance(own, dict):
            raise self._broken("is not a JSON Schema")
        if len(text) > _LENGTH or len(keys) > _PARTS:
            raise self._broken(f"has more than {_PARTS:,} parts or {_LENGTH // 1024} KiB")
        self.mirrors = "x-mcp-header" in keys
        keywords = {name: self._counted(name, Draft.VALIDATORS[name]) for name in _KEYWORDS}
        made: Any = create(Draft.META_SCHEMA, validators=keywords, type_checker=Draft.TYPE_CHECKER)
        self._validator = made(own, registry=Registry())  # an empty one, so that nothing is fetched

    def takes(self, value: Mapping[str, Any]) -> bool:
        """Whether the schema accepts `value`.

        Raises:
            Failed: The schema is not a JSON Schema, or its evaluation does not end.
        """
        try:
            return bool(self._validator.is_valid(value))
        except (_TooLong, RecursionError):
            why = "does not come to an end"
        except Exception:  # a keyword of a wrong type fails in any way, at the place where it is used
            why = "is not a JSON Schema"
        raise self._broken(why)

    def _broken(self, why: str) -> Failed:
        return Failed(f"the schema of {self._tool} {why}", "publish the schema of docs/reference/role-host.md")

    def _counted(self, name: str, keyword: Callable[..., Any]) -> Callable[..., Any]:
        def look(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._left -= 1 + (len(value) if isinstance(value, (str, list, dict)) else 0)
            if self._left < 0:
                raise _TooLong
            if name != "additionalProperties" or "patternProperties" not in schema:
                yield from keyword(validator, value, instance, schema) or ()

        return look


class _TooLong(Exception):
    """More steps were taken than a reasonable schema needs."""


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
    LAST_POINTS.add(_id, _title, needs=("protocol.revision",))(partial(_of_all, point=_id))


# --- HTTP -------------------------------------------------------------------------------------------------------------


@LAST_POINTS.add("http.token", "401 without the token, and with another", needs=_CONNECTED, when="http")
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


@LAST_POINTS.add("http.page", "it refuses a page of another site", needs=_CONNECTED, when="http")
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


@LAST_POINTS.add("stdio.output", "it writes nothing but MCP to its output", needs=_CONNECTED, when="stdio")
async def stdio_output(kit: Kit) -> None:
    """All lines of the entire check were messages."""
    if kit.stray:
        raise Failed(
            f"{kit.stray:,} lines on its standard output are not MCP messages",
            "write everything else to standard error",
        )


@LAST_POINTS.add("stdio.end", "it ends when its input ends", needs=_CONNECTED, when="stdio")
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


@LAST_POINTS.add("stdio.children", "it leaves no process behind", needs=("stdio.end",), when="stdio")
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
