"""The home of an agent below a root: no tool reads, writes, lists or searches it, by whatever name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, failure, scripted_agent
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument, ToolFailed
from worldagent.profiles import Profile
from worldagent.tools import BuiltinTools

TOOLS = ("read_file", "write_file", "edit_file", "glob_files", "grep_content", "shell")
PLANTED = ("secret.key", "sub/deep.txt")


def agent(home: Path, *roots: Path) -> WorldAgent:
    tools = BuiltinTools(roots=roots)
    return scripted_agent(home, answering(), profile=Profile(name="p", tools=TOOLS), builtin_tools=tools)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "kept").mkdir(parents=True)
    (project / "kept" / "own.txt").write_text("a canary of the project")
    return project


async def test_home_below_a_root_is_out_of_reach_of_every_tool(project: Path) -> None:
    home = project / "kept" / "home"
    async with agent(home, project) as opened:
        (home / "secret.key").write_text("canary")
        (home / "sub").mkdir()
        (home / "sub" / "deep.txt").write_text("canary")
        (project / "link").symlink_to(home)
        (project / "file").symlink_to(home / "secret.key")
        (project / "kept" / "relative").symlink_to("../kept/./home/sub")
        os.link(home / "secret.key", project / "hard")
        before = {name: (home / name).read_bytes() for name in PLANTED}
        ways = [
            "kept/home/secret.key",
            "kept/home/agent.db",
            str(home / "secret.key"),
            "link/secret.key",
            "file",
            "kept/relative/deep.txt",
            "hard",
        ]
        for path in [*ways, "kept/home/sub/../secret.key", "kept/home/sub/../../own.txt"]:
            writes: list[tuple[str, dict[str, Any]]] = [("edit_file", {"path": path, "old": "canary", "new": "x"})]
            if path != "hard":  # it is a name of its own, and writing puts another file there
                writes.append(("write_file", {"path": path, "content": "x"}))
            for name, given in [("read_file", {"path": path}), *writes]:
                error = await failure(opened.call(name, given))
                assert isinstance(error, ToolFailed), (name, path)
                assert "it is in the home of the agent" in str(error), (name, path)
                assert "canary" not in str(error)
        for path in ("kept/home/new.txt", "kept/home/new/deep.txt", "link/new.txt"):
            assert isinstance(await failure(opened.call("write_file", {"path": path, "content": "x"})), ToolFailed)
        assert before == {name: (home / name).read_bytes() for name in PLANTED}
        assert not (home / "new.txt").exists()
        assert not (home / "new").exists()
        for folder in ("kept/home", "link", "kept/relative"):
            for name, given in (
                ("glob_files", {"pattern": "**", "path": folder}),
                ("grep_content", {"pattern": "canary", "path": folder}),
                ("shell", {"command": "ls", "cwd": folder}),
            ):
                assert isinstance(await failure(opened.call(name, given)), ToolFailed), (name, folder)
        listed = str(await opened.call("glob_files", {"pattern": "**"}))
        found = str(await opened.call("grep_content", {"pattern": "canary"}))
        assert "own.txt" in listed
        assert "kept/home" not in listed
        assert "own.txt" in found
        assert "secret.key" not in found
        assert "deep.txt" not in found
        assert "cannot be opened" not in listed


async def test_root_in_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    for root in (home, home / "inside", tmp_path / "link" / "inside"):
        with pytest.raises(InvalidArgument, match=r"is in the agent's home .*; use a folder outside of it"):
            agent(home, root)
    with pytest.raises(InvalidArgument):
        agent(tmp_path / "link", home / "inside")
