"""A society of members: who they are, whom they know, and what they send one another. No model and no turn (002)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from ..memory.members import SOCIETY
    from .brief import Collaborator, InterfaceSpec, TaskBrief
    from .contacts import Contact, ContactRegistry
    from .delivery import Introduction, delivered
    from .drafts import Drafts
    from .events import Events, PostedEvent, read_event
    from .functions import SEND_RULES, SocietyFunctions
    from .lifecycle import LifeStep
    from .lives import MemoryDue
    from .mail import Letter
    from .members import InMemoryRegistry, Member, MemberRegistry, RoleRegistry
    from .messages import RoleMessage
    from .outcomes import Outcome, Outcomes
    from .recommendations import OpenRecommendation, Recommendations
    from .roles import (
        AuthorityConfig,
        ClearanceProfile,
        KeyResult,
        Objective,
        Participant,
        RoleLifecycle,
        RoleSpec,
        RoleStatus,
        Route,
        TrustProfile,
        update_trust,
    )
    from .society import Society
    from .transport import InMemoryTransport, RoleTransport
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
    "SEND_RULES",
    "SOCIETY",
    "AuthorityConfig",
    "ClearanceProfile",
    "Collaborator",
    "Contact",
    "ContactRegistry",
    "Drafts",
    "Event",
    "Events",
    "InMemoryRegistry",
    "InMemoryTransport",
    "InterfaceSpec",
    "Introduction",
    "KeyResult",
    "Letter",
    "LifeStep",
    "Member",
    "MemberRegistry",
    "MemoryDue",
    "Objective",
    "OpenRecommendation",
    "Outcome",
    "Outcomes",
    "Participant",
    "PostedEvent",
    "Recommendations",
    "RoleLifecycle",
    "RoleMessage",
    "RoleRegistry",
    "RoleSpec",
    "RoleStatus",
    "RoleTemplate",
    "RoleTemplateDraft",
    "RoleTransport",
    "Route",
    "RoutingDecision",
    "Society",
    "SocietyFunctions",
    "SpawnCondition",
    "SpawnRecommendation",
    "SpawnSignal",
    "TaskBrief",
    "TrustProfile",
    "WorkspaceConfig",
    "WorkspacePolicy",
    "delivered",
    "read_event",
    "update_trust",
]

__getattr__ = lazy(
    __name__,
    {
        ".brief": "Collaborator InterfaceSpec TaskBrief",
        ".contacts": "Contact ContactRegistry",
        ".delivery": "Introduction delivered",
        ".drafts": "Drafts",
        ".events": "Events PostedEvent read_event",
        ".functions": "SEND_RULES SocietyFunctions",
        ".lifecycle": "LifeStep",
        ".lives": "MemoryDue",
        ".mail": "Letter",
        ".members": "InMemoryRegistry Member MemberRegistry RoleRegistry",
        ".messages": "RoleMessage",
        ".outcomes": "Outcome Outcomes",
        ".recommendations": "OpenRecommendation Recommendations",
        ".roles": "AuthorityConfig ClearanceProfile KeyResult Objective Participant RoleLifecycle RoleSpec RoleStatus"
        " Route TrustProfile update_trust",
        ".society": "Society",
        "..memory.members": "SOCIETY",
        ".transport": "InMemoryTransport RoleTransport",
        ".workspace": "Event RoleTemplate RoleTemplateDraft RoutingDecision SpawnCondition SpawnRecommendation"
        " SpawnSignal WorkspaceConfig WorkspacePolicy",
    },
)
