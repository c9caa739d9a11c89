"""The way in. It checks that the extra is there and sets up the process; the commands are in `_app`."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec

USAGE, INTERRUPTED = 2, 130


def main() -> None:
    """Run the command line with the process's arguments and exit.

    Raises:
        SystemExit: Always: 0 done, 1 failed, 2 bad usage, 3 kept for paused turns, 130 interrupted.
    """
    if any(find_spec(name) is None for name in ("typer", "rich")):
        print("error: the command line needs the packages 'typer' and 'rich'", file=sys.stderr)
        print("remedy: run `pip install 'worldagent[cli]'`", file=sys.stderr)
        sys.exit(USAGE)
    # Unless told so, dspy asks the network for a price list at its first call. The library leaves the environment of
    # its embedder alone; this process is our own.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets `?` and no traceback
    try:
        from ._app import app

        app()
    except KeyboardInterrupt:  # while modules load; inside a command it has been handled
        sys.exit(INTERRUPTED)


__all__ = ["main"]
