"""Templates that members propose: none can be used before a person approved it (A10)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import calls, scripted_agent
from support.role_specs import bdr_template, spec_of, workspace_of
from worldagent.core.errors import DraftRequired, InvalidArgument, SpawnForbidden, UnknownDraft
from worldagent.members import AuthorityConfig, InterfaceSpec, RoleTemplate, Society
from worldagent.members.data.roles import ClearanceProfile
from worldagent.members.data.workspace import RoleTemplateDraft
from worldagent.members.life.drafts import proposed, template_of
from worldagent.members.life.spawning import spec_of as spawned
from worldagent.storage import Database
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("A10")

WIDE = bdr_template(
    template_id="sdr",
    name_pattern="SDR {territory}",
    authority=AuthorityConfig(autonomous=("qualify_lead", "sign", "wipe"), forbidden=("hire",)),
    clearance=ClearanceProfile(default="secret"),
    operator_ids=("revenue_ops", "payments"),
    allowed_spawners=("cro", "coo"),
)


def draft(template: RoleTemplate = WIDE, by: str = "cro") -> RoleTemplateDraft:
    return RoleTemplateDraft(proposed_by=by, intent="We need SDRs.", template=template, reasoning="Leads wait.")


@pytest.fixture
async def society(local: Database) -> Society:
    made = Society(workspace_of(replace(WIDE, template_id="bdr"), id="w", brief="derived"), local)
    authority = AuthorityConfig(autonomous=("qualify_lead",), forbidden=("sign",))
    await made.join(spec_of("cro", workspace="w", operator_ids=("revenue_ops",), authority=authority))
    return made


async def test_a_draft_cannot_be_used_before_a_person_approves_it(society: Society) -> None:
    stored = await society.drafts.propose(draft(), draft_id="d1")
    assert (stored.id, stored.proposed_by, stored.status) == ("d1", "cro", "pending_review")
    assert await society.drafts.propose(draft(by="coo"), draft_id="d1") == stored
    for who in ("cro", "user"):
        with pytest.raises(DraftRequired, match="'sdr' is a draft, 'd1'"):
            await society.spawn(who, "sdr", {"territory": "APAC"})
    made = await society.drafts.approve("d1", allowed_spawners=["cro"], by="dana")
    assert made.allowed_spawners == ("cro",)
    assert await society.spawn("cro", "sdr", {"territory": "APAC"}) == "sdr-apac"
    kept = await society.drafts.get("d1")
    assert (kept.status, kept.proposed_by, kept.decided_by, kept.template) == ("active", "cro", "dana", made)
    for decide in (society.drafts.approve, society.drafts.reject):
        with pytest.raises(InvalidArgument, match="'d1' is active already"):
            await decide("d1")


async def test_a_draft_allows_no_more_than_its_author_may(society: Society) -> None:
    stored = await society.drafts.propose(draft(), draft_id="d1")
    changed = replace(WIDE, authority=AuthorityConfig(autonomous=("sign", "wipe")), soul_template="You are kind.")
    made = await society.drafts.approve("d1", template=changed)
    for template in (stored.template, made):
        assert template.authority.of("sign") == "forbidden"
        assert template.authority.of("wipe") == "needs_approval"
        assert template.operator_ids == ("revenue_ops",)
        assert template.clearance == ClearanceProfile()
    assert (stored.template.authority.of("qualify_lead"), stored.template.allowed_spawners) == ("autonomous", ())
    assert (made.soul_template, made.allowed_spawners) == ("You are kind.", ("cro", "coo"))


async def test_only_those_that_the_person_names_can_use_it(society: Society) -> None:
    await society.drafts.propose(draft(), draft_id="d1")
    await society.drafts.approve("d1")
    with pytest.raises(SpawnForbidden, match="'cro'"):
        await society.spawn("cro", "sdr", {"territory": "APAC"})
    assert await society.spawn("user", "sdr", {"territory": "APAC"}) == "sdr-apac"


async def test_a_rejected_draft_is_kept_and_never_used(society: Society) -> None:
    await society.drafts.propose(draft(), draft_id="d1")
    await society.drafts.propose(draft(replace(WIDE, template_id="ae")), draft_id="d2")
    rejected = await society.drafts.reject("d1", by="dana", reason="The BDR does this.")
    assert (rejected.status, rejected.decided_by, rejected.decision_reason) == (
        "rejected",
        "dana",
        "The BDR does this.",
    )
    assert [each.id for each in await society.drafts.list()] == ["d1", "d2"]
    assert [each.id for each in await society.drafts.list(status="pending_review")] == ["d2"]
    assert await society.drafts.get("d1") == rejected
    with pytest.raises(InvalidArgument, match="'d1' is rejected already"):
        await society.drafts.approve("d1")
    with pytest.raises(UnknownDraft, match="'d3'"):
        await society.drafts.get("d3")


async def test_a_draft_replaces_no_template(society: Society) -> None:
    with pytest.raises(InvalidArgument, match="has a template 'bdr' already"):
        await society.drafts.propose(draft(replace(WIDE, template_id="bdr")))
    for each in ("d1", "d2"):
        await society.drafts.propose(draft(), draft_id=each)
    await society.drafts.approve("d1")
    with pytest.raises(InvalidArgument, match="has a template 'sdr' already"):
        await society.drafts.approve("d2")
    assert (await society.drafts.get("d2")).status == "pending_review"


def test_a_template_is_read_from_its_json() -> None:
    from worldagent.core.checks import to_json

    assert template_of(to_json(WIDE)) == WIDE
    with pytest.raises(InvalidArgument, match="has no 'colour'"):
        template_of(to_json(WIDE) | {"colour": "red"})
    with pytest.raises(InvalidArgument, match="name_pattern"):
        template_of({"template_id": "x"})


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60), st.text(max_size=30))
def test_words_in_braces_are_parameters_and_all_else_is_text(soul: str, notes: str) -> None:
    soul = soul.strip() or "x"
    try:
        made = proposed("cro", "Clerk {town}", f"{soul} of {{town}}", None, notes.replace("\0", "")).template
    except InvalidArgument:
        return
    params = {name: f"<{name}>" for name in made.parameters}
    config = workspace_of()
    spec, name = spawned(config, made, params, None)
    assert (name, made.template_id) == ("Clerk <town>", "clerk")
    expected = f"{soul} of {{town}}"
    for each in made.parameters:
        expected = expected.replace(f"{{{each}}}", f"<{each}>")
    assert spec.soul.startswith(expected)


@pytest.mark.requirement("C4")
async def test_a_model_proposes_a_template(tmp_path: Path) -> None:
    spec = {"services": "Sorts mail.", "input_format": "A letter.", "output_format": "A tray."}
    given: dict[str, Any] = {"name": "Clerk {town}", "soul": "You sort the mail of {town}.", "interface_spec": spec}
    bad = given | {"interface_spec": {"services": "Sorts."}}
    lm = ScriptedLM(
        [
            {"reply": "", **calls(("create_role", bad))},
            {"reply": "", **calls(("create_role", given | {"collaboration_notes": "Ask legal for contracts."}))},
            {"reply": "Proposed."},
        ]
    )
    async with scripted_agent(tmp_path, lm, society=workspace_of()) as agent:
        turn = await agent.thread("desk").converse("We need clerks.")
        assert turn.text == "Proposed."
        [found] = await agent.society.drafts.list()
        template = found.template
        assert (found.proposed_by, found.status, template.template_id) == ("root", "pending_review", "clerk")
        assert template.soul_template == "You sort the mail of {town}.\n\nAsk legal for contracts."
        assert (template.parameters, template.interface_spec) == (("town",), InterfaceSpec(**spec))
        assert (template.authority, template.operator_ids, template.allowed_spawners) == (AuthorityConfig(), (), ())
        assert "an interface spec must be" in lm.calls[1].text
        assert f"Your draft {found.id} of the template clerk waits for a person." in lm.calls[2].text
