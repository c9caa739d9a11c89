"""`worldagent workspace events --export` and `try`: a week is recorded, and tried with another file (A23)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, home, refusal, run
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
