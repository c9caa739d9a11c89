"""The workflows that GitHub runs."""

import subprocess
import sys

from support.house import ROOT


def test_workflow_files_are_as_github_wants_them_and_run_what_a_person_runs() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert files
    checker = [sys.executable, "-P", "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*checker, *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert all("make test" in file.read_text(encoding="utf-8") for file in files)
