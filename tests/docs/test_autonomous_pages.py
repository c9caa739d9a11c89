"""The pages about autonomous roles and their week: programs and commands print what they show, and the pictures too."""

import asyncio
import re
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.command_line import command
from support.house import ROOT
from support.kill_organisation import agent_of, happens
from support.pages import DOCS, blocks, files_of, links
from worldagent.members import Gateway

pytestmark = pytest.mark.requirement("A2", "A12")

PAGE = DOCS / "guides" / "autonomous-week.md"
ROLES = DOCS / "guides" / "autonomous-roles.md"
SCRIPT = DOCS / "pictures" / "make_week.py"
PICTURE = DOCS / "pictures" / "week.svg"
TRACE = DOCS / "guides" / "autonomous-week-trace.html"
REMEDY = "a command prints something else now; run PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_week.py"


def shown(language: str) -> list[str]:
    """The blocks of the page in a language, with commands that continue on the next line in one."""
    found = [block.code.replace(" \\\n    ", " ") for block in blocks(language) if block.page == PAGE]
    assert found
    return found


def run(words: Sequence[str], place: Path, lines: str) -> str:
    """Run a command, which starts at once."""
    done = asyncio.run(command(place, *words, stdin=lines.encode(), WORLDAGENT_HOME=".home", COLUMNS="200"))
    assert done.code in (0, 3), done.told  # 3: something waits for a person
    return done.out


def test_the_page_the_picture_and_the_trace_are_what_the_commands_of_the_week_make(tmp_path: Path) -> None:
    script: dict[str, Any] = runpy.run_path(str(SCRIPT))
    week = script["lived"](tmp_path, run)
    assert [code for code in shown("text") if code not in week.text] == [], REMEDY
    assert PICTURE.read_text(encoding="utf-8") == script["drawn"](week), REMEDY
    assert script["masked"](TRACE.read_text(encoding="utf-8")) == script["masked"](week.trace), REMEDY


def test_the_page_shows_parts_of_the_file_of_the_workspace() -> None:
    file = (ROOT / "examples" / "autonomous_workspace" / "demo.yaml").read_text(encoding="utf-8")
    assert [code for code in shown("yaml") if code not in file] == []


def test_the_picture_has_both_palettes_and_loads_nothing() -> None:
    assert "../pictures/week.svg" in links(PAGE)
    picture = PICTURE.read_text(encoding="utf-8")
    assert picture.count("://") == picture.count("http://www.w3.org/2000/svg") == 1
    assert "prefers-color-scheme: dark" in picture


def test_the_page_of_the_trace_loads_nothing() -> None:
    assert "autonomous-week-trace.html" in links(PAGE)
    trace = TRACE.read_text(encoding="utf-8")
    assert re.findall(r"://|\bsrc=|\bhref=|url\(|<script", trace) == []
    assert "default-src 'none'" in trace


def test_the_page_of_the_company_is_of_a_run_without_a_fault_and_loads_nothing() -> None:
    assert "company-week.html" in links(PAGE)
    page = (DOCS / "guides" / "company-week.html").read_text(encoding="utf-8")
    assert "<b>17</b> members" in page
    assert "<b>300</b> events" in page
    assert "<b>0</b> lost, done twice" in page
    assert re.findall(r"://|\bsrc=|\bhref=|url\(|<script", page) == []
    assert "default-src 'none'" in page
    assert "width=device-width" in page


async def test_the_script_of_the_company_draws_what_a_home_has(tmp_path: Path) -> None:
    script: dict[str, Any] = runpy.run_path(str(DOCS / "pictures" / "make_company.py"))
    count = 13  # twelve members are made, and there is one vote
    async with (agent := agent_of(tmp_path)):
        await happens(agent, 0, count)
        gateway = Gateway(agent)
        while await gateway.deliver():
            pass
    page = script["drawn"](await script["facts"](tmp_path, 0, count), count)
    assert "<b>17</b> members" in page
    assert "<li><b>root</b> notification to cto: Vote e12" in page


@pytest.mark.requirement("A1")
def test_the_program_of_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = files_of(ROLES)
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    runpy.run_path("team.py", run_name="__main__")
    assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", files["team.py"])
