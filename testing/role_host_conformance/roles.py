"""The points about roles: what the four tools answer and refuse, and that scopes and calls are kept apart.

With `write` the checks put roles into free scopes and read them. Without it they read the scopes that they can use and
call only tools that read, in case a host does what it should refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any, Final
from urllib.parse import quote

from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost

from ...core import STORED_TIERS, Tier
from .kit import Kit
from .link import Reply
from .points import Failed, Finding, Points, Skipped, Warned

POINTS: Final = Points()
point: Final = POINTS.add

_LIST, _GET, _PUT, _DELETE = "role_list", "role_get", "role_put", "role_delete"
_MCP: Final = ("protocol.revision",)
_READ: Final = ("list.answer",)
_SET: Final = ("put.answer",)
_SET_READ: Final = (*_SET, *_READ)

REQUIRED_ROLE_BYTES: Final = 32 * 1024  # bytes of UTF-8 that every host takes
MAX_REFUSED_BYTES: Final = 512 * 1024  # bytes of UTF-8 that a host may take at most
# Composed and decomposed, right to left, joined and astral characters, blanks and line ends that a form would trim.
_ODD: Final = (
    " \t\u00e9 e\u0301 \u05e9\u05dc\u05d5\u05dd \u6f22\u5b57 \U0001f469\u200d\U0001f680 \ufeff\u00a0\u2028\r\n"
)
_ODD_NAME: Final = "\u00e9 e\u0301 \u05e9\u05dc\u05d5\u05dd \u6f22\u5b57 \U0001f680 doctor"
_ROUNDS: Final = 7  # of role_list, for the median
_AT_ONCE: Final = 16  # calls
_MOMENTS: Final = (0.0, 0.001, 0.005, 0.02)  # seconds after which a call is cancelled; at the last one the host has it
_NAME_ONE: Final = "name a scope that has one (--scope), or let the check put one (--write)"

# --- reading, and what is refused -------------------------------------------------------------------------------------


@point("list.answer", "role_list answers with roles", needs=_MCP)
async def list_answer(kit: Kit) -> str | None:
    """`role_list` answers with a list. Later points skip tiers whose scopes this caller cannot use."""
    opened: list[Tier] = []
    for tier in kit.tiers:
        reply = await kit.call(_LIST, scope_ids={tier.value: kit.readable(tier)})
        if reply.code != "forbidden":
            reply.roles()
            opened.append(tier)
        elif tier in kit.options.scopes:
            raise Failed(f"this caller must not use the {tier} scope that --scope names", "name one that it can use")
    if not opened:
        raise Failed("this caller must not use the scopes that were read", "name one that it can: --scope workspace=ID")
    kit.open = tuple(opened)
    await kit.listed({tier: kit.readable(tier) for tier in opened})
    closed = [tier for tier in kit.tiers if tier not in opened]
    return f"{', '.join(closed)} skipped: this caller can use certain scopes only" if closed else None


@point("list.empty", "role_list of nothing is empty", needs=_READ)
async def list_empty(kit: Kit) -> None:
    """A call without scopes gives no role."""
    if await kit.listed({}):
        raise Failed("role_list of no scope gave roles", "give the roles of the scopes that are asked for only")


@point("get.not_found", "role_get of no role is not_found", needs=_MCP)
async def get_not_found(kit: Kit) -> None:
    """An unused scope has no role, whatever its id looks like."""
    odd = f"{kit.unused_id()} é/%20?#\\\"' \u6f22".ljust(200, ".")
    for scope_id in (kit.unused_id(), odd):
        (await kit.get(kit.tier, scope_id)).expect("not_found", "of a role that is not set")


@point("error.tier", "a tier that it does not keep is invalid", needs=_MCP)
async def error_tier(kit: Kit) -> None:
    """Tiers that are unknown, that no host keeps, or that this host does not keep."""
    kept = kit.tiers if kit.passed("tools.tiers") else STORED_TIERS
    await _invalid_place(kit, "for an unknown tier", f"tier-{kit.marker}", kit.unused_id())
    for tier in Tier:
        if tier not in kept:
            await _invalid_place(kit, f"for the {tier} tier", tier.value, kit.unused_id())


@point("error.arguments", "missing, extra or wrong arguments are invalid", needs=_MCP)
async def error_arguments(kit: Kit) -> None:
    """Arguments that are missing, unknown, or of another type."""
    tier, scope_id, text = kit.tier.value, kit.unused_id(), kit.text()
    place = {"tier": tier, "scope_id": scope_id}
    role = {**place, "name": "doctor", "content": text}
    await _invalid(kit, "without scope_ids", role_list={})
    await _invalid(kit, "without scope_id", role_get={"tier": tier})
    await _invalid(kit, "without tier", role_get={"scope_id": scope_id})
    await _invalid(kit, "without content", role_put={**place, "name": "doctor"})
    await _invalid(kit, "with a text as scope_ids", role_list={"scope_ids": kit.marker})
    await _invalid(kit, "with a number as id", role_list={"scope_ids": {tier: 5}}, role_get={**place, "scope_id": 5})
    await _invalid(kit, "with a number as content", role_put={**role, "content": 5})
    extra: dict[str, Any] = {"no_such_argument": kit.marker}
    calls = {"role_list": extra | {"scope_ids": {}}, "role_get": extra | place, "role_delete": extra | place}
    await _invalid(kit, "with an argument that it does not have", **calls, role_put=extra | role)


@point("error.scope", "an id that cannot be one is invalid", needs=_MCP)
async def error_scope(kit: Kit) -> None:
    """Ids that are empty, blank, too long or not printable."""
    for about, scope_id in (
        ("with an empty id", ""),
        ("with a blank id", "   "),
        ("with an id of 201 characters", kit.unused_id().ljust(201, "x")),
        ("with a line break in the id", f"{kit.unused_id()}\n{kit.marker}"),
        ("with a control character in the id", f"{kit.unused_id()}\x07"),
    ):
        await _invalid_place(kit, about, kit.tier.value, scope_id)


@point("error.tool", "an unknown tool is an error of the protocol", needs=_MCP)
async def error_tool(kit: Kit) -> None:
    """The contract does not cover tools that it does not name."""
    if (await kit.call(f"role_{kit.marker}", scope_ids={})).protocol is None:
        problem = "a call of an unknown tool gave a result of a tool"
        raise Failed(problem, "answer with an error of the protocol, such as -32602")


async def _invalid_place(kit: Kit, about: str, tier: str, scope_id: str) -> None:
    """Check that each tool refuses a tier and scope."""
    listed, place = {"scope_ids": {tier: scope_id}}, {"tier": tier, "scope_id": scope_id}
    role = {**place, "name": "doctor", "content": kit.text()}
    await _invalid(kit, about, role_list=listed, role_get=place, role_delete=place, role_put=role)


async def _invalid(kit: Kit, about: str, **calls: dict[str, Any]) -> None:
    """Check that each call, by its tool, is invalid. Tools that do not work at all are left to another point."""
    usable = {_GET, *([_LIST] if kit.passed("list.answer") else ()), *([_PUT, _DELETE] if kit.options.write else ())}
    for tool, given in calls.items():
        if tool in kit.schemas and tool in usable:
            (await kit.call(tool, **given)).expect("invalid", about)


# --- putting ----------------------------------------------------------------------------------------------------------


@point("write.scope", "the scopes to write to are free", needs=_MCP, when="--write")
async def write_scope(kit: Kit) -> None:
    """The named scopes have no role that the check would overwrite, and a role that is put can be cleared."""
    if missing := [tool for tool in (_GET, _PUT, _DELETE) if tool not in kit.schemas]:
        raise Skipped(f"it needs the tool {missing[0]}", "see tools.present", reason="needs")
    for tier, scope_id in kit.options.scopes.items():
        if tier not in kit.tiers:
            raise Failed(f"the host keeps no {tier} roles, and --scope names one", "name a scope of another tier")
        reply = await kit.get(tier, scope_id)
        if not reply.failed:
            raise Failed(f"a role is set in the {tier} scope that --scope names", "clear it, or name another scope")
        reply.expect("not_found", "of the scope that --scope names")


@point("put.answer", "role_put answers with the role that it set", needs=("write.scope",), when="--write")
async def put_answer(kit: Kit) -> None:
    """The answer to a put is the role."""
    await _kept(kit, kit.tier, await kit.free(kit.tier), kit.text(), "the doctor")


@point("put.text", "a text comes back byte for byte", needs=_SET_READ, when="--write")
async def put_text(kit: Kit) -> None:
    """A role comes back unchanged in every byte, from every tool."""
    scope_id, content = await kit.free(kit.tier), f"{_ODD}{kit.text()}{_ODD}"
    await _kept(kit, kit.tier, scope_id, content, _ODD_NAME)
    if content not in await _listed(kit, scope_id):
        raise Failed("role_list gave another text than was put", "keep and give every character as it came")


@point("put.replace", "putting a role replaces the one before", needs=_SET_READ, when="--write")
async def put_replace(kit: Kit) -> None:
    """The second role replaces the first."""
    scope_id, before = await kit.set_role(kit.tier)
    await _kept(kit, kit.tier, scope_id, kit.text("Answer in French."), "second")
    if before in await _listed(kit, scope_id):
        raise Failed("role_list still gives the role before", "keep one role for a tier and scope, the last put")


@point("put.long", "it takes 32 KiB", needs=_SET, when="--write")
async def put_long(kit: Kit) -> None:
    """A role of as many bytes as every host must take, in characters of two bytes."""
    words = kit.text()
    room = REQUIRED_ROLE_BYTES - len(words)
    await _kept(kit, kit.tier, await kit.free(kit.tier), words + "\u00e9" * (room // 2) + "x" * (room % 2))


@point("put.too_long", "a text that is too long is too_long", needs=_SET, when="--write")
async def put_too_long(kit: Kit) -> str | None:
    """A text over the host's limit is refused and changes nothing."""
    for size in (REQUIRED_ROLE_BYTES + 1, MAX_REFUSED_BYTES + 1):
        scope_id = await kit.free(kit.tier)
        reply = await kit.put(kit.tier, scope_id, kit.text().ljust(size, "x"))
        if reply.failed:
            reply.expect("too_long", f"of {size:,} bytes")
            await _unset(kit, scope_id, "a put that was refused changed the role")
            return f"{size:,} bytes are refused"
    problem = f"it takes more than {MAX_REFUSED_BYTES // 1024} KiB"
    raise Failed(problem, "refuse a longer text than you keep with the code too_long")


