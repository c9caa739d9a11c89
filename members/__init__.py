"""Members of a workspace: who they are, what they send one another, and what starts their turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .capability import Members
    from .cases import Case, CaseStep, case_of
    from .data.brief import InterfaceSpec, TaskBrief
    from .data.limits import MemberLimits
    from .data.remote import RemoteAgent
    from .data.roles import AuthorityConfig, KeyResult, Objective, RoleSpec, Route
    from .data.workspace import Event, RoleTemplate, WorkspaceConfig, WorkspacePolicy
    from .functions import SEND_RULES
    from .gateway import Gateway
    from .life.memory import AgentMemory
    from .life.removal import export_member, remove_member
    from .mail.contacts import Contact
    from .mail.letters import Letter
    from .mail.messages import RoleMessage
    from .operators import agent_node, llm_node
    from .role import AutonomousRole
    from .society import Society
    from .workspace_file import load_workspace

__all__ = [
    "SEND_RULES",
    "AgentMemory",
    "AuthorityConfig",
    "AutonomousRole",
    "Case",
    "CaseStep",
    "Contact",
    "Event",
    "Gateway",
    "InterfaceSpec",
    "KeyResult",
    "Letter",
    "MemberLimits",
    "Members",
    "Objective",
    "RemoteAgent",
    "RoleMessage",
    "RoleSpec",
    "RoleTemplate",
    "Route",
    "Society",
    "TaskBrief",
    "WorkspaceConfig",
    "WorkspacePolicy",
    "agent_node",
    "case_of",
    "export_member",
    "llm_node",
    "load_workspace",
    "remove_member",
]

__getattr__ = lazy(
    __name__,
    {
        ".capability": "Members",
        ".cases": "Case CaseStep case_of",
        ".data.brief": "InterfaceSpec TaskBrief",
        ".data.remote": "RemoteAgent",
        ".data.limits": "MemberLimits",
        ".data.roles": "AuthorityConfig KeyResult Objective RoleSpec Route",
        ".data.workspace": "Event RoleTemplate WorkspaceConfig WorkspacePolicy",
        ".functions": "SEND_RULES",
        ".gateway": "Gateway",
        ".life.memory": "AgentMemory",
        ".life.removal": "export_member remove_member",
        ".mail.contacts": "Contact",
        ".mail.letters": "Letter",
        ".mail.messages": "RoleMessage",
        ".operators": "agent_node llm_node",
        ".role": "AutonomousRole",
        ".society": "Society",
        ".workspace_file": "load_workspace",
    },
)
