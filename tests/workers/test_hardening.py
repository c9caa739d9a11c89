"""The example that hardens workers into functions does what it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from support.house import ROOT


@pytest.mark.requirement("H7", "H8")
async def test_the_example_hardens_a_worker_step_by_step_and_no_caller_changes(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(ROOT / "examples" / "hardening.py"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / ".dev"), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    lines = out.decode().splitlines()
    assert [line.rpartition("; ")[2] for line in lines] == [f"{calls} model calls below refund" for calls in (3, 2, 0)]
    assert all("'Refund it.' to code, 'Refund it.' in a conversation" in line for line in lines)
