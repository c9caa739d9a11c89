"""What a token grants: workspaces, accounts, threads. `people` decides what a caller can do with a turn."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ...core import check_id
from ...core.errors import InvalidArgument
from ..service.call import ANY, Caller, forbidden, reaches
from ..serving import Tokens
from ..serving import read_token_file as read_tokens

_LISTS: Final = ("workspaces", "accounts", "threads")
_EXAMPLE: Final = (
    '[[token]], token = "..." and lists such as workspaces = ["novel"], accounts = ["ana"], threads = ["*"], and '
    "operator = true for a token that can resume, answer and cancel turns of other accounts"
)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller can use.

    Attributes:
        workspaces: The ids of workspaces; `*` among them means every id.
        accounts: The ids of accounts that it can speak for; `*` means every id. A call without an account is always
            allowed.
        threads: Globs over the ids of threads.
        operator: Whether it can resume, answer and cancel turns of other accounts.

    Raises:
        InvalidArgument: An id or a glob is invalid.
    """

    workspaces: Collection[str] = ()
    accounts: Collection[str] = ()
    threads: Collection[str] = (ANY,)
    operator: bool = False

    def __post_init__(self) -> None:
        for name in _LISTS:
            given = getattr(self, name)
            if isinstance(given, str):
                raise InvalidArgument(f"`{name}` of a grant must be a list, got a string", remedy="give a list of ids")
            object.__setattr__(self, name, frozenset(check_id(f"one of {name}", one) for one in given))

    def caller(self, workspace: str | None, account: str | None) -> Caller:
        """Find the workspace and the account of a call.

        Args:
            workspace: The workspace that the call names; None means the only one that the grant reaches.
            account: The account that the call names; None means the only one of the grant, or no account if the grant
                has none or several.

        Raises:
            Refused: The grant does not reach the workspace or the account.
            InvalidArgument: The call names no workspace, and the grant reaches more than one.
        """
        if workspace is None:
            workspace = _only(self.workspaces)
        if workspace is None and self.workspaces:
            raise InvalidArgument(
                "the call names no workspace, and its token reaches several", remedy="name one in `workspace`"
            )
        if workspace is None or not reaches(workspace, self.workspaces):
            raise forbidden("workspace")
        if account is None:
            account = _only(self.accounts)
        elif not reaches(account, self.accounts):
            raise forbidden("account")
        return Caller(workspace=workspace, account=account, operator=self.operator, accounts=self.accounts)

    def allows_thread(self, thread: str) -> bool:
        """Whether the caller can use a thread with this id. The thread does not have to exist."""
        return any(fnmatchcase(thread, glob) for glob in self.threads)

    def allows_threads_after(self, stem: str) -> bool:
        """Whether the caller can use every thread whose id begins with `stem`."""
        return any(glob.endswith(ANY) and fnmatchcase(stem, glob) for glob in self.threads)

    @property
    def allows_any_thread(self) -> bool:
        """Whether the caller can use every thread."""
        return ANY in self.threads


EVERYTHING: Final = Grant((ANY,), (ANY,), operator=True)
NOTHING: Final = Grant()


def tokens_of_setting(token: str) -> Tokens[Grant]:
    """Return the tokens for the setting `sidecar_token`, which holds a single token.

    Args:
        token: The token. It grants everything.

    Raises:
        InvalidArgument: The token is invalid. The error shows nothing of it.
    """
    return Tokens([(token, EVERYTHING)], source="the setting sidecar_token (WORLDAGENT_SIDECAR_TOKEN)")


def read_token_file(path: Path, grant: Grant = EVERYTHING) -> Tokens[Grant]:
    """Read the tokens of a sidecar from a file.

    A file whose name ends in `.toml` has tokens with their grants. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    return read_tokens(path, grant, entry=_grant_of, example=_EXAMPLE)


def _grant_of(table: dict[str, Any]) -> Grant:
    if not table.keys() <= {*_LISTS, "operator"}:
        raise ValueError("must have only the keys token, workspaces, accounts, threads and operator")
    lists: dict[str, list[str]] = {}
    for name in _LISTS & table.keys():
        ids = table[name]
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            raise ValueError(f"must have a list of ids as {name}")
        lists[name] = ids
    operator = table.get("operator", False)
    if not isinstance(operator, bool):
        raise ValueError("must have true or false as operator")
    if not lists.get("workspaces"):
        raise ValueError("must name at least one workspace in workspaces")
    return Grant(**lists, operator=operator)


def _only(ids: Collection[str]) -> str | None:
    return next(iter(ids)) if len(ids) == 1 and ANY not in ids else None


__all__ = ["ANY", "EVERYTHING", "NOTHING", "Grant", "read_token_file", "tokens_of_setting"]
