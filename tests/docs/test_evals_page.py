"""The page about evals shows what the commands print, and the example of a shop runs, also as tests."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Done, command
from support.house import ROOT
from support.pages import DOCS, files_of, text_of

PAGE = DOCS / "guides" / "evals.md"
EXAMPLE = ROOT / "examples" / "evals"


def run(folder: Path, *words: str) -> Done:
    return asyncio.run(command(folder, *words, WORLDAGENT_HOME=str(folder / "home"), COLUMNS="200"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The example in a folder of its own."""
    shutil.copytree(EXAMPLE, tmp_path / "shop", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return tmp_path / "shop"


@pytest.mark.local
def test_the_first_cases_of_the_page_have_the_scores_that_it_shows(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(files_of(PAGE)["cases.yaml"])
    done = run(tmp_path, "eval", "cases.yaml", "--name", "before")
    assert done.code == 0, done.told
    shown = {tuple(line.split()[:3]) for line in text_of(PAGE).splitlines()}
    rows = [tuple(line.split()[:3]) for line in done.out.splitlines() if line]
    assert len(rows) == 5
    assert [row for row in rows if row not in shown] == []
    assert run(tmp_path, "evals", "show", "before", "what-is-a-tide").out in text_of(PAGE)


def test_the_page_has_the_metrics_and_tests_of_the_example() -> None:
    files = files_of(PAGE)
    assert set(files) == {"cases.yaml", "scores.py", "test_shop.py"}
    for name in ("scores.py", "test_shop.py"):
        assert (EXAMPLE / name).read_text().endswith(f'"""\n\n{files[name]}'), name


def test_the_cases_of_the_shop_pass_and_two_runs_compare(shop: Path) -> None:
    done = run(shop, "eval", "cases.yaml", "--app", "shop:agent", "--name", "one", "--bound", "1")
    assert done.code == 0, done.told
    assert "refused: buy" in done.out
    short = ("--metric", "scores:short", "--only", "shop", "--repeat", "2")
    second = run(shop, "eval", "cases.yaml", "--app", "shop:agent", *short, "--name", "two")
    assert "score 1.000 (2 repeats: " in second.out
    *_, last = run(shop, "evals", "compare", "one", "two").out.splitlines()
    assert last == "score 1.000 in 'one', 1.000 (standard deviation 0.000) in 'two': 3 same, 1 gone"


def test_the_cases_of_the_shop_are_tests_for_pytest(shop: Path) -> None:
    (shop / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=shop,
        env={"PYTHONPATH": str(ROOT / ".dev"), "HOME": str(shop), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("test_a_case[price]", "test_a_case[pirate]", "test_all_cases"):
        assert f"test_shop.py::{name} PASSED" in done.stdout
