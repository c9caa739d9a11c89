"""The points about the connection: that the host can be reached, its revision of MCP and its tools, and every answer.

They are the first points and the last. The last also cover hosts over HTTP and host programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from ...core import STORED_TIERS, Tier
from ...hosts.role_host.contract import TOOLS
from ...hosts.serving import Address
from ...mcp_client import HttpHost
from ...mcp_client.contract import tier_names
from ...mcp_client.hosts import Mode
from .kit import Kit
from .link import CONTRACT_REMEDY
from .points import Failed, Points, Skipped, Warned

FIRST_POINTS: Final = Points()
LAST_POINTS: Final = Points()

REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The current revisions, the newest last."""

_MODES: Final[tuple[Mode, ...]] = ("legacy", "auto")
"""`legacy` shakes hands in 2025-11-25, `auto` does as an agent."""
_PAGE: Final = "pages.example"
_CONNECTED: Final = ("connect.time",)


# --- the host and its tools -------------------------------------------------------------------------------------------


@FIRST_POINTS.add("connect.time", "it can be reached and answers within the limit")
async def connect(kit: Kit) -> None:
    """Speak 2025-11-25, then as an agent does. If one of them works, `protocol.revision` reports on the other."""
    problem: Failed | None = None
    for mode in _MODES:
        try:
            await kit.connect(mode)
        except Failed as error:
            problem = error
    if problem is not None and not kit.revisions and not kit.reached:
        raise problem


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
    """The schemas have and require each argument. `error.arguments` checks which values the tools accept."""
    for tool, schema in _published(kit).items():
        for name in TOOLS[tool].arguments.model_fields:
            if name not in schema.get("properties", {}):
                raise Failed(f"the schema of {tool} does not have the argument {name}", CONTRACT_REMEDY)
            if name not in schema.get("required", ()):
                raise Failed(f"the schema of {tool} does not require {name}", f"name {name} in its `required`")
        if "x-mcp-header" in json.dumps(schema):
            raise Failed(f"the schema of {tool} copies arguments into HTTP headers", "omit x-mcp-header")


@FIRST_POINTS.add("tools.tiers", "they offer the same tiers", needs=("protocol.revision",))
async def tiers(kit: Kit) -> str | None:
    """The tools name the same tiers, and workspace and account are among them."""
    found = {tool: tier_names(schema) for tool, schema in _published(kit).items()}
    named = {tool: names for tool, names in found.items() if names}  # role_list has no argument `tier`
    for tool, names in named.items():
        if names - set(STORED_TIERS):
            raise Failed(f"the schema of {tool} names a tier that no host keeps", "name workspace, account, channel")
        if missing := {Tier.WORKSPACE, Tier.ACCOUNT} - names:
            raise Failed(f"the schema of {tool} does not name the tier {min(missing)}", "keep roles of this tier too")
        kit.tiers = tuple(tier for tier in STORED_TIERS if tier in names)
    if any(set(kit.tiers) != names for names in named.values()):
        raise Failed(f"the tiers of {' and '.join(named)} differ", "name the same tiers in each")
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


def _published(kit: Kit) -> Mapping[str, Any]:
    if not kit.schemas:
        raise Skipped("no tool was found", "see tools.present", reason="needs")
    return kit.schemas


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
        for mode in _MODES:
            how = await kit.refusal(replace(host, token=token, mode=mode))
            if how != "HTTP 401":
                raise Failed(f"a client {who} got {how or 'a result'}", "answer 401 before anything else")


@LAST_POINTS.add("http.page", "it refuses a page of another site", needs=_CONNECTED, when="http")
async def http_page(kit: Kit) -> None:
    """On loopback, a page in a browser must not be able to call the host (DNS rebinding)."""
    host = kit.host
    assert isinstance(host, HttpHost), "this point is for hosts over HTTP"
    if not Address(urlsplit(host.url).hostname or "", 0).is_loopback:
        raise Skipped("it is not on this machine's loopback, so its token keeps it")
    for name, value in (("Host", _PAGE), ("Origin", f"http://{_PAGE}")):
        if not await kit.refusal(replace(host, headers={**host.headers, name: value})):
            remedy = f"refuse a {name} that is not yours: a page in a browser could call this host"
            raise Warned(f"a request with {name} of another site was answered", remedy)


# --- programs ---------------------------------------------------------------------------------------------------------


@LAST_POINTS.add("stdio.output", "it writes nothing but MCP to its output", needs=_CONNECTED, when="stdio")
async def stdio_output(kit: Kit) -> None:
    """All lines of the entire check were messages."""
    if kit.stray:
        raise Failed(
            f"{kit.stray:,} lines on its standard output are not MCP messages",
            "write everything else to standard error",
        )
