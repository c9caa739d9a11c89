"""What reading gives: the list, the single role, and the scopes that they keep apart. Nothing is written here.

With `write` the checks set roles to read; without, they read what is in the scopes that may be used.
"""

from __future__ import annotations

from typing import Any

from .....core import Tier
from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._replies import CONTRACT_REMEDY, FIELDS, misfit

_NOTHING = "no role is set in the scopes that were read"
_NAME_ONE = "name a scope that has one (--scope), or let the check set one (--write)"


async def answer(kit: Kit) -> str | None:
    """`role_list` answers with a list. Tiers whose scopes this caller may not use are left alone from here on."""
    opened: list[Tier] = []
    for tier in kit.tiers:
        reply = await kit.call("role_list", scope_ids={tier.value: kit.readable(tier)})
        if reply.code != "forbidden":
            reply.roles()
            opened.append(tier)
        elif tier in kit.options.scopes:
            raise Failed(f"this caller may not use the {tier} scope that --scope names", "name one that it may use")
    if not opened:
        raise Failed("this caller may not use the scopes that were read", "name one that it may: --scope workspace=ID")
    kit.open = tuple(opened)
    await kit.listed({tier: kit.readable(tier) for tier in opened})
    closed = [tier for tier in kit.tiers if tier not in opened]
    return f"{', '.join(closed)} left out: this caller may use certain scopes only" if closed else None


async def empty(kit: Kit) -> str | None:
    """Who asks for nothing gets nothing."""
    if await kit.listed({}):
        raise Failed("role_list of no scope gave roles", "give the roles of the scopes that are asked for only")
    return None


async def not_found(kit: Kit) -> str | None:
    """There is no role where nobody has put one, whatever the id looks like."""
    odd = f"{kit.made_up()} é/%20?#\\\"' \u6f22".ljust(200, ".")
    for scope_id in (kit.made_up(), odd):
        (await kit.get(kit.tier, scope_id)).expect("not_found", "of a role that is not set")
    return None


async def records(kit: Kit) -> str | None:
    """Each entry of the list is a role."""
    roles = await kit.listed(await _scopes(kit))
    for role in roles:
        problem = misfit(role)
        if problem:
            raise Failed(f"role_list gave something that is no role: {problem}", CONTRACT_REMEDY)
        more = role.keys() - FIELDS
        if more:
            raise Failed(f"role_list gave a role with {_counted(more)} besides", "give name, content and tier only")
    if not roles:
        if kit.passed("put.answer"):
            raise Failed("role_list does not give a role that was put", "give the roles of the scopes asked for")
        raise Skipped(_NOTHING, _NAME_ONE)
    return None


async def tiers(kit: Kit) -> str | None:
    """One role for a tier, and none of a tier that was not asked for."""
    scope_ids = await _scopes(kit)
    seen = 0
    for asked in (scope_ids, *({tier: scope_id} for tier, scope_id in scope_ids.items())):
        roles = await kit.listed(asked)
        seen += len(roles)
        named = [role.get("tier") for role in roles if isinstance(role, dict)]
        for tier in named:
            if tier not in [each.value for each in asked]:
                raise Failed("role_list gave a role of a tier that was not asked for", "leave it out")
            if named.count(tier) > 1:
                raise Failed(f"role_list gave {named.count(tier)} {tier} roles for one scope", "keep one, the last put")
    if not seen:
        raise Skipped(_NOTHING, _NAME_ONE)
    return None


async def agrees(kit: Kit) -> str | None:
    """What one gives, the other gives too."""
    scope_ids = await _scopes(kit)
    roles = await kit.listed(scope_ids)
    listed = {role.get("tier"): _read(role) for role in roles if isinstance(role, dict)}
    for tier, scope_id in scope_ids.items():
        reply = await kit.get(tier, scope_id)
        if tier.value not in listed:
            if reply.code != "not_found":
                reply.role()
                raise Failed(f"role_get gives a {tier} role that role_list leaves out", "let both read the same")
        elif _read(reply.role()) != listed[tier.value]:
            raise Failed(f"role_get and role_list give different {tier} roles", "let both read the same")
    return None


async def apart(kit: Kit) -> str | None:
    """A scope that nobody has used has no role, also when others have one."""
    kit.two_scopes(kit.tier)
    if kit.passed("put.answer"):
        await kit.set_role(kit.tier)
    other = kit.made_up()
    if await kit.listed({kit.tier: other}):
        raise Failed("role_list of an unused scope gives the role of another", "look for the scope that is asked for")
    if "role_get" in kit.schemas and not (await kit.get(kit.tier, other)).failed:
        raise Failed("role_get of an unused scope gives the role of another", "look for the scope that is asked for")
    return None


async def foreign(kit: Kit) -> str | None:
    """Scopes that the caller must not use are refused, alone and beside others."""
    if not kit.options.foreign:
        raise Skipped("no foreign scope is named", "name one that the token does not reach: --foreign-scope")
    for tier, scope_id in kit.options.foreign.items():
        own = {each.value: kit.readable(each) for each in kit.usable if each != tier}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("role_list", {"scope_ids": {tier.value: scope_id}}),
            ("role_list", {"scope_ids": {**own, tier.value: scope_id}}),
            ("role_get", {"tier": tier.value, "scope_id": scope_id}),
        ]
        for tool, arguments in calls:
            reply = await kit.call(tool, **arguments)
            if reply.code != "forbidden":
                reply.expect("forbidden", f"of a foreign {tier} scope")
    return None


async def _scopes(kit: Kit) -> dict[Tier, str]:
    """The scopes to read: with roles in them where roles may be put."""
    if kit.passed("put.answer"):
        return {tier: (await kit.set_role(tier))[0] for tier in kit.usable}
    return {tier: kit.readable(tier) for tier in kit.usable}


def _read(role: dict[str, Any]) -> tuple[Any, Any]:
    return role.get("name"), role.get("content")


def _counted(fields: set[str]) -> str:
    return "a field" if len(fields) == 1 else f"{len(fields)} fields"


CHECKS = {
    "list.answer": answer,
    "list.empty": empty,
    "get.not_found": not_found,
    "list.records": records,
    "list.tiers": tiers,
    "get.agrees": agrees,
    "scope.apart": apart,
    "scope.forbidden": foreign,
}

__all__ = ["CHECKS"]
