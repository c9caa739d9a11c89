"""Bearer tokens and the grant of each. The type of a grant is up to the server. Only digests of tokens are kept."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from mcp.server.auth.provider import AccessToken

from ...core.errors import InvalidArgument

G = TypeVar("G")


class Tokens(Generic[G]):
    """The bearer tokens that a server accepts, and the grant of each.

    Args:
        grants: Each token with its grant. A token is printable ASCII without blanks.
        source: Where the tokens come from; the error names it.

    Raises:
        InvalidArgument: A token has other characters, two tokens are equal, or there is none.
    """

    def __init__(self, grants: Iterable[tuple[str, G]], *, source: str = "the input") -> None:
        pairs = list(grants)
        if not pairs or not all(is_token(token) for token, _ in pairs):
            raise InvalidArgument(
                f"{source} has no token, or an invalid one", remedy="write a token of printable ASCII without blanks"
            )
        self._grants = {hashlib.sha256(token.encode()).hexdigest(): grant for token, grant in pairs}
        if len(self._grants) < len(pairs):
            raise InvalidArgument("two entries have the same token", remedy="write one entry for each token")

    def __repr__(self) -> str:
        return f"<{len(self._grants)} tokens>"

    async def verify_token(self, token: str) -> AccessToken | None:
        """Find the grant of a token, in a time independent of the token. The result does not hold the token."""
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        matching = [known for known in self._grants if hmac.compare_digest(known, given)]
        return AccessToken(token="", client_id=matching[0], scopes=[]) if matching else None

    @property
    def grants(self) -> tuple[G, ...]:
        """The grants of its tokens, in order."""
        return tuple(self._grants.values())

    def changed(self, change: Callable[[G], G]) -> Tokens[G]:
        """Return the same tokens, with `change` applied to each grant."""
        made: Tokens[G] = Tokens.__new__(Tokens)
        made._grants = {digest: change(grant) for digest, grant in self._grants.items()}
        return made

    def grant_of(self, access: AccessToken | None) -> G | None:
        """Return the grant of a verified token; None without a verified token."""
        return None if access is None else self._grants.get(access.client_id)


def read_token_file(path: Path, grant: G, *, entry: Callable[[dict[str, Any]], G], example: str) -> Tokens[G]:
    """Read tokens from a file.

    A file whose name ends in `.toml` has `[[token]]` tables. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.
        entry: Makes the grant of a table from its keys other than `token`. It raises `ValueError` with a text that says
            what is wrong and quotes nothing of the table.
        example: A valid table in words, for the remedy.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    text, problem = _text(path), ""
    if path.suffix != ".toml":
        return Tokens([(text.strip(), grant)], source=f"the token file {str(path)!r}")
    try:
        return Tokens(_pairs(text, entry))
    except ValueError as error:
        problem = str(error)
    raise InvalidArgument(f"the token file {str(path)!r} is invalid: {problem}", remedy=f"write {example}")


def is_token(token: object) -> bool:
    """Whether it can be a token: printable ASCII without blanks, as a header requires."""
    return isinstance(token, str) and bool(token) and token.isascii() and token.isprintable() and " " not in token


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    except ValueError:  # not UTF-8, or a null byte in the name
        problem = "it is not a text file"
    raise InvalidArgument(f"the token file {str(path)!r} cannot be read: {problem}", remedy="give another file")


def _pairs(text: str, entry: Callable[[dict[str, Any]], G]) -> list[tuple[str, G]]:
    """Return the tokens of `[[token]]` tables with their grants. Its `ValueError` quotes nothing of the file."""
    document: dict[str, Any] = {}
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        document = tomllib.loads(text)
    tables = document.pop("token", None)
    if document or not isinstance(tables, list):
        raise ValueError("it must be TOML with only [[token]] tables")
    pairs: list[tuple[str, G]] = []
    for number, table in enumerate(cast("list[object]", tables), start=1):
        problem = ""
        try:
            pairs.append(_pair(table, entry))
        except (ValueError, InvalidArgument) as error:
            problem = error.problem if isinstance(error, InvalidArgument) else str(error)
        if problem:
            raise ValueError(f"[[token]] number {number} {problem}")
    return pairs


def _pair(table: object, entry: Callable[[dict[str, Any]], G]) -> tuple[str, G]:
    rest = dict(cast("dict[str, Any]", table)) if isinstance(table, dict) else {}
    token = rest.pop("token", None)
    if not is_token(token):
        raise ValueError("has no token, or an invalid one")
    return token, entry(rest)


__all__ = ["Tokens", "is_token", "read_token_file"]
