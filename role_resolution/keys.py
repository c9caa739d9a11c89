"""Keyed digests of roles. A paused turn stores its active tiers and a digest, to check later that the role is the same.

The key is not in the database, so the database alone cannot be used to test a guess at a role (R13). Each digest begins
with the id of its key, which distinguishes a lost key from a changed role. A key that a person chose could be guessed
too, so it is stretched: each guess costs one run of `_stretched`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..core import Tier, canonical_json
from ..core.errors import (
    InvalidArgument,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    StorageInvalid,
    StorageUnavailable,
)
from ..core.files import read_regular, replace_file, storage_errors
from .role import ResolvedRole, Sealed

MIN_KEY_LENGTH = 16  # characters in a key
_RANDOM = re.compile(r"[0-9a-f]{64}")  # 256 random bits, as `_make` writes them
_SALT = b"worldagent role key"  # fixed, since all machines of an installation must derive the same key
_COST = 2**14  # scrypt's N: 16 MiB and about 70 ms for each guess
_SEPARATOR = "."  # between the id of a key and the digest
_REFRESH = "resume with `on_role_change` as `refresh`"  # as hosts in any language read it


class RoleKey(Sealed):
    """The digest key of one installation. All machines that share a database must share it.

    Args:
        secret: The key.

    Attributes:
        id: The id of the key.
        earlier: The key that version 0.1.0 derived from the same secret, if that differs. Turns with a digest of that
            key are compared with it until they end.
    """

    __slots__ = ("_secret", "earlier", "id")

    id: str
    earlier: RoleKey | None
    _secret: bytes

    def __init__(self, secret: str) -> None:
        plain = secret.encode("utf-8")
        random = _RANDOM.fullmatch(secret) is not None
        self._set(plain if random else _stretched(plain), None if random else RoleKey._unstretched(plain))

    @classmethod
    def _unstretched(cls, secret: bytes) -> RoleKey:
        made = cls.__new__(cls)
        made._set(secret, None)
        return made

    def _set(self, secret: bytes, earlier: RoleKey | None) -> None:
        object.__setattr__(self, "_secret", secret)
        object.__setattr__(self, "earlier", earlier)
        object.__setattr__(self, "id", hashlib.blake2b(secret, digest_size=6, person=b"worldagent key").hexdigest())

    def __repr__(self) -> str:
        return f"RoleKey({self.id})"

    @classmethod
    def open(cls, file: Path) -> RoleKey:
        """The key in `file`. A missing file is made (0600).

        Raises:
            StorageUnavailable: The file can be neither read nor made.
            StorageInvalid: The file does not contain a key.
        """
        found = cls.read(file)
        if found is None:
            _make(file, replace=False)
            found = cls.read(file)
        if found is None:
            raise StorageUnavailable(f"the role key {str(file)!r} was removed while it was opened", remedy="try again")
        return found

    @classmethod
    def read(cls, file: Path) -> RoleKey | None:
        """The key in `file`, or None if the file does not exist.

        Raises:
            StorageUnavailable: The file cannot be read.
            StorageInvalid: It is not a regular file, or does not contain a key.
        """
        content, found = None, ""
        with storage_errors(f"the role key {str(file)!r} cannot be used", remedy="make it readable, or set role_key"):
            try:
                content = read_regular(file)
            except FileNotFoundError:
                if not file.is_symlink():
                    return None
                raise FileNotFoundError(errno.ENOENT, "it is a link to a file that does not exist") from None
        if content is None:
            raise StorageInvalid(
                f"the role key {str(file)!r} must be a regular file", remedy="move it away, or set role_key"
            )
        with contextlib.suppress(ValueError):  # bytes that a key cannot have
            found = content.decode("ascii").strip()
        if len(found) < MIN_KEY_LENGTH:
            raise StorageInvalid(
                f"{str(file)!r} does not contain a role key",
                remedy="restore it from a copy, or see `worldagent doctor --rekey`",
            )
        return cls(found)

    @classmethod
    def renew(cls, file: Path, *, replace: bool) -> RoleKey:
        """Write a new key to `file` (0600) atomically.

        Args:
            file: The file.
            replace: Whether to replace an existing file.

        Raises:
            InvalidArgument: The file exists and `replace` is false.
            StorageUnavailable: The file cannot be made.
        """
        made = _make(file, replace=replace)
        if made is None:
            raise InvalidArgument(f"{str(file)!r} exists already", remedy="pass replace=True to replace it")
        return cls(made)

    def digest(self, role: ResolvedRole) -> str | None:
        """A digest of all texts of a resolved role; None for no role."""
        texts = role.reveal_all()
        if not texts:
            return None
        return self.digest_of(canonical_json(texts))

    def digest_of(self, text: str) -> str:
        """A digest of a text."""
        mac = hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:32]
        return f"{self.id}{_SEPARATOR}{mac}"

    def made(self, digest: str) -> bool:
        """Whether this key, or `earlier`, made a digest, so that it can be compared."""
        return self.named(self.maker(digest)).id == self.maker(digest)

    def named(self, key_id: str) -> RoleKey:
        """The key to compare a digest of the key `key_id` with: `earlier` if it has that id, else this key."""
        return self.earlier if self.earlier is not None and self.earlier.id == key_id else self

    @staticmethod
    def maker(digest: str) -> str:
        """The id of the key that made a digest."""
        return digest.partition(_SEPARATOR)[0]

    def note(self, role: ResolvedRole) -> dict[str, Any]:
        """What a turn stores about its role, as JSON: tiers, digest and the key's id."""
        return {"tiers": list(role.tiers), "digest": self.digest(role), "key": self.id}

    def check(self, noted: Mapping[str, Any], role: ResolvedRole, *, scope: str) -> None:
        """Compare a role with the stored digest of a paused turn. A turn without a role then and now needs no key.

        Raises:
            RoleKeyMismatch: Another key made the digest.
            RoleRequired: A tier that was active is missing now; the text names it.
            RoleChanged: The role has changed.
        """
        if noted["digest"] is None and self.digest(role) is None:
            return
        key = self.named(noted["key"])
        if noted["digest"] is not None and noted["key"] != key.id:
            raise self.mismatch(f"the paused turn of {scope} noted its role", noted["key"])
        missing = [tier for tier in map(Tier, noted["tiers"]) if tier not in role.tiers]
        if missing:
            _required(missing, scope)
        if not hmac.compare_digest(noted["digest"] or "", key.digest(role) or ""):
            raise RoleChanged(
                f"the paused turn of {scope} would resume under another role (tiers then: {_names(noted['tiers'])}; "
                f"now: {_names(role.tiers)})",
                remedy=f"restore the earlier role, or {_REFRESH}",
            )

    def mismatch(self, what: str, key: str) -> RoleKeyMismatch:
        """The error for a digest that another key made.

        Args:
            what: What has the digest, such as "the turn noted its role".
            key: The id of that key.
        """
        return RoleKeyMismatch(
            f"{what} with the key {key!r}, but the current key is {self.id!r}",
            remedy="set role_key to the key of that installation, or restore its role.key; if the key is lost, see "
            f"`worldagent doctor --rekey`, and {_REFRESH}",
        )


def _stretched(secret: bytes) -> bytes:
    return hashlib.scrypt(secret, salt=_SALT, n=_COST, r=8, p=1, maxmem=2**26, dklen=32)


def _required(missing: list[Tier], scope: str) -> NoReturn:
    remedy = (
        f"give the role again, give None (null) to resume without it, or {_REFRESH}"
        if Tier.CALL in missing
        else f"set it again, or {_REFRESH}"
    )
    raise RoleRequired(f"the paused turn of {scope} had a {_names(missing)} role, which is now missing", remedy=remedy)


def _names(tiers: Any) -> str:
    return " and ".join(str(Tier(tier).value) for tier in tiers) or "none"


def _make(file: Path, *, replace: bool) -> str | None:
    """Write a new key to the file atomically, because another process can read it at the same moment.

    Args:
        file: The file.
        replace: Whether to replace an existing file.

    Returns:
        The new key; None if the file exists and `replace` is false.
    """
    secret, remedy = secrets.token_hex(32), "make its folder writable and move the file away, or set role_key"
    with storage_errors(f"the role key {str(file)!r} cannot be made", remedy=remedy):
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(file, f"{secret}\n".encode("ascii"), replace=replace)
        except FileExistsError:
            return None
    return secret
