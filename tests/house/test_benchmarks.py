"""The benchmarks run and report all that their README explains. Figures of time are not looked at: they vary."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.house import ROOT
from support.services import FORMATS
from worldagent.benchmarks._measure import Row, with_measured
from worldagent.benchmarks.peers import with_tables

BENCHMARKS = ROOT / "benchmarks"
OPTIONS = {"peers.py": ["--only", "ours,openai,dspy"]}
"""More of the command line: nothing is installed for a test, so only the peers that the package brings are measured."""


def ran(script: str) -> list[str]:
    """The lines that a short run prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".dev")}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick", *OPTIONS.get(script, ())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("[!_]*.py")))
def test_a_benchmark_reports_every_figure_that_its_readme_explains(script: str) -> None:
    *table, last = ran(script)
    line = json.loads(last)
    assert set(line) == {"benchmark", "quick", "python", "cores", "figures", "spread", "missed"}
    assert (line["benchmark"], line["quick"]) == (script.removesuffix(".py"), True)
    assert set(line["figures"]) == explained(script)
    assert all(value is None or isinstance(value, int | float) for value in line["figures"].values())
    assert all(any(row.split()[:1] == [key] for row in table) for key in line["figures"])
    if script == "wire_requests.py":
        check_requests(line, table)
    if script == "peers.py":
        measured = {key for key, value in line["figures"].items() if value is not None}
        wanted = {key for key in line["figures"] if re.search("(openai|ours|dspy)_(cpu|wall|first|memory)_", key)}
        assert wanted <= measured, "\n".join(table)
        assert (line["figures"]["turn_model_calls"], line["figures"]["delegation_model_calls"]) == (1, 3)
        assert line["figures"]["at_once_failed"] == line["figures"]["turns_at_once_failed"] == 0
    if script == "crowd.py":
        check_crowd(line["figures"], table)


def check_crowd(figures: Mapping[str, float | None], table: Sequence[str]) -> None:
    """No turn failed, and everything was measured. The slow disk needs a C compiler."""
    no_compiler = shutil.which("cc") is None
    unmeasured = {key for key, value in figures.items() if value is None and not (no_compiler and "_slow_disk_" in key)}
    assert not unmeasured, "\n".join(table)
    assert not any(value for key, value in figures.items() if key.endswith("_failed")), "\n".join(table)
    # Alone, transactions do not depend on time: the begin with its first checkpoint, and the end.
    assert figures["alone_sqlite_synced"] == 2, "\n".join(table)


def check_requests(line: Mapping[str, Any], table: Sequence[str]) -> None:
    """What is sent does not vary, so its figures are looked at: all before the role comes again, in each format."""
    same = {f"{wanted}_{what}": 100 for wanted in FORMATS for what in ("same_for_roles", "same_for_steps")}
    assert {key: line["figures"][key] for key in same} == same
    assert all(line["figures"][f"{wanted}_before_role"] > 900 for wanted in FORMATS), "100 % of hardly anything"
    assert line["missed"] == [], "\n".join(table)


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (Row(key="x", value=99.9, least=100), True),
        (Row(key="x", value=100, least=100), False),
        (Row(key="x", value=1, aim=0), True),
        (Row(key="x", value=0, aim=0), False),
        (Row(key="x", value=None, aim=0, least=100), False),
        (Row(key="x", value=5), False),
    ],
)
def test_a_figure_above_its_aim_or_below_its_least_is_missed(row: Row, missed: bool) -> None:
    assert (row.missed, "MISSED" in row.line()) == (missed, missed)


def explained(script: str) -> set[str]:
    """Give the keys that README.md explains for one script; `name_1..4` stands for four windows."""
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"## `{script}`")[2].partition("\n## ")[0]
    found: set[str] = set()
    for key, last in re.findall(r"^\| `([a-z_0-9]+?)(?:\.\.(\d))?` \|", section, re.MULTILINE):
        first = int(key[-1]) if last else 0
        found |= {f"{key[:-1]}{number}" for number in range(first, int(last) + 1)} if last else {key}
    return found


def test_figures_are_written_into_the_last_column_of_the_readme() -> None:
    text = "| `x` | what | 1.1x | - |\n| `x_ms` | what | | 3 ms |\n| `y` | what | | 7 |\n"
    rows = [Row(key="x", value=1.234), Row(key="x_ms", value=1234.5, unit="ms")]
    assert with_measured(text, rows) == (
        "| `x` | what | 1.1x | 1.23x |\n| `x_ms` | what | | 1,234 ms |\n| `y` | what | | 7 |\n"
    )


def test_the_page_on_performance_has_marks_for_the_tables_of_peers() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = [
        Row(key="stored_turn_ours_cpu_ms", value=5.25, unit="ms"),
        Row(key="at_once_ours_wall_s", value=9, unit="s"),
    ]
    found = with_tables(page, rows)
    assert "| worldagent |  | 5.25 ms |  |  |" in found
    assert "| worldagent without storage | 9 s |  |" in found
    assert with_tables(found, rows) == found
