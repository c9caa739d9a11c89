"""The example of a revenue team, run as a reader runs it: also twice, and killed in between (A2, A9, A12)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.databases import rows_of
from support.forks import folders_of_user, forking
from support.house import ROOT

BOUND = 90
RUN = ("workspace", "run", "demo.yaml", "--app", "team:agent", "--events", "events.jsonl", "--verified")
KILL = str(ROOT / "tests" / "support" / "kill_team.py")

pytestmark = [pytest.mark.requirement("A12"), pytest.mark.requirement("A2")]


class Team:
    """The example in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.place = folder / "team"
        shutil.copytree(ROOT / "examples" / "autonomous_workspace", self.place, ignore=shutil.ignore_patterns(".*"))

    def run(self, *words: str, program: tuple[str, ...] = ("-m", "worldagent.hosts.cli")) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        paths = os.pathsep.join((str(ROOT / ".dev"), str(ROOT / "tests")))
        done = subprocess.run(
            forking([sys.executable, "-P", *program, *words]),
            cwd=self.place,
            env={"PYTHONPATH": paths, **folders_of_user(self.home), "TEAM_HOME": str(self.home), "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
        assert done.returncode in (0, 3, -signal.SIGKILL), done.stderr
        return done.returncode, done.stdout

    def stored(self, *words: str) -> Any:
        """What a command about the stored workspace gives."""
        return json.loads(self.run(*words, "--workspace", "vibe-team", "--home", str(self.home), "--json")[1])

    def state(self) -> dict[str, Any]:
        """What it came to."""
        events = "SELECT id, member, trail, state, result, code FROM wa_occurrence ORDER BY id"
        return {
            "events": [tuple(row) for row in rows_of(self.home, events)],
            "mail": [tuple(row) for row in rows_of(self.home, "SELECT id, receiver, state FROM wa_mail ORDER BY id")],
            "members": [id_ for (id_,) in rows_of(self.home, "SELECT id FROM wa_member ORDER BY place")],
            "trust": [tuple(row) for row in rows_of(self.home, "SELECT id, trust FROM wa_member ORDER BY place")],
            "effects": sorted((self.home / "crm.txt").read_text().splitlines()),
        }


@pytest.mark.requirement("A9")
def test_a_team_decides_about_its_events_and_a_second_run_repeats_nothing(tmp_path: Path) -> None:
    team = Team(tmp_path)
    code, printed = team.run(*RUN)
    assert code == 3
    for line in (
        "lead-1 lead.created cro delegate qualify_lead done 'cro' runs 'qualify_lead' for 'lead.created'",
        "lead-3 lead.created bdr-amer escalate qualify_lead paused the trust in 'bdr-amer' for 'qualify_lead' is low",
        "discount-1 deal.discount cro escalate offer_discount paused 'offer_discount' needs approval for 'cro'",
        "discount-2 deal.discount bdr-emea escalate cro escalated 'offer_discount' is forbidden for 'bdr-emea'",
        "press-1 press.mention escalate charles escalated no live member is responsible for 'marketing'",
        "apac-1 directive.spawn cro delegate role.spawn done 'charles' tells 'cro' to make a member",
    ):
        assert line in [" ".join(each.split()) for each in printed.splitlines()]
    state = team.state()
    assert state["members"] == ["cro", "bdr-emea", "bdr-amer", "bdr-apac"]
    assert state["effects"] == ["bdr-emea: Meyer is too small", "cro: Acme is worth a call"]
    assert team.run(*RUN)[0] == 3
    assert team.state() == state


def test_the_owner_approves_what_waits_and_the_next_run_finishes_it(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.run(*RUN)
    waiting = {each["function"]: each["id"] for each in team.stored("approvals", "list")["approvals"]}
    assert team.run("approvals", "approve", waiting["offer_discount"], "--app", "team:agent")[0] == 0
    assert team.run("workspace", "run", "--app", "team:agent")[0] == 3  # the lead still waits
    states = {id_: state for id_, _, _, state, *_ in team.state()["events"]}
    assert (states["discount-1"], states["lead-3"]) == ("done", "paused")
    assert "cro: Acme gets 20 %" in team.state()["effects"]


@pytest.mark.parametrize(
    ("when", "what", "nth"),
    [
        ("within", "Events.settle", 1),
        pytest.param("after", "Events.route", 3, marks=pytest.mark.soak),
        pytest.param("after", "Events.post", 2, marks=pytest.mark.soak),
    ],
)
def test_a_run_that_is_killed_in_between_comes_to_the_same(tmp_path: Path, when: str, what: str, nth: int) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    whole, killed = Team(tmp_path / "one"), Team(tmp_path / "two")
    whole.run(*RUN)
    assert killed.run(when, what, str(nth), *RUN, program=(KILL,))[0] == -signal.SIGKILL
    killed.run(*RUN)
    assert killed.state() == whole.state()
