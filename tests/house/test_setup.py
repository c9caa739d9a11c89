"""The workflows that GitHub runs."""

import re
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


def test_every_version_of_the_lock_file_has_hashes_that_the_installation_compares() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    versions = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    assert versions
    assert [lines[place] for place in versions if "--hash=sha256:" not in "".join(lines[place + 1 : place + 2])] == []

    def planned(goal: str) -> str:
        words = ["make", "--dry-run", "--always-make", "RESOLUTION=", goal]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout

    # Only what makes .venv: `make lowest` installs other versions on purpose.
    installs = [line for line in planned("setup").splitlines() if "pip install" in line]
    assert installs
    unlocked = [
        line
        for line in installs
        if not {"--require-hashes", "--constraints", "--hash"} & set(re.findall(r"--[a-z-]+", line))
    ]
    assert unlocked == []
