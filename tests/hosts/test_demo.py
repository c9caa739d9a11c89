"""The demo shows what it promises on the embedded model, and its search for roles can fail."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.house import ROOT
from worldagent.testing import scan_for_roles

DEMO = ROOT / "examples" / "demo.py"


@pytest.mark.local
@pytest.mark.requirement("R7")
def test_the_demo_runs_and_finds_no_role(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO, "--home", tmp_path / "home"],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".dev")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tiers = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines() if line.startswith("  active tiers")]
    assert tiers == ["account, workspace", *["account, workspace, call"] * 3]
    assert "WORLDAGENT_LM=" in done.stdout
    assert "No text of any role was found" in done.stdout
    assert (tmp_path / "home" / "agent.db").exists()
    demo = runpy.run_path(str(DEMO))
    for role in ("HOUSE", "ANA"):  # the last turn's are where it says
        assert scan_for_roles(demo["host_store"](tmp_path / "home"), demo[role].content).findings
