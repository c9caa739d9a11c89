"""How the members of a workspace's configuration join it, and how a changed definition is applied (000 4.9, path 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...core.errors import RoleExists
from ...storage import Transaction
from ..data.roles import RoleSpec, TrustProfile
from ..data.workspace import WorkspacePolicy
from .lives import below
from .members import Member, members_of, redefine_member
from .outcomes import outcomes_of, replayed, sums_of
from .spawning import narrowed


def circle_of(roles: Iterable[RoleSpec]) -> tuple[RoleSpec, ...]:
    """The members that report to each other in a circle, or to one that does.

    Args:
        roles: Members of a configuration.
    """
    left = {each.role_id: each for each in roles}
    while free := [id_ for id_, each in left.items() if each.reports_to not in left]:
        for id_ in free:
            del left[id_]
    return tuple(left.values())


def redefine(tx: Transaction, before: Member, spec: RoleSpec, policy: WorkspacePolicy) -> Member:
    """Replace the definition of a member. Its state, memory, messages and contacts stay, and so does what it earned.

    Its trust is computed again from its outcomes if the definition has another one. What it may not do, know or run any
    more, its descendants may not either (A9). They get nothing that is new. Another soul has the next version (A13).

    Args:
        tx: A transaction.
        before: The member as it is stored.
        spec: Its new definition.
        policy: The policy of the workspace.

    Raises:
        RoleExists: A template made the member, so no configuration defines it.
    """
    if before.spec.created_by or before.spec.parent_role_id:
        raise RoleExists(
            f"{spec.role_id!r} of the configuration is a member that {before.spec.created_by!r} made of a template",
            remedy="use another role_id in the configuration",
        )
    life = replace(before.life, memory_policy=spec.memory_policy)
    version = before.soul_version + (spec.soul != before.spec.soul)
    after = replace(before, spec=spec, life=life, soul_version=version)
    if spec.trust != before.spec.trust:
        default = TrustProfile(default=policy.default_trust) if spec.trust is None else spec.trust
        after = replace(after, trust=default)
        after = replace(after, trust=replayed(after, outcomes_of(tx, after), sums_of(tx, after)))
    redefine_member(tx, after)
    lines = {after.id: after}
    for id_ in reversed(below(tx, spec.workspace, after.id)):
        child = members_of(tx, spec.workspace, [id_])[id_]
        lines[id_] = replace(child, spec=narrowed(child.spec, lines[child.spec.parent_role_id].spec))
        if lines[id_] != child:
            redefine_member(tx, lines[id_])
    return after
