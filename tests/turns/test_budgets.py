"""What a turn costs is counted and held against budgets that only go down; how it gets to its model is traced.

Nothing is timed. `support/budgets.py` counts, in a process of its own, and rewrites `budgets.json` with `--write`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.budgets import CASES, PYTHON, WAY, Counted, Figures, budgets, complaints
from support.house import ROOT

OTHER_PYTHON = (PYTHON[0], PYTHON[1] + 1)


def counted(name: str) -> Counted:
    """Count one case in a fresh process: what other tests loaded and left would count too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", str(ROOT / "tests" / "support" / "budgets.py"), "--json", name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in (".dev", "tests"))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Counted(**json.loads(done.stdout)[name])


@pytest.mark.parametrize("name", CASES)
def test_a_turn_costs_what_its_budget_says(name: str) -> None:
    found = complaints(name, counted(name), budgets()[name])
    assert not found, "\n".join(found)


def test_a_plain_turn_gets_to_its_model_through_as_few_files_as_the_caps_say() -> None:
    found = complaints(WAY, counted(WAY), budgets()[WAY])
    assert not found, "\n".join(found)


def test_every_case_has_a_budget_and_every_budget_a_case() -> None:
    assert set(budgets()) == {*CASES, WAY}


@pytest.mark.parametrize(
    ("figures", "python", "complaint"),
    [
        ({"sql_statements": 50, "python_calls": 1000}, PYTHON, None),
        ({"sql_statements": 50, "python_calls": 1030}, PYTHON, None),
        ({"sql_statements": 50, "python_calls": 970}, PYTHON, None),
        ({"sql_statements": 50, "python_calls": 1031}, PYTHON, "python_calls is 1,031, its budget is 1,000: find"),
        ({"sql_statements": 50, "python_calls": 969}, PYTHON, "python_calls is 969, its budget is 1,000: lower"),
        ({"sql_statements": 50, "python_calls": 969}, OTHER_PYTHON, None),
        ({"sql_statements": 51, "python_calls": 1000}, OTHER_PYTHON, "sql_statements is 51, its budget is 50: find"),
        ({"sql_statements": 49, "python_calls": 1000}, PYTHON, "sql_statements is 49, its budget is 50: lower"),
        ({"python_calls": 1000}, PYTHON, "sql_statements is 0, its budget is 50: lower"),
    ],
)
def test_a_figure_off_its_budget_either_way_is_named(
    figures: Figures, python: tuple[int, int], complaint: str | None
) -> None:
    budget = {"sql_statements": 50, "python_calls": 1000}
    found = complaints("plain turn", Counted(figures, {}), budget, python=python)
    assert len(found) == (complaint is not None)
    assert complaint is None or f"plain turn: {complaint}" in found[0]
