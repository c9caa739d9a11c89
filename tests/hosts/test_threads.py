"""`worldagent threads` and `backup`: list, find, fork, move and remove, out of the database alone (T4)."""

import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, Run, home, refusal, run
from support.hat_shop import agent, effects
from worldagent.hosts.service import threads as calls
from worldagent.hosts.service.arguments import (
    ArchiveArguments,
    ForkArguments,
    HistoryArguments,
    RenameArguments,
    ThreadArguments,
    ThreadsArguments,
)
from worldagent.hosts.service.call import Call, Caller
from worldagent.hosts.service.home import Workspace, open_threads

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T4")

SHOP = ("--workspace", "shop")


async def as_json(run: Run, *words: str) -> Any:
    result = await run(*words, *(SHOP if words[0] == "threads" else ()), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def threads(run: Run, *words: str) -> list[str]:
    return [item["thread"] for item in (await as_json(run, "threads", "list", *words))["threads"]]


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
        "archived": False,
        "speaker": None,
    }
    [talk] = (await as_json(run, "threads", "list", "--status", "done"))["threads"]
    assert talk["thread"] == "talk"


async def test_a_thread_is_shown_with_its_pauses_how_to_answer_and_its_messages(home: Path, run: Run) -> None:
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


async def test_a_resume_that_lacks_the_app_takes_no_answer_and_the_whole_command_is_shown(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").task("buy", {"what": "hat"})
    assert "add the --app" in (await run("threads", "show", "t1", *SHOP)).stderr
    error = await refusal(run, "resume", "t1", *SHOP, "--approve", code=1)
    assert (error["code"], "--app" in error["remedy"], effects(home)) == ("graph_changed", True, [])
    found = await run("threads", "show", "t1", *APP, "--json")
    command = json.loads(found.stdout)["thread"]["resume"]
    assert command == "worldagent resume t1 --app support.hat_shop:agent"
    assert found.stderr == ""
    done = await run(*shlex.split(command)[1:], "--approve")
    assert (done.exit_code, done.stdout, effects(home)) == (0, "paid for the hat\n", ["paid hat"])


@pytest.mark.requirement("T13")
async def test_threads_show_whether_their_turn_is_unattended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_threads_are_found_by_account_channel_text_and_page(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1", account="ana", channel="c1").converse("Where is the Sarn?")
        await shop.thread("t2", account="bob").converse("Where is Vell?")
        await shop.thread("t3", account="ana").converse("Hello")

    assert await threads(run, "--account", "ana") == ["t3", "t1"]
    assert await threads(run, "--channel", "c1") == ["t1"]
    assert await threads(run, "--query", "vell") == ["t2"]
    [last] = (await as_json(run, "threads", "list", "--limit", "1"))["threads"]
    assert await threads(run, "--before", last["page_key"]) == ["t2", "t1"]
    assert await threads(run, "--before", "2900-01-01T10:00") == ["t3", "t2", "t1"]
    refused = await run("threads", "list", *SHOP, "--before", "yesterday")
    assert refused.exit_code != 0
    assert "page_key" in refused.stderr
    assert f"--before {last['page_key']}" in (await run("threads", "list", *SHOP, "--limit", "1")).stderr


async def test_thread_is_renamed_and_gets_its_first_words_back(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").converse("Where is the Sarn?")
    renamed = await as_json(run, "threads", "rename", "t1", "The river")
    assert renamed == {"renamed": {"thread": "t1", "title": "The river"}}
    assert "title: The river" in (await run("threads", "show", "t1", *SHOP)).stdout
    assert (await run("threads", "rename", "t1", "", *SHOP)).exit_code == 0
    [state] = (await as_json(run, "threads", "list"))["threads"]
    assert state["title"] == "Where is the Sarn?"


async def test_thread_is_archived_and_shown_again(home: Path, run: Run) -> None:
    async with agent() as shop:
        for thread in ("t1", "t2"):
            await shop.thread(thread).converse("Where is the Sarn?")
    assert await as_json(run, "threads", "archive", "t1") == {"archived": {"thread": "t1", "archived": True}}

    async def listed(*words: str) -> list[str]:
        return [state["thread"] for state in (await as_json(run, "threads", "list", *words))["threads"]]

    assert (await listed(), await listed("--archived")) == (["t2"], ["t1"])
    assert "t1: done (archived)" in (await run("threads", "show", "t1", *SHOP)).stdout
    assert (await run("threads", "archive", "t1", "--undo", *SHOP)).exit_code == 0
    assert await listed() == ["t2", "t1"]


@pytest.mark.requirement("M4")
async def test_an_account_is_removed(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1", account="ana").converse(SAID)
        for account in ("ana", "bob"):
            await shop.thread("t2", account=account).converse("Where is the Sarn?")
    await as_json(run, "memory", "add", SAID, "--account", "ana", *SHOP)
    assert "must be confirmed" in (await refusal(run, "accounts", "rm", "ana"))["message"]
    removed = (await as_json(run, "accounts", "rm", "ana", "--yes", *SHOP))["removed"]
    counts = {"threads": 1, "messages": 2, "turns": 1, "entries": 1, "schedules": 0, "logins": 0, "rows": 0}
    assert removed == {"account": "ana", **counts, "shared": ["t2"]}
    assert not [path for path in home.rglob("*") if path.is_file() and SAID.encode() in path.read_bytes()]
    again = await run("accounts", "rm", "ana", "--yes", *SHOP)
    assert again.stderr.splitlines() == [
        "removed of the account 'ana': 0 threads, 0 messages, 0 turns, 0 memory entries, 0 schedules, 0 logins, "
        "0 rows of capabilities",
        "kept, because another account has a turn on them: t2",
    ]


# --- moving and removing ----------------------------------------------------------------------------------------------


SAID = "a sentence of forty letters and some more for the scan"


async def test_a_thread_is_exported_removed_and_imported_again(home: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t1.jsonl"
    async with agent() as shop:
        await shop.thread("t1").converse(SAID)
        said = await shop.thread("t1").history()
    done = await run("threads", "export", "t1", "-o", str(file), *SHOP)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"2 messages of the thread 't1' are in {str(file)!r}\n"
    assert SAID in file.read_text(encoding="utf-8")
    removed = (await as_json(run, "threads", "rm", "t1", "--yes"))["removed"]
    assert (removed["thread"], removed["messages"], removed["turns"]) == ("t1", 2, 1)
    assert not [path for path in home.rglob("*") if path.is_file() and SAID.encode() in path.read_bytes()]
    assert await threads(run) == []
    done = await run("threads", "import", str(file), *SHOP)
    assert (done.exit_code, done.stderr) == (0, "made the thread 't1' with 2 messages\n")
    done = await run("threads", "import", str(file), *SHOP)
    assert (done.exit_code, done.stderr) == (0, "the thread 't1' has the 2 messages already\n")
    imported = (await as_json(run, "threads", "import", str(file), "--as", "t2"))["imported"]
    assert imported == {"thread": "t2", "messages": 2, "added": 0, "made": True}
    assert sorted(await threads(run)) == ["t1", "t2"]
    async with agent() as shop:
        for name in ("t1", "t2"):
            assert await shop.thread(name).history() == said


async def test_removal_needs_confirmation_and_an_ended_turn(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").task("pick", {"what": "hat"})
    done = await run("threads", "rm", "t1", *SHOP)
    assert (done.exit_code, done.stderr) == (
        2,
        "error: removing the thread 't1' must be confirmed\nremedy: give --yes\n",
    )
    done = await run("threads", "rm", "t1", "--yes", *SHOP)
    assert done.exit_code == 1
    assert "is paused and can be resumed\n" in done.stderr
    assert "remedy: resume it, or cancel it as well: cancel=True in code, --cancel on" in done.stderr
    assert await threads(run) == ["t1"]
    done = await run("threads", "rm", "t1", "--yes", "--cancel", *SHOP)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("removed the thread 't1': 1 message, 1 turn, ")
    assert await threads(run) == []


async def test_an_import_makes_the_home_and_nothing_else_does(home: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t1.jsonl"
    async with agent() as shop:
        await shop.thread("t1").converse(SAID)
        await shop.upkeep.export("t1", file)
    new = tmp_path / "new"
    for words in (("rm", "t1", "--yes"), ("export", "t1", "-o", str(tmp_path / "x")), ("prune",)):
        assert (await refusal(run, "threads", *words, "--home", str(new), code=1))["code"] == "not_found"
    assert not new.exists()
    assert (await as_json(run, "threads", "import", str(file), "--home", str(new)))["imported"]["added"] == 2
    remove = ("threads", "rm", "t1", "--yes", "--home", str(new))
    assert (await as_json(run, *remove))["removed"]["messages"] == 2
    assert (await refusal(run, *remove, code=1))["code"] == "not_found"
    assert (await refusal(run, "threads", "show", "t2", *SHOP, code=1))["code"] == "not_found"


async def test_prune_uses_option_or_setting(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent() as shop:
        for _ in range(4):
            await shop.thread("t1").converse(SAID)
    found = (await as_json(run, "threads", "prune"))["pruned"]
    society = {"events": 0, "messages": 0, "outcomes": 0, "steps": 0, "briefs": 0}
    assert found == {"checkpoints": 0, "threads": 0, "left": 0, "attachments": 0, **society}
    monkeypatch.setenv("WORLDAGENT_CHECKPOINT_KEEP", "4")
    done = await run("threads", "prune", *SHOP)
    assert (done.exit_code, done.stderr) == (0, "removed 4 checkpoints of 1 thread\n")
    done = await run("threads", "prune", "--keep", "1", *SHOP)
    assert done.stderr == "removed 3 checkpoints of 1 thread\n"


async def test_a_home_is_copied_with_its_threads(home: Path, run: Run, tmp_path: Path) -> None:
    async with agent() as shop:
        await shop.thread("t1").converse(SAID)
        copied = (await as_json(run, "backup", str(tmp_path / "copy")))["backup"]
    assert copied["files"] == ["agent.db", "role.key", "roles.db"]
    done = await run("backup", str(tmp_path / "other"), "--without-roles")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("copied 1 file, ")
    assert await threads(run, "--home", str(tmp_path / "copy")) == ["t1"]
    assert (await refusal(run, "backup", str(tmp_path / "copy")))["code"] == "invalid_argument"


# --- the layer below --------------------------------------------------------------------------------------------------


def call(given: Any) -> Call[Any]:
    return Call(given=given, caller=Caller(workspace="shop", account="ana"))


READS: list[tuple[Callable[[Call[Any], Workspace], Awaitable[Any]], Any]] = [
    (calls.threads, ThreadsArguments()),
    (calls.threads, ThreadsArguments(status="paused", of_account="bob")),
    (calls.pauses, ThreadArguments(thread="hats")),
    (calls.pauses, ThreadArguments(thread="none")),
    (calls.history, HistoryArguments(thread="talk", limit=1)),
    (calls.history, HistoryArguments(thread="plan")),
]


async def test_a_home_without_an_agent_answers_as_the_agent_does(home: Path) -> None:
    async with agent() as shop:
        await shop.thread("talk", account="ana").converse("Hello")
        await calls.fork(call(ForkArguments(thread="talk", to="plan")), shop)
        await shop.thread("hats", account="bob").task("pick", {"what": "hat"})
        expected = [await read(call(given), shop) for read, given in READS]
        storage = shop.storage
    async with open_threads(storage, "shop") as opened:
        assert opened is not None
        assert [await read(call(given), opened) for read, given in READS] == expected
        asked = expected[2]
        assert (asked.status, len(asked.pauses), asked.next) == ("paused", 2, [])  # it is another account's
        renamed = await calls.thread_rename(call(RenameArguments(thread="talk", title="Hats")), opened)
        assert renamed.title == "Hats"
        for archived, shown in ((True, ["talk"]), (False, [])):
            given = ArchiveArguments(thread="talk", archived=archived)
            assert (await calls.thread_archive(call(given), opened)).archived == archived
            found = (await calls.threads(call(ThreadsArguments(archived=True)), opened)).threads
            assert [each.thread for each in found if each.archived] == shown
