"""Where an agent's data are: paths in its home, and the address of a Postgres database. Nothing here creates a file."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import url2pathname

import platformdirs

from ..core.errors import InvalidArgument
from ..core.validation import check_integer

_SCHEMES = ("postgresql", "postgres")
_NATS_SCHEMES = ("nats", "tls")
_FOLDER_SCHEME: Final = "file"
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
        remedy = f"the default is {CONNECTIONS}"
        check_integer("connections", self.connections, MOST_CONNECTIONS, remedy=remedy)
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


def check_attachments_url(url: object) -> None:
    """Refuse a url that cannot be that of attachments.

    Raises:
        InvalidArgument: It is invalid. The text does not show the url, which can contain a password.
    """
    problem = "" if isinstance(url, str) else f"must be a string, got {type(url).__name__}"
    if isinstance(url, str):
        scheme, separator, rest = url.partition("://")
        if "::" in url:
            problem = "must be a single url"  # a cache in between would keep what another machine removes
        elif not separator or not scheme.isalnum() or not rest.strip("/"):
            problem = "must name a bucket or a folder"
        elif any(ord(character) < 32 for character in url):
            problem = "contains control characters"
        elif scheme == _FOLDER_SCHEME and not rest.startswith("/"):
            problem = "must name an absolute folder"
    if problem:
        raise InvalidArgument(
            f"the attachments' url {problem}", remedy="write it as s3://BUCKET/FOLDER or file:///FOLDER"
        )


def check_nats_url(url: str) -> None:
    """Refuse a url that cannot be that of one or more NATS servers.

    Raises:
        InvalidArgument: It is invalid. The text does not show the url, which can contain a password.
    """
    problem = "contains control characters" if any(ord(character) < 32 for character in url) else ""
    for each in url.split(","):
        try:
            parts = urlsplit(each)
            parts.port  # noqa: B018 -- reading it is the check
        except ValueError:
            problem = "is not a URL"
        else:
            if parts.scheme not in _NATS_SCHEMES or not parts.hostname:
                problem = "does not begin with nats:// or tls:// and a host"
    if problem:
        raise InvalidArgument(f"the url of NATS {problem}", remedy="write it as nats://USER:PASSWORD@HOST:PORT")


# --- paths ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Storage:
    """Where an agent keeps data that must outlive the process (D10).

    Attributes:
        home: The folder; `~` is the user's home. None is the user's data directory, which depends on the system.
        url: The Postgres database of turns, messages and checkpoints, `postgresql://...`. Processes on several machines
            can share it. None is a SQLite file in the home. The embedded role store is always in the home.
        connections: How many connections an agent uses for transactions, 1 to 100; None means 4.
        attachments_url: Where the content of attachments is, as a url of fsspec such as `s3://bucket/attachments`, or
            `file:///shared/attachments`. Processes on several machines can share it. None is a folder in the home.

    Raises:
        InvalidArgument: `home`, `url`, `connections` or `attachments_url` is invalid. The text shows neither url.
    """

    home: Path | None = None
    url: str | None = field(default=None, repr=False, kw_only=True)
    connections: int | None = field(default=None, kw_only=True)
    attachments_url: str | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.home is not None and not isinstance(self.home, (str, os.PathLike)):
            raise InvalidArgument(
                f"`home` must be a pathlib.Path or None, got {type(self.home).__name__}",
                remedy="pass the path of a folder",
            )
        if self.home is not None and "\0" in os.fspath(self.home):
            raise InvalidArgument("`home` contains a NUL character", remedy="pass the path of a folder")
        if self.url is not None:
            self._address(self.url)  # so that an invalid url fails here and not at the first use
        if self.attachments_url is not None:
            check_attachments_url(self.attachments_url)

    def resolve(self) -> Path:
        """The home as an absolute path, for the current working directory and user.

        Raises:
            InvalidArgument: It begins with `~` and a user name that this system does not know.
        """
        if self.home is None:
            return platformdirs.user_data_path("worldagent", appauthor=False)
        with contextlib.suppress(RuntimeError):
            return Path(self.home).expanduser().absolute()
        raise InvalidArgument(
            f"`home` {str(self.home)!r} names a user that this system does not know", remedy="pass an absolute path"
        )

    @property
    def place(self) -> Path | PostgresAddress:
        """Where turns, messages and checkpoints are stored: the file `database`, or the address in `url`."""
        return self.database if self.url is None else self._address(self.url)

    def _address(self, url: str) -> PostgresAddress:
        return PostgresAddress(url) if self.connections is None else PostgresAddress(url, self.connections)

    @property
    def database(self) -> Path:
        """The file of turns, messages and checkpoints. It is used if `url` is None."""
        return self.resolve() / "agent.db"

    def begun(self) -> bool:
        """Whether a database exists already. With a `url` it is True, since the database is made when it is opened.

        Raises:
            InvalidArgument: The home is a file.
        """
        home = self.resolve()
        if home.exists() and not home.is_dir():
            raise InvalidArgument(f"`home` {str(home)!r} is a file", remedy="pass the path of a folder")
        return self.url is not None or self.database.exists()

    @property
    def queue(self) -> Path:
        """The file of submitted turns. It is used if `url` is None."""
        return self.resolve() / "queue.db"

    @property
    def roles(self) -> Path:
        """The file of the embedded role store, separate from all other data (R7)."""
        return self.resolve() / "roles.db"

    @property
    def role_key(self) -> Path:
        """The file of the key for role digests. The key is never in a database (R13)."""
        return self.resolve() / "role.key"

    @property
    def attachments(self) -> Path:
        """The folder of the images and files that messages refer to, also if there is a `url`; see `objects`."""
        if self.attachments_url is not None and self.objects is None:
            return Path(url2pathname(urlsplit(self.attachments_url).path))
        return self.resolve() / "attachments"

    @property
    def objects(self) -> str | None:
        """The url of the images and files, if they are in an object store; None if they are in a folder."""
        url = self.attachments_url
        return None if url is None or urlsplit(url).scheme == _FOLDER_SCHEME else url

    @property
    def traces(self) -> Path:
        """The file of the traces of turns and calls, also if there is a `url`."""
        return self.resolve() / "traces.db"

    @property
    def typed(self) -> Path:
        """The file of the input history of chats, for all threads."""
        return self.resolve() / "chat-history.jsonl"

    @property
    def evals(self) -> Path:
        """The folder of the runs of evals, a file each."""
        return self.resolve() / "evals"

    @property
    def sidecars(self) -> Path:
        """The folder in which running sidecars register."""
        return self.resolve() / "sidecars"

    @property
    def locks(self) -> Path:
        """The folder of the lock files."""
        return self.resolve() / "locks"