@point("put.blank", "a blank text or an unfit name is invalid", needs=_SET, when="--write")
async def put_blank(kit: Kit) -> None:
    """A role needs a text that is not blank, and a valid name."""
    scope_id = await kit.free(kit.tier)
    for name, content, what in (
        ("doctor", "", "of an empty text"),
        ("doctor", " \t\n", "of a blank text"),
        ("doctor", "\u3000\u00a0", "of a text of blanks that are not ASCII"),
        ("", kit.text(), "of an empty name"),
        ("  ", kit.text(), "of a blank name"),
        ("d" * 201, kit.text(), "of a name of 201 characters"),
        ("the\ndoctor", kit.text(), "of a name with a line break"),
    ):
        (await kit.put(kit.tier, scope_id, content, name)).expect("invalid", what)
    await _unset(kit, scope_id, "a put that was refused set a role")


@point("put.tiers", "it keeps a role of each tier that it offers", needs=_SET, when="--write")
async def put_tiers(kit: Kit) -> str | None:
    """Each tier keeps its own role under one id."""
    one = kit.unused_id()
    places = {tier: await kit.free(tier) if tier in kit.options.scopes else one for tier in kit.usable}
    contents = {tier: kit.text() for tier in places}
    for tier, scope_id in places.items():
        await _kept(kit, tier, scope_id, contents[tier])
    for tier, scope_id in places.items():
        _check_role(await kit.get(tier, scope_id), tier, "doctor", contents[tier])
    return ", ".join(places)


