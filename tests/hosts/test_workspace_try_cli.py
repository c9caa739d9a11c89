"""`worldagent workspace events --export` and `try`: a week is recorded, and tried with another file (A23)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, as_json, home, refusal, run
from support.lived_week import changed, lived

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A23")

OF = ("--workspace", "vibe-team")


async def exported(run: Run, home: Path) -> list[dict[str, Any]]:
    """The lines of the example's week, in its file in the home."""
    done = await run("workspace", "events", "--export", str(home / "week.jsonl"), *OF)
    assert done.exit_code == 0, done.output
    return [json.loads(each) for each in (home / "week.jsonl").read_text(encoding="utf-8").splitlines()]


async def test_a_week_is_exported_in_the_order_in_which_it_happened(run: Run, home: Path) -> None:
    events, trust = await lived(home, changed(home / "team.yaml"))
    lines = await exported(run, home)
    times = [each["at"] for each in lines]
    assert times == sorted(times)
    decided = {each["event"]: each for each in lines if each["kind"] == "decision"}
    assert {id_: each["result"] for id_, each in decided.items()} == {each.event.id: each.result for each in events}
    approved = [{"function": "qualify_lead", "decision": "approve"}]
    assert decided["lead-globex"]["approvals"] == approved
    assert decided["lead-acme"]["approvals"] == []
    assert (decided["lead-wayne"]["trail"], decided["lead-wayne"]["member"]) == (["bdr-emea"], "bdr-amer")
    members = {each["spec"]["role_id"]: each for each in lines if each["kind"] == "member"}
    assert list(members) == ["cro", "bdr-emea", "bdr-amer", "bdr-apac"]
    assert members["bdr-apac"]["by_event"] == "apac"
    assert {id_: each["trust"]["scores"] for id_, each in members.items()} == {
        id_: dict(each.scores) for id_, each in trust.items()
    }
    kinds = [(each["kind"], each.get("episode")) for each in lines if each.get("episode") == "event.lead-acme"]
    assert kinds == [("outcome", "event.lead-acme"), ("feedback", "event.lead-acme")]
    [rated] = [place for place, each in enumerate(lines) if each["kind"] == "feedback"]
    of = {each["event"]: place for place, each in enumerate(lines) if each["kind"] == "decision"}
    assert of["lead-initech"] < rated < of["lead-umbrella"]


async def test_an_export_replaces_no_other_file(run: Run, home: Path) -> None:
    (home / "week.jsonl").write_text("My notes.")
    words = ("workspace", "events", "--export", str(home / "week.jsonl"))
    error = await refusal(run, *words)
    assert error["message"] == f"{str(home / 'week.jsonl')!r} exists and is something else"
    assert (home / "week.jsonl").read_text() == "My notes."


async def test_the_differences_of_another_file_are_shown(run: Run, home: Path) -> None:
    file = changed(home / "team.yaml")
    await lived(home, file)
    await exported(run, home)
    words = ("workspace", "try", str(file), "--events", str(home / "week.jsonl"))
    assert (await run(*words)).stdout.splitlines() == [
        "0 of 15 events differ",
        "times that a person is asked: 6 then, 6 now",
        "US dollars for models: 0.0000 then, 0.0000 now",
    ]
    changed(file, ("autonomous: [qualify_lead]\n      forbidden", "forbidden"), ("max_roles: 20", "max_roles: 3"))
    shown = (await run(*words)).stdout
    assert [" ".join(each.split()) for each in shown.splitlines()] == [
        "EVENT TYPE THEN NOW WHY",
        "lead-meyer lead.created bdr-emea: delegate qualify_lead, done bdr-emea: escalate qualify_lead, done"
        " 'qualify_lead' needs approval for 'bdr-emea'",
        "apac directive.spawn cro: delegate role.spawn, done cro: delegate role.spawn, failed (roles_full)"
        " 'charles' tells 'cro' to make a member",
        "lead-nakatomi lead.created bdr-apac: delegate qualify_lead, done bdr-apac: refused (unknown_member)",
        "",
        "3 of 15 events differ",
        "times that a person is asked: 6 then, 7 now",
        "US dollars for models: 0.0000 then, 0.0000 now",
        "bdr-apac is not in the workspace now",
    ]
    tried = (await as_json(run, *words))["tried"]
    assert [each["event"]["id"] for each in tried["events"] if each["differs"]] == [
        "lead-meyer",
        "apac",
        "lead-nakatomi",
    ]
    assert tried["asked"] == {"then": 6, "now": 7, "unknown": 0}
    assert "bdr-apac" not in tried["members"]["now"]


async def test_trust_after_what_is_unknown_is_shown_as_a_range(run: Run, home: Path) -> None:
    file = changed(home / "team.yaml")
    await lived(home, file, rejects="Globex")
    await exported(run, home)
    changed(file, ("default: 0.1 #", "default: 0.3 #"))
    shown = (await run("workspace", "try", str(file), "--events", str(home / "week.jsonl"))).stdout
    assert "trust in bdr-amer for qualify_lead: 0.30 then, 0.50 to 0.55 now" in shown
    assert "bdr-amer: delegate qualify_lead, unknown" in shown


async def test_a_file_that_cannot_be_tried_says_why(run: Run, home: Path) -> None:
    file = changed(home / "team.yaml")
    error = await refusal(run, "workspace", "try", str(file), "--events", str(home / "none.jsonl"))
    assert "none.jsonl" in error["message"]
    (home / "week.jsonl").write_text("Monday")
    error = await refusal(run, "workspace", "try", str(file), "--events", str(home / "week.jsonl"))
    assert error["message"] == f"line 1 of {str(home / 'week.jsonl')!r}: it is not JSON"
