"""The entry point. It checks that the extra is installed and sets up the process. The commands are in `app`.

Before `main` begins, an interrupt prints a traceback. So this module imports only what Python itself has loaded.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, which itself takes a while to load
import io
import os
import sys

from .exits import FAILED, INTERRUPTED, USAGE, exit_early


def main() -> None:
    """Run the command line with the process's arguments and exit.

    Raises:
        SystemExit: Always, with the exit code of the command.
    """
    # An interrupt that is raised inside the import system can keep its lock held, and the process would never end.
    for number, untouched in ((_signal.SIGINT, _signal.default_int_handler), (_signal.SIGTERM, _signal.SIG_DFL)):
        if _signal.getsignal(number) == untouched:
            _signal.signal(number, exit_early)
    _tune_garbage_collector()
    import logging
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("typer", "rich", "prompt_toolkit")):
        print("error: the command line needs the packages 'typer', 'rich' and 'prompt_toolkit'", file=sys.stderr)
        print("remedy: run `pip install 'worldagent[cli]'`", file=sys.stderr)
        sys.exit(USAGE)
    # By default, dspy fetches a price list from the network at its first call. The library must not change the
    # environment of its embedder, but this process is our own.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    # It logs shortened answers, which a person at a command line cannot act on.
    logging.getLogger("dspy.clients.lm").setLevel(logging.ERROR)
    _repair_streams()
    try:
        from .app import app

        app()
    except KeyboardInterrupt:  # a command handles its own interrupts
        sys.exit(INTERRUPTED)
    except OSError as error:  # such as a full disk, or a reader that is gone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- it stays open
        print(f"error: the output cannot be written ({error.strerror})", file=sys.stderr)
        sys.exit(FAILED)


def _tune_garbage_collector() -> None:
    """Run the garbage collector less often: by default it takes half of the time of many concurrent turns.

    This process is our own. The library never changes the collector of its embedder (docs/guides/performance.md).
    """
    import gc  # built in: it loads nothing

    # The last number stays at 10, since only full collections free old garbage.
    gc.set_threshold(50_000, 10, 10)


def _repair_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 -- it stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets `?` and no traceback
