"""The table of operations: each is on every surface, or its entry says why not."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command

from worldagent.core.errors import NameTaken
from worldagent.hosts.cli.app import app
from worldagent.hosts.cli.options import SpeakerOptions, ThreadsOptions
from worldagent.hosts.service.operations import OPERATIONS, table
from worldagent.hosts.sidecar.tools import TOOLS
from worldagent.hosts.web.routes import ENDPOINTS

pytestmark = pytest.mark.requirement("T10")

# What only a person at this machine can ask for, by the first words of the command.
OF_THE_MACHINE: Mapping[str, str] = {
    **dict.fromkeys(("trust", "profiles", "skills check", "policy", "workspace check", "workspace show"), "its files"),
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


def test_a_table_can_be_joined_and_names_are_taken_once() -> None:
    more = table(OPERATIONS.values(), ())
    assert more == OPERATIONS
    with pytest.raises(NameTaken, match="there are two operations 'threads'"):
        table(OPERATIONS.values(), [OPERATIONS["threads"]])
