"""Calls that wait for leave, on the command line: listed, approved, changed, rejected, in any order (H9)."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, command, home, run
from support.hat_shop import MANY, approvals_desk, effects
from support.processes import eventually
from worldagent.agent import Turn
from worldagent.core import utc_text

__all__ = ["home", "run"]  # fixtures

APP = ("--app", "support.hat_shop:approvals_desk")
DESK = ("--workspace", "desk")

pytestmark = [pytest.mark.timeout(300), pytest.mark.requirement("H9")]


@pytest.fixture(autouse=True)
def _in_its_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


async def begun(shape: str, thread: str = "main", account: str | None = None) -> Turn:
    """Leave a turn of a shape that waits."""
    async with approvals_desk() as desk:
        turn = await desk.thread(thread, account=account).task(shape, {})
    assert turn.status == "paused"
    return turn


def policy(home: Path, *rules: dict[str, Any]) -> tuple[str, str]:
    """The option of a policy in a file."""
    (home / "policy.json").write_text(json.dumps({"rules": rules}), encoding="utf-8")
    return "--policy", "policy.json"


# --- answering --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T4")
async def test_ten_calls_that_wait_at_once_are_answered_in_any_order_by_process_after_process(home: Path) -> None:
    """Each command is a process of its own, so each answer comes after a restart."""
    waits = await command(home, "task", "many", *APP, "--json")
    assert waits.code == 3, waits
    listed = json.loads((await command(home, "approvals", "list", *DESK, "--json")).out)["approvals"]
    assert [found["id"] for found in listed] == [pause["id"] for pause in json.loads(waits.out)["pauses"]]
    assert len(listed) == MANY
    random.Random(6).shuffle(listed)
    to = {found["id"]: found["arguments"]["to"] for found in listed}
    ids = list(to)
    first = await command(home, "approvals", "approve", *ids[:3], *APP, "--json")
    assert (first.code, len(json.loads(first.out)["pauses"])) == (3, MANY - 3), first
    assert sorted(effects(home)) == sorted(f"sent {to[pause_id]} 1" for pause_id in ids[:3])
    refused = await command(home, "approvals", "reject", *ids[3:5], "--reason", "not now", *APP)
    assert refused.code == 3, refused
    other = json.dumps({"to": "somebody", "copies": 2})
    seen = next(found["hash"] for found in listed if found["id"] == ids[5])
    changed = await command(home, "approvals", "approve", ids[5], "--arguments", other, "--hash", seen, *APP)
    assert (changed.code, effects(home)[-1]) == (3, "sent somebody 2"), changed
    last = await command(home, "approvals", "approve", *reversed(ids[6:]), *APP)
    assert last.code == 0, last
    assert sorted(effects(home)) == sorted(
        [*(f"sent {to[pause_id]} 1" for pause_id in (*ids[:3], *ids[6:])), "sent somebody 2"]
    )
    assert last.out.count("not now") == 2
    nothing = await command(home, "approvals", "list", *DESK, "--json")
    assert (nothing.code, json.loads(nothing.out)) == (0, {"approvals": []})


async def test_always_any_approves_what_the_same_caller_asks_for(home: Path, run: Run) -> None:
    [pause] = (await begun("series")).pauses
    result = await run("approvals", "approve", pause.id, "--always-any", *APP)
    assert (result.exit_code, effects(home)) == (0, ["sent ana 1", "sent bob 1"]), result.output


async def test_only_those_whom_the_policy_names_may_answer_and_the_error_says_how(home: Path, run: Run) -> None:
    rules = policy(home, {"decision": "ask", "function": "send", "approvers": ["ana", "lead-*"]})
    waits = await run("task", "series", *APP, *rules)
    assert waits.exit_code == 3
    assert "approvers: ana, lead-*" in waits.stderr
    assert f"worldagent resume main {' '.join((*APP, *rules))} --approve" in waits.stderr
    [found] = json.loads((await run("approvals", "list", *DESK, "--json")).stdout)["approvals"]
    assert found["approvers"] == ["ana", "lead-*"]
    for words in (("approvals", "reject", found["id"]), ("resume", "main", "--approve", "--account", "bob")):
        result = await run(*words, *APP, *rules, "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["code"]) == (2, "not_an_approver")
        assert "--account" in error["remedy"]
    assert effects(home) == []
    gone_on = await run("resume", "main", "--approve", *APP, *rules, "--account", "lead-eve")
    assert (gone_on.exit_code, len(effects(home))) == (3, 1), gone_on.output


REFUSED = [
    (("approve", "{send}", "--hash", "0" * 12), "answer_invalid", "--hash '000000000000' is not the hash of"),
    (("approve", "{send}", "--arguments", '{{"to": 3}}'), "invalid_argument", "to: 3 is not of type 'string'"),
    (("approve", "{send}", "{other}"), "invalid_argument", "the ids belong to 2 threads: 'main', 't2'"),
    (("approve", "{other}", "--always"), "invalid_argument", "'erase' is destructive"),
    (("approve", "{question}"), "answer_invalid", "of kind 'question'"),
]


async def test_what_cannot_be_answered_so_is_refused_and_stays_open(home: Path, run: Run) -> None:
    pauses = {pause.function: pause.id for pause in (await begun("pair")).pauses}
    pauses["other"] = (await begun("wipe", "t2")).pauses[0].id
    pauses["question"] = (await begun("question", "t3")).pauses[0].id
    for words, code, told in REFUSED:
        result = await run("approvals", *(word.format(**pauses) for word in words), *APP, "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["code"]) == (2, code), words
        assert told in error["message"], words
        assert error["remedy"], words
    async with approvals_desk() as desk:
        assert len(await desk.thread("main").pauses()) == 2
    assert effects(home) == []


# --- listing ----------------------------------------------------------------------------------------------------------


async def test_what_waits_is_listed_over_all_threads_with_all_that_is_known_of_it(home: Path, run: Run) -> None:
    pair = await begun("pair", "t1", account="ana")
    await begun("question", "t2")
    [erase] = (await begun("wipe", "t3")).pauses
    listed = await run("approvals", "list", *DESK, "--json")
    found = json.loads(listed.stdout)["approvals"]
    assert [item["thread"] for item in found] == ["t1", "t1", "t3"]
    assert (found[0]["turn"], found[0]["account"], found[0]["kind"]) == (pair.id, "ana", "approval")
    last = found[2]
    assert (last["id"], last["hash"], last["since"]) == (erase.id, erase.hash, utc_text(erase.since))
    assert (last["risk"], last["caller"], last["approvers"]) == (["destructive"], "wipe", [])
    assert last["reason"] == "nothing in the policy allows it"
    shown = await run("approvals", "list", *DESK)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.count("approval of a call: ") == 3
    assert f"\nid: {erase.id}\n" in shown.stdout
    assert "\n  worldagent approvals approve ID --workspace desk\n" in shown.stdout
    only = await run("approvals", "list", *DESK, "--thread", "t3")
    assert only.stdout.count("approval of a call: ") == 1


# --- events and chats -------------------------------------------------------------------------------------------------


async def test_a_chat_takes_an_edit_asks_again_where_it_does_not_fit_and_takes_always(home: Path) -> None:
    await begun("series")
    lines = b"edit copies=many\nedit to=eve copies=2\n"
    chat = await command(home, "chat", *APP, "--json", stdin=lines)
    told = [json.loads(line) for line in chat.out.splitlines()]
    assert (chat.code, [value.get("status") for value in told]) == (3, ["paused", None, "paused"]), chat
    assert "the field 'copies' must be of type whole number" in told[1]["error"]["message"]
    assert told[0]["pauses"][0]["risk"] == ["network"]
    assert effects(home) == ["sent eve 2"]
    chat = await command(home, "chat", *APP, stdin=b"always any\n")
    assert (chat.code, chat.out) == (0, "sent eve, sent bob\n"), chat


async def test_a_chat_asks_first_what_its_account_may_answer_and_leaves_the_rest(home: Path, run: Run) -> None:
    rules = policy(home, {"decision": "ask", "function": "send", "approvers": ["ana"]})
    assert (await run("task", "pair", *APP, *rules)).exit_code == 3
    chat = await command(home, "chat", *APP, *rules, "--account", "bob", "--json", stdin=b"yes\nyes\n")
    told = [json.loads(line) for line in chat.out.splitlines()]
    assert [pause["function"] for pause in told[0]["pauses"]] == ["keep", "send"]
    assert [pause["function"] for pause in told[1]["pauses"]] == ["send"]
    assert (chat.code, told[2]["error"]["code"]) == (3, "not_an_approver")
    assert effects(home) == ["kept a.md"]
    chat = await command(home, "chat", *APP, *rules, "--account", "ana", stdin=b"y\n")
    assert (chat.code, chat.out) == (0, "sent ana, kept a.md\n"), chat


# --- expired ----------------------------------------------------------------------------------------------------------


async def expired(home: Path, run: Run) -> tuple[str, tuple[str, str]]:
    """A call whose time to be approved is over, and the option with the policy that says so."""
    rules = policy(home, {"decision": "ask", "function": "send", "expires": 0.01})
    waits = await run("task", "series", *APP, *rules, "--json")
    [pause] = json.loads(waits.stdout)["pauses"]
    assert (waits.exit_code, pause["expires"] > pause["since"]) == (3, True), waits.output
    over = datetime.fromisoformat(pause["expires"])
    assert await eventually(lambda: datetime.now(UTC) > over)  # within a hundredth of a second
    return pause["id"], rules


@pytest.mark.requirement("T4")
async def test_what_has_expired_is_listed_as_such_and_cannot_be_approved(home: Path, run: Run) -> None:
    pause_id, rules = await expired(home, run)
    listed = await run("approvals", "list", *DESK)
    assert "\nexpired at " in listed.stdout, listed.output
    assert "accepts no answer any more: `worldagent resume main` resumes the turn without it" in listed.stdout
    assert "open until" not in listed.stdout
    [found] = json.loads((await run("approvals", "list", *DESK, "--json")).stdout)["approvals"]
    assert (found["id"], found["expired"]) == (pause_id, True)
    late = await run("approvals", "approve", pause_id, *APP, *rules, "--json")
    error = json.loads(late.stdout)["error"]
    assert (late.exit_code, error["code"]) == (2, "answer_invalid"), late.output
    assert "`worldagent resume main`; the call fails with PauseExpired" in error["remedy"]
    gone_on = await run("resume", "main", *APP, *rules, "--json")
    assert (gone_on.exit_code, json.loads(gone_on.stdout)["error"]["code"]) == (1, "pause_expired"), gone_on.output
    assert effects(home) == []
