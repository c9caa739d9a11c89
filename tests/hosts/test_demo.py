"""The demo shows what it promises, in less than two minutes, and its search for roles can fail."""

import asyncio
import os
import runpy
import sys
from pathlib import Path

import pytest

from support.house import ROOT
from support.openai_stub import openai_stub
from support.processes import ending
from worldagent.testing import scan_for_roles

DEMO = ROOT / "examples" / "demo.py"


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(
    "embedded", [False, pytest.param(True, marks=[pytest.mark.local, pytest.mark.soak])], ids=["hosted", "embedded"]
)
async def test_demo_runs_and_finds_no_role(tmp_path: Path, embedded: bool) -> None:
    async with openai_stub() as stub:
        stub.text = "[[ ## reply ## ]]\nParis.\n\n[[ ## result ## ]]\nRight.\n\n[[ ## completed ## ]]"
        call = '[{"tool": "book_train", "arguments": {"city": "Madrid"}}]'
        stub.first = [stub.text] * 4 + [f"[[ ## reply ## ]]\n\n\n[[ ## calls ## ]]\n{call}"]
        hosted = {"WORLDAGENT_LM": "openai/answer", "WORLDAGENT_API_BASE": stub.url, "OPENAI_API_KEY": "none"}
        hosted["WORLDAGENT_MODEL_TOOLS"] = "json"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(DEMO), "--home", str(tmp_path / "home")),
            env=os.environ | {"PYTHONPATH": str(ROOT / ".dev")} | ({} if embedded else hosted),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        async with ending(process):
            printed = (await asyncio.wait_for(process.communicate(), 110))[0].decode()
    assert process.returncode == 0, printed
    tiers = [line.split(maxsplit=2)[2] for line in printed.splitlines() if line.startswith("  active tiers")]
    assert tiers == ["account, workspace", *["account, workspace, call"] * 3, "none", "none"]
    first = printed.split("\n  answered      ")[1].splitlines()[0]
    assert "Paris" in first  # it answers the question
    assert len(first) < 80
    waits, begins, killed, again, booked = (
        printed.index(text)
        for text in (
            "waits         for an approval of book_train {'city': 'Madrid'}",
            "[book_train 'Madrid' begins in process",
            "[killed; tickets booked: 0]",
            "7. A process that resumes the turn",
            "[tickets booked: 1]",
        )
    )
    assert waits < begins < killed < again < booked
    assert ("WORLDAGENT_LM=" in printed) is embedded
    assert "No text of any role was found" in printed
    assert (tmp_path / "home" / "agent.db").exists()
    demo = runpy.run_path(str(DEMO))
    for role in ("HOUSE", "ANA"):  # the last turn's are where it says
        assert scan_for_roles(demo["host_store"](tmp_path / "home"), demo[role].content).findings