# --- what reading gives, with roles to read ---------------------------------------------------------------------------


@point("list.records", "a role is name, content and tier", needs=_READ)
async def list_records(kit: Kit) -> None:
    """Each entry of the list is a role."""
    scope_ids = {tier.value: scope_id for tier, scope_id in (await _scopes(kit)).items()}
    reply = await kit.call(_LIST, scope_ids=scope_ids)
    for place, kind in reply.validation_errors():
        if place[0] == "roles":
            raise Failed(f"role_list gave an entry that is not a role ({kind})", "give name, content and tier only")
    if not reply.roles():
        if kit.passed("put.answer"):
            raise Failed("role_list does not give a role that was put", "give the roles of the scopes asked for")
        raise Skipped("no role is set in the scopes that were read", _NAME_ONE)


@point("list.tiers", "one role for a tier, and only for tiers asked", needs=_READ)
async def list_tiers(kit: Kit) -> None:
    """One role for a tier, and none of a tier that was not requested."""
    scope_ids = await _scopes(kit)
    seen = 0
    for given in (scope_ids, *({tier: scope_id} for tier, scope_id in scope_ids.items())):
        roles = await kit.listed(given)
        seen += len(roles)
        named = [str(role.get("tier")) for role in roles if isinstance(role, dict)]
        if not {tier.value for tier in given}.issuperset(named):
            raise Failed("role_list gave a role of a tier that was not asked for", "leave it out")
        if len(set(named)) < len(named):
            raise Failed("role_list gave several roles of a tier for one scope", "keep one, the last put")
    if not seen:
        raise Skipped("no role is set in the scopes that were read", _NAME_ONE)


