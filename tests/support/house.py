"""Where the checkout is, what of it ships, and how to make a copy that tools can be tried on."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Folders with Python in them that are not part of the package.
UNSHIPPED = {"tests", "docs", "examples", "benchmarks"}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def shipped_names() -> list[str]:
    """Give the files and folders at the top that the wheel takes."""
    names: list[str] = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    return names


def shipped_folders() -> list[Path]:
    return [ROOT / name for name in shipped_names() if "." not in name]


def shipped_modules() -> list[Path]:
    """Give every Python file of the package."""
    return [ROOT / "__init__.py", *(path for folder in shipped_folders() for path in sorted(folder.rglob("*.py")))]


def copy_checkout(target: Path) -> Path:
    """Copy into `target` what the package is built from, with the link that makes it importable; return `target`."""
    target.mkdir(parents=True)
    for name in (*shipped_names(), "pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)
    (target / ".dev").mkdir()
    (target / ".dev" / "worldagent").symlink_to("..")
    return target
