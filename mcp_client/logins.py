"""Logins to MCP servers as values, and where their tokens are kept: the keyring of the system, or files in the home.

`oauth` gets and renews the tokens. A record is bound to the workspace, the server's name and its address, so that a
token never goes to another address.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidArgument
from ..core.files import read_limited, replace_file, storage_errors
from ..core.validation import canonical_json

LoginBy = Literal["workspace", "account", "client"]
"""Who logs in: a person once for the workspace, each account for itself, or the program itself with `client_id` and
`client_secret`."""

_SERVICE: Final = "worldagent"
_LONGEST: Final = 1 << 20  # bytes of a record
_RECOMMENDED: Final = 1  # the least priority of a keyring that is not a plain file, by the library's own rule
_LOCK_SECONDS: Final = 30.0
_STAMP: Final = ".stamp"  # of a file beside each login, also of one in a keyring
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How to log in to an MCP server with OAuth.

    Attributes:
        by: `workspace` if a person logs in, once for all accounts of the workspace; `account` if each account has a
            login and a connection of its own; `client` for client credentials.
        client_id: The id of a client that was registered beforehand.
        client_secret: Its secret; never shown.
        client_metadata: The https address of the client's metadata document. It is the client's id at an authorization
            server that supports this. Without it and `client_id`, the client is registered dynamically.
        issuer: The only authorization server that is used. None is the one that the MCP server names.
        scope: The scopes to ask for, separated by blanks. None is what the MCP server asks for.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
    """

    by: LoginBy = "workspace"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_metadata: str | None = None
    issuer: str | None = None
    scope: str | None = None

    def __post_init__(self) -> None:
        if self.by not in get_args(LoginBy):
            known = ", ".join(map(repr, get_args(LoginBy)))
            raise InvalidArgument(
                f"`login` must be one of {known}, got {str(self.by)[:40]!r}", remedy="use one of these"
            )
        for name in ("client_id", "client_secret", "client_metadata", "issuer", "scope"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.isascii() and value.isprintable() and value):
                raise InvalidArgument(f"`{name}` must be a text of printable ASCII", remedy="correct it")
        if self.client_secret is not None and (self.client_id is None or self.issuer is None):
            raise InvalidArgument(
                "`client_secret` needs `client_id` and `issuer`",
                remedy="name the authorization server that issued it, so that no other one gets it",
            )
        if self.by == "client" and self.client_secret is None:
            raise InvalidArgument(
                "`login` by 'client' needs `client_id`, `client_secret` and `issuer`", remedy="add what is missing"
            )
        if self.issuer is not None and not is_protected(self.issuer):
            raise InvalidArgument("`issuer` must be an https address", remedy="pass the authorization server's issuer")
        if self.client_metadata is not None and (self.client_id is not None or not _is_document(self.client_metadata)):
            raise InvalidArgument(
                "`client_metadata` must be the https address of a document, without `client_id`",
                remedy="pass an address such as 'https://app.example/client.json', or only client_id",
            )


def is_protected(url: str, *, beside: str = "") -> bool:
    """Whether tokens can be sent to an address: https, this machine, or the host of `beside` if that is http itself."""
    try:
        parts, own = urlsplit(url), urlsplit(beside)
    except ValueError:
        return False
    if not parts.hostname:
        return False
    plain = parts.hostname in _LOOPBACK or (own.scheme == "http" and own.hostname == parts.hostname)
    return parts.scheme == "https" or (parts.scheme == "http" and plain)


