"""Bearer tokens and what each grants, whatever a grant is to a server. Tokens are kept as digests only."""

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
    """The bearer tokens that a server takes, and what each grants.

    Args:
        grants: Each token with its grant. A token is printable ASCII without blanks.
        source: What they are in, for the error.

    Raises:
        InvalidArgument: A token cannot be one, two are the same, or there is none.
    """

    def __init__(self, grants: Iterable[tuple[str, G]], *, source: str = "what is given") -> None:
        pairs = list(grants)
        if not pairs or not all(is_token(token) for token, _ in pairs):
            raise InvalidArgument(
                f"{source} has no token, or one that no header takes", remedy="use printable ASCII without blanks"
            )
        self._grants = {hashlib.sha256(token.encode()).hexdigest(): grant for token, grant in pairs}
        if len(self._grants) < len(pairs):
            raise InvalidArgument("a token is given twice", remedy="give each token one entry")

    def __repr__(self) -> str:
        return f"<{len(self._grants)} tokens>"

    async def verify_token(self, token: str) -> AccessToken | None:
        """Tell whose token this is, in the same time whichever it is. The answer does not hold the token."""
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        matching = [known for known in self._grants if hmac.compare_digest(known, given)]
        return AccessToken(token="", client_id=matching[0], scopes=[]) if matching else None

    @property
    def grants(self) -> tuple[G, ...]:
        """What its tokens grant, one after the other."""
        return tuple(self._grants.values())

    def changed(self, change: Callable[[G], G]) -> Tokens[G]:
        """The same tokens with other grants."""
        made: Tokens[G] = Tokens.__new__(Tokens)
        made._grants = {digest: change(grant) for digest, grant in self._grants.items()}
        return made

    def grant_of(self, access: AccessToken | None) -> G | None:
        """What the bearer of a verified token may use; None where none was verified."""
        return None if access is None else self._grants.get(access.client_id)


def read_token_file(path: Path, grant: G, *, entry: Callable[[dict[str, Any]], G], example: str) -> Tokens[G]:
    """Read tokens from a file: one token, or, where its name ends in `.toml`, `[[token]]` tables.

    Args:
        path: The file.
        grant: What a token grants that stands in the file alone.
        entry: What a table grants, of what it has beside `token`. It raises `ValueError` with a text that says what
            does not fit, and quotes nothing of it.
        example: A table that fits, in words, for the remedy.

    Raises:
        InvalidArgument: The file cannot be read, or does not fit; nothing of its text is shown.
    """
    text, problem = _text(path), ""
    if path.suffix != ".toml":
        return Tokens([(text.strip(), grant)], source=f"the token file {str(path)!r}")
    try:
        return Tokens(_pairs(text, entry))
    except ValueError as error:
        problem = str(error)
    raise InvalidArgument(f"the token file {str(path)!r} does not fit: {problem}", remedy=f"write {example}")


def is_token(token: object) -> bool:
    """Whether a header takes it."""
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
    """The tokens of `[[token]]` tables with their grants. Its `ValueError` quotes nothing of the file."""
    document: dict[str, Any] = {}
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        document = tomllib.loads(text)
    tables = document.pop("token", None)
    if document or not isinstance(tables, list):
        raise ValueError("it is not TOML with nothing but [[token]] tables")
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
        raise ValueError("has no token that a header takes")
    return token, entry(rest)


__all__ = ["Tokens", "is_token", "read_token_file"]
