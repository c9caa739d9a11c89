"""Role hosts over HTTP that break the contract, mostly in one way each: the reference host with a part replaced.

Its roles are in memory. Hosts that are programs and break as such are in `raw_hosts`.
"""

import asyncio
import contextlib
import functools
import json
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

from mcp.shared.exceptions import MCPError
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from support.role_host_stub import StubHost, over_http
from worldagent.core import STORED_TIERS, Tier
from worldagent.core.errors import RoleTooLong
from worldagent.hosts.role_host import EVERYTHING, Address, Grant, RoleHost, Tokens
from worldagent.hosts.role_host.contract import TOOLS
from worldagent.hosts.serving import application
from worldagent.role_resolution import Role

SLOW = 0.05
"""Seconds that the slow host takes."""


class MemoryStore:
    """A role store that is gone with its process."""

    tiers = frozenset(STORED_TIERS)

    def __init__(self, limit: int = 32 * 1024, *, tierless: bool = False) -> None:
        self.limit, self.tierless = limit, tierless
        self.kept: dict[tuple[Tier, str], Role] = {}

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        found = {tier: self.kept.get(self.key(tier, scope_id)) for tier, scope_id in scope_ids.items()}
        return {tier: role for tier, role in found.items() if role is not None}

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        return self.kept.get(self.key(tier, scope_id))

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        if len(role.content.encode()) > self.limit:
            raise RoleTooLong("it is too long", remedy="shorten it")
        self.kept[self.key(tier, scope_id)] = role

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        return self.kept.pop(self.key(tier, scope_id), None) is not None

    def key(self, tier: Tier, scope_id: str) -> tuple[Tier, str]:
        return (Tier.WORKSPACE if self.tierless else tier, scope_id)


class BrokenHost(RoleHost):
    """The reference host with faults; without one it is sound.

    Args:
        how: The fault, or several with ` + ` between them.
        tokens: As for the reference host.
        prefix: Stands before the names of its tools.
    """

    def __init__(
        self, how: str = "", *, tokens: Tokens[Grant] | None = None, grant: Grant = EVERYTHING, prefix: str = ""
    ) -> None:
        self.faults, self.prefix = how.split(" + "), prefix
        limits = {"takes more than it may": 512 * 1024 + 1, "takes little": 16 * 1024}
        self.store = MemoryStore(limits.get(how, 32 * 1024), tierless=how == "knows no tiers")
        self.first: dict[tuple[str, str], Any] = {}
        self.revision = ""
        self.lists: Counter[str] = Counter()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.refused: set[str] = set()
        self.last = ""
        super().__init__(self.store, tokens=None if how == "checks no token" else tokens, grant=grant)

    def app(self, token: str | None = None) -> Any:
        """The ASGI application; `over_http` asks for it."""
        return application(self, Address("0.0.0.0" if "serves pages" in self.faults else "127.0.0.1", 0))

    def _granted(self) -> Grant:
        return EVERYTHING if "ignores scopes of tokens" in self.faults else super()._granted()

    # --- the two requests -------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Any, params: Any) -> ListToolsResult:
        tools = {tool.name: tool.model_copy(deep=True) for tool in (await super()._list_tools(ctx, params)).tools}
        self.revision = ctx.protocol_version
        for change in (_TOOLS[fault] for fault in self.faults if fault in _TOOLS):
            change(self, tools)
        renamed = [tool.model_copy(update={"name": self.prefix + name}) for name, tool in tools.items()]
        return ListToolsResult(tools=renamed)

    async def _call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        given = dict(params.arguments or {})
        if not params.name.startswith(self.prefix):
            raise MCPError(-32602, "unknown tool")
        params = params.model_copy(update={"name": params.name.removeprefix(self.prefix)})
        if params.name not in TOOLS:
            if "answers unknown tools" in self.faults:
                return _said("there is no such tool", {"contract": 1, "code": "invalid"}, failed=True)
            raise MCPError(-32602, "unknown tool")
        self.revision = ctx.protocol_version
        if f"refuses {params.name}" in self.faults:
            return _unavailable()
        for before in (_BEFORE[fault] for fault in self.faults if fault in _BEFORE):
            early: CallToolResult | None = await before(self, params.name, given)
            if early is not None:
                return early
        answer = await super()._call_tool(ctx, CallToolRequestParams(name=params.name, arguments=given))
        for after in (_AFTER[fault] for fault in self.faults if fault in _AFTER):
            if answer.structured_content is not None:
                after(self, params.name, given, answer)
        return answer

    async def _listen(self, ctx: Any, params: Any) -> Any:
        if "tells of another address" in self.faults:
            wanted = params.notifications
            others = [f"{uri}-other" for uri in wanted.resource_subscriptions]
            params.notifications = wanted.model_copy(update={"resource_subscriptions": others})
        return await super()._listen(ctx, params)

    async def _notify(self, tier: Tier, scope_id: str) -> None:
        await super()._notify(tier, f"{scope_id}-other" if "tells of another address" in self.faults else scope_id)


# --- faults of the tools ----------------------------------------------------------------------------------------------

