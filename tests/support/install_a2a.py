"""Install fasta2a, whose agents tests talk to over A2A, into an environment of its own: `make setup` runs this.

Nothing here may come to depend on its packages, and it must not see ours: it is an agent of somebody else.
"""

import subprocess
import sys
import venv
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / ".venv" / "fasta2a"
_PACKAGES = ("fasta2a==2.1.1", "uvicorn==0.54.0")
_DONE = _FOLDER / "installed"

MISSING = "fasta2a is missing: run `make setup` again"
"""What a test says that is skipped."""


def find_python() -> Path | None:
    """Give the Python that has fasta2a, if it is installed here."""
    installed = _DONE.is_file() and _DONE.read_text(encoding="utf-8") == _wanted()
    return _FOLDER / "bin" / "python" if installed else None


def _wanted() -> str:
    return "\n".join((str(_FOLDER), *_PACKAGES))


def main() -> None:
    """Install it, or say that its tests will be skipped."""
    if find_python() is not None:
        return
    venv.create(_FOLDER, clear=True)
    words = [sys.executable, "-m", "pip", "--python", str(_FOLDER / "bin" / "python"), "install", "-qq", *_PACKAGES]
    if subprocess.run(words, check=False).returncode == 0:
        _DONE.write_text(_wanted(), encoding="utf-8")
    else:
        sys.stderr.write(f"The tests with fasta2a will be skipped. {MISSING}.\n")


if __name__ == "__main__":
    main()
