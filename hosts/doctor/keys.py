"""The key of role digests: whether turns were recorded with it, and how to make a new one after a loss (R13).

Only `make_key` writes, and it writes only the file of the key. The records of turns are never rewritten. A turn without
a role needs no key, and a digest that was made with a lost key can no longer be verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ...agent import Settings
from ...core.errors import HostError, InvalidArgument, StorageUnavailable
from ...harness.journal import Journal
from ...memory import TurnRecord, TurnRegister
from ...role_resolution.keys import RoleKey
from ...storage import Database, PostgresAddress, Transaction, from_sqlite
from ...testing.role_host_conformance import Failed, Points, Warned
from .files import NOT_YET, check_private, holders, is_there, opened
from .installation import InstallationOptions, Site

T = TypeVar("T")

POINTS: Final = Points()
point: Final = POINTS.add

NEEDED_POINTS: Final = ("settings.values", "home.folder", "database.agent")

MAX_SHOWN_TURNS: Final = 5  # turns that are named in one line
MIN_KEY_CHARACTERS: Final = 16  # characters that a key in the settings must have


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn that is running or can be resumed, and that was recorded with a key.

    Attributes:
        workspace: Its workspace.
        thread: Its thread.
        turn_id: Its id.
        status: Its status.
        keys: The ids of the keys with which its roles, the roles of its tasks and its skill were recorded.
    """

    workspace: str
    thread: str
    turn_id: str
    status: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.workspace}/{self.thread} ({self.status})"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The state of a home before a key is made.

    Attributes:
        file: Where the key is kept.
        there: Whether the file exists.
        key: The id of the key; None if the file does not exist or does not hold a key.
        turns: The turns that were recorded with a key.
        processes: The processes that have the home open, if the system reports them.
    """

    file: Path
    there: bool
    key: str | None
    turns: tuple[RecordedTurn, ...]
    processes: tuple[str, ...]


def look_at_key(options: InstallationOptions) -> KeyState:
    """Find out what a new key would mean for a home. Nothing is changed.

    Raises:
        InvalidArgument: The home does not exist or belongs to another user, or the setting `role_key` is used.
        SettingsInvalid, HostError: The settings or the home cannot be read.
    """
    if Settings().role_key is not None:
        raise InvalidArgument(
            "the setting role_key provides the key, so role.key is not read",
            remedy=f"set role_key to at least {MIN_KEY_CHARACTERS} new characters on all machines, and restart agents",
        )
    storage = Site(options).storage
    home, file, database = storage.resolve(), storage.role_key, storage.database
    if not home.is_dir():
        raise InvalidArgument(
            f"the home {str(home)!r} does not exist", remedy="name a home with --home; a new one needs no key"
        )
    if file.is_symlink():
        raise InvalidArgument(
            f"{str(file)!r} must not be a link", remedy="replace the file that it names, or delete the link"
        )
    if os.name == "posix" and (database if database.exists() else home).stat().st_uid != os.geteuid():
        raise InvalidArgument(
            f"the home {str(home)!r} belongs to another user", remedy="run this as the user that runs the agents"
        )
    key: RoleKey | None = None
    with contextlib.suppress(HostError):  # the file does not hold a key, so the key is lost
        key = RoleKey.read(file) if file.is_file() else None
    # A process in another namespace has no number here, nor does a lock that several processes can hold.
    place = storage.place
    files = [place] if isinstance(place, Path) else []
    processes = {number for number in holders(files) if number.isdigit()} - {"0", str(os.getpid())}
    return KeyState(
        file=file,
        there=file.exists(),
        key=None if key is None else key.id,
        turns=_with_current_ids(asyncio.run(read_database(place, _all_recorded, ())), key),
        processes=tuple(sorted(processes, key=int)),
    )


def make_key(state: KeyState, *, replace: bool) -> str:
    """Write a new key to a home atomically, and return its id.

    Args:
        state: What `look_at_key` found there.
        replace: Whether an existing key can be replaced.

    Raises:
        InvalidArgument: A key exists and must not be replaced.
        StorageUnavailable: The key cannot be written.
    """
    return RoleKey.renew(state.file, replace=replace).id


@point("role.key", "unfinished turns were recorded with the role key", needs=NEEDED_POINTS)
async def key(site: Site) -> str | None:
    """The key can be read, and no turn that can be resumed was recorded with another one."""
    assert site.settings is not None, "the settings fit"
    file, given = site.storage.role_key, site.settings.role_key
    if given is None and file.exists() and not file.is_file():
        raise Failed(f"{str(file)!r} is not a regular file", "move it away, and see `worldagent doctor --rekey`")
    if given is None:
        found = await asyncio.to_thread(RoleKey.read, file)
    else:
        found = await asyncio.to_thread(RoleKey, given.get_secret_value())
    turns = _with_current_ids(await read_database(site.storage.place, _all_recorded, ()), found)
    otherwise = recorded_with_other_key(turns, None if found is None else found.id)
    if otherwise:
        raise Warned(
            f"{unfinished_turns_text(otherwise)} recorded with another key: {turn_names(otherwise)}",
            "set role_key to that key, or restore its role.key; if it is lost, see `worldagent doctor --rekey`",
        )
    if found is None:
        return NOT_YET
    if given is None:
        check_private(file)
    chosen = "" if found.earlier is None else "; it is not 64 hexadecimal digits, so it is stretched"
    return f"key {found.id}, from {'role.key' if given is None else 'the setting role_key'}{chosen}"


async def read_database(place: Path | PostgresAddress, work: Callable[[Transaction, str], T], nothing: T) -> T:
    """Read the database of a home, and change nothing.

    Args:
        place: The database.
        work: Reads, in a transaction; it gets the name of the database, too.
        nothing: What is returned for a database that no agent has opened yet.
    """
    stop = threading.Event()
    try:
        if isinstance(place, Path):
            return await asyncio.to_thread(_read, place, work, nothing, stop)
        async with contextlib.aclosing(await Database.open(place, schemas=())) as database:
            [(made,)] = await database.read(lambda tx: tx.execute("SELECT to_regclass('wa_turn')"))
            return await database.read(lambda tx: work(tx, database.name)) if made else nothing
    finally:
        stop.set()


def _all_recorded(transaction: Transaction, name: str) -> tuple[RecordedTurn, ...]:
    found = [_recorded(turn, transaction) for turn in TurnRegister.ongoing(transaction, name)]
    return tuple(turn for turn in found if turn.keys)


def _read(file: Path, work: Callable[[Transaction, str], T], nothing: T, stop: threading.Event) -> T:
    if not is_there(file):
        return nothing
    problem: HostError
    try:
        with opened(file, stop) as connection:
            reading = _Reading(connection)
            if not reading.execute("SELECT 1 FROM sqlite_master WHERE name='wa_turn'"):
                return nothing
            return work(reading, str(file))
    except sqlite3.Error as error:
        problem = from_sqlite(error, file) or StorageUnavailable(
            f"{str(file)!r} cannot be read", remedy="use another home: --home, or the setting home"
        )
    raise problem


def _recorded(turn: TurnRecord, reading: Transaction) -> RecordedTurn:
    keys = {RoleKey.maker(digest) for digest in (*Journal.roles(reading, turn.id), turn.prompt) if digest}
    if turn.role["digest"] is not None:
        keys.add(str(turn.role["key"]))
    scope = turn.scope
    return RecordedTurn(
        workspace=scope.workspace,
        thread=scope.thread or "",
        turn_id=turn.id,
        status=turn.status,
        keys=tuple(sorted(keys)),
    )


class _Reading:
    """A `Transaction` on a database that is opened for reading only."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        given: Any = tuple(params)
        return self._connection.execute(sql, given).fetchall()

    def hold(self, sql: str, params: Sequence[object] = (), *, alone: bool = False) -> list[tuple[Any, ...]]:
        return self.execute(sql, params)  # no lock: the connection sees the database as it was at its first read

    def lock(self, name: str) -> None:
        """Do nothing, for the same reason."""


