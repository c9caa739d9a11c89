"""Where the checkout is, and what of it ships."""

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
    alone = [ROOT / name for name in shipped_names() if name.endswith(".py")]
    return [*alone, *(path for folder in shipped_folders() for path in sorted(folder.rglob("*.py")))]
