"""`--profile`: what an agent of the command line starts up with (P4)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.chat import ENTER, Start
from support.command_line import Run, refusal, run_on_stub
from support.openai_stub import OpenAIStub
from worldagent.core.errors import ProfileInvalid
from worldagent.profiles import Profiles

__all__ = ["run_on_stub"]  # a fixture

pytestmark = pytest.mark.requirement("P4")

PLAN = '[[ ## reply ## ]]\n\n\n[[ ## calls ## ]]\n[{"tool": "read_file", "arguments": {"path": "notes.txt"}}]'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Path) -> Path:
    """The folder that commands run in, with a profile of the user's that reads files."""
    (user / "reader.yaml").write_text(
        "description: reads\nsystem_prompt: You read.\ntools: [read_file]\nverification: {enabled: false}\n"
    )
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("The lamp is lit.")
    monkeypatch.chdir(folder)
    return folder


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


async def test_ask_starts_up_with_it(run: Run, stub: OpenAIStub, project: Path) -> None:
    done = await run("ask", "Hello", "--profile", "reader", "--verbose")
    assert done.exit_code == 0, done.output
    [request] = stub.requests
    assert "You read." in system(request)
    assert "- read_file:" in system(request)
    assert "profile: reader" in done.output


async def test_a_file_of_the_users_that_replaces_what_ships_is_named(
    run: Run, stub: OpenAIStub, project: Path, user: Path
) -> None:
    replaced = "which replaces the built-in one"
    done = await run("ask", "Hello", "--profile", "reader")
    assert replaced not in done.output
    (user / "other-program.yaml").write_text(
        "name: general\nsystem_prompt: You are mine.\nverification: {enabled: false}\n"
    )
    for more in (), ("--profile", "general"):
        stub.requests.clear()
        done = await run("ask", "Hello", *more)
        assert f"note: the profile 'general' is {str(user / 'other-program.yaml')!r}, {replaced}" in done.stderr
        assert "You are mine." in system(stub.requests[0])


@pytest.mark.parametrize("path", ["./mine.yaml", "mine.yaml", "other/mine.yml"])
async def test_a_path_names_the_file_of_a_profile(run: Run, stub: OpenAIStub, project: Path, path: str) -> None:
    (project / "other").mkdir()
    (project / path).write_text("extends: reader\nsystem_prompt: You are in a file.\n")
    done = await run("ask", "Hello", "--profile", path)
    assert done.exit_code == 0, done.output
    assert "You are in a file." in system(stub.requests[0])
    (project / path).write_text("colour: red\n")
    refused = await refusal(run, "ask", "Hello", "--profile", path)
    assert refused["code"] == "profile_invalid"
    assert f"{Path(path)}:1" in str(refused)
    with pytest.raises(ProfileInvalid, match=r"a name is not a path; load a file with Profiles\.open\(\)\.load"):
        Profiles.open(project).get(path)


async def test_tools_work_in_current_or_set_folder(run: Run, stub: OpenAIStub, project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for more, found in (({}, True), ({"WORLDAGENT_TOOL_ROOTS": json.dumps([str(tmp_path / "other")])}, False)):
        stub.requests.clear()
        stub.first = [PLAN]
        done = await run("ask", "Read the notes.", "--profile", "reader", "--thread", f"t{found}", **more)
        assert done.exit_code == 0, done.output
        assert ("The lamp is lit." in str(stub.requests[-1]["messages"])) is found


async def test_task_and_the_setting_take_it_too(run: Run, stub: OpenAIStub, project: Path) -> None:
    task = ("task", "subagent", "-p", "worker=critic", "-p", "request=Go.", "--worker", "critic=You judge.")
    assert (await refusal(run, *task, "--profile", "reader"))["code"] == "tool_not_allowed"
    assert (await refusal(run, *task, WORLDAGENT_PROFILE="reader"))["code"] == "tool_not_allowed"
    assert stub.requests == []


async def test_chat_names_it_at_the_start_and_profiles_lists_all(start: Start) -> None:
    async with start("--profile", "debugger") as terminal:
        await terminal.shows("model openai/answer, profile debugger")
        await terminal.prompt()
        terminal.write("/profiles" + ENTER)
        shown = await terminal.shows("The profile with * was chosen at the start")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.startswith("* debugger built-in finds out why") for line in lines)
    assert any(line.startswith("general built-in") for line in lines)


async def test_role_named_like_a_profile_gets_a_hint(run: Run, stub: OpenAIStub, project: Path) -> None:
    done = await run("ask", "Hello", "--role", "reader")
    assert done.exit_code == 0, done.output
    assert "hint: 'reader' is used as a role and is also the name of a profile; --profile reader" in done.output
    assert "You read." not in system(stub.requests[0])
    done = await run("ask", "Hello", "--role", "riddler")
    assert "hint" not in done.output


@pytest.mark.requirement("T17")
async def test_an_agent_of_a_profile_works_in_the_background(
    run: Run, stub: OpenAIStub, project: Path, user: Path
) -> None:
    (project / "staff").mkdir()
    (project / "staff" / "critic.worker.md").write_text("---\ndescription: judges\nbackground: true\n---\nYou judge.")
    (user / "editor.yaml").write_text("extends: general\ntools: [critic, background_start]\n")
    for more, offered in ((), False), (("--with", "background"), True):
        stub.requests.clear()
        profile = "editor" if offered else "general"
        done = await run("ask", "Hello", "--profile", profile, "--workers", "staff", *more)
        assert done.exit_code == 0, done.output
        assert ("- background_start:" in system(stub.requests[0])) == offered
        assert "It can also work in the background." in system(stub.requests[0])
