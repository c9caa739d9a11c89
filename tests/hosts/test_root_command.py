"""`worldagent` itself: without a command, its groups of commands, and completion in a shell."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from support.chat import Start, piped
from support.command_line import BOUND
from support.openai_stub import OpenAIStub
from worldagent.hosts.cli.app import app

ALONE = (sys.executable, "-P", "-m", "worldagent.hosts.cli")
MODEL = {"WORLDAGENT_LM": "openai/answer"}


async def test_without_a_command_it_opens_the_chat_at_a_terminal(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("Paris.",)]
    async with start(argv=ALONE, **MODEL) as terminal:
        assert await terminal.say("What is the capital of France?") == "Paris."
        terminal.write("/quit\r")
        assert await terminal.ended() == 0


async def test_without_a_command_and_a_terminal_it_prints_the_help(environment: dict[str, str]) -> None:
    code, out, told = await piped(environment | MODEL, b"Hello\n", argv=ALONE)
    assert (code, told) == (2, "")
    assert "Usage: " in out
    assert "Without a command, it opens a chat" in out


def test_help_shows_the_commands_in_groups() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    found = [title or name for title, name in re.findall(r"(?m)^(?:╭─ (\w+)|│ ([a-z-]+)  )", shown)]
    assert found[found.index("Turns") :] == [
        *("Turns", "ask", "chat", "task", "resume"),
        *(
            "Conversations",
            "threads",
            "background",
            "turns",
            "approvals",
            "trace",
            "memory",
            "society",
            "board",
            "drafts",
            "budgets",
        ),
        *(
            "Configuration",
            "workspace",
            "case",
            "profiles",
            "skills",
            "schedule",
            "mcp",
            "trust",
            "policy",
            "roles",
            "import",
            "models",
            "optimise",
            "eval",
            "evals",
            "doctor",
        ),
        *("Servers", "serve", "role-host", "acp", "worker", "ps"),
        *("Data", "prune", "backup", "accounts", "storage"),
    ]


def test_help_and_completion_load_no_agent() -> None:
    script = "import sys, typer.main; from worldagent.hosts.cli.app import app; typer.main.get_command(app); "
    script += "print(*{'pydantic', 'dspy', 'langgraph', 'worldagent.agent'} & sys.modules.keys())"
    found = subprocess.check_output((sys.executable, "-P", "-c", script), text=True, timeout=BOUND)
    assert found == "\n"


def every(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of a command and of all below it."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from every(below, *words, name)


def test_every_help_has_an_example_that_can_be_copied() -> None:
    for words in every(get_command(app)):
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
        assert shown.exit_code == 0, words
        assert re.search(r"\n (  )?worldagent ", shown.stdout), words
        assert max(map(len, shown.stdout.splitlines())) <= 80, words


@pytest.mark.parametrize(("typed", "offered"), [("thr", "threads"), ("trace show --ht", "--html")])
def test_a_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    words = ["worldagent", *typed.split(" ")]
    asking = {
        "_WORLDAGENT_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    shown = CliRunner().invoke(app, [], prog_name="worldagent", env=asking)
    assert shown.stdout.split() == [offered]
