"""The examples of the society tell what they promise, run as a reader runs them."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.forks import folders_of_user, forking
from support.house import ROOT
from support.pages import DOCS, blocks, links
from support.services import FORMATS, Said, service


def printed(name: str, home: Path, **env: str) -> str:
    """What an example prints."""
    done = subprocess.run(
        forking([sys.executable, "-P", str(ROOT / "examples" / name)]),
        cwd=home,
        env={"PYTHONPATH": str(ROOT / ".dev"), "TMPDIR": str(home), **folders_of_user(home), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(home) == []
    return done.stdout


@pytest.fixture(scope="module")
def briefs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return printed("society_brief.py", tmp_path_factory.mktemp("briefs"))


@pytest.fixture(scope="module")
def referrals(tmp_path_factory: pytest.TempPathFactory) -> str:
    return printed("society_referrals.py", tmp_path_factory.mktemp("referrals"))


@pytest.mark.requirement("C1", "C1.5")
def test_a_wish_is_lost_without_a_brief_and_arrives_with_one(briefs: str) -> None:
    without, complete = briefs.split("--- brief='required'")
    for part in (
        "Constraints: none beyond your instructions",
        "lost on the way: static, framework, from a file, menu.csv",
        "the World Agent answers: Dana builds it.",
        "I built a React project",
    ):
        assert part in without
    for part in (
        "spawn_agent: brief_invalid\n",
        "Constraints: A static web page, no framework.",
        "lost on the way: nothing",
        "I built index.html, without a script.",
    ):
        assert part in complete


def test_the_example_of_briefs_asks_a_real_model_if_there_is_one(tmp_path: Path) -> None:
    brief = {
        "objective": "A menu.",
        "constraints": "A static page, no framework.",
        "inputs": "menu.csv",
        "outputs": "A page.",
        "completion_criteria": "It opens from a file.",
    }
    spawn = {"template": "developer", "params": {"name": "Dana"}, "brief": brief}
    said = [Said("", (("spawn_agent", spawn),)), Said("Dana builds it."), Said("Built.")]
    with service(*said, *said) as stub:
        model = {"WORLDAGENT_LM": FORMATS["chat"], "OPENAI_API_KEY": "key", "WORLDAGENT_API_BASE": stub.url("chat")}
        assert printed("society_brief.py", tmp_path, **model).count("lost on the way: nothing") == 2
        assert not stub.answers


@pytest.mark.requirement("C3", "C3.6", "C5.3")
def test_a_developer_finds_the_specialist_over_two_referrals(referrals: str) -> None:
    lines = referrals.splitlines()
    passed = lines[: lines.index("flowchart LR")]
    assert [each.partition(" -> ")[0] for each in passed[1:4]] == ["developer", "web-lead", "root"]
    assert passed[3:7] == [
        "root -> legal-lead: introduction_request (licences)  [no model was asked]",
        "legal-lead -> root: introduction_response (contracts)  [no model was asked]",
        "root -> web-lead: introduction_response (contracts)  [no model was asked]",
        "web-lead -> developer: introduction_response (contracts)",
    ]
    assert {'  n3 -->|"web-lead"| n5', '  n5 -->|"first message"| n3'} <= {*lines}
    assert lines[lines.index("legal-lead reads:") + 1] == "    nothing"
    reason = "Reason: The map of the city is under the ODbL."
    assert f"    First contact. Role: Developer. Duties: Developer. {reason}" in lines
    assert "    Yes. Name its authors next to it." in lines


@pytest.mark.requirement("A20")
def test_two_votes_of_a_panel_decide_and_the_third_comes_later(tmp_path: Path) -> None:
    lines = printed("society_panel.py", tmp_path).splitlines()
    question = "May we print the story about the harbour? Answer yes or no, and why."
    assert [each for each in lines if question in each] == [
        f"editor -> {member}: {question}" for member in ("facts", "law", "style")
    ]
    votes = "{'facts': 'yes, all names are right', 'law': 'no, the photograph is not ours'}"
    decided = f"editor -> root: 1 of 2 votes for printing: {votes}"
    assert lines[-2:] == [decided, "style -> editor: yes, but shorter"]


# --- the page and its pictures ----------------------------------------------------------------------------------------

STORY = DOCS / "guides" / "society-story.md"
SCRIPT = DOCS / "pictures" / "make_society.py"
REMEDY = (
    "an example prints something else now; run PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_society.py"
)


def test_what_the_page_shows_is_what_the_examples_print(briefs: str, referrals: str) -> None:
    shown = [block.code for block in blocks("text") if block.page == STORY]
    assert shown
    assert [code for code in shown if code not in briefs + referrals] == []


def test_the_pictures_show_what_the_examples_print(briefs: str, referrals: str) -> None:
    pictures = runpy.run_path(str(SCRIPT))["drawn"](briefs, referrals)
    assert {f"../pictures/{name}" for name in pictures} == {each for each in links(STORY) if each.endswith(".svg")}
    for name, picture in pictures.items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == picture, REMEDY
        assert picture.count("://") == picture.count("http://www.w3.org/2000/svg") == 1
        assert "prefers-color-scheme: dark" in picture
