"""The tokens of a sidecar, and what each grants. `service.call` decides what a caller can do with a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..service.call import ANY, GRANT_LISTS, Grant
from ..serving import Tokens
from ..serving import read_token_file as read_tokens

_EXAMPLE: Final = (
    '[[token]], token = "..." and lists such as workspaces = ["novel"], accounts = ["ana"], threads = ["*"], and '
    "operator = true for a token that can resume, answer and cancel turns of other accounts"
)
EVERYTHING: Final = Grant((ANY,), (ANY,), operator=True)
NOTHING: Final = Grant()


def tokens_of_setting(token: str, grant: Grant = EVERYTHING) -> Tokens[Grant]:
    """Return the tokens for the setting `sidecar_token`, which holds a single token.

    Args:
        token: The token.
        grant: Its grant.

    Raises:
        InvalidArgument: The token is invalid. The error shows nothing of it.
    """
    return Tokens([(token, grant)], source="the setting sidecar_token (WORLDAGENT_SIDECAR_TOKEN)")


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
    if not table.keys() <= {*GRANT_LISTS, "operator"}:
        raise ValueError("must have only the keys token, workspaces, accounts, threads and operator")
    lists: dict[str, list[str]] = {}
    for name in GRANT_LISTS & table.keys():
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
