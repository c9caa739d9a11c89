"""Exit codes, and how the process ends on a signal that comes while it loads.

This module loads before all others, so it imports only what Python itself has loaded.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, which itself takes a while to load
import os
import sys

OF_SIGNALS = {2: 130, 15: 143}  # the exit codes of servers that a signal ended
DONE, FAILED, USAGE, PAUSED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

# The error that `output` would write, for a moment in which nothing can be imported.
_EARLY = """{{"error": {{"code": "{code}", "message": "{message}", "remedy": "run the command again", \
"retryable": {retryable}, "turn_id": null}}}}
"""


def exit_early(number: int, frame: object) -> None:
    """End the process on a signal, before there is any work to cancel or stop."""
    interrupted = number == _signal.SIGINT
    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    out = sys.__stdout__  # `sys.stdout` is replaced while an app loads
    if ("--json" in options or "--events" in options) and out is not None:
        shown = ("interrupted", "interrupted", "true") if interrupted else ("terminated", "stopped by SIGTERM", "false")
        text = _EARLY.format(code=shown[0], message=shown[1], retryable=shown[2])
        try:  # noqa: SIM105 -- `contextlib` is perhaps not loaded yet
            os.write(out.fileno(), text.encode())
        except (OSError, ValueError):  # the reader is gone
            pass
    os._exit(INTERRUPTED if interrupted else TERMINATED)
