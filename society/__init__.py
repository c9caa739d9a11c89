"""A society of members: who they are, how they are asked, and what they send one another. No model and no turn.

Modules: `brief`, `delivery`, `messages`, `roles`, `workspace`.
"""

from .brief import Collaborator, InterfaceSpec, TaskBrief
from .delivery import Introduction, delivered
from .messages import RoleMessage
from .roles import (
    AuthorityConfig,
    ClearanceProfile,
    KeyResult,
    Objective,
    Participant,
    RoleLifecycle,
    RoleSpec,
    RoleStatus,
    TrustProfile,
    update_trust,
)
from .workspace import (
    Event,
    RoleTemplate,
    RoleTemplateDraft,
    RoutingDecision,
    SpawnCondition,
    SpawnRecommendation,
    SpawnSignal,
    WorkspaceConfig,
    WorkspacePolicy,
)

__all__ = [
    "AuthorityConfig",
    "ClearanceProfile",
    "Collaborator",
    "Event",
    "InterfaceSpec",
    "Introduction",
    "KeyResult",
    "Objective",
    "Participant",
    "RoleLifecycle",
    "RoleMessage",
    "RoleSpec",
    "RoleStatus",
    "RoleTemplate",
    "RoleTemplateDraft",
    "RoutingDecision",
    "SpawnCondition",
    "SpawnRecommendation",
    "SpawnSignal",
    "TaskBrief",
    "TrustProfile",
    "WorkspaceConfig",
    "WorkspacePolicy",
    "delivered",
    "update_trust",
]