_WITH_TIER = ("role_get", "role_put", "role_delete")


def _offers(change: Callable[[list[str]], object], *names: str) -> Callable[[BrokenHost, dict[str, Tool]], object]:
    """Change the tiers in the schemas of some tools."""
    return lambda host, tools: [change(tools[name].input_schema["properties"]["tier"]["enum"]) for name in names]


def _publishes_successes(host: BrokenHost, tools: dict[str, Tool]) -> None:  # which is not a fault
    for name, tool in tools.items():
        tool.output_schema = TOOLS[name].answer.model_json_schema()


_TOOLS: dict[str, Callable[[BrokenHost, dict[str, Tool]], object]] = {
    "lacks a tool": lambda host, tools: tools.pop("role_get"),
    "requires nothing": lambda host, tools: tools["role_get"].input_schema.update(required=["tier"]),
    "offers the call tier": _offers(lambda tiers: tiers.append("call"), *_WITH_TIER),
    "offers no account": _offers(lambda tiers: tiers.remove("account"), *_WITH_TIER),
    "offers no channel": _offers(lambda tiers: tiers.remove("channel"), *_WITH_TIER),
    "deletes no channel": _offers(lambda tiers: tiers.remove("channel"), "role_delete"),
    "publishes schemas of successes alone": _publishes_successes,
    "differs between revisions": lambda host, tools: tools["role_get"].input_schema.update(title=host.revision),
}


# --- faults before the call: they change what is asked, or wait -------------------------------------------------------

Given = dict[str, Any]


async def _hangs(host: BrokenHost, tool: str, given: Given) -> None:
    if tool == "role_list":
        await asyncio.sleep(SLOW) if "is slow" in host.faults else await asyncio.Event().wait()


async def _changes_text(host: BrokenHost, tool: str, given: Given) -> None:
    if isinstance(text := given.get("content"), str):
        given["content"] = text.strip() if "trims texts" in host.faults else text if text.strip() else "none"


async def _appends(host: BrokenHost, tool: str, given: Given) -> None:
    if tool == "role_put" and given.get("tier") in STORED_TIERS:
        kept = host.store.kept.get((Tier(given["tier"]), given.get("scope_id", "")))
        if kept is not None and "content" in given:
            given["content"] = f"{kept.content}\n{given['content']}"


async def _drops_extra(host: BrokenHost, tool: str, given: Given) -> None:
    for name in given.keys() - TOOLS[tool].arguments.model_fields.keys():
        del given[name]


async def _cuts_ids(host: BrokenHost, tool: str, given: Given) -> None:
    if isinstance(given.get("scope_id"), str):
        given["scope_id"] = given["scope_id"][:200]


async def _takes_thread(host: BrokenHost, tool: str, given: Given) -> None:
    if given.get("tier") == "thread":
        given["tier"] = "workspace"


async def _forgets_to_miss(host: BrokenHost, tool: str, given: Given) -> CallToolResult | None:
    missing = (given.get("tier"), given.get("scope_id")) not in host.store.kept
    if tool == "role_delete" and missing and given.keys() == {"tier", "scope_id"} and given["tier"] in STORED_TIERS:
        gone = {"name": "gone", "content": "It was cleared.", "tier": given["tier"]}
        return _said("1 role", {"contract": 1, "role": gone})
    return None


async def _mixes_up(host: BrokenHost, tool: str, given: Given) -> None:
    """The arguments stand in a variable that all calls share."""
    if tool == "role_list" and isinstance(given.get("scope_ids"), dict) and given["scope_ids"]:
        host.last = json.dumps(given["scope_ids"])
        await asyncio.sleep(0.02)
        if json.loads(host.last).keys() == given["scope_ids"].keys():
            given["scope_ids"] = json.loads(host.last)


async def _tires(host: BrokenHost, tool: str, given: Given) -> CallToolResult | None:
    """It lists the roles of the same scopes eight times, which only load.many exceeds."""
    host.lists[str(given)] += tool == "role_list"
    return _unavailable() if host.lists[str(given)] > 8 else None


# --- faults after the call: they change the answer --------------------------------------------------------------------

Change = Callable[["BrokenHost", Given, Given], object]
"""Changes the structured content, which is the last argument; the other is what was given."""
After = Callable[["BrokenHost", str, Given, CallToolResult], object]


def _changes(tool: str, change: Change) -> After:
    """Change what a tool answers where it succeeds; `*` is any."""
    return lambda host, called, given, answer: (
        tool in (called, "*") and not answer.is_error and change(host, given, _content(answer))
    )


def _recodes(tool: str, code: str, to: str) -> After:
    """Give another code of an error."""
    return lambda host, called, given, answer: (
        called == tool and _content(answer).get("code") == code and _content(answer).update(code=to)
    )


def _lists_others(host: BrokenHost, given: Given, content: Given) -> None:
    for tier in given["scope_ids"].keys() - {role["tier"] for role in content["roles"]}:
        others = [role for (of, _), role in host.store.kept.items() if of == tier]
        content["roles"] += [{"name": role.name, "content": role.content, "tier": tier} for role in others[-1:]]


