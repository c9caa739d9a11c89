"""The import contracts hold here (`make check`), and each of them can fail: a planted import breaks it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.house import copy_checkout

LINT = Path(sys.executable).with_name("lint-imports")


def broken_contracts(checkout: Path) -> set[str]:
    """Give the names of the contracts that `checkout` breaks."""
    done = subprocess.run(
        [LINT, "--no-cache"],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout / ".dev"), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Analyzed" in done.stdout, done.stdout + done.stderr
    broken = set(re.findall(r"^(.+?) BROKEN\b", done.stdout, re.MULTILINE))
    assert done.returncode == (1 if broken else 0), done.stdout + done.stderr
    return broken


def plant(checkout: Path, modules: dict[str, str]) -> None:
    for name, source in modules.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(source + "\n", encoding="utf-8")


LAYERS = "A folder imports only folders below it"
BLIND = "What decides cannot see a role (R11)"


def test_the_checkout_breaks_no_contract(tmp_path: Path) -> None:
    assert broken_contracts(copy_checkout(tmp_path / "copy")) == set()


@pytest.mark.requirement("R11")
@pytest.mark.parametrize(
    "modules",
    [
        pytest.param({"harness/_planted.py": "from .. import Role"}, id="through the front door"),
        pytest.param(
            {
                "core/_planted.py": "from .. import role_resolution",
                "harness/_planted.py": "from ..core import _planted",
            },
            id="over another folder",
        ),
    ],
)
def test_a_harness_that_reaches_role_code_is_noticed(tmp_path: Path, modules: dict[str, str]) -> None:
    checkout = copy_checkout(tmp_path / "copy")
    plant(checkout, modules)
    assert broken_contracts(checkout) >= {BLIND, LAYERS}
