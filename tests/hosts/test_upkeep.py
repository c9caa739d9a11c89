"""`worldagent threads rm`, `export`, `import`, `prune` and `backup`: no model, and no home made by mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, home, run
from support.hat_shop import agent

__all__ = ["home", "run"]  # fixtures

SHOP = ("--workspace", "shop")
SAID = "a sentence of forty letters and some more for the scan"


async def as_json(run: Run, *words: str, code: int = 0) -> Any:
    result = await run(*words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


async def threads(run: Run) -> list[str]:
    return [item["thread"] for item in (await as_json(run, "threads", "list", *SHOP))["threads"]]


@pytest.mark.requirement("T4")
async def test_a_thread_is_exported_removed_and_imported_again(home: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t1.jsonl"
    async with agent() as shop:
        await shop.thread("t1").converse(SAID)
        said = await shop.thread("t1").history()
    done = await run("threads", "export", "t1", "-o", str(file), *SHOP)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"2 messages of the thread 't1' are in {str(file)!r}\n"
    assert SAID in file.read_text(encoding="utf-8")
    removed = (await as_json(run, "threads", "rm", "t1", "--yes", *SHOP))["removed"]
    assert (removed["thread"], removed["messages"], removed["turns"]) == ("t1", 2, 1)
    assert not [path for path in home.rglob("*") if path.is_file() and SAID.encode() in path.read_bytes()]
    assert await threads(run) == []
    done = await run("threads", "import", str(file), *SHOP)
    assert (done.exit_code, done.stderr) == (0, "made the thread 't1' with 2 messages\n")
    done = await run("threads", "import", str(file), *SHOP)
    assert (done.exit_code, done.stderr) == (0, "the thread 't1' has the 2 messages already\n")
    imported = (await as_json(run, "threads", "import", str(file), "--as", "t2", *SHOP))["imported"]
    assert imported == {"thread": "t2", "messages": 2, "added": 0, "made": True}
    assert sorted(await threads(run)) == ["t1", "t2"]
    async with agent() as shop:
        for name in ("t1", "t2"):
            assert await shop.thread(name).history() == said


async def test_nothing_is_removed_unasked_or_in_the_middle_of_a_turn(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").task("pick", {"what": "hat"})
    done = await run("threads", "rm", "t1", *SHOP)
    assert (done.exit_code, done.stderr) == (
        2,
        "error: removing the thread 't1' must be confirmed\nremedy: give --yes\n",
    )
    done = await run("threads", "rm", "t1", "--yes", *SHOP)
    assert done.exit_code == 1
    assert "is paused and can be resumed\nremedy: resume it, or cancel it as well: " in done.stderr
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
        found = await as_json(run, "threads", *words, "--home", str(new), code=1)
        assert found["error"]["code"] == "not_found"
    assert not new.exists()
    assert (await as_json(run, "threads", "import", str(file), "--home", str(new)))["imported"]["added"] == 2
    remove = ("threads", "rm", "t1", "--yes", "--home", str(new))
    assert (await as_json(run, *remove))["removed"]["messages"] == 2
    assert (await as_json(run, *remove, code=1))["error"]["code"] == "not_found"


async def test_checkpoints_are_pruned_by_the_option_else_by_the_setting(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent() as shop:
        for _ in range(4):
            await shop.thread("t1").converse(SAID)
    found = (await as_json(run, "threads", "prune", *SHOP))["pruned"]
    assert found == {"checkpoints": 0, "threads": 0, "left": 0, "attachments": 0}
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
    found = (await as_json(run, "threads", "list", *SHOP, "--home", str(tmp_path / "copy")))["threads"]
    assert [item["thread"] for item in found] == ["t1"]
    found = await as_json(run, "backup", str(tmp_path / "copy"), code=2)
    assert found["error"]["code"] == "invalid_argument"
