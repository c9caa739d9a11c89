"""The table of operations: each is on every surface, or its entry says why not."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from typer.main import get_command
from typer.testing import CliRunner

from support.command_line import home
from worldagent import WorldAgent
from worldagent.core.errors import NameTaken
from worldagent.hosts.cli.app import app
from worldagent.hosts.cli.derived import commands_of
from worldagent.hosts.cli.options import SpeakerOptions, ThreadsOptions
from worldagent.hosts.service.arguments import JsonObject, WorkspaceArguments
from worldagent.hosts.service.call import Call
from worldagent.hosts.service.operation import operation
from worldagent.hosts.service.operations import OPERATIONS, table
from worldagent.hosts.service.records import Answer
from worldagent.hosts.service.threads import thread_role_set, threads
from worldagent.hosts.service.validation import Label
from worldagent.hosts.sidecar.tools import TOOLS, tools_of
from worldagent.hosts.web.routes import ENDPOINTS, endpoints_of

__all__ = ["home"]  # a fixture

pytestmark = pytest.mark.requirement("T10")

# What only a person at this machine can ask for, by the first words of the command.
OF_THE_MACHINE: Mapping[str, str] = {
    **dict.fromkeys(
        ("trust", "profiles", "skills check", "policy", "workspace check", "workspace show"),
        "its files",
    ),
    **dict.fromkeys(("import", "threads import", "memory import"), "reads files of it"),
    **dict.fromkeys(("threads export", "memory export", "society export", "trace export"), "writes files of it"),
    **dict.fromkeys(("backup", "storage", "prune", "threads prune", "threads rm", "accounts"), "rewrites its database"),
    **dict.fromkeys(("society rm", "doctor", "ps"), "its home"),
    **dict.fromkeys(("serve", "role-host", "acp", "worker", "workspace run"), "a process of it"),
    **dict.fromkeys(("eval", "evals", "optimise", "models"), "a developer's"),
    "mcp": "a login in a browser of it",
    "chat": "a conversation at a terminal of it",
    "roles get": "no answer has the content of a role",
    "approvals list": "`threads` that are paused, and `pauses` of each",
    "trace list": "`threads`, with the turn of each",
}


def commands(words: str = "", command: Any = None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every command with the operations that it asks for."""
    command = command or get_command(app)
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from commands(f"{words} {name}".strip(), each)
    if not below:
        yield words, tuple(getattr(command.callback, "asks", ()))


def test_each_operation_is_on_every_surface_or_says_why_not() -> None:
    found = {
        "sidecar": set(TOOLS),
        "web": {each.operation.name for each in ENDPOINTS},
        "command": {name for _, asked in commands() for name in asked},
    }
    for surface, names in found.items():
        absent = {name for name, each in OPERATIONS.items() if surface in each.absent}
        assert names == OPERATIONS.keys() - absent, surface
    assert all(reason for each in OPERATIONS.values() for reason in each.absent.values())


def test_a_command_without_an_operation_is_about_this_machine() -> None:
    alone = [words for words, asked in commands() if not asked]
    assert [words for words in alone if not any(words.startswith(each) for each in OF_THE_MACHINE)] == []
    assert [each for each in OF_THE_MACHINE if not any(words.startswith(each) for words in alone)] == []


def test_options_of_a_command_are_arguments_of_its_operation() -> None:
    given = {name: each.arguments.model_fields for name, each in OPERATIONS.items()}
    shared = {each.name for group in (SpeakerOptions, ThreadsOptions) for each in fields(group)}
    wrong = [
        (words, each.name)
        for words, asked, command in _derived()
        for each in command.params
        if each.name not in shared and each.name not in given[asked]
    ]
    assert wrong == []


def _derived(words: str = "", command: Any = None) -> Iterator[tuple[str, str, Any]]:
    command = command or get_command(app)
    for name, each in getattr(command, "commands", {}).items():
        yield from _derived(f"{words} {name}".strip(), each)
    if getattr(command.callback, "derived", False):
        yield words, command.callback.asks[0], command


class NoteArguments(WorkspaceArguments):
    text: Label = Field(description="what to note")
    tags: list[Label] = Field(default_factory=list, description="words to filter by")
    more: JsonObject = Field(default_factory=dict, description="what else is known")
    times: int = Field(default=1, ge=1, description="how often")
    loud: bool = Field(default=False, description="whether in capitals")


