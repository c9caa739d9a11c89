"""The file and the program of the page about autonomous roles."""

import re
import runpy
from pathlib import Path

import pytest

from support.pages import DOCS, files_of

pytestmark = pytest.mark.requirement("A1", "A2")

PAGE = DOCS / "guides" / "autonomous-roles.md"


def test_the_program_of_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = files_of(PAGE)
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    runpy.run_path("team.py", run_name="__main__")
    assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", files["team.py"])
