"""The examples in Python do what they say: the quickstart, and the workers that become functions."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.forks import folders_of_user, forking
from support.house import ROOT
from support.services import FORMATS, Said, service

QUICKSTART = ROOT / "examples" / "quickstart.py"


def ran(home: Path, *answers: Said) -> str:
    """What it prints while a model answers this."""
    with service(*answers) as stub:
        env = {
            **os.environ,
            "OPENAI_API_KEY": "key",
            "WORLDAGENT_LM": FORMATS["chat"],
            "WORLDAGENT_API_BASE": stub.url("chat"),
            "WORLDAGENT_HOME": str(home),
        }
        argv = forking([sys.executable, "-P", str(QUICKSTART)])
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.requirement("T11")
def test_quickstart_prints_what_waits_as_often_as_it_waits(tmp_path: Path) -> None:
    hat, rope = Said("", (("buy", {"item": "hat"}),)), Said("And a rope.", (("buy", {"item": "rope"}),))
    assert ran(tmp_path, hat, rope, Said("Both are on their way.")).splitlines() == [
        " [pause_opened: buy {'item': 'hat'}]",
        "And a rope. [pause_opened: buy {'item': 'rope'}]",
        "Both are on their way.",
    ]


@pytest.mark.requirement("H7", "H8")
async def test_the_example_hardens_a_worker_step_by_step_and_no_caller_changes(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *forking([sys.executable, "-P", str(ROOT / "examples" / "hardening.py")]),
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / ".dev"), "TMPDIR": str(tmp_path), **folders_of_user(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    lines = out.decode().splitlines()
    assert [line.rpartition("; ")[2] for line in lines] == [f"{calls} model calls below refund" for calls in (3, 2, 0)]
    assert all("'Refund it.' to code, 'Refund it.' in a conversation" in line for line in lines)
