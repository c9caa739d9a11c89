"""Remote members as they are defined: in Python and in the file of a workspace (A22)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, home, run
from support.role_specs import spec_of
from worldagent.core.errors import InvalidArgument
from worldagent.members import RemoteAgent, load_workspace
from worldagent.members.workspace_file import read_workspace

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A22", "A1")

FILE = """
workspace: studio
owner: charles
roles:
  - role_id: printer
    domains: [paper]
    remote:
      card: https://press.example/.well-known/agent-card.json
      token_variable: PRINTER_TOKEN
"""


async def test_a_remote_member_of_a_file_needs_no_soul(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    [printer] = load_workspace(file).roles
    assert printer.remote == RemoteAgent(
        card="https://press.example/.well-known/agent-card.json", token_variable="PRINTER_TOKEN"
    )
    assert read_workspace(file).warnings == ()
    shown = await run("workspace", "show", str(file))
    assert "https://press.example/.well-known/agent-card.json" in shown.stdout
    file.write_text(FILE.replace("https:", "http:"))
    [warning] = read_workspace(file).warnings
    assert "'printer' is sent to 'press.example' without encryption" in warning.problem


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: RemoteAgent(card="ftp://press.example/card"), "card"),
        (lambda: RemoteAgent(card="https://kim:secret@press.example/card"), "card"),
        (lambda: RemoteAgent(card="https://press.example/card", token_variable="a secret"), "token_variable"),
        (lambda: RemoteAgent(card="https://press.example/card", timeout=0), "timeout"),
        (
            lambda: spec_of("printer", operator_ids=("deploy",), remote=RemoteAgent(card="https://press.example/card")),
            "operator_ids",
        ),
        (lambda: spec_of("printer", remote="https://press.example/card"), "remote"),
    ],
)
def test_a_wrong_remote_agent_is_refused_by_name(wrong: Callable[[], Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named) as refused:
        wrong()
    assert "secret" not in str(refused.value)
