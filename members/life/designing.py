"""How a member designs a role template: a model proposes it, and it is a draft until a person approved it (A10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...agent.distilling import ask_model
from ...agent.runtime.inside import inside
from ...core import Scope
from ...core.checks import check_text, to_json
from ...core.errors import InvalidArgument, OutputInvalid
from ...core.scope import account_of
from ..capability import Members
from ..data.roles import AuthorityConfig, ClearanceProfile
from ..data.workspace import RoleTemplate, RoleTemplateDraft
from .members import Member
from .memory import AgentMemory

if TYPE_CHECKING:
    from ...agent import WorldAgent

_KNOWN: Final = 10  # insights that the model is shown
_MAX_REASONING: Final = 20_000


async def design_role(agent: WorldAgent, role_id: str, intent: str, *, llm: str | None = None) -> RoleTemplateDraft:
    """Let a member design a template; see `AutonomousRole.design_role`."""
    from ...signatures.designs import DESIGN  # it loads dspy

    check_text("intent", intent)
    society = agent.get(Members)
    author = await society.members.member(agent.workspace, role_id)
    insights = await AgentMemory(agent, role_id).recall_insights(intent, limit=_KNOWN)
    templates = await society.templates(role_id)
    inputs = {
        "author": {
            "domains": [*author.spec.domains],
            "authority": to_json(author.spec.authority),
            "operator_ids": [*author.spec.operator_ids],
        },
        "templates": [to_json(each) for each in templates],
        "known": [each.text for each in insights],
        "intent": intent,
    }
    scope = Scope(workspace=agent.workspace, account=account_of(agent.workspace, role_id))
    fields = await ask_model(inside(agent).parts, scope, DESIGN, inputs, model=llm)
    try:
        read = {mark for each in insights for mark in each.untrusted} | {*author.spec.untrusted}
        return await society.drafts.propose(replace(_draft(author, intent, fields), untrusted=tuple(sorted(read))))
    except InvalidArgument as error:
        problem = error.problem
    raise OutputInvalid(
        f"the template that a model designed cannot be used: {problem}", remedy="say more of the intent"
    )


def _draft(author: Member, intent: str, fields: Mapping[str, Any]) -> RoleTemplateDraft:
    """What a model designed, as a draft.

    Raises:
        InvalidArgument: It is not a valid template.
    """
    proposed = fields["template"]
    template = RoleTemplate(
        template_id=proposed.template_id,
        name_pattern=proposed.name_pattern,
        soul_template=proposed.soul_template,
        domains=tuple(proposed.domains),
        authority=AuthorityConfig(
            autonomous=tuple(proposed.autonomous),
            needs_approval=tuple(proposed.needs_approval),
            forbidden=tuple(proposed.forbidden),
        ),
        operator_ids=tuple(proposed.operator_ids),
        clearance=author.spec.clearance or ClearanceProfile(),
        ttl=proposed.ttl,
        parameters=tuple(proposed.parameters),
    )
    return RoleTemplateDraft(
        proposed_by=author.id, intent=intent, template=template, reasoning=fields["reasoning"][:_MAX_REASONING]
    )
