"""What a host must refuse. Without `write` only tools that read are asked, lest a host do what it should refuse."""

from __future__ import annotations

from typing import Any

from .....core import STORED_TIERS, Tier
from ..._outcomes import Failed
from .._kit import Kit

Call = tuple[str, dict[str, Any], str]


async def tier(kit: Kit) -> str | None:
    """Tiers that are none, that no host keeps, or that this one does not keep."""
    place = {"tier": f"tier-{kit.marker}", "scope_id": kit.made_up()}
    calls: list[Call] = [("role_get", place, "for an unknown tier")]
    names = ["no-such-tier", Tier.CALL.value, Tier.THREAD.value]
    if kit.passed("tools.tiers"):
        names += [each.value for each in STORED_TIERS if each not in kit.tiers]
    for name in names:
        about = "for an unknown tier" if name == names[0] else f"for the {name} tier"
        place = {"tier": name, "scope_id": kit.made_up()}
        calls.append(("role_get", place, about))
        calls.append(("role_list", {"scope_ids": {name: kit.made_up()}}, about))
        calls.append(("role_delete", place, about))
        calls.append(("role_put", {**place, "name": "doctor", "content": kit.text()}, about))
    return await _invalid(kit, calls)


async def arguments(kit: Kit) -> str | None:
    """Arguments that are missing, more than there are, or of another type."""
    extra = {"no_such_argument": kit.marker}
    place = {"tier": kit.tier.value, "scope_id": kit.made_up()}
    role = {"name": "doctor", "content": kit.text()}
    calls: list[Call] = [
        ("role_list", {}, "without scope_ids"),
        ("role_list", {"scope_ids": kit.marker}, "with a text as scope_ids"),
        ("role_list", {"scope_ids": {kit.tier.value: 5}}, "with a number as id"),
        ("role_list", {"scope_ids": {}, **extra}, "with an argument that it does not have"),
        ("role_get", {"tier": kit.tier.value}, "without scope_id"),
        ("role_get", {"scope_id": kit.made_up()}, "without tier"),
        ("role_get", {**place, "scope_id": 5}, "with a number as scope_id"),
        ("role_get", {**place, **extra}, "with an argument that it does not have"),
        ("role_delete", {**place, **extra}, "with an argument that it does not have"),
        ("role_put", {**place, "name": "doctor"}, "without content"),
        ("role_put", {**place, **role, "content": 5}, "with a number as content"),
        ("role_put", {**place, **role, **extra}, "with an argument that it does not have"),
    ]
    return await _invalid(kit, calls)


async def scope(kit: Kit) -> str | None:
    """Ids that are empty, blank, too long or not printable."""
    wrong = {
        "with an empty id": "",
        "with a blank id": "   ",
        "with an id of 201 characters": kit.made_up().ljust(201, "x"),
        "with a line break in the id": f"{kit.made_up()}\n{kit.marker}",
        "with a control character in the id": f"{kit.made_up()}\x07",
    }
    calls: list[Call] = []
    for about, scope_id in wrong.items():
        place = {"tier": kit.tier.value, "scope_id": scope_id}
        calls.append(("role_list", {"scope_ids": {kit.tier.value: scope_id}}, about))
        calls.append(("role_get", place, about))
        calls.append(("role_put", {**place, "name": "doctor", "content": kit.text()}, about))
    return await _invalid(kit, calls)


async def tool(kit: Kit) -> str | None:
    """A tool that is none is no matter of the contract."""
    reply = await kit.call(f"role_{kit.marker}", scope_ids={})
    if reply.protocol is None:
        raise Failed(
            "a call of an unknown tool gave a result of a tool", "answer with an error of the protocol, such as -32602"
        )
    return None


async def _invalid(kit: Kit, calls: list[Call]) -> str | None:
    # What does not work at all is told by another point.
    usable = {"role_get"} | ({"role_list"} if kit.passed("list.answer") else set())
    usable |= {"role_put", "role_delete"} if kit.options.write else set()
    for name, given, about in calls:
        if name in kit.schemas and name in usable:
            (await kit.call(name, **given)).expect("invalid", about)
    return None


CHECKS = {"error.tier": tier, "error.arguments": arguments, "error.scope": scope, "error.tool": tool}

__all__ = ["CHECKS"]
