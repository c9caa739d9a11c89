"""The tables of capabilities whose rows belong to an account or a thread, and go with it (M4).

The database itself has their list. So every process removes such rows, also one without the capability.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..core.errors import InvalidArgument
from ..storage import Schema, Transaction, columns_of

_LOG: Final = logging.getLogger("worldagent.memory")

OWNED: Final = Schema(
    "owned",
    (
        (
            """CREATE TABLE wa_owned(
                 name TEXT PRIMARY KEY,
                 workspace TEXT NOT NULL,
                 account TEXT NOT NULL,
                 thread TEXT NOT NULL)""",
        ),
    ),
)
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WRITE: Final = """INSERT INTO wa_owned(name, workspace, account, thread) VALUES(?, ?, ?, ?)
                   ON CONFLICT(name) DO UPDATE SET workspace=excluded.workspace, account=excluded.account,
                                                   thread=excluded.thread"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedTable:
    """A table whose rows belong to an account or a thread of a workspace, by the names of its columns.

    Attributes:
        name: The table's name, in lower case; begin it with the name of the capability.
        workspace: The column with the workspace's id.
        account: The column with the account's id; empty if its rows belong to no account.
        thread: The column with the thread's id; empty if its rows belong to no thread.

    Raises:
        InvalidArgument: A name is not an identifier in lower case.
    """

    name: str
    workspace: str = "workspace"
    account: str = ""
    thread: str = ""

    def __post_init__(self) -> None:
        for each in (self.name, self.workspace, *filter(None, (self.account, self.thread))):
            if not isinstance(each, str) or not _NAME.fullmatch(each) or each.startswith("wa_"):
                raise InvalidArgument(
                    f"{str(each)[:80]!r} cannot be the name of an owned table or of a column of one",
                    remedy="use up to 63 letters a-z, digits and _, and begin with a letter and not with wa_",
                )


def check_owned(capability: str, tables: Iterable[OwnedTable], made: Mapping[str, Collection[str]]) -> None:
    """Refuse owned tables that a capability does not have.

    Args:
        capability: The capability's name.
        tables: The tables that it lists.
        made: The columns of all tables that its migrations make, by the table's name.

    Raises:
        InvalidArgument: It lists a table, or a column of one, that its migrations do not make.
    """
    if not isinstance(tables, tuple) or not all(isinstance(each, OwnedTable) for each in tables):
        raise InvalidArgument(
            f"`owned` of the capability {capability!r} must be a tuple of OwnedTable", remedy="write (OwnedTable(...),)"
        )
    for each in tables:
        for column in filter(None, (each.workspace, each.account, each.thread)):
            if column not in made.get(each.name, ()):
                missing = f"column {column!r} in the table" if each.name in made else "table"
                raise InvalidArgument(
                    f"the migrations of the capability {capability!r}, which owns rows of it, make no {missing} "
                    f"{each.name!r}",
                    remedy="correct `owned`, or add a step to `migrations`",
                )


def write_owned(transaction: Transaction, tables: Iterable[OwnedTable], made: Collection[str], *, server: bool) -> None:
    """Note in the database which tables of its capabilities have rows of accounts and threads.

    A table that a capability no longer lists is forgotten, and so is one that a migration has renamed or dropped.

    Args:
        transaction: The transaction.
        tables: The tables that they list.
        made: The names of all tables that their migrations make.
        server: Whether the database is on a Postgres server.
    """
    listed = {each.name: each for each in tables}
    for (name,) in transaction.execute("SELECT name FROM wa_owned"):
        if name not in listed and (name in made or not columns_of(transaction, name, server=server)):
            transaction.execute("DELETE FROM wa_owned WHERE name=?", (name,))
    for each in listed.values():
        transaction.execute(_WRITE, (each.name, each.workspace, each.account, each.thread))


def remove_owned(transaction: Transaction, workspace: str, *, server: bool, account: str = "", thread: str = "") -> int:
    """Delete the rows of an account, or of a thread, from all owned tables; returns how many.

    A table that is gone is left out, so that the rows of the others go.

    Args:
        transaction: The transaction.
        workspace: The workspace.
        server: Whether the database is on a Postgres server.
        account: The account; empty if a thread is removed.
        thread: The thread's id; empty if an account is removed.
    """
    column, owner = ("account", account) if account else ("thread", thread)
    rows = transaction.execute(f"SELECT name, workspace, {column} FROM wa_owned WHERE {column} <> ''")
    count = 0
    for name, in_workspace, of in rows:
        if not columns_of(transaction, name, server=server) >= {in_workspace, of}:
            _LOG.warning("the table %r, or a column of it, is gone, so that no row of it was removed", name)
            continue
        gone = transaction.execute(
            f"DELETE FROM {name} WHERE {in_workspace}=? AND {of}=? RETURNING {in_workspace}", (workspace, owner)
        )
        count += len(gone)
    return count


__all__ = ["OWNED", "OwnedTable", "check_owned", "remove_owned", "write_owned"]
