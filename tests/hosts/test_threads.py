"""`worldagent threads`: where threads stand, out of the database alone (T4)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, Run, home, run
from support.hat_shop import agent, effects

__all__ = ["home", "run"]  # fixtures

SHOP = ("--workspace", "shop")


async def as_json(run: Run, *words: str) -> Any:
    result = await run(*words, *SHOP, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.requirement("T4")
async def test_threads_are_listed_with_what_they_wait_for(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("talk", account="ana").converse("Hello")
        turn = await shop.thread("hats/1", account="bob").task("pick", {"what": "hat"})
    listed = await run("threads", "list", *SHOP)
    assert (listed.exit_code, listed.stderr) == (0, "")
    head, first, second = listed.stdout.splitlines()
    assert head.split() == ["THREAD", "STATUS", "SINCE", "ACCOUNT", "TITLE", "WAITS", "FOR"]
    assert (first.split()[:2], first.split()[4:]) == (["hats/1", "paused"], ["bob", "2"])
    assert (second.split()[:2], second.split()[4:]) == (["talk", "done"], ["ana", "Hello"])
    assert max(map(len, listed.stdout.splitlines())) <= 80
    found = (await as_json(run, "threads", "list"))["threads"]
    assert found[0] == {
        "thread": "hats/1",
        "title": None,
        "account": "bob",
        "channel": None,
        "turn": turn.id,
        "turn_id": turn.id,
        "resumable": True,
        "kind": "task",
        "status": "paused",
        "since": found[0]["since"],
        "waits_for": 2,
        "answers": 0,
        "unattended": None,
        "page_key": found[0]["page_key"],
    }
    [talk] = (await as_json(run, "threads", "list", "--status", "done"))["threads"]
    assert talk["thread"] == "talk"


@pytest.mark.requirement("T4")
async def test_a_thread_is_shown_with_what_waits_how_to_answer_and_what_was_said(home: Path, run: Run) -> None:
    async with agent() as shop:
        thread = shop.thread("t1", account="ana", channel="c1")
        await thread.converse("Good\nmorning")
        turn = await thread.task("pick", {"what": "hat"})
    shown = await run("threads", "show", "t1", *SHOP)
    assert (shown.exit_code, "with --app this command shows" in shown.stderr) == (0, True)
    told = shown.stdout
    assert told.startswith("t1: paused since ")
    assert f"\ntask {turn.id}, account ana, channel c1\n" in told
    assert all(f"\nid: {pause.id}\n" in told for pause in turn.pauses)
    assert "\n  worldagent resume t1 --workspace shop --approve ID\n" in told
    assert "\n  worldagent resume t1 --workspace shop --answer ID=ANSWER\n" in told
    assert "\nlast messages:\n  ana: Good\n    morning\n  agent: Welcome to the shop.\n  ana: [task] {" in told
    found = (await as_json(run, "threads", "show", "t1"))["thread"]
    assert (found["status"], found["resume"]) == ("paused", "worldagent resume t1 --workspace shop")
    assert {pause["id"] for pause in found["pauses"]} == {pause.id for pause in turn.pauses}
    assert [message["author"] for message in found["messages"]] == ["ana", "agent", "ana"]


@pytest.mark.requirement("T4")
async def test_a_turn_that_waits_is_cancelled(home: Path, run: Run) -> None:
    async with agent() as shop:
        turn = await shop.thread("t1").task("buy", {"what": "hat"})
    cancelled = await run("threads", "cancel", "t1", *SHOP, "--json")
    assert cancelled.exit_code == 0
    assert json.loads(cancelled.stdout) == {"cancelled": {"thread": "t1", "turn": turn.id, "over": True}}
    assert cancelled.stderr == "cancelled the turn of the thread 't1'\n"
    again = await run("threads", "cancel", "t1", *SHOP)
    assert (again.exit_code, again.stdout) == (1, "")
    assert "is cancelled" in again.stderr
    async with agent() as shop:
        assert await shop.thread("t1").pauses() == ()
        assert (await shop.thread("t1").converse("Hello")).text == "Welcome to the shop."
    assert effects(home) == []


@pytest.mark.requirement("T4")
async def test_a_thread_is_forked_at_a_message_and_listed_and_shown(home: Path, run: Run) -> None:
    async with agent() as shop:
        thread = shop.thread("t1", account="ana")
        await thread.converse("Good morning")
        await thread.converse("And now?")
    shown = (await as_json(run, "threads", "show", "t1", "--messages", "3"))["thread"]
    assert [message["author"] for message in shown["messages"]] == ["agent", "ana", "agent"]
    at = shown["messages"][0]["id"]
    forked = await run("threads", "fork", "t1", "--at", at, "--to", "plan b", *SHOP)
    assert (forked.exit_code, forked.stdout, forked.stderr) == (0, "plan b\n", "")
    assert await as_json(run, "threads", "fork", "t1") == {"forked": {"thread": "t1", "to": "t1.3"}}
    listed = (await as_json(run, "threads", "list", "--status", "forked"))["threads"]
    assert [(item["thread"], item["turn"]) for item in listed] == [("t1.3", None), ("plan b", None)]
    assert (await run("threads", "show", "plan b", *SHOP)).stdout.startswith("plan b: forked since ")
    for words, code, told in (
        (("cancel", "plan b"), 1, "the thread 'plan b' has no turn yet"),
        (("fork", "t1", "--at", "1"), 2, "message '1' is unknown"),
        (("fork", "t1", "--to", "plan b"), 2, "plan b"),
    ):
        refused = await run("threads", *words, *SHOP)
        assert (refused.exit_code, told in refused.stderr) == (code, True), refused.stderr


@pytest.mark.requirement("T4")
async def test_a_resume_that_lacks_the_app_takes_no_answer_and_the_whole_command_is_shown(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").task("buy", {"what": "hat"})
    shown = await run("threads", "show", "t1", *SHOP)
    assert "add the --app" in shown.stderr
    lacking = await run("resume", "t1", *SHOP, "--approve", "--json")
    error = json.loads(lacking.stdout)["error"]
    assert (lacking.exit_code, error["code"], effects(home)) == (1, "graph_changed", [])
    assert "--app" in error["remedy"]
    found = await run("threads", "show", "t1", *APP, "--json")
    command = json.loads(found.stdout)["thread"]["resume"]
    assert command == "worldagent resume t1 --app support.hat_shop:agent"
    assert found.stderr == ""
    done = await run(*shlex.split(command)[1:], "--approve")
    assert (done.exit_code, done.stdout, effects(home)) == (0, "paid for the hat\n", ["paid hat"])


@pytest.mark.requirement("T13")
async def test_turns_are_begun_unattended_and_their_threads_show_the_mode(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    app = ("--app", "support.shop:agent")
    refused = await run("task", "buy", "-p", "what=book", "--thread", "r", "--unattended", "refuse", *app)
    assert (refused.exit_code, "unattended turn" in " ".join(refused.stderr.split())) == (1, True), refused.stderr
    paused = await run("task", "buy", "-p", "what=book", "--thread", "p", "--unattended", "pause", *app)
    assert paused.exit_code == 3
    said = await run("ask", "Hello", "--thread", "c", "--unattended", "pause", *APP)
    assert said.exit_code == 0, said.stderr
    found = (await as_json(run, "threads", "list"))["threads"]
    assert {item["thread"]: item["unattended"] for item in found} == {"r": "refuse", "p": "pause", "c": "pause"}


@pytest.mark.requirement("T4")
async def test_threads_are_found_by_account_channel_text_and_page(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1", account="ana", channel="c1").converse("Where is the Sarn?")
        await shop.thread("t2", account="bob").converse("Where is Vell?")
        await shop.thread("t3", account="ana").converse("Hello")

    async def found(*words: str) -> list[str]:
        return [item["thread"] for item in (await as_json(run, "threads", "list", *words))["threads"]]

    assert await found("--account", "ana") == ["t3", "t1"]
    assert await found("--channel", "c1") == ["t1"]
    assert await found("--query", "vell") == ["t2"]
    [last] = (await as_json(run, "threads", "list", "--limit", "1"))["threads"]
    assert await found("--before", last["page_key"]) == ["t2", "t1"]
    assert await found("--before", "2900-01-01T10:00") == ["t3", "t2", "t1"]
    refused = await run("threads", "list", *SHOP, "--before", "yesterday")
    assert refused.exit_code != 0
    assert "page_key" in refused.stderr
    page = await run("threads", "list", *SHOP, "--limit", "1")
    assert f"--before {last['page_key']}" in page.stderr


@pytest.mark.requirement("T4")
async def test_thread_is_renamed_and_gets_its_first_words_back(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").converse("Where is the Sarn?")
    renamed = await as_json(run, "threads", "rename", "t1", "The river")
    assert renamed == {"renamed": {"thread": "t1", "title": "The river"}}
    assert "title: The river" in (await run("threads", "show", "t1", *SHOP)).stdout
    assert (await run("threads", "rename", "t1", "", *SHOP)).exit_code == 0
    [state] = (await as_json(run, "threads", "list"))["threads"]
    assert state["title"] == "Where is the Sarn?"
