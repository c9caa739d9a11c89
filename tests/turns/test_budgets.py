"""What a turn costs is counted and held against budgets that only go down; how it gets to its model is traced.

Nothing is timed. `support/budgets.py` counts, in a process of its own, and rewrites `budgets.json` with `--write`.
"""

import pytest

from support.budgets import WAY, Counted, budgets, complaints
from support.processes import run_program


def counted(name: str) -> Counted:
    """Count one case in a fresh process: what other tests loaded and left would count too."""
    [found] = run_program("budgets", 100, names=[name])
    return Counted(found["figures"], found["notes"])


@pytest.mark.parametrize("name", ["plain turn", "delegation", pytest.param("first turn", marks=pytest.mark.soak)])
def test_a_turn_costs_what_its_budget_says(name: str) -> None:
    found = complaints(name, counted(name), budgets()[name])
    assert not found, "\n".join(found)


def test_a_plain_turn_gets_to_its_model_through_as_few_files_as_the_caps_say() -> None:
    found = complaints(WAY, counted(WAY), budgets()[WAY])
    assert not found, "\n".join(found)
