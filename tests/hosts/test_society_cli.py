"""`worldagent society`: members, contacts, messages and spawns; and `worldagent drafts`."""

import json
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.command_line import Run, as_json, home, refusal, run
from support.role_specs import spec_of
from worldagent import Storage
from worldagent.agent.stores import Stores
from worldagent.members import (
    AuthorityConfig,
    Contact,
    MemberLimits,
    RoleTemplate,
    Society,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.members.graph import as_mermaid
from worldagent.members.life.drafts import proposed
from worldagent.members.life.outcomes import Outcome

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("C2")


async def peopled(home: Path) -> None:
    """A CRO and a BDR of it; the BDR knows the owner by the CRO, and has written to it."""
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(WorkspaceConfig(id="default", owner="charles"), stores.database)
        for role_id, parent in (("cro", ""), ("bdr", "cro")):
            await society.join(spec_of(role_id, parent, workspace="default"), name=f'{role_id.upper()} "x"')
        await society.contacts.add("bdr", Contact(id="user", role="the owner", introduced_by="cro"))
        await society.mail.send("bdr", "user", "The quarter\nis over.")


async def test_members_contacts_and_messages_are_shown(run: Run, home: Path) -> None:
    assert (await run("society", "members")).stdout == "there are no members\n"
    await peopled(home)
    members = (await as_json(run, "society", "members"))["members"]
    assert [(each["id"], each["soul_version"]) for each in members] == [("cro", 1), ("bdr", 1)]
    assert [line.split()[-1] for line in (await run("society", "members")).stdout.splitlines()] == ["SOUL", "1", "1"]
    found = (await as_json(run, "society", "contacts", "bdr"))["contacts"]
    assert [(each["id"], each["introduced_by"]) for each in found] == [("cro", "birth"), ("user", "cro")]
    shown = (await run("society", "inbox")).stdout.splitlines()
    assert shown[1:] == ['[Message from BDR "x" (bdr)]', "The quarter", "is over."]
    [message] = (await as_json(run, "society", "inbox", "--read"))["messages"]
    assert (message["from"], message["to"], message["content"]) == ("bdr", "user", "The quarter\nis over.")
    assert (await run("society", "inbox")).stdout == "there are no messages\n"


async def test_a_graph_shows_who_knows_whom_by_whose_introduction(run: Run, home: Path) -> None:
    await peopled(home)
    drawn = (await run("society", "graph")).stdout
    assert drawn.splitlines()[0] == "flowchart LR"
    assert 'n3["BDR #34;x#34; (bdr)"]' in drawn
    assert '  n3 -->|"cro"| n0' in drawn
    graph = await as_json(run, "society", "graph")
    assert as_mermaid(graph) == drawn.rstrip("\n")
    known = [(each["owner"], each["id"], each["introduced_by"]) for each in graph["contacts"]]
    assert ("bdr", "user", "cro") in known


async def test_the_owner_writes_to_whom_it_knows(run: Run, home: Path) -> None:
    await peopled(home)
    sent = (await as_json(run, "society", "send", "bdr", "Thank you."))["message"]
    assert (sent["from"], sent["to"], sent["state"]) == ("user", "bdr", "waiting")
    error = await refusal(run, "society", "send", "cro", "Hello.")
    assert (error["code"], "'cro' is not a contact of 'user'" in error["message"]) == ("unknown_contact", True)


@pytest.mark.parametrize("limit", ["0", "-1", "1001"])
async def test_an_inbox_shows_one_message_or_more(run: Run, home: Path, limit: str) -> None:
    error = await refusal(run, "society", "inbox", "--limit", limit)
    assert f"`limit` must be an integer from 1 to 1000, got {limit}" in error["message"]


async def spawned(home: Path) -> None:
    """Two members that a CRO made and that wait for the owner."""
    template = RoleTemplate(
        template_id="bdr",
        name_pattern="BDR {territory}",
        soul_template="You cover {territory}.",
        domains=(),
        authority=AuthorityConfig(),
        operator_ids=(),
        parameters=("territory",),
        allowed_spawners=("cro",),
    )
    policy = WorkspacePolicy(spawn_requires_approval=True, brief="derived")
    config = WorkspaceConfig(id="default", owner="charles", policy=policy, role_templates={"bdr": template})
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(config, stores.database)
        await society.join(spec_of("cro", workspace="default"))
        for territory in ("APAC", "EMEA"):
            await society.spawn("cro", "bdr", {"territory": territory})


@pytest.mark.requirement("A9")
async def test_the_owner_approves_and_rejects_members_that_wait(run: Run, home: Path) -> None:
    assert (await run("society", "spawns")).stdout == "no member waits for approval\n"
    await spawned(home)
    shown = (await run("society", "spawns")).stdout
    assert "bdr-apac (BDR APAC), made by cro" in shown
    assert "Objective: You cover EMEA." in shown
    found = (await as_json(run, "society", "spawns"))["spawns"]
    assert [(each["id"], each["parent"], each["soul"]) for each in found] == [
        ("bdr-apac", "cro", "You cover APAC."),
        ("bdr-emea", "cro", "You cover EMEA."),
    ]
    assert await as_json(run, "society", "approve", "pending:bdr-apac") == {"approved": "bdr-apac"}
    assert await as_json(run, "society", "reject", "bdr-emea", "--reason", "Too early.") == {"rejected": "bdr-emea"}
    error = await refusal(run, "society", "approve", "bdr-emea")
    assert (error["code"], "terminated" in error["message"]) == ("lifecycle_error", True)
    members = (await as_json(run, "society", "members"))["members"]
    assert [(each["id"], each["status"]) for each in members] == [("cro", "active"), ("bdr-apac", "active")]


async def test_a_member_is_exported_and_removed(run: Run, home: Path, tmp_path: Path) -> None:
    await peopled(home)
    exported = await as_json(run, "society", "export", "bdr")
    assert [each["content"] for each in exported["messages"]] == ["The quarter\nis over."]
    file = tmp_path / "bdr.json"
    await run("society", "export", "bdr", "-o", str(file))
    assert json.loads(file.read_text())["member"]["id"] == "bdr"
    assert (await refusal(run, "society", "rm", "bdr"))["message"] == "removing the member 'bdr' must be confirmed"
    assert (await as_json(run, "society", "rm", "bdr", "--yes"))["removed"]["member"] == "bdr"
    assert [each["id"] for each in (await as_json(run, "society", "members"))["members"]] == ["cro"]
    assert (await refusal(run, "society", "export", "bdr"))["code"] == "unknown_member"


@pytest.mark.requirement("A8")
async def test_a_person_rates_what_a_member_did(run: Run, home: Path) -> None:
    await peopled(home)
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        outcomes = Society(WorkspaceConfig(id="default", owner="charles"), stores.database).outcomes
        now = datetime(2026, 2, 18, tzinfo=UTC)
        for episode, succeeded in (("e1", True), ("e2", False)):
            await outcomes.record(
                Outcome(episode_id=episode, role_id="bdr", capability="qualify_lead", succeeded=succeeded, at=now)
            )
    told = (await run("workspace", "outcomes", "bdr")).stdout
    assert "trust: qualify_lead 0.35, anything else 0.30" in told
    assert (await run("workspace", "feedback", "e1", "bad")).stdout == "trust: qualify_lead 0.15, anything else 0.30\n"
    found = await as_json(run, "workspace", "outcomes", "bdr")
    assert [(each["episode_id"], each.get("feedback")) for each in found["outcomes"]] == [("e1", "bad"), ("e2", None)]
    assert (await as_json(run, "workspace", "feedback", "e1", "none"))["trust"]["scores"] == {"qualify_lead": 0.35}
    assert "no episode 'e9'" in str(await refusal(run, "workspace", "feedback", "e9", "good"))
    assert "'fine'" in str(await refusal(run, "workspace", "feedback", "e1", "fine"))


@pytest.mark.requirement("A10")
async def test_a_person_approves_and_rejects_drafts(run: Run, home: Path) -> None:
    assert (await run("drafts", "list")).stdout == "no draft waits\n"
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(WorkspaceConfig(id="default", owner="charles"), stores.database)
        for name in ("Clerk", "Cook", "Guard"):
            await society.drafts.propose(proposed("root", name, f"You are a {name}."), draft_id=name.lower())
    assert [each["id"] for each in (await as_json(run, "drafts", "list"))["drafts"]] == ["clerk", "cook", "guard"]
    assert "soul_template: You are a Clerk." in (await run("drafts", "show", "clerk")).stdout
    shown = (await as_json(run, "drafts", "show", "clerk"))["draft"]["template"]
    changed = home / "changed.json"
    changed.write_text(json.dumps(shown | {"soul_template": "You are kind."}), encoding="utf-8")
    given = ("--template", f"@{changed}", "--spawner", "cro", "--spawner", "coo")
    assert await as_json(run, "drafts", "approve", "clerk", *given) == {"approved": "clerk"}
    assert (await run("drafts", "approve", "cook")).stdout == "cook can be used by you\n"
    assert await as_json(run, "drafts", "reject", "guard", "--reason", "No.") == {"rejected": "guard"}
    found = (await as_json(run, "drafts", "list", "--all"))["drafts"]
    assert [(each["status"], each["template"]["allowed_spawners"]) for each in found] == [
        ("active", ["cro", "coo"]),
        ("active", []),
        ("rejected", []),
    ]
    assert found[0]["template"]["soul_template"] == "You are kind."
    error = await refusal(run, "drafts", "approve", "baker")
    assert error["code"] == "unknown_draft"


@pytest.mark.requirement("A7")
async def test_a_person_changes_the_state_of_members(run: Run, home: Path) -> None:
    await peopled(home)
    assert (await run("society", "state", "bdr", "suspended")).stdout == "bdr is suspended\n"
    assert (await as_json(run, "society", "state", "bdr", "active"))["status"] == "active"
    assert "'bdr' is active" in str(await refusal(run, "society", "state", "bdr", "testing"))
    assert "'asleep'" in str(await refusal(run, "society", "state", "bdr", "asleep"))
    assert "must be confirmed" in str(await refusal(run, "society", "terminate", "cro"))
    ended = await as_json(run, "society", "terminate", "cro", "--yes", "--reason", "The quarter is over.")
    assert ended["terminated"] == ["bdr", "cro"]
    assert (await run("society", "members")).stdout == "there are no members\n"


@pytest.mark.requirement("A12")
async def test_a_member_is_shown_with_what_waits_for_it(run: Run, home: Path) -> None:
    await peopled(home)
    await run("society", "send", "bdr", "Thank you.")
    await run("workspace", "emit", "lead.created", "--domain", "revenue", "--to", "bdr", "--id", "lead-7")
    shown = (await run("society", "show", "bdr")).stdout.split("\n\n")
    assert shown[0].splitlines()[0] == "id: bdr"
    head, *rows = (line.split() for line in shown[1].splitlines())
    assert head == ["WAITS", "TYPE", "FROM", "STATE", "SINCE"]
    assert [row[1:4] for row in rows] == [["notification", "user", "waiting"], ["lead.created", "user", "waiting"]]
    member = (await as_json(run, "society", "show", "bdr"))["member"]
    assert [each["id"] for each in member["events"]] == ["lead-7"]
    assert "WAITS" not in (await run("society", "show", "cro")).stdout


@pytest.mark.requirement("A16")
async def test_the_owner_sees_extends_and_ends_budgets(run: Run, home: Path) -> None:
    assert (await run("budgets", "list")).stdout == "no member has limits\n"
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(WorkspaceConfig(id="default", owner="local"), stores.database)
        await society.join(spec_of("idle", workspace="default", limits=MemberLimits(turns=0)))
        letter = await society.mail.send("root", "idle", "Go.", message_id="over", payload={"reason": "Work."})
        await society.budgets.hold("over", "idle", letter.case)
    found = await as_json(run, "budgets", "list")
    assert [(each["holder"], each["text"]) for each in found["budgets"]] == [("member idle", "0 of 0 turns, in all")]
    assert [(each["work"], each["holder"]) for each in found["held"]] == [("over", "member idle")]
    assert "member idle" in (await run("budgets", "list")).stdout
    given = ("idle", "--turns", "5", "--cost", "1.5", "--period", "day")
    assert (await run("budgets", "extend", *given)).stdout == "member idle: 0 of 5 turns, 0 of 1.5 cost, a day\n"
    assert (await as_json(run, "society", "show", "idle"))["member"]["budget"]["limits"]["turns"] == 5
    assert (await run("budgets", "end", "over")).stdout == "over was ended\n"
    assert (await refusal(run, "budgets", "end", "over"))["code"] == "budget_invalid"
