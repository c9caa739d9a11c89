"""How members make members: templates, ceilings, briefs and collaborators (C1, C7, A9)."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.role_specs import BRIEF, bdr_template, spec_of, workspace_of
from support.society_tables import problems
from worldagent.core.errors import (
    BriefInvalid,
    InvalidArgument,
    LifecycleError,
    MessageInvalid,
    ParamsInvalid,
    RoleExists,
    RolesFull,
    SpawnForbidden,
    UnknownContact,
    UnknownMember,
    UnknownTemplate,
)
from worldagent.members import (
    AuthorityConfig,
    Contact,
    InterfaceSpec,
    RoleTemplate,
    Society,
    TaskBrief,
)
from worldagent.members.data.roles import ClearanceProfile
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database

SPEC = InterfaceSpec(services="Qualifies leads.", input_format="A lead.", output_format="Yes or no.")


def template(**more: Any) -> RoleTemplate:
    given: dict[str, Any] = {
        "authority": AuthorityConfig(autonomous=("qualify_lead", "sign"), needs_approval=("schedule_demo",)),
        "clearance": ClearanceProfile(default="secret"),
        "operator_ids": ("revenue_ops", "payments"),
        "interface_spec": SPEC,
    }
    return bdr_template(**(given | more))


async def workspace(local: Database, made: RoleTemplate | None = None, **policy: Any) -> Society:
    society = Society(workspace_of(made or template(), id="w", **policy), local)
    for role_id in ("cro", "coo"):
        authority = AuthorityConfig(autonomous=("qualify_lead",), forbidden=("sign",))
        spec = spec_of(role_id, workspace="w", operator_ids=("revenue_ops",), authority=authority)
        await society.join(spec, name=role_id.upper())
    return society


@pytest.mark.requirement("C2.5", "A9", "C1", "C7")
async def test_a_child_has_its_parent_its_task_and_no_more_than_its_parent_may(local: Database) -> None:
    society = await workspace(local)
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF, message_id="m1") == "bdr-apac"
    child = await society.members.member("w", "bdr-apac")
    assert (child.name, child.spec.soul, child.interface) == ("BDR - APAC", "You cover APAC.", SPEC)
    assert (child.spec.parent_role_id, child.spec.reports_to, child.spec.operator_ids) == (
        "cro",
        "cro",
        ("revenue_ops",),
    )
    assert [child.spec.authority.of(each) for each in ("qualify_lead", "schedule_demo", "sign")] == [
        "autonomous",
        "needs_approval",
        "forbidden",
    ]
    assert child.spec.clearance == ClearanceProfile()
    [task] = await society.mail.waiting()
    assert (task.message.from_id, task.message.message_type) == ("cro", "task_assignment")
    assert "Constraints: A static web page" in await society.mail.text_of(task)
    assert [each.id for each in await society.contacts.list("bdr-apac")] == ["cro"]
    assert "bdr-apac" in [each.id for each in await society.contacts.list("cro")]
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF, message_id="m1") == "bdr-apac"
    with pytest.raises(RoleExists, match="'bdr-apac'"):
        await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF)


@pytest.mark.requirement("C1.1", "C1.4", "C1")
async def test_a_child_without_a_brief_is_refused_or_gets_that_of_its_template(local: Database) -> None:
    society = await workspace(local)
    with pytest.raises(BriefInvalid, match="`objective`, `constraints`, `inputs`, `outputs`, `completion_criteria`"):
        await society.spawn("cro", "bdr", {"territory": "APAC"})
    assert [each.id for each in await society.members.list_roles("w")] == ["cro", "coo"]
    lenient = await workspace(local, brief="derived")
    assert await lenient.spawn("cro", "bdr", {"territory": "APAC"}) == "bdr-apac"
    [task] = await lenient.mail.waiting()
    assert "Inputs: territory: APAC" in await lenient.mail.text_of(task)


async def test_a_member_that_was_removed_makes_no_members(local: Database) -> None:
    society = await workspace(local)
    await society.members.remove("w", "cro")
    with pytest.raises(UnknownMember, match="'cro'"):
        await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF)
    assert [each.id for each in await society.members.list_roles("w")] == ["coo"]


# --- approval ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A9")
async def test_a_member_that_needs_approval_waits_with_its_task(local: Database) -> None:
    society = await workspace(local, spawn_requires_approval=True)
    given = BRIEF | {"collaborators": [{"id": "coo", "role": "COO", "note": "Ask about orders."}]}
    await society.contacts.add("cro", Contact(id="coo", role="COO"))
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, given, message_id="m1") == "pending:bdr-apac"
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, given, message_id="m1") == "pending:bdr-apac"
    assert [each.id for each in await society.spawns()] == ["bdr-apac"]
    assert BRIEF["objective"] in await society.mail.task_of("bdr-apac")
    assert await society.mail.waiting() == []
    with pytest.raises(MessageInvalid, match="'bdr-apac' is draft"):
        await society.mail.send("cro", "bdr-apac", "Begin.")
    assert await society.approve_spawn("pending:bdr-apac") == "bdr-apac"
    member = await society.members.member("w", "bdr-apac")
    assert (member.life.status.value, member.life.activated_at is not None) == ("active", True)
    assert [each.status.value for each in await society.steps("bdr-apac")] == ["testing", "active"]
    assert [(each.message.from_id, each.message.to_id) for each in await society.mail.waiting()] == [
        ("cro", "bdr-apac"),
        ("bdr-apac", "cro"),
    ]
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, given, message_id="m1") == "bdr-apac"
    assert [each.id for each in await society.contacts.list("bdr-apac")] == ["cro", "coo"]
    with pytest.raises(LifecycleError, match="'bdr-apac' is active and does not wait for approval"):
        await society.approve_spawn("bdr-apac")
    assert await local.read(lambda tx: problems(tx.execute)) == []


@pytest.mark.requirement("A9")
async def test_a_spawn_that_is_not_approved_leaves_its_id_free(local: Database) -> None:
    society = await workspace(local, spawn_requires_approval=True)
    await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF, message_id="m1")
    assert await society.reject_spawn("bdr-apac", "Too early.") == "bdr-apac"
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF, message_id="m1") == "pending:bdr-apac"
    assert await society.spawns() == ()
    life = (await society.members.member("w", "bdr-apac")).life
    assert (life.status.value, life.termination_reason) == ("terminated", "not_approved")
    [told] = await society.mail.waiting()
    assert (told.message.to_id, told.message.content) == (
        "cro",
        "From the system: the owner did not approve bdr-apac. Too early.",
    )
    assert await local.read(lambda tx: problems(tx.execute)) == []
    assert await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF, message_id="m2") == "pending:bdr-apac"
    await society.approve_spawn("bdr-apac")
    await society.terminate("bdr-apac")
    with pytest.raises(RoleExists, match="'bdr-apac'"):
        await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF)


@pytest.mark.requirement("A9")
async def test_those_that_wait_for_approval_are_counted_and_the_owners_own_do_not_wait(local: Database) -> None:
    society = await workspace(local, spawn_requires_approval=True, max_roles=4)
    assert await society.spawn("user", "bdr", {"territory": "EMEA"}, BRIEF) == "bdr-emea"
    await society.spawn("cro", "bdr", {"territory": "APAC"}, BRIEF)
    with pytest.raises(RolesFull, match="has 4 members"):
        await society.spawn("cro", "bdr", {"territory": "LATAM"}, BRIEF)
    await society.reject_spawn("bdr-apac")
    assert await society.spawn("cro", "bdr", {"territory": "LATAM"}, BRIEF) == "pending:bdr-latam"
    await society.terminate("cro")
    assert await society.spawns() == ()


@pytest.mark.requirement("A9")
async def test_trust_is_that_of_the_template_or_else_of_the_policy(local: Database) -> None:
    society = await workspace(local, default_trust=0.45)
    await society.create_role(template(template_id="sdr", name_pattern="SDR {territory}", default_trust=0.6))
    for template_id, trust in (("bdr", 0.45), ("sdr", 0.6)):
        child = await society.spawn("cro", template_id, {"territory": "APAC"}, BRIEF)
        assert (await society.members.member("w", child)).trust.trust_for("qualify_lead") == trust


# --- ceilings ---------------------------------------------------------------------------------------------------------

CAPABILITIES = ("a", "b", "c", "d")
LEVELS = ("autonomous", "needs_approval", "forbidden")
CLASSES = ("public", "internal", "confidential", "secret")


@st.composite
def templates(draw: st.DrawFn, template_id: str) -> RoleTemplate:
    levels = draw(st.dictionaries(st.sampled_from(CAPABILITIES), st.sampled_from(LEVELS)))
    of = {level: tuple(each for each in levels if levels[each] == level) for level in LEVELS}
    domains = draw(st.dictionaries(st.sampled_from(("x", "y")), st.sampled_from(CLASSES)))
    return template(
        template_id=template_id,
        name_pattern="{territory}",
        authority=AuthorityConfig(**of),
        clearance=draw(
            st.none() | st.builds(ClearanceProfile, domains=st.just(domains), default=st.sampled_from(CLASSES))
        ),
        operator_ids=tuple(draw(st.sets(st.sampled_from(CAPABILITIES)))),
        allowed_spawners=("root", *(f"m{number}" for number in range(8))),
    )


@pytest.mark.requirement("A9")
@settings(max_examples=max(15, settings().max_examples // 4))
@given(
    st.tuples(*(templates(each) for each in ("t0", "t1", "t2"))),
    st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 2)), min_size=2, max_size=7),
    st.booleans(),
)
def test_no_descendant_can_do_what_an_ancestor_cannot(
    made: tuple[RoleTemplate, ...], spawns: list[tuple[int, int]], approval: bool
) -> None:
    async def lives(folder: Path) -> None:
        database = await Database.open(folder / "a.db", schemas=[SOCIETY])
        config = workspace_of(*made, id="w", spawn_requires_approval=approval)
        society, lines = Society(config, database), dict[str, list[str]]()
        for number, (spawner, place) in enumerate(spawns):
            name, parent = f"m{number}", "root" if spawner < 0 else f"m{min(spawner, number - 1)}"
            parent = "root" if number == 0 else parent
            found = await society.spawn(parent, f"t{place}", {"territory": name}, BRIEF)
            if approval:
                await society.approve_spawn(found)
            lines[name] = [parent, *lines[parent]] if parent != "root" else []
        members = {each: await society.members.member("w", each) for each in lines}
        await database.aclose()
        for name, above in lines.items():
            one = members[name].spec
            for ancestor in (members[each].spec for each in above):
                assert {*one.operator_ids} <= {*ancestor.operator_ids}
                for each in (*CAPABILITIES, "unlisted"):
                    assert LEVELS.index(one.authority.of(each)) >= LEVELS.index(ancestor.authority.of(each))
                assert one.clearance is not None
                assert ancestor.clearance is not None
                for domain in ("x", "y", "z"):
                    assert CLASSES.index(one.clearance.of(domain)) <= CLASSES.index(ancestor.clearance.of(domain))

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(lives(Path(folder)))


@pytest.mark.requirement("C2.8", "C7.2", "C7.4", "C7")
async def test_collaborators_are_contacts_of_the_child_from_the_start(local: Database) -> None:
    society = await workspace(local)
    given = BRIEF | {"collaborators": [{"id": "coo", "role": "COO", "note": "Ask about orders."}]}
    brief = TaskBrief.from_json(given)
    with pytest.raises(UnknownContact, match="'coo' is not a contact of 'cro'"):
        await society.spawn("cro", "bdr", {"territory": "APAC"}, brief)
    assert await society.contacts.get("cro", "bdr-apac") is None
    itself = {"collaborators": [{"id": "bdr-apac", "role": "BDR", "note": "Me."}]}
    with pytest.raises(BriefInvalid, match="'bdr-apac' cannot be its own collaborator"):
        await society.spawn("cro", "bdr", {"territory": "APAC"}, TaskBrief.from_json(BRIEF | itself))
    child = await society.spawn("user", "bdr", {"territory": "APAC"}, brief)
    contact = await society.contacts.get(child, "coo")
    assert contact is not None
    assert (contact.introduced_by, contact.note) == ("user", "Ask about orders.")
    letter = await society.mail.send(child, "coo", "Hello.")
    assert letter.opening is not None
    assert letter.opening.reason == "Ask about orders."


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    ("error", "named", "spawner", "template_id", "params"),
    [
        (UnknownTemplate, "'sdr'", "cro", "sdr", {}),
        (SpawnForbidden, "'coo'", "coo", "bdr", {"territory": "APAC"}),
        (PermissionError, "'root'", "root", "bdr", {"territory": "APAC"}),
        (ParamsInvalid, "lack 'territory'", "cro", "bdr", {}),
        (ParamsInvalid, "have no 'focus'", "cro", "bdr", {"territory": "APAC", "focus": "x"}),
        (ParamsInvalid, "`territory`", "cro", "bdr", {"territory": 7}),
        (ParamsInvalid, "`territory`", "cro", "bdr", {"territory": "x" * 501}),
        (RoleExists, "'coo'", "cro", "bdr", {"territory": "x"}),
    ],
)
async def test_a_spawn_that_is_not_allowed_changes_nothing(
    local: Database, error: type[Exception], named: str, spawner: str, template_id: str, params: Any
) -> None:
    taken = template(name_pattern="COO", soul_template="x {territory}") if error is RoleExists else None
    society = await workspace(local, taken)
    with pytest.raises(error) as refused:
        await society.spawn(spawner, template_id, params, BRIEF)
    assert named in str(refused.value)
    assert [each.id for each in await society.members.list_roles("w")] == ["cro", "coo"]
    assert await society.mail.waiting() == []


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    "pattern", ["{territory.__class__}", "{territory[0]}", "{0}", "{}", "{territory!r}", "{other}", "{"]
)
def test_a_pattern_names_parameters_only(pattern: str) -> None:
    for field in ("name_pattern", "soul_template"):
        with pytest.raises(InvalidArgument, match=field):
            template(**{field: pattern})


@pytest.mark.requirement("A9")
@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip() and "\0" not in text))
def test_parameters_are_inserted_as_they_are(value: str) -> None:
    from worldagent.members.life.spawning import spec_of

    config = workspace_of(template())
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    spec, name = spec_of(config, template(), {"territory": value}, None)
    assert name == f"BDR - {value}"
    assert spec.soul == f"You cover {value}."


@pytest.mark.requirement("C4.1", "C4")
async def test_a_person_adds_a_template_with_an_interface_spec(local: Database) -> None:
    society = await workspace(local)
    await society.create_role(template(template_id="sdr", name_pattern="SDR {territory}"))
    child = await society.spawn("cro", "sdr", {"territory": "EMEA"}, BRIEF)
    assert (await society.members.member("w", child)).interface == SPEC
    with pytest.raises(InvalidArgument, match="'bdr'"):
        await society.create_role(template())