@point("get.agrees", "role_get and role_list agree", needs=_READ)
async def get_agrees(kit: Kit) -> None:
    """Both tools give the same role."""

    def read(role: Mapping[str, Any] | None) -> tuple[Any, ...]:
        return () if role is None else (role.get("name"), role.get("content"))

    scope_ids = await _scopes(kit)
    listed = {role.get("tier"): role for role in await kit.listed(scope_ids) if isinstance(role, dict)}
    for tier, scope_id in scope_ids.items():
        reply = await kit.get(tier, scope_id)
        role = None if reply.code == "not_found" else reply.role()
        if read(role) != read(listed.get(tier.value)):
            raise Failed(f"role_get and role_list give different {tier} roles", "let both read the same")


@point("scope.apart", "a role is seen in its own scope only", needs=_READ)
async def scope_apart(kit: Kit) -> None:
    """An unused scope has no role, also when other scopes have one."""
    if kit.tier in kit.options.scopes:
        raise Skipped("two scopes are needed, and one is named", "give a token that reaches more than --scope names")
    if kit.passed("put.answer"):
        await kit.set_role(kit.tier)
    other, remedy = kit.unused_id(), "look for the scope that is asked for"
    if await kit.listed({kit.tier: other}):
        raise Failed("role_list of an unused scope gives the role of another", remedy)
    if _GET in kit.schemas and not (await kit.get(kit.tier, other)).failed:
        raise Failed("role_get of an unused scope gives the role of another", remedy)


@point("scope.forbidden", "a foreign scope is forbidden", needs=_READ, when="--foreign-scope")
async def scope_forbidden(kit: Kit) -> None:
    """Scopes that the caller must not use are refused, alone and with others."""
    if not kit.options.foreign:
        raise Skipped("no foreign scope is named", "name one that the token does not reach: --foreign-scope")
    for tier, scope_id in kit.options.foreign.items():
        own = {each.value: kit.readable(each) for each in kit.usable if each != tier}
        for scope_ids in ({tier.value: scope_id}, {**own, tier.value: scope_id}):
            reply = await kit.call(_LIST, scope_ids=scope_ids)
            reply.expect("forbidden", f"of a foreign {tier} scope")
        (await kit.get(tier, scope_id)).expect("forbidden", f"of a foreign {tier} scope")


# --- deleting and notices ---------------------------------------------------------------------------------------------


@point("delete.answer", "role_delete gives the role and clears it", needs=_SET_READ, when="--write")
async def delete_answer(kit: Kit) -> None:
    """The answer is the role as it was, and the role is deleted."""
    scope_id, content = await kit.set_role(kit.tier)
    _check_role(await kit.delete(kit.tier, scope_id), kit.tier, "doctor", content)
    await _unset(kit, scope_id, "role_get gives a role that was deleted")
    if content in await _listed(kit, scope_id):
        raise Failed("role_list gives a role that was deleted", "let a deletion clear it")


@point("delete.again", "role_delete of no role is not_found", needs=_SET, when="--write")
async def delete_again(kit: Kit) -> None:
    """A second deletion finds nothing."""
    scope_id, _ = await kit.set_role(kit.tier)
    (await kit.delete(kit.tier, scope_id)).role()
    (await kit.delete(kit.tier, scope_id)).expect("not_found", "of a role that is not set")


@point("change.notice", "it tells of changes, if it offers to", needs=_SET, when="--write")
async def change_notice(kit: Kit) -> None:
    """A host that offers notices sends one for a put and one for a deletion."""
    link = await kit.link()
    client, resources = link.client, link.client.server_capabilities.resources
    if not link.modern or resources is None or not resources.subscribe:
        raise Skipped("it does not offer to, and need not")
    scope_id, remedy = await kit.free(kit.tier), "send a notice of each put and deletion, or do not offer it"
    uri = f"role://{kit.tier}/{quote(scope_id, safe='')}"
    problem = "it did not send a notice of a change within the time limit"
    with contextlib.suppress(TimeoutError):
        try:
            async with asyncio.timeout(kit.options.timeout), client.listen(resource_subscriptions=[uri]) as stream:
                put = partial(kit.put, kit.tier, scope_id, kit.text())
                for change in (put, partial(kit.delete, kit.tier, scope_id)):
                    (await change()).role()
                    if getattr(await anext(stream), "uri", "") != uri:
                        raise Failed("it sent a notice of a change under another address", remedy)
                return
        except (MCPError, SubscriptionLost, StopAsyncIteration):
            problem = "it did not keep the stream of changes open"
    raise Failed(problem, remedy)


# --- speed, and calls at the same time --------------------------------------------------------------------------------