def _lists_first(host: BrokenHost, tool: str, given: Given, answer: CallToolResult) -> None:
    """It lists the first role of a scope, though it was replaced or deleted."""
    if tool == "role_put" and not answer.is_error:
        host.first.setdefault((given["tier"], given["scope_id"]), _content(answer)["role"])
    elif tool == "role_list" and not answer.is_error:
        _content(answer)["roles"] = [host.first[at] for at in given["scope_ids"].items() if at in host.first]


def _gets_others(host: BrokenHost, tool: str, given: Given, answer: CallToolResult) -> None:
    others = [role for (tier, _), role in host.store.kept.items() if tier == given.get("tier")]
    if tool == "role_get" and _content(answer).get("code") == "not_found" and others:
        role = {"name": "doctor", "content": others[-1].content, "tier": given["tier"]}
        answer.structured_content, answer.is_error = {"contract": 1, "role": role}, False


def _remembers_refusals(host: BrokenHost, tool: str, given: Given, answer: CallToolResult) -> None:
    """It has a code of its own for a role that it refused, until the scope is cleared."""
    place = json.dumps([given.get("tier"), given.get("scope_id")])
    if tool == "role_put" and answer.is_error:
        host.refused.add(place)
    elif tool == "role_delete":
        host.refused.discard(place)
    elif place in host.refused and _content(answer).get("code") == "not_found":
        _content(answer)["code"] = "refused_before"


def _keeps(host: BrokenHost, given: Given, content: Given) -> None:
    role = content["role"]
    host.store.kept[Tier(role["tier"]), given["scope_id"]] = Role(role["name"], role["content"])


def _speaks(host: BrokenHost, tool: str, given: Given, answer: CallToolResult) -> None:
    """It says in words what it was sent where it fails, or what it gives where it does not."""
    repeats = "repeats what was sent" in host.faults
    if repeats == bool(answer.is_error):
        said = given if repeats else answer.structured_content
        answer.content = [TextContent(type="text", text=json.dumps(said))]


def _content(answer: CallToolResult) -> Given:
    return cast("Given", answer.structured_content)


def _said(text: str, structured: Given, *, failed: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured, is_error=failed)


def _unavailable() -> CallToolResult:
    return _said("later", {"contract": 1, "code": "unavailable"}, failed=True)


_lists = functools.partial(_changes, "role_list")
_SOME = {"name": "x", "content": "Be brief.", "tier": "workspace"}
_BEFORE: dict[str, Callable[[BrokenHost, str, Given], Any]] = {
    "is slow": _hangs,
    "hangs": _hangs,
    "trims texts": _changes_text,
    "appends": _appends,
    "fills blanks": _changes_text,
    "takes more arguments": _drops_extra,
    "cuts ids": _cuts_ids,
    "takes the thread tier": _takes_thread,
    "deletes nothing gladly": _forgets_to_miss,
    "mixes calls up": _mixes_up,
    "tires": _tires,
}
_AFTER: dict[str, After] = {
    "gives two roles": _lists(lambda host, given, answer: answer.update(roles=answer["roles"] * 2)),
    "gives ids": _lists(lambda host, given, answer: [role.update(id=7) for role in answer["roles"]]),
    "gives more": _changes("*", lambda host, given, answer: answer.update(took_ms=1)),
    "renames": _lists(lambda host, given, answer: [role.update(name=role["name"].upper()) for role in answer["roles"]]),
    "gives no list": _lists(lambda host, given, answer: answer.pop("roles")),
    "lists all": _lists(lambda host, given, answer: given["scope_ids"] or answer.update(roles=[_SOME])),
    "lists roles of others": _lists(_lists_others),
    "lists nothing": _lists(lambda host, given, answer: answer.update(roles=[])),
    "lists the first": _lists_first,
    "lists by revision": _lists(lambda host, given, answer: host.revision < "2026" and answer.update(roles=[_SOME])),
    "gets roles of others": _gets_others,
    "lists a workspace too": _lists(
        lambda host, given, answer: given["scope_ids"].keys() == {"account"} and answer["roles"].append(_SOME)
    ),
    "deletes without a role": _changes("role_delete", lambda host, given, answer: answer.pop("role")),
    "says invalid": _recodes("role_get", "not_found", "invalid"),
    "has a code of its own": _recodes("role_put", "too_long", "content_too_large"),
    "remembers refusals": _remembers_refusals,
    "names what is put": _changes("role_put", lambda host, given, answer: answer["role"].update(name="role")),
    "keeps what is deleted": _changes("role_delete", _keeps),
    "names no contract": lambda host, tool, given, answer: _content(answer).pop("contract"),
    "repeats what was sent": _speaks,
    "shows roles in texts": _speaks,
}


@contextlib.contextmanager
def broken_host(how: str = "", **more: Any) -> Generator[tuple[str, BrokenHost]]:
    """Serve a host with faults in a thread; give its address and the host."""
    host = BrokenHost(how, **more)
    with over_http(cast("StubHost", host)) as url:
        yield url, host
        host.end_streams()
