"""The way in. It checks that the extra is there and sets up the process; the commands are in `app`.

Before `main` begins, an interrupt is a traceback. So what is imported up here is there as soon as Python is.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, which itself takes a while to load
import io
import os
import sys

from .exits import FAILED, INTERRUPTED, USAGE, leave


def main() -> None:
    """Run the command line with the process's arguments and exit.

    Raises:
        SystemExit: Always, with the exit code of the command.
    """
    # An interrupt that is raised in the import system can leave its lock held, and the process would never end.
    for number, untouched in ((_signal.SIGINT, _signal.default_int_handler), (_signal.SIGTERM, _signal.SIG_DFL)):
        if _signal.getsignal(number) == untouched:
            _signal.signal(number, leave)
    _collect_less()
    import logging
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("typer", "rich", "prompt_toolkit")):
        print("error: the command line needs the packages 'typer', 'rich' and 'prompt_toolkit'", file=sys.stderr)
        print("remedy: run `pip install 'worldagent[cli]'`", file=sys.stderr)
        sys.exit(USAGE)
    # Unless told so, dspy asks the network for a price list at its first call. The library leaves the environment of
    # its embedder alone; this process is our own.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    # What these say of a retry, or of an answer that was cut, nobody at a command line can act on.
    for name in ("stamina", "dspy.clients.lm"):
        logging.getLogger(name).setLevel(logging.ERROR)
    _mend_streams()
    try:
        from .app import app

        app()
    except KeyboardInterrupt:  # inside a command it has been handled
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk, a reader that is gone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- it stays open
        print(f"error: the output cannot be written ({error.strerror})", file=sys.stderr)
        sys.exit(FAILED)


def _collect_less() -> None:
    """Let the garbage collector run less often: by default it takes half of the time of many turns at once.

    This process is our own. The library leaves the collector to the process that uses it (docs/performance.md).
    """
    import gc  # built in: it loads nothing

    # The last number stays at 10: garbage that has grown old is freed by full collections alone.
    gc.set_threshold(50_000, 10, 10)


def _mend_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 -- it stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets `?` and no traceback