class NoteAnswer(Answer):
    notes: list[dict[str, Any]]


@operation("Take notes", "Take notes, as an operator.", who="operator")
async def notes_take(call: Call[NoteArguments], agent: WorldAgent) -> NoteAnswer:
    given = call.given
    noted = given.text.upper() if given.loud else given.text
    return NoteAnswer(
        notes=[{"text": noted, "by": call.caller.account, **given.more, "tags": given.tags}] * given.times
    )


def test_one_entry_is_a_tool_a_path_and_a_command(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    joined = table(OPERATIONS.values(), [notes_take])
    assert tools_of(joined)["notes_take"].title == "Take notes"
    [found] = [each for each in endpoints_of(joined) if each.operation is notes_take]
    assert (found.method, found.path, found.has_body) == ("POST", "/operations/notes_take", True)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    notes = commands_of("notes", "Notes.", [notes_take, threads, thread_role_set])
    words = ["take", "Buy tea", "--tags", "shop", "--more", '{"why": "none left"}', "--times", "2", "--account", "ana"]
    shown = CliRunner().invoke(notes, [*words, "--lm", "openai/none"])
    assert shown.stdout.splitlines() == ["TEXT     BY   WHY        TAGS", *["Buy tea  ana  none left  ['shop']"] * 2]
    asked = CliRunner().invoke(notes, [*words, "--loud", "--json", "--lm", "openai/none"])
    assert json.loads(asked.stdout)["notes"][0]["text"] == "BUY TEA"
    wrong = CliRunner().invoke(notes, ["take", "Tea", "--times", "0", "--lm", "openai/none"])
    assert (wrong.exit_code, "times: Input should be greater than or equal to 1" in wrong.stderr) == (2, True)


class OddArguments(WorkspaceArguments):
    loud: bool = Field(default=True, description="whether loud")
    known: bool | None = Field(default=False, description="whether known")
    sure: bool = Field(description="whether sure")
    options: str = "none"
    output: str = "none"
    capability: str = "none"
    home: JsonObject = Field(default_factory=dict)
    help: str = "none"


class OddAnswer(Answer):
    seen: list[dict[str, Any]] = Field(default_factory=list, exclude_if=lambda seen: not seen)


@operation("Odd", "Returns what it gets.")
async def odd_show(call: Call[OddArguments], agent: WorldAgent) -> OddAnswer:
    given = call.given
    if given.options == "empty":
        return OddAnswer()
    return OddAnswer(seen=[given.model_dump(exclude={"workspace", "account"}, exclude_defaults=True), {"more": 1}])


def test_an_operation_gets_by_its_command_what_it_gets_elsewhere(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    odd = commands_of("odd", "Odd.", [odd_show])  # one alone is a group, too

    def seen(*words: str) -> Any:
        done = CliRunner().invoke(odd, ["show", *words, "--lm", "openai/none", "--json"])
        return json.loads(done.stdout)["seen"][0] if done.exit_code == 0 else done.output

    assert seen("--sure") == {"sure": True}
    assert seen("--no-sure", "--no-loud", "--known") == {"sure": False, "loud": False, "known": True}
    named = ("--sure", "--options", "a", "--output", "b", "--capability", "c", "--odd-home", '{"d": 1}')
    found = seen(*named, "--odd-help", "e")
    assert found == {"sure": True, "options": "a", "output": "b", "capability": "c", "home": {"d": 1}, "help": "e"}
    assert "Missing option '--sure'" in seen()
    shown = CliRunner().invoke(odd, ["show", "--sure", "--lm", "openai/none"])
    assert shown.stdout.splitlines() == ["SURE  MORE", "True", "         1"], "records with other keys"
    shown = CliRunner().invoke(odd, ["show", "--sure", "--options", "empty", "--lm", "openai/none"])
    assert (shown.exit_code, shown.stdout) == (0, ""), "an answer without fields"
    assert "Print one JSON object" in CliRunner().invoke(odd, ["show", "--help"]).output


def test_a_table_can_be_joined_and_names_are_taken_once() -> None:
    more = table(OPERATIONS.values(), ())
    assert more == OPERATIONS
    with pytest.raises(NameTaken, match="there are two operations 'threads'"):
        table(OPERATIONS.values(), [OPERATIONS["threads"]])