def _with_current_ids(turns: Sequence[RecordedTurn], key: RoleKey | None) -> tuple[RecordedTurn, ...]:
    """The turns with the current id of the key. Version 0.1.0 gave some keys another id."""
    if key is None or key.earlier is None:
        return tuple(turns)
    ids = {key.earlier.id: key.id}
    return tuple(replace(turn, keys=tuple(sorted({ids.get(made, made) for made in turn.keys}))) for turn in turns)


def recorded_with_other_key(turns: Sequence[RecordedTurn], key: str | None) -> tuple[RecordedTurn, ...]:
    """The turns that were recorded with a key other than the one with this id."""
    return tuple(turn for turn in turns if any(made != key for made in turn.keys))


def unfinished_turns_text(turns: Sequence[RecordedTurn]) -> str:
    """The beginning of a sentence about turns, such as `2 unfinished turns were`."""
    return "1 unfinished turn was" if len(turns) == 1 else f"{len(turns)} unfinished turns were"


def turn_names(turns: Sequence[RecordedTurn]) -> str:
    """The first turns by workspace and thread, and how many more there are."""
    more = f" and {len(turns) - MAX_SHOWN_TURNS} more" if len(turns) > MAX_SHOWN_TURNS else ""
    return ", ".join(map(str, turns[:MAX_SHOWN_TURNS])) + more
