"""Install LangGraph's development server for the tests of `worldagent.hosts.langgraph`: `make setup` runs this.

It gets an environment of its own inside `.venv`, because nothing else here may come to depend on its packages. That
environment sees the packages of `.venv`, so it has only what is missing there. Where it cannot be had, this says so and
the tests of the server are skipped.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / ".venv" / "langgraph"
_PACKAGES = ("langgraph-api>=0.16.7,<0.17", "langgraph-cli[inmem]>=0.4.40,<0.5")
_DONE = _FOLDER / "installed"

MISSING = "LangGraph's server is missing: run `make setup` again with an index of packages that has langgraph-api"
"""What a test says that is skipped."""


def find_server() -> Path | None:
    """Give the path of the command `langgraph`, if it is installed here."""
    command = _FOLDER / "bin" / "langgraph"
    installed = _DONE.is_file() and _DONE.read_text(encoding="utf-8") == _wanted()
    return command if installed else None


def _wanted() -> str:
    return "\n".join((str(_ROOT), *_PACKAGES))


def _installed() -> bool:
    venv.create(_FOLDER, clear=True)
    python = _FOLDER / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    library = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    seen = (sysconfig.get_path("purelib"), str(_ROOT / ".dev"))
    (library / "below.pth").write_text("\n".join(seen) + "\n", encoding="utf-8")
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", *_PACKAGES]
    return subprocess.run(words, check=False).returncode == 0


def main() -> None:
    """Install it, or say that its tests will be skipped."""
    if find_server() is not None:
        return
    if _installed():
        _DONE.write_text(_wanted(), encoding="utf-8")
    else:
        sys.stderr.write(f"The tests of LangGraph's server will be skipped. {MISSING}.\n")


if __name__ == "__main__":
    main()
