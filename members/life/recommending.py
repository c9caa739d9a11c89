"""What a member's episodes recommend: children of the templates that it can use (A15)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ...agent.runtime.inside import inside
from ...core import digest
from ...core.checks import to_json
from ...core.errors import InvalidArgument, ModelFacing
from ..capability import Members
from ..data.workspace import Event, SpawnRecommendation
from ..events.events import UNTRUSTED
from ..society import Society
from .members import Member
from .memory import MAX_LISTED, AgentMemory
from .recommendations import OpenRecommendation
from .spawning import spec_of

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ..data.workspace import RoleTemplate

RECOMMENDED: Final = "spawn.recommended"
"""The type of the event that a new recommendation is posted as."""


async def recommend(agent: WorldAgent, role_id: str) -> tuple[SpawnRecommendation, ...]:
    """Look for signals in a member's episodes; return its open recommendations.

    A new one is posted as the event `spawn.recommended`, which the member gets. Under the policy `auto_spawn`, its
    child is made at once, if the episodes say all params, none of these comes from untrusted content, and the policy
    asks for no brief. A child that is there already is not recommended. A second call, also after a kill, posts and
    makes nothing twice.

    Args:
        agent: An open agent with a society.
        role_id: The member.

    Raises:
        UnknownMember: It is not in the workspace.
    """
    society = agent.get(Members)
    member = await society.members.member(agent.workspace, role_id)
    templates = [each for each in await society.templates(role_id) if each.spawn_signals]
    conditions = [each for one in templates for signal in one.spawn_signals for each in signal.conditions]
    if not conditions:
        return tuple(each.recommendation for each in await society.recommendations.open(role_id))
    now = inside(agent).clock.now()
    since = now - timedelta(days=max(each.window_days for each in conditions))
    episodes = await AgentMemory(agent, role_id).episodes(since=since, limit=MAX_LISTED)
    found = [
        SpawnRecommendation(
            template_id=template.template_id,
            signal_id=signal.id,
            reason=signal.description,
            confidence=signal.evaluate(episodes, now=now),
            suggested_params=signal.params_from(episodes, now=now),
            untrusted=signal.untrusted_in(episodes, now=now),
        )
        for template in templates
        for signal in template.spawn_signals
        if signal.matches(episodes, now=now)
    ]
    known = {each.template_id: each for each in templates}
    new = [each for each in found if not await _is_there(society, member, known[each.template_id], each)]
    for each in await society.recommendations.add(role_id, new):
        if not await _spawned(society, each):
            await society.events.post(_event(member, each), to=role_id)
    return tuple(each.recommendation for each in await society.recommendations.open(role_id))


async def _is_there(society: Society, member: Member, template: RoleTemplate, found: SpawnRecommendation) -> bool:
    """Whether the child that is recommended was made before."""
    try:
        spec, _ = spec_of(society.config, template, found.suggested_params, member)
    except (InvalidArgument, ModelFacing):  # a param is left to the owner
        return False
    return await society.members.get(society.config.id, spec.role_id) is not None


async def _spawned(society: Society, found: OpenRecommendation) -> bool:
    """Make the child if the policy says so; one that cannot be made so waits for the owner."""
    policy, recommendation = society.config.policy, found.recommendation
    if not policy.auto_spawn or policy.brief != "derived" or recommendation.untrusted:
        return False
    try:
        await society.spawn(
            found.member,
            recommendation.template_id,
            recommendation.suggested_params,
            message_id=f"{_id_of(found)}.spawn",
        )
    except (InvalidArgument, ModelFacing):
        return False
    return True


def _event(member: Member, found: OpenRecommendation) -> Event:
    domains = member.spec.domains
    return Event(
        id=_id_of(found),
        type=RECOMMENDED,
        source=member.id,
        domain=domains[0] if domains else "spawn",
        payload=to_json(found.recommendation),
        metadata={UNTRUSTED: [*found.recommendation.untrusted]} if found.recommendation.untrusted else {},
        timestamp=found.at,
    )


def _id_of(found: OpenRecommendation) -> str:
    one = found.recommendation
    return f"{RECOMMENDED}.{digest([found.member, one.template_id, one.signal_id, found.at.timestamp()])}"