@point("speed.list", "role_list is fast", needs=_READ)
async def speed_list(kit: Kit) -> str | None:
    """The median round trip of the call that every turn makes."""
    scope_id = kit.readable(kit.tier)
    await kit.link()
    taken: list[float] = []
    while len(taken) < _ROUNDS and (len(taken) < 3 or sum(taken) <= kit.options.timeout):
        began = time.perf_counter()
        await kit.listed({kit.tier: scope_id})
        taken.append(time.perf_counter() - began)
    middle = median(taken)
    problem = f"a role_list takes {middle * 1000:,.0f} ms, the median of {len(taken)}"
    if middle > kit.options.slow:
        raise Failed(problem, f"answer within {kit.options.slow:g} s: an agent waits no longer")
    if middle > kit.options.slowish:
        raise Warned(problem, "every turn waits for it: an index, or a cache, may help")
    return f"{middle * 1000:,.1f} ms"


@point("load.many", "16 calls at once are answered right", needs=_READ)
async def load_many(kit: Kit) -> None:
    """Concurrent calls get the same answers as single ones."""
    scopes = [(await _scopes(kit))[kit.tier], kit.readable(kit.tier)] * (_AT_ONCE // 2)
    alone = [await kit.listed({kit.tier: scope_id}) for scope_id in scopes[:2]] * (_AT_ONCE // 2)
    await kit.link()
    calls = (kit.listed({kit.tier: scope_id}) for scope_id in scopes)
    concurrent = await asyncio.gather(*calls, return_exceptions=True)  # no call runs on when the point ends
    for found in concurrent:
        if isinstance(found, BaseException):
            raise found
    if wrong := sum(roles != before for roles, before in zip(concurrent, alone, strict=True)):
        raise Failed(f"{wrong} of {_AT_ONCE} calls at once got another answer than alone", "let calls share nothing")


@point("load.cancelled", "a cancelled call disturbs no other", needs=_READ)
async def load_cancelled(kit: Kit) -> None:
    """Calls are cancelled at several moments. The next call must get its answer, over the same link."""
    link, scope_ids = await kit.link(), {kit.tier: kit.readable(kit.tier)}
    before = await kit.listed(scope_ids)
    for moment in _MOMENTS:
        with contextlib.suppress(TimeoutError, Finding):  # the last call decides
            async with asyncio.timeout(moment):
                await kit.listed(scope_ids)
    if await kit.listed(scope_ids) != before or link.over:
        raise Failed("after cancelled calls it answers something else", "let a cancelled call change nothing")


@point("write.cleanup", "the roles that the check put are cleared", needs=("write.scope",), when="--write")
async def write_cleanup(kit: Kit) -> str | None:
    """Everything that the check wrote is cleared."""
    written, left = await kit.clean_up()
    if left:
        named = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in sorted(left)[:3])
        raise Failed(f"{len(left)} of {written} scopes may still have a role, such as {named}", "clear them by hand")
    return f"{written} scopes"


# --- what they share --------------------------------------------------------------------------------------------------


async def _scopes(kit: Kit) -> dict[Tier, str]:
    """Return the scopes to read, with roles in them if the check can put roles."""
    if kit.passed("put.answer"):
        return {tier: (await kit.set_role(tier))[0] for tier in kit.usable}
    return {tier: kit.readable(tier) for tier in kit.usable}


async def _listed(kit: Kit, scope_id: str) -> list[Any]:
    """Return the texts that `role_list` gives for one scope."""
    return [role.get("content") for role in await kit.listed({kit.tier: scope_id}) if isinstance(role, dict)]


async def _unset(kit: Kit, scope_id: str, otherwise: str) -> None:
    """Check that a scope has no role; another point checks which error says so."""
    if not (await kit.get(kit.tier, scope_id)).failed:
        raise Failed(otherwise, "let an error change nothing, and a deletion clear the role")


async def _kept(kit: Kit, tier: Tier, scope_id: str, content: str, name: str = "doctor") -> None:
    """Put a role; check that both the answer and `role_get` give it back."""
    _check_role(await kit.put(tier, scope_id, content, name), tier, name, content)
    _check_role(await kit.get(tier, scope_id), tier, name, content)


def _check_role(reply: Reply, tier: Tier, name: str, content: str) -> None:
    """Check that an answer is this role."""
    role = reply.role()
    for field, wanted in (("tier", tier.value), ("name", name), ("content", content)):
        found = role[field]
        if found != wanted:
            how = "" if field == "tier" else f" ({len(wanted):,} characters became {len(found):,})"
            raise Failed(f"{reply.tool} gave another {field} than was put{how}", "keep every character as it came")
