"""What a member can look into while it answers: its goals, whom it knows, and what it may do (000 4.6, A6).

Memory is looked into by the function `recall`, which an agent with memory has. None of them changes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import CallRefused, UnknownMember
from ..harness import CallContext, Function, flow
from ..memory.entries.recall import RECALL
from .contacts import as_shown
from .members import Member
from .roles import goals_text

if TYPE_CHECKING:
    from .society import Society

GOALS: Final = "check_goals"
LOOK_UP: Final = "look_up_role"
AUTHORITY: Final = "check_authority"
AMBIENT: Final = (RECALL, GOALS, LOOK_UP, AUTHORITY)
"""The functions that a member can call while it answers, and no others."""


def ambient_functions(society: Callable[[CallContext], Society]) -> tuple[Function, ...]:
    """The functions besides `recall`. Each is about the member that its turn runs for; no argument names another.

    Args:
        society: Returns the society for a call.
    """

    async def asking(ctx: CallContext) -> Member:
        known = society(ctx)
        try:
            return await known.members.member(known.config.id, ctx.on_behalf_of)
        except UnknownMember:
            pass
        raise CallRefused("this turn runs for no member of the workspace", remedy="continue without it")

    @flow(name=GOALS, description="Read your goals, and how far they are reached.", offered=False)
    async def check_goals(ctx: CallContext) -> str:
        return goals_text((await asking(ctx)).spec.goals) or "You have no goals now."

    @flow(name=LOOK_UP, description="Look up whom you can turn to, and for what.", offered=False)
    async def look_up_role(ctx: CallContext, domain: str = "") -> list[dict[str, Any]]:
        """Look up.

        Args:
            domain: What they are responsible for; empty is all that you know.
        """
        member, known = await asking(ctx), society(ctx)
        found = {each.id: each for each in await known.members.list_roles(known.config.id) if each.id != member.id}
        if known.config.policy.discovery == "open":
            shown = [{"id": each.id, "role": each.name} for each in found.values()]
        else:
            contacts = await known.contacts.list(member.id)
            ctx.gate.mark(*(mark for each in contacts for mark in each.marks))
            shown = [as_shown(each) for each in contacts]
        domains = {each["id"]: [*found[each["id"]].domains] if each["id"] in found else [] for each in shown}
        told = [{**each, "domains": domains[each["id"]]} for each in shown]
        return [each for each in told if not domain or domain in each["domains"]]

    @flow(name=AUTHORITY, description="Look up what you may do with a capability.", offered=False)
    async def check_authority(ctx: CallContext, capability: str) -> str:
        return (await asking(ctx)).spec.authority.of(capability)

    return check_goals, look_up_role, check_authority


__all__ = ["AMBIENT", "AUTHORITY", "GOALS", "LOOK_UP", "ambient_functions"]
