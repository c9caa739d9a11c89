"""Who may use which scopes: what a bearer token grants, and the file that says so. Tokens are kept as digests only."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mcp.server.auth.provider import AccessToken

from ...core import Tier, check_id
from ...core.errors import InvalidArgument
from ._contract import offered

ANY = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """Which scopes a caller may use.

    Attributes:
        scopes: The ids of each tier; `*` among them is every id. A tier that is left out is refused.
    """

    scopes: Mapping[Tier, frozenset[str]]

    def __post_init__(self) -> None:
        for tier, ids in self.scopes.items():
            for scope_id in ids:
                check_id(f"{tier} scope", scope_id)

    def allows(self, tier: Tier, scope_id: str) -> bool:
        """Whether the role of this tier and scope may be read and changed."""
        return not self.scopes.get(tier, frozenset()).isdisjoint((scope_id, ANY))


EVERYTHING = Grant({tier: frozenset({ANY}) for tier in offered()})
NOTHING = Grant({})


class Tokens:
    """The bearer tokens that a host takes, and what each grants.

    Args:
        grants: Each token with its grant. A token is printable ASCII without blanks.

    Raises:
        InvalidArgument: A token cannot be one, two are the same, or there is none.
    """

    def __init__(self, grants: Iterable[tuple[str, Grant]]) -> None:
        pairs = list(grants)
        if not pairs or not all(is_token(token) for token, _ in pairs):
            raise InvalidArgument(
                "there is no token, or one that no header takes", remedy="use printable ASCII without blanks"
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

    def grant_of(self, access: AccessToken | None) -> Grant:
        """What the bearer of a verified token may use."""
        return NOTHING if access is None else self._grants.get(access.client_id, NOTHING)


def read_token_file(path: Path, grant: Grant) -> Tokens:
    """Read the tokens of a host from a file: one token, or, where its name ends in `.toml`, tokens with their scopes.

    Args:
        path: The file.
        grant: What a token grants that stands in the file alone.

    Raises:
        InvalidArgument: The file cannot be read, or does not fit; nothing of its text is shown.
    """
    problem: str | None = None
    text = ""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    except ValueError:  # not UTF-8, or a null byte in the name
        problem = "it is not a text file"
    if problem is not None:
        raise InvalidArgument(f"the token file {str(path)!r} cannot be read: {problem}", remedy="give another file")
    if path.suffix != ".toml":
        return Tokens([(text.strip(), grant)])
    return Tokens(_entry(path, number, entry) for number, entry in enumerate(_entries(path, text), start=1))


def is_token(token: object) -> bool:
    """Whether a header takes it."""
    return isinstance(token, str) and bool(token) and token.isascii() and token.isprintable() and " " not in token


def _entries(path: Path, text: str) -> list[Any]:
    document: dict[str, Any] = {}
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        fits = False
    else:
        fits = document.keys() == {"token"} and isinstance(document["token"], list)
    if not fits:
        raise _misfit(path, "it is not TOML with nothing but [[token]] tables")
    return cast("list[Any]", document["token"])


def _entry(path: Path, number: int, entry: Any) -> tuple[str, Grant]:
    names = {tier.value for tier in offered()}
    if not isinstance(entry, dict) or not entry.keys() <= {"token", *names} or not is_token(entry.get("token")):
        raise _misfit(path, f"[[token]] number {number} does not have a token and lists of scopes, and nothing else")
    scopes: dict[Tier, frozenset[str]] = {}
    for name in names & entry.keys():
        ids = entry[name]
        if not isinstance(ids, list) or not all(isinstance(scope_id, str) for scope_id in ids):
            raise _misfit(path, f"{name} of [[token]] number {number} is not a list of ids")
        scopes[Tier(name)] = frozenset(ids)
    return entry["token"], Grant(scopes)


def _misfit(path: Path, problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"the token file {str(path)!r} does not fit: {problem}",
        remedy='write [[token]], token = "..." and lists such as workspace = ["novel"], account = ["*"]',
    )


__all__ = ["ANY", "EVERYTHING", "NOTHING", "Grant", "Tokens", "is_token", "read_token_file"]
