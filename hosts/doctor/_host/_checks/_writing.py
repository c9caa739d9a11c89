"""What putting and deleting does, in scopes of the check's own. Each check takes a free scope."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote

from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, Subscription, SubscriptionLost, listen
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from .....core import Tier
from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._replies import Reply

LONG: Final = 32 * 1024
"""Bytes of UTF-8 that every host takes."""
MOST: Final = 512 * 1024
"""Bytes of UTF-8 that a host may take at most."""
_TOO_LONG: Final = (LONG + 1, MOST + 1)

# Composed and decomposed, right to left, joined and astral characters, blanks and line ends that a form would trim.
_ODD: Final = (
    " \t\u00e9 e\u0301 \u05e9\u05dc\u05d5\u05dd \u6f22\u5b57 \U0001f469\u200d\U0001f680 \ufeff\u00a0\u2028\r\n"
)
_ODD_NAME: Final = "\u00e9 e\u0301 \u05e9\u05dc\u05d5\u05dd \u6f22\u5b57 \U0001f680 doctor"


async def free(kit: Kit) -> str | None:
    """Scopes that are named for the check have no role that it would overwrite."""
    for tier, scope_id in kit.options.scopes.items():
        if tier not in kit.tiers:
            raise Failed(f"the host keeps no {tier} roles, and --scope names one", "name a scope of another tier")
        reply = await kit.get(tier, scope_id)
        if not reply.failed:
            raise Failed(f"a role is set in the {tier} scope that --scope names", "clear it, or name another scope")
        reply.expect("not_found", "of the scope that --scope names")
    return None


async def put(kit: Kit) -> str | None:
    """The answer to a put is the role."""
    scope_id, content = await kit.free(kit.tier), kit.text()
    reply = await kit.put(kit.tier, scope_id, content, name="the doctor")
    _hold(reply, kit.tier, "the doctor", content)
    _hold(await kit.get(kit.tier, scope_id), kit.tier, "the doctor", content)
    return None


async def text(kit: Kit) -> str | None:
    """What comes back is what was put, in every byte, wherever it comes back."""
    scope_id = await kit.free(kit.tier)
    content, name = f"{_ODD}{kit.text()}{_ODD}", _ODD_NAME
    _hold(await kit.put(kit.tier, scope_id, content, name), kit.tier, name, content)
    _hold(await kit.get(kit.tier, scope_id), kit.tier, name, content)
    if content not in await _listed(kit, scope_id):
        raise Failed("role_list gave another text than was put", "keep and give every character as it came")
    return None


async def replace(kit: Kit) -> str | None:
    """The second role takes the place of the first."""
    scope_id, before = await kit.set_role(kit.tier)
    content = kit.text("Answer in French.")
    _hold(await kit.put(kit.tier, scope_id, content, "second"), kit.tier, "second", content)
    _hold(await kit.get(kit.tier, scope_id), kit.tier, "second", content)
    if before in await _listed(kit, scope_id):
        raise Failed("role_list still gives the role before", "keep one role for a tier and scope, the last put")
    return None


async def long(kit: Kit) -> str | None:
    """As many bytes as every host takes, in characters of two bytes."""
    scope_id, words = await kit.free(kit.tier), kit.text()
    room = LONG - len(words)
    content = words + "\u00e9" * (room // 2) + "x" * (room % 2)
    _hold(await kit.put(kit.tier, scope_id, content), kit.tier, "doctor", content)
    _hold(await kit.get(kit.tier, scope_id), kit.tier, "doctor", content)
    return None


async def too_long(kit: Kit) -> str | None:
    """Some length is too long, and such a text changes nothing."""
    for size in _TOO_LONG:
        scope_id = await kit.free(kit.tier)
        reply = await kit.put(kit.tier, scope_id, kit.text().ljust(size, "x"))
        if reply.failed:
            reply.expect("too_long", f"of {size:,} bytes")
            await _unset(kit, scope_id, "a put that was refused changed the role")
            return f"{size:,} bytes are refused"
    raise Failed(f"it takes more than {MOST // 1024} KiB", "refuse a longer text than you keep with the code too_long")


async def blank(kit: Kit) -> str | None:
    """A role without a text, or with a name that cannot be one, is none."""
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
    return None


async def tiers(kit: Kit) -> str | None:
    """Each tier keeps its own role under one id."""
    one = kit.made_up()
    places = {tier: await kit.free(tier) if tier in kit.options.scopes else one for tier in kit.usable}
    contents = {tier: kit.text() for tier in places}
    for tier, scope_id in places.items():
        _hold(await kit.put(tier, scope_id, contents[tier]), tier, "doctor", contents[tier])
    for tier, scope_id in places.items():
        _hold(await kit.get(tier, scope_id), tier, "doctor", contents[tier])
    return ", ".join(places)


async def delete(kit: Kit) -> str | None:
    """The answer is the role as it was, and it is gone."""
    scope_id, content = await kit.set_role(kit.tier)
    place = {"tier": kit.tier.value, "scope_id": scope_id}
    _hold(await kit.call("role_delete", **place), kit.tier, "doctor", content)
    await _unset(kit, scope_id, "role_get gives a role that was deleted")
    if content in await _listed(kit, scope_id):
        raise Failed("role_list gives a role that was deleted", "let a deletion clear it")
    return None


async def again(kit: Kit) -> str | None:
    """There is nothing to delete twice."""
    scope_id, _ = await kit.set_role(kit.tier)
    place = {"tier": kit.tier.value, "scope_id": scope_id}
    (await kit.call("role_delete", **place)).role()
    (await kit.call("role_delete", **place)).expect("not_found", "of a role that is not set")
    return None


async def notice(kit: Kit) -> str | None:
    """A host that offers notices tells of a put and of a deletion."""
    session = (await kit.wire()).session
    resources = session.server_capabilities.resources if session.server_capabilities else None
    if kit.revision not in MODERN_PROTOCOL_VERSIONS or resources is None or not resources.subscribe:
        raise Skipped("it does not offer to, and need not")
    scope_id = await kit.free(kit.tier)
    uri = f"role://{kit.tier}/{quote(scope_id, safe='')}"
    problem = ""
    try:
        async with asyncio.timeout(kit.options.timeout), listen(session, resource_subscriptions=[uri]) as stream:
            (await kit.put(kit.tier, scope_id, kit.text())).role()
            problem = await _told(stream, uri, kit.options.timeout)
            if not problem:
                (await kit.call("role_delete", tier=kit.tier.value, scope_id=scope_id)).role()
                problem = await _told(stream, uri, kit.options.timeout)
    except TimeoutError:
        problem = "it did not tell of a change in time"
    except (MCPError, SubscriptionLost):
        problem = "it did not keep the stream of changes open"
    if problem:
        raise Failed(problem, "tell of each put and deletion under role://{tier}/{scope_id}, or do not offer it")
    return None


async def clean(kit: Kit) -> str | None:
    """Nothing that the check wrote is left."""
    written = len(kit.written)
    left = await kit.clean_up()
    if left:
        told = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in left[:3])
        raise Failed(f"{len(left)} of {written} scopes are not known to be clear, such as {told}", "clear them by hand")
    return f"{written} scopes"


async def _told(stream: Subscription, uri: str, limit: float) -> str:
    async with asyncio.timeout(limit / 2):
        async for event in stream:
            if isinstance(event, ResourceUpdated):
                return "" if event.uri == uri else "it told of a change under another address"
    return "it ended the stream of changes"


async def _listed(kit: Kit, scope_id: str) -> list[Any]:
    """The texts that `role_list` gives for one scope."""
    roles = await kit.listed({kit.tier: scope_id})
    return [role.get("content") for role in roles if isinstance(role, dict)]


async def _unset(kit: Kit, scope_id: str, otherwise: str) -> None:
    """Hold a scope to have no role; which error says so is another point's matter."""
    if not (await kit.get(kit.tier, scope_id)).failed:
        raise Failed(otherwise, "let an error change nothing, and a deletion clear the role")


def _hold(reply: Reply, tier: Tier, name: str, content: str) -> None:
    """Hold an answer to be this role."""
    role: dict[str, Any] = reply.role()
    for field, wanted in (("tier", tier.value), ("name", name), ("content", content)):
        found = role[field]
        if found != wanted:
            how = "" if field == "tier" else f" ({len(wanted):,} characters became {len(found):,})"
            raise Failed(f"{reply.tool} gave another {field} than was put{how}", "keep every character as it came")


CHECKS = {
    "write.scope": free,
    "put.answer": put,
    "put.text": text,
    "put.replace": replace,
    "put.long": long,
    "put.too_long": too_long,
    "put.blank": blank,
    "put.tiers": tiers,
    "delete.answer": delete,
    "delete.again": again,
    "change.notice": notice,
    "write.cleanup": clean,
}

__all__ = ["CHECKS"]
