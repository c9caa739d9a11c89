"""Operators made of a Signature and of a function, and role templates that a member designs (A10, A14)."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import scripted_agent
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from support.society import one_by_one
from worldagent import Memory, WorldAgent, tool
from worldagent.core.errors import DraftRequired, FunctionInvalid, InvalidArgument, OutputInvalid
from worldagent.members import (
    AuthorityConfig,
    AutonomousRole,
    RoleSpec,
    RoleTemplate,
    agent_node,
    llm_node,
)
from worldagent.members.data.roles import ClearanceProfile
from worldagent.members.data.workspace import RoleTemplateDraft
from worldagent.testing import ScriptedCall, ScriptedLM


@llm_node
class QualifyLead(dspy.Signature):
    """Say whether a lead is worth a call.

    Be strict.
    """

    company: str = dspy.InputField(desc="the company")
    employees: int = dspy.InputField()
    verdict: str = dspy.OutputField()


@llm_node(retries=1)
class ScoreLead(dspy.Signature):
    """Score a lead."""

    company: str = dspy.InputField()
    score: float = dspy.OutputField()
    reasons: list[str] = dspy.OutputField(desc="why")


@tool(risk="read_only")
def crm_search(company: str) -> str:
    """Search the CRM."""
    return f"{company} has 12 deals."


@tool(risk="read_only")
def other(company: str) -> str:
    """Do something else."""
    raise AssertionError(company)


@agent_node(tools=[crm_search], max_steps=5)
def company_intel(company: str, deep: bool = False) -> str:
    """Find out what a company does.

    Use the CRM first.

    Args:
        company: The name of the company.
    """
    raise AssertionError("it is never run")


OPERATORS = ("qualify_lead", "score_lead", "company_intel")


def agent_with(home: Path, lm: ScriptedLM, **more: Any) -> WorldAgent:
    config = workspace_of(*more.pop("templates", ()))
    workers = [QualifyLead, ScoreLead, company_intel]
    return scripted_agent(home, lm, society=config, memory=Memory(), workers=workers, tools=[crm_search, other], **more)


def cro(**more: Any) -> RoleSpec:
    authority = AuthorityConfig(autonomous=(*OPERATORS, "qualify"), forbidden=("sign",))
    given: dict[str, Any] = {"operator_ids": OPERATORS, "authority": authority, "domains": ("revenue",)}
    return spec_of("cro", **given | more)


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A14")
async def test_a_signature_is_an_operator_with_its_own_fields(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        scores = {"score": 0.5, "reasons": ["small"]}
        return {"result": json.dumps(scores) if "Score a lead" in call.system else "Call them."}

    lm = ScriptedLM(reply)
    async with agent_with(tmp_path, lm) as agent:
        await agent.society.join(cro())
        role = AutonomousRole(cro(), agent=agent)
        await agent.memory.add("Acme pays late.", account="member:novel/cro")
        turn = await role.get_operator("qualify_lead")({"company": "Acme", "employees": 12})
        [call] = lm.calls
        assert (turn.status, turn.text, call.tools) == ("done", "Call them.", ())
        assert (call.fields["company"], call.fields["employees"]) == ("Acme", "12")
        assert ("Be strict." in call.system, "Acme pays late." in call.fields["memory"]) == (True, True)
        scored = await role.get_operator("score_lead")({"company": "Acme"})
        assert json.loads(scored.text) == {"score": 0.5, "reasons": ["small"]}
        assert QualifyLead.description == "Say whether a lead is worth a call."


@pytest.mark.requirement("A14")
async def test_a_function_is_an_operator_that_calls_only_its_tools(tmp_path: Path) -> None:
    lm = one_by_one(*((name, {"company": "Acme"}) for name in ("other", "crm_search")), result="12 deals.")
    async with agent_with(tmp_path, lm) as agent:
        await agent.society.join(cro(operator_ids=(*OPERATORS, "crm_search")))
        role = AutonomousRole(cro(operator_ids=(*OPERATORS, "crm_search")), agent=agent)
        turn = await role.get_operator("company_intel")({"company": "Acme"})
        assert (turn.status, turn.text) == ("done", "12 deals.")
        assert "there is no tool 'other'" in lm.calls[1].text
        assert "Acme has 12 deals." in lm.calls[-1].text
        assert "Use the CRM first." in lm.calls[0].system
        assert (company_intel.max_steps, company_intel.tools) == (5, ("crm_search",))


@pytest.mark.requirement("A14")
def test_what_makes_no_operator_is_refused() -> None:
    def bare(company: str) -> str:
        return company

    with pytest.raises(FunctionInvalid, match=r"'bare' has no docstring; say in it"):
        agent_node()(bare)
    with pytest.raises(FunctionInvalid, match=r"must be a subclass of dspy.Signature, got a 'function'"):
        llm_node(bare)  # type: ignore[call-overload] # what is refused
    with pytest.raises(FunctionInvalid, match=r"'company' has the option 'colour', which no worker has"):
        agent_node(colour="red")(company)


def company(name: str) -> str:
    """Find a company."""
    return name


# --- designing --------------------------------------------------------------------------------------------------------


def proposal(**more: Any) -> dict[str, Any]:
    given = {
        "template_id": "bdr",
        "name_pattern": "BDR - {territory}",
        "soul_template": "You cover {territory}.",
        "domains": ["revenue"],
        "parameters": ["territory"],
        "autonomous": ["qualify", "sign", "hire"],
        "needs_approval": ["demo"],
        "operator_ids": ["qualify_lead", "deploy"],
    }
    return {"template": json.dumps(given | more), "reasoning": "APAC needs someone."}


@pytest.mark.requirement("A10")
@pytest.mark.on_every_database(soak=True)
async def test_a_designed_template_is_a_draft_within_what_its_author_may_do(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: proposal())
    clearance = ClearanceProfile(default="confidential")
    async with agent_with(tmp_path, lm) as agent:
        await agent.society.join(cro(clearance=clearance))
        await agent.memory.add("APAC leads need a local.", kind="insight", account="member:novel/cro")
        draft = await AutonomousRole(cro(), agent=agent).design_role("Someone for APAC leads.")
        template = draft.template
        assert isinstance(draft, RoleTemplateDraft)
        assert (draft.proposed_by, draft.status, draft.intent) == ("cro", "pending_review", "Someone for APAC leads.")
        assert draft.reasoning == "APAC needs someone."
        assert (template.operator_ids, template.allowed_spawners) == (("qualify_lead",), ())
        assert [template.authority.of(each) for each in ("qualify", "sign", "hire", "demo")] == [
            "autonomous",
            "forbidden",
            "needs_approval",
            "needs_approval",
        ]
        assert template.clearance == clearance
        shown = lm.calls[0].text
        assert ("APAC leads need a local." in shown, "Someone for APAC leads." in shown) == (True, True)
        assert await agent.society.drafts.list() == (draft,)
        with pytest.raises(DraftRequired, match="'bdr' is a draft"):
            await agent.society.spawn("user", "bdr", {"territory": "APAC"}, BRIEF)
        await agent.society.drafts.approve(draft.id)
        assert await agent.society.spawn("user", "bdr", {"territory": "APAC"}, BRIEF) == "bdr-apac"
        with pytest.raises(OutputInvalid, match="has a template 'bdr' already"):
            await AutonomousRole(cro(), agent=agent).design_role("Someone for APAC leads.")


@pytest.mark.requirement("A10")
async def test_only_templates_that_the_author_can_use_are_shown(tmp_path: Path) -> None:
    def template(name: str, spawner: str) -> RoleTemplate:
        return template_of(name, spawner, name_pattern=f"Of {name}", soul_template="You work.", parameters=())

    lm = ScriptedLM(lambda call: proposal())
    templates = [template("own", "cro"), template("foreign", "coo")]
    async with agent_with(tmp_path, lm, templates=templates) as agent:
        await agent.society.join(cro())
        await AutonomousRole(cro(), agent=agent).design_role("Someone.")
        assert ("Of own" in lm.calls[0].text, "Of foreign" in lm.calls[0].text) == (True, False)


@pytest.mark.requirement("A10")
async def test_a_template_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with agent_with(tmp_path, ScriptedLM(lambda call: proposal(soul_template="You cover {region}."))) as agent:
        await agent.society.join(cro())
        role = AutonomousRole(cro(), agent=agent)
        with pytest.raises(OutputInvalid, match="template that a model designed cannot be used"):
            await role.design_role("Someone.")
        with pytest.raises(InvalidArgument, match="intent"):
            await role.design_role(" ")