def _is_document(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and parts.path not in ("", "/")


class LoginRecord(BaseModel):
    """What is kept of a login. Its `repr` shows no token and no secret.

    Attributes:
        tokens: The tokens as the authorization server answered them; None if the login is over.
        client: The client that they belong to.
        server: The metadata of the authorization server.
        resource: The metadata of the MCP server.
        expires: When the access token expires, in seconds since 1970; None if it is unknown.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    tokens: dict[str, Any] | None = Field(default=None, repr=False)
    client: dict[str, Any] = Field(repr=False)
    server: dict[str, Any] | None = Field(default=None, repr=False)
    resource: dict[str, Any] | None = Field(default=None, repr=False)
    expires: float | None = None

    def token(self, now: datetime) -> str | None:
        """The access token, unless it has expired."""
        expired = self.expires is not None and now.timestamp() >= self.expires
        found = None if self.tokens is None or expired else self.tokens.get("access_token")
        return found if isinstance(found, str) else None

    @property
    def renewable(self) -> bool:
        """Whether there is a refresh token."""
        return bool((self.tokens or {}).get("refresh_token"))


class LoginStore:
    """The logins of a workspace.

    Each is kept in the keyring of the system if the extra `keyring` is installed and the system has one, else in a file
    of mode 0600 in the home.

    Args:
        home: The home.
        workspace: The workspace.
    """

    def __init__(self, home: Path, workspace: str) -> None:
        self.workspace = workspace
        self._home = home
        self._folder = home / "logins"

    def of(self, name: str, url: str, account: str | None = None) -> KeptLogin:
        """The login to one server.

        Args:
            name: The server's name.
            url: Its address.
            account: The account that the login is for; None is the workspace.
        """
        return self._kept(_digest(self.workspace, name, url), account)

    async def remove_account(self, account: str) -> int:
        """Remove all logins of an account, to whatever servers, and return how many there were.

        Raises:
            StorageUnavailable: A file cannot be removed.
        """
        folder = self._of_account(account)
        ids = [file.stem for file in await asyncio.to_thread(lambda: list(folder.glob(f"*{_STAMP}")))]
        return sum([await self._kept(id, account).remove() for id in ids])

    def _of_account(self, account: str) -> Path:
        return self._folder / _digest(self.workspace, account)

    def _kept(self, id: str, account: str | None) -> KeptLogin:
        folder = self._folder if account is None else self._of_account(account)
        key = (folder / id).relative_to(self._folder)
        return KeptLogin(folder / f"{id}.json", f"{self._home.absolute()}/{key.as_posix()}")


def _digest(*parts: str) -> str:
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


class KeptLogin:
    """The place of one login.

    Args:
        file: Its file.
        key: Its name in a keyring.
    """

    def __init__(self, file: Path, key: str) -> None:
        self._file = file
        self._key = key
        self._stamp = file.with_suffix(_STAMP)

    @property
    def stamp(self) -> int:
        """A number that changes when the login is written or removed, in any process."""
        try:
            return os.stat(self._stamp).st_mtime_ns
        except OSError:
            return 0

    async def read(self) -> LoginRecord | None:
        """The login; None if there is none, or it cannot be read."""
        text = await asyncio.to_thread(self._read)
        try:
            return None if text is None else LoginRecord.model_validate_json(text)
        except ValidationError:
            return None

    async def write(self, record: LoginRecord) -> None:
        """Keep a login instead of the one before.

        Raises:
            StorageUnavailable: The file cannot be written.
        """
        with self._errors():
            await asyncio.to_thread(self._write, record.model_dump_json())

    async def remove(self) -> bool:
        """Remove the login, and return whether there was one.

        Raises:
            StorageUnavailable: The file cannot be removed.
        """
        with self._errors():
            return await asyncio.to_thread(self._remove)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Hold the login in this block: a refresh token can be used once, and other processes renew it too.

        Raises:
            StorageUnavailable: Another process holds it for too long, or the home cannot be written.
        """
        from filelock import AsyncFileLock

        with self._errors():
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = AsyncFileLock(f"{self._file}.lock", timeout=_LOCK_SECONDS, mode=0o600)
            await lock.acquire()  # a Timeout is an OSError
        try:
            yield
        finally:
            await lock.release()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return storage_errors(
            f"the logins in {str(self._file.parent)!r} cannot be used",
            remedy="make the folder writable",
        )

    # --- in a thread: a keyring can ask the person to unlock it -----------------------------------------------------

    def _read(self) -> str | None:
        if (ring := _keyring()) is not None:
            with contextlib.suppress(Exception):  # systems raise errors of their own
                found = ring.get_password(_SERVICE, self._key)
                if found is not None:
                    return str(found)
        data = read_limited(self._file, _LONGEST)
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else None

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._put(text)
        self._stamp.touch(0o600)

    def _put(self, text: str) -> None:
        if (ring := _keyring()) is not None:
            with contextlib.suppress(Exception):  # such as a limit of 2560 bytes on Windows
                ring.set_password(_SERVICE, self._key, text)
                self._file.unlink(missing_ok=True)
                return
        replace_file(self._file, text.encode())
        self._forget(ring)

    def _remove(self) -> bool:
        existed = self._forget(_keyring()) or self._file.exists()
        self._file.unlink(missing_ok=True)
        if existed:
            self._stamp.touch(0o600)
        return existed

    def _forget(self, ring: Any) -> bool:
        """Remove the login from the keyring: an older one there would be read first."""
        with contextlib.suppress(Exception):
            if ring is not None and ring.get_password(_SERVICE, self._key) is not None:
                ring.delete_password(_SERVICE, self._key)
                return True
        return False


def _keyring() -> Any:
    """The keyring of the system; None if there is none, or its extra is not installed."""
    with contextlib.suppress(Exception):
        found: Any = import_module("keyring").get_keyring()
        return found if found.priority >= _RECOMMENDED else None
    return None
