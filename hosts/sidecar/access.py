"""What a token reaches: workspaces, accounts, threads. What a caller may do with a turn is in `people`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ...core import check_id
from ...core.errors import InvalidArgument
from ..serving import Tokens
from ..serving import read_token_file as read_tokens
from .ports import ANY, Caller, forbidden, reaches

_LISTS: Final = ("workspaces", "accounts", "threads")
_EXAMPLE: Final = (
    '[[token]], token = "..." and lists such as workspaces = ["novel"], accounts = ["ana"], threads = ["*"], and '
    "operator = true where turns of others may be touched"
)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may use.

    Attributes:
        workspaces: The ids of workspaces; `*` among them is every id.
        accounts: The ids of accounts that it may speak for; `*` is every id. Nobody in particular is always allowed.
        threads: Globs over the ids of threads.
        operator: Whether it may resume, answer and cancel turns of others.

    Raises:
        InvalidArgument: An id or a glob cannot be one.
    """

    workspaces: Collection[str] = ()
    accounts: Collection[str] = ()
    threads: Collection[str] = (ANY,)
    operator: bool = False

    def __post_init__(self) -> None:
        for name in _LISTS:
            given = getattr(self, name)
            if isinstance(given, str):
                raise InvalidArgument(f"{name} of a grant is a text", remedy="give a list of ids")
            object.__setattr__(self, name, frozenset(check_id(f"one of {name}", one) for one in given))

    def caller(self, workspace: str | None, account: str | None) -> Caller:
        """On whose behalf a call is made.

        Args:
            workspace: As the call names it; None is the only one that the grant reaches.
            account: As the call names it; None is the only one that the grant speaks for, else nobody.

        Raises:
            Refused: The grant does not reach it.
            InvalidArgument: No workspace is named, and the grant reaches more than one.
        """
        if workspace is None:
            workspace = _only(self.workspaces)
        if workspace is None and self.workspaces:
            raise InvalidArgument(
                "the call names no workspace, and it may use several", remedy="name one in `workspace`"
            )
        if workspace is None or not reaches(workspace, self.workspaces):
            raise forbidden("workspace")
        if account is None:
            account = _only(self.accounts)
        elif not reaches(account, self.accounts):
            raise forbidden("account")
        return Caller(workspace=workspace, account=account, operator=self.operator, accounts=self.accounts)

    def allows_thread(self, thread: str) -> bool:
        """Whether a thread with this id may be used, if there is one or not."""
        return any(fnmatchcase(thread, glob) for glob in self.threads)

    def allows_threads_after(self, stem: str) -> bool:
        """Whether every thread may be used whose id begins so."""
        return any(glob.endswith(ANY) and fnmatchcase(stem, glob) for glob in self.threads)

    @property
    def allows_any_thread(self) -> bool:
        """Whether every thread may be used."""
        return ANY in self.threads

    def check_thread(self, thread: str) -> None:
        """Refuse a thread that may not be used.

        Raises:
            Refused: It may not.
        """
        if not self.allows_thread(thread):
            raise forbidden("thread")


EVERYTHING: Final = Grant((ANY,), (ANY,), operator=True)
NOTHING: Final = Grant()


def tokens_of_setting(token: str) -> Tokens[Grant]:
    """The tokens where the setting `sidecar_token` has the only one.

    Args:
        token: Its text, which grants everything.

    Raises:
        InvalidArgument: It cannot be a token; nothing of it is shown.
    """
    return Tokens([(token, EVERYTHING)], source="the setting sidecar_token (WORLDAGENT_SIDECAR_TOKEN)")


def read_token_file(path: Path, grant: Grant = EVERYTHING) -> Tokens[Grant]:
    """Read the tokens of a sidecar from a file: one token, or, where its name ends in `.toml`, tokens with grants.

    Args:
        path: The file.
        grant: What a token grants that stands in the file alone.

    Raises:
        InvalidArgument: The file cannot be read, or does not fit; nothing of its text is shown.
    """
    return read_tokens(path, grant, entry=_grant_of, example=_EXAMPLE)


def _grant_of(table: dict[str, Any]) -> Grant:
    if not table.keys() <= {*_LISTS, "operator"}:
        raise ValueError("has something else than token, workspaces, accounts, threads and operator")
    lists: dict[str, list[str]] = {}
    for name in _LISTS & table.keys():
        ids = table[name]
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            raise ValueError(f"has {name} that are not a list of ids")
        lists[name] = ids
    operator = table.get("operator", False)
    if not isinstance(operator, bool):
        raise ValueError("has an operator that is neither true nor false")
    if not lists.get("workspaces"):
        raise ValueError("names no workspaces")
    return Grant(**lists, operator=operator)


def _only(ids: Collection[str]) -> str | None:
    return next(iter(ids)) if len(ids) == 1 and ANY not in ids else None


__all__ = ["ANY", "EVERYTHING", "NOTHING", "Grant", "read_token_file", "tokens_of_setting"]
