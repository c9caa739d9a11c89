"""Where an agent keeps its files. Says where, makes nothing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from ..core.errors import InvalidArgument
from .address import PostgresAddress


@dataclass(frozen=True, slots=True)
class Storage:
    """Where an agent keeps what must outlast the process (D10).

    Attributes:
        home: The folder; `~` is the user's. None is the user's data directory, which depends on the system.
        url: The Postgres database of turns, messages and checkpoints, `postgresql://...`; several processes on several
            machines may share it. None is a SQLite file in the home. The embedded role store is in the home either way.
        connections: How many connections to it an agent has for transactions, 1 to 100; None is 4.

    Raises:
        InvalidArgument: `home`, `url` or `connections` does not fit; the text shows nothing of a url.
    """

    home: Path | None = None
    url: str | None = field(default=None, repr=False, kw_only=True)
    connections: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.home is not None and not isinstance(self.home, (str, os.PathLike)):
            raise InvalidArgument(f"home is a {type(self.home).__name__}", remedy="give home a pathlib.Path or None")
        if self.home is not None and "\0" in os.fspath(self.home):
            raise InvalidArgument("home holds a NUL character", remedy="give home the path of a folder")
        if self.url is not None:
            self._address(self.url)  # refused here and not at the first use

    def resolve(self) -> Path:
        """The home as an absolute path, from today's working directory and user.

        Raises:
            InvalidArgument: It begins with `~` and a user who is not known here.
        """
        if self.home is None:
            return platformdirs.user_data_path("worldagent", appauthor=False)
        with contextlib.suppress(RuntimeError):
            return Path(self.home).expanduser().absolute()
        raise InvalidArgument(
            f"home {str(self.home)!r} names a user who is not known here", remedy="give home an absolute path"
        )

    @property
    def place(self) -> Path | PostgresAddress:
        """Where turns, messages and checkpoints are: the file `database`, or the address that `url` is."""
        return self.database if self.url is None else self._address(self.url)

    def _address(self, url: str) -> PostgresAddress:
        return PostgresAddress(url) if self.connections is None else PostgresAddress(url, self.connections)

    @property
    def database(self) -> Path:
        """The file of turns, messages and checkpoints, where no `url` is given."""
        return self.resolve() / "agent.db"

    def begun(self) -> bool:
        """Whether there is a database already; one on a server is there or is made when it is opened.

        Raises:
            InvalidArgument: The home is a file.
        """
        home = self.resolve()
        if home.exists() and not home.is_dir():
            raise InvalidArgument(f"home {str(home)!r} is a file", remedy="give home the path of a folder")
        return self.url is not None or self.database.exists()

    @property
    def roles(self) -> Path:
        """The file of the embedded role store, apart from everything else (R7)."""
        return self.resolve() / "roles.db"

    @property
    def role_key(self) -> Path:
        """The file of the key of role digests, never in a database (R13)."""
        return self.resolve() / "role.key"

    @property
    def attachments(self) -> Path:
        """The folder of the images and files that messages refer to, with a `url` as well."""
        return self.resolve() / "attachments"

    @property
    def traces(self) -> Path:
        """The file of what turns and calls did, with a `url` as well."""
        return self.resolve() / "traces.db"

    @property
    def typed(self) -> Path:
        """The file of what was typed in chats, of all threads."""
        return self.resolve() / "chat-history.jsonl"

    @property
    def sidecars(self) -> Path:
        """The folder in which sidecars that run say so."""
        return self.resolve() / "sidecars"

    @property
    def locks(self) -> Path:
        """The folder of the lock files."""
        return self.resolve() / "locks"
