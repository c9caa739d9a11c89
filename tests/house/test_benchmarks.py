"""The benchmarks run and report all that their README explains. No figure is looked at: this is no timed test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from support.house import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("[!_]*.py")))
def test_a_benchmark_reports_every_figure_that_its_readme_explains(script: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".dev")}
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    *table, last = ran.stdout.splitlines()
    line = json.loads(last)
    assert set(line) == {"benchmark", "quick", "python", "cores", "figures", "missed"}
    assert (line["benchmark"], line["quick"]) == (script.removesuffix(".py"), True)
    assert set(line["figures"]) == explained(script)
    assert all(value is None or isinstance(value, int | float) for value in line["figures"].values())
    assert all(any(row.split()[:1] == [key] for row in table) for key in line["figures"])


def explained(script: str) -> set[str]:
    """Give the keys that README.md explains for one script; `name_1..4` stands for four windows."""
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"## `{script}`")[2].partition("\n## ")[0]
    found: set[str] = set()
    for key, last in re.findall(r"^\| `([a-z_0-9]+?)(?:\.\.(\d))?` \|", section, re.MULTILINE):
        first = int(key[-1]) if last else 0
        found |= {f"{key[:-1]}{number}" for number in range(first, int(last) + 1)} if last else {key}
    return found
