"""The benchmarks run and report all that their README explains. Figures of time are not looked at: they vary."""

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

BENCHMARKS = ROOT / "benchmarks"
CHEAP = "wire_requests.py"  # the others run in the soak
SCRIPTS = [
    pytest.param(path.name, marks=() if path.name == CHEAP else pytest.mark.soak)
    for path in sorted(BENCHMARKS.glob("[!_]*.py"))
]
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
@pytest.mark.parametrize("script", SCRIPTS)
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
    if script == "dataflow.py":
        check_dataflow(line["figures"], table)
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


def check_dataflow(figures: Mapping[str, float | None], table: Sequence[str]) -> None:
    """A text steers AgentDojo's tasks where a rule lets it, and nowhere else."""
    read = figures["strict_read"]
    if read is None:
        pytest.skip("AgentDojo cannot be installed here")
    assert read > 0, "\n".join(table)
    assert read <= (figures["useful_read"] or 0), "\n".join(table)
    assert figures["strict_injected"] == figures["strict_knowing"] == figures["tuned_injected"] == 0, "\n".join(table)
    for level in ("parts", "guarded"):
        assert {figures[f"{level}_{key}"] for key in ("read", "injected", "knowing")} == {0}, "\n".join(table)
    assert figures["guarded_any_calls"] == figures["guarded_any_recipients"] == 0, "\n".join(table)
    assert all((figures[key] or 0) > 0 for key in ("useful_injected", "useful_won", "tuned_knowing")), "\n".join(table)


def check_requests(line: Mapping[str, Any], table: Sequence[str]) -> None:
    """What is sent does not vary, so its figures are looked at: all before the role comes again, in each format."""
    same = {f"{wanted}_{what}": 100 for wanted in FORMATS for what in ("same_for_roles", "same_for_steps")}
    assert {key: line["figures"][key] for key in same} == same
    assert all(line["figures"][f"{wanted}_before_role"] > 900 for wanted in FORMATS), "100 % of hardly anything"
    assert line["missed"] == [], "\n".join(table)


def explained(script: str) -> set[str]:
    """Give the keys that README.md explains for one script; `name_1..4` stands for four windows."""
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"## `{script}`")[2].partition("\n## ")[0]
    found: set[str] = set()
    for key, last in re.findall(r"^\| `([a-z_0-9]+?)(?:\.\.(\d))?` \|", section, re.MULTILINE):
        first = int(key[-1]) if last else 0
        found |= {f"{key[:-1]}{number}" for number in range(first, int(last) + 1)} if last else {key}
    return found
