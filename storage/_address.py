"""Where a Postgres database is. The address is checked when it is made, and never shows its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from ..core.errors import InvalidArgument

_SCHEMES = ("postgresql", "postgres")
URL_REMEDY = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """The address of a Postgres database.

    Attributes:
        url: `postgresql://...`, as libpq takes it.

    Raises:
        InvalidArgument: It is none; the text shows nothing of it, for it may hold a password.
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        problem = "" if isinstance(self.url, str) else f"is a {type(self.url).__name__}"
        if not problem:
            try:
                parts = urlsplit(self.url)
                parts.port  # noqa: B018 -- reading it is the check
            except ValueError:
                problem = "is not a URL"
            else:
                if parts.scheme not in _SCHEMES:
                    problem = "does not begin with postgresql://"
                elif any(ord(character) < 32 for character in self.url):
                    problem = "holds control characters"
        if problem:
            raise InvalidArgument(f"the database's url {problem}", remedy=URL_REMEDY)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        asked = parse_qs(parts.query)
        host = parts.hostname or (asked.get("host") or ["localhost"])[0]
        database = unquote(parts.path.lstrip("/")) or (asked.get("dbname") or ["its user's"])[0]
        port = f":{parts.port}" if parts.port else ""
        return f"{database} on {host}{port}"
