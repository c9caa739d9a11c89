"""The address of a Postgres database. It is validated when it is made, and never shows its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from ..core.errors import InvalidArgument

_SCHEMES = ("postgresql", "postgres")
CONNECTIONS: Final = 4
MOST_CONNECTIONS: Final = 100
URL_REMEDY = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """The address of a Postgres database.

    Attributes:
        url: `postgresql://...`, as libpq takes it.
        connections: How many transactions of one agent can run at once, 1 to 100, each on its own connection.

    Raises:
        InvalidArgument: An argument is invalid. The text does not show the url, which can contain a password.
    """

    url: str = field(repr=False)
    connections: int = CONNECTIONS

    def __post_init__(self) -> None:
        number = self.connections
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_CONNECTIONS:
            raise InvalidArgument(
                f"`connections` must be an integer from 1 to {MOST_CONNECTIONS}, got {number!r}",
                remedy=f"the default is {CONNECTIONS}",
            )
        problem = "" if isinstance(self.url, str) else f"must be a string, got {type(self.url).__name__}"
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
                    problem = "contains control characters"
        if problem:
            raise InvalidArgument(f"the database's url {problem}", remedy=URL_REMEDY)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        asked = parse_qs(parts.query)
        host = parts.hostname or (asked.get("host") or ["localhost"])[0]
        database = unquote(parts.path.lstrip("/")) or (asked.get("dbname") or ["its user's"])[0]
        port = f":{parts.port}" if parts.port else ""
        return f"{database} on {host}{port}"
