"""Starts the process of the sandbox so that it ends with this process and writes nothing to its stderr.

`sandbox` decides what runs in it. The sandbox library offers neither, and starts a program only by its path, so the
path is that of a small script in memory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Generator
from contextlib import contextmanager

_SCRIPT = """\
#!/bin/sh
exec 2>/dev/null
setpriv --pdeathsig KILL true && exec setpriv --pdeathsig KILL {program} "$@"
exec {program} "$@"
"""


@contextmanager
def launcher() -> Generator[str | None]:
    """The path of a program that starts the sandbox this way; None on systems other than Linux."""
    program = os.environ.get("MONTY_BIN") or shutil.which(
        "monty", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    )
    if sys.platform != "linux" or program is None:
        yield None
        return
    with open(os.memfd_create("worldagent-sandbox"), "w", encoding="utf-8") as script:
        script.write(_SCRIPT.format(program=shlex.quote(program)))
        script.flush()
        path = f"/proc/{os.getpid()}/fd/{script.fileno()}"
        yield path if os.access(path, os.X_OK) else None


__all__ = ["launcher"]
