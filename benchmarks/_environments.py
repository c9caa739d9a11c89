"""Environments for packages that worldagent does not depend on: each is installed once, into a folder of its own."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".benchmarks"
"""The folder of the environments, and of files of measured processes while they run."""

_LONGEST = 900.0  # seconds of an installation


class Unmeasured(Exception):
    """Something could not be installed or measured; the text says why."""


def installed_python(name: str, packages: tuple[str, ...], say: Callable[[str], object]) -> Path:
    """Return the Python of the environment with these packages. Install them if it does not exist yet.

    Args:
        name: The beginning of the folder's name.
        packages: What is installed, with versions.
        say: Called with a line before an installation.

    Raises:
        Unmeasured: The packages cannot be installed.
    """
    digest = hashlib.sha256(" ".join((platform.python_version(), *packages)).encode()).hexdigest()[:8]
    home = FOLDER / f"{name}-{digest}"
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        say(f"Installing {', '.join(packages)} into {home.relative_to(FOLDER.parent)}")
        shutil.rmtree(home, ignore_errors=True)
        try:
            for command in _commands(home, python, packages):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LONGEST)
        except (OSError, subprocess.SubprocessError) as problem:
            shutil.rmtree(home, ignore_errors=True)
            lines = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
            raise Unmeasured(f"{name} cannot be installed: {lines[-1] if lines else problem}") from None
        ready.touch()
    return python


def _commands(home: Path, python: Path, packages: tuple[str, ...]) -> list[list[str]]:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is not None:
        made = [uv, "venv", "--quiet", "--python", sys.executable, str(home)]
        return [made, [uv, "pip", "install", "--quiet", "--python", str(python), *packages]]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--retries", "1", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(home)], [*pip, *packages]]
