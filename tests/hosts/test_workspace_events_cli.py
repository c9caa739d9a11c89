"""`worldagent workspace emit`, `events` and `run`: events from the command line (A12)."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, as_json, command, home, refusal, run
from support.role_specs import spec_of
from worldagent import Storage
from worldagent.agent.stores import Stores
from worldagent.members import Society, WorkspaceConfig

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A12")

_TEAM = """
workspace: shop
owner: charles
roles:
  - role_id: clerk
    soul: You are the clerk.
    domains: [orders]
    reports_to: charles
    authority: {autonomous: [order.placed]}
"""


async def staffed(home: Path) -> None:
    """A CRO."""
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(WorkspaceConfig(id="default", owner="charles"), stores.database)
        await society.join(spec_of("cro", workspace="default", domains=("revenue",)))


def line(**more: Any) -> str:
    given = {"id": "e1", "type": "lead.created", "source": "hubspot", "domain": "revenue", "payload": {"lead": "Ada"}}
    return json.dumps(given | more)


async def test_a_run_says_that_questions_of_members_wait_too(run: Run, home: Path) -> None:
    async with aclosing(await Stores.open(Storage(home=home))) as stores:
        society = Society(WorkspaceConfig(id="novel", owner="charles"), stores.database)
        await society.join(spec_of("cro", workspace="novel"))
        await society.mail.send("root", "cro", "Deploy.")
    found = await run("workspace", "run", "--app", "support.society:asking")
    assert found.exit_code == 3
    assert "a person is needed for 1 question of members: answer with `worldagent approvals list" in found.stderr


@pytest.mark.requirement("A17")
async def test_a_case_is_told_by_any_of_its_ids_and_as_a_page(run: Run, home: Path, tmp_path: Path) -> None:
    await staffed(home)
    await run("workspace", "emit", "lead.created", "--domain", "revenue", "--id", "<e1>", "--source", "hubspot")
    shown = (await run("case", "<e1>")).stdout
    assert "lead.created in revenue  waiting" in shown
    assert "something of it waits or is still to be done" in shown
    [step] = (await as_json(run, "case", "event.<e1>"))["case"]["steps"]
    assert (step["who"], step["kind"], step["id"]) == ("hubspot", "event", "<e1>")
    page = tmp_path / "case.html"
    told = await run("case", "<e1>", "--html", str(page))
    assert f"the page of the case is in {page}" in told.stderr
    html = page.read_text(encoding="utf-8")
    assert "Case event.&lt;e1&gt;" in html
    assert "<e1>" not in html
    assert "there is no case 'e2'" in (await run("case", "e2")).stderr
    await run("case", "<e1>", "--html", str(page))  # its own page is replaced, and nothing else
    page.write_text("team: mine", encoding="utf-8")
    assert "exists and is something else" in (await run("case", "<e1>", "--html", str(page))).stderr
    assert page.read_text(encoding="utf-8") == "team: mine"
    assert "cannot be written" in (await run("case", "<e1>", "--html", str(tmp_path))).stderr


@pytest.mark.requirement("A17")
async def test_events_are_chosen_by_member_type_result_time_and_case(run: Run, home: Path) -> None:
    await staffed(home)
    for number, kind in enumerate(("lead.created", "lead.lost", "deal.won")):
        await run("workspace", "emit", kind, "--domain", "revenue" if number else "legal", "--id", f"e{number}")

    async def found(*options: str) -> list[str]:
        return [each["event"]["id"] for each in (await as_json(run, "workspace", "events", *options))["events"]]

    assert await found("--type", "lead.*") == ["e0", "e1"]
    assert await found("--member", "cro") == ["e1", "e2"]
    assert await found("--member", "cro", "--type", "lead.*", "--limit", "1") == ["e1"]
    assert await found("--result", "done") == []
    assert await found("--case", "e2") == ["e2"]
    assert await found("--since", "2020-01-01") == ["e0", "e1", "e2"]
    assert await found("--since", "2100-01-01T00:00:00+00:00") == []
    assert "--since cannot be 'soon'" in (await run("workspace", "events", "--since", "soon")).stderr


async def test_an_event_is_posted_and_listed(run: Run, home: Path) -> None:
    assert (await run("workspace", "events")).stdout == "there are no events in the workspace 'default'\n"
    await staffed(home)
    words = ("workspace", "emit", "lead.created", "--domain", "revenue", "--payload", '{"lead": "Ada"}', "--id", "e1")
    [posted] = (await as_json(run, *words))["events"]
    assert (posted["member"], posted["state"], posted["thread"]) == ("cro", "waiting", "event e1")
    assert (posted["event"]["source"], posted["event"]["source_verified"]) == ("user", True)
    [again] = (await as_json(run, *words, "--source", "user"))["events"]
    assert again == posted
    [listed] = (await as_json(run, "workspace", "events", "--state", "waiting"))["events"]
    assert listed == posted
    assert (await as_json(run, "workspace", "events", "--state", "done"))["events"] == []
    assert "lead.created  cro" in (await run("workspace", "events")).stdout
    error = await refusal(run, "workspace", "events", "--state", "over")
    assert error["message"] == "`state` must be one of 'waiting', 'decided', 'paused', 'done', got 'over'"


async def test_a_source_that_is_not_vouched_for_is_not_verified(run: Run, home: Path) -> None:
    words = ("workspace", "emit", "directive.spawn", "--domain", "revenue", "--source", "charles")
    [posted] = (await as_json(run, *words, "--id", "e1"))["events"]
    assert posted["event"]["source_verified"] is False
    [posted] = (await as_json(run, *words, "--id", "e2", "--verified"))["events"]
    assert posted["event"]["source_verified"] is True


async def test_events_are_read_from_a_file_or_from_standard_input(run: Run, home: Path) -> None:
    await staffed(home)
    (home / "events.jsonl").write_text(f"{line()}\n\n{line(id='e2')}\n")
    found = (await as_json(run, "workspace", "emit", "--events", str(home / "events.jsonl")))["events"]
    assert [each["event"]["id"] for each in found] == ["e1", "e2"]
    done = await command(home, "workspace", "emit", "--events", "-", "--json", stdin=line(id="e3").encode())
    assert (done.code, json.loads(done.out)["events"][0]["place"]) == (0, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "an event needs TYPE and --domain"),
        (("lead.created",), "an event needs TYPE and --domain"),
        (("lead.created", "--domain", "revenue", "--payload", "[]"), "--payload must be a JSON object"),
        (("lead.created", "--events", "events.jsonl"), "--events and TYPE exclude each other"),
        (("--events", "missing.jsonl"), "missing.jsonl"),
    ],
)
async def test_an_event_that_is_incomplete_is_refused(run: Run, home: Path, given: Any, message: str) -> None:
    assert message in (await refusal(run, "workspace", "emit", *given))["message"]


async def test_a_line_that_is_no_event_posts_none_of_the_file(run: Run, home: Path) -> None:
    (home / "events.jsonl").write_text(f"{line()}\n{line(id='e2', domain='')}\n")
    error = await refusal(run, "workspace", "emit", "--events", str(home / "events.jsonl"))
    assert error["message"] == "line 2 of --events: the event lacks `domain`"
    assert (await run("workspace", "events")).stdout == "there are no events in the workspace 'default'\n"


async def test_an_id_with_other_content_is_refused(run: Run, home: Path) -> None:
    words = ("workspace", "emit", "lead.created", "--id", "e1", "--domain")
    await as_json(run, *words, "revenue")
    error = await refusal(run, *words, "marketing")
    assert (error["code"], "was posted with other content" in error["message"]) == ("key_reused", True)


async def test_a_workspace_runs_until_nothing_is_left(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")  # no model is asked
    (home / "team.yaml").write_text(_TEAM)
    (home / "events.jsonl").write_text(line(domain="orders", type="order.placed"))
    words = ("workspace", "run", str(home / "team.yaml"), "--events", str(home / "events.jsonl"), "--lm", "openai/x")
    [posted] = (await as_json(run, *words))["events"]
    assert (posted["member"], posted["state"], posted["result"]) == ("clerk", "done", "escalated")
    assert posted["decision"]["reason"] == "'clerk' has no operator for 'order.placed'"


async def test_a_run_names_the_command_that_lists_what_waits(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")  # no model is asked
    routes = "operator_ids: [packer]\n    routes: [{event: order.placed, operator: packer}]"
    (home / "team.yaml").write_text(_TEAM.replace("authority: {autonomous: [order.placed]}", routes))
    (home / "events.jsonl").write_text(line(domain="orders", type="order.placed", payload={}))
    words = ("workspace", "run", str(home / "team.yaml"), "--events", str(home / "events.jsonl"), "--lm", "openai/x")
    shown = await run(*words, "--worker", "packer=You pack.")
    assert (shown.exit_code, "paused" in shown.stdout) == (3, True)
    assert "answer with `worldagent approvals list --workspace shop`" in shown.stderr


async def test_a_run_without_the_operators_handles_no_event(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")  # no model is asked
    (home / "team.yaml").write_text(_TEAM + "    operator_ids: [packer]\n")
    (home / "events.jsonl").write_text(line(domain="orders", type="order.placed"))
    words = ("workspace", "run", str(home / "team.yaml"), "--events", str(home / "events.jsonl"), "--lm", "openai/x")
    error = await refusal(run, *words)
    assert error["message"] == "the agent has no operator 'packer'"
    assert (await as_json(run, "workspace", "events", "--workspace", "shop"))["events"] == []


async def test_a_run_needs_a_workspace(run: Run, home: Path) -> None:
    assert (await refusal(run, "workspace", "run"))["message"] == "there is no workspace"
    error = await refusal(run, "workspace", "run", "--app", "support.hat_shop:agent")
    assert error["message"] == "the agent of --app has no society"
