"""What a paused turn keeps of its role: which tiers were active, and a keyed digest that says whether it is the same.

The key is kept outside the database, so the database alone does not let anyone test a guess at a role (R13). Each
digest begins with the id of its key, which distinguishes a lost key from another role. A key that a person chose can be
guessed itself, so it is stretched: each guess at it costs one run of `_stretched`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ...core import Tier, canonical_json
from ...core.errors import (
    InvalidArgument,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    StorageInvalid,
    StorageUnavailable,
)
from ..compose import ResolvedRole
from ..role import Sealed

_SHORTEST = 16  # characters of a key
_RANDOM = re.compile(r"[0-9a-f]{64}")  # 256 random bits, as `_make` writes them
_SALT = b"worldagent role key"  # fixed, since all machines of an installation must derive the same key
_COST = 2**14  # scrypt's N: 16 MiB and about 70 ms for each guess
_SEPARATOR = "."  # between the id of a key and what it made
_REFRESH = "resume with `on_role_change` as `refresh`"  # as hosts in any language read it


class RoleKey(Sealed):
    """The key of the digests of one installation; all machines that share a database share it.

    Args:
        secret: The key.

    Attributes:
        id: Distinguishes keys.
        earlier: The key that version 0.1.0 derived from the same secret, where it is another one. Turns that it noted
            are compared under it until they are over.
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
        """The key in `file`, which is made (0600) where there is none.

        Raises:
            StorageUnavailable: The file can be neither read nor made.
            StorageInvalid: What is in it is no key.
        """
        found = cls.read(file)
        if found is None:
            _make(file, replace=False)
            found = cls.read(file)
        if found is None:
            raise StorageUnavailable(f"the role key {str(file)!r} was taken away", remedy="try again")
        return found

    @classmethod
    def read(cls, file: Path) -> RoleKey | None:
        """The key in `file`, or None where there is no file.

        Raises:
            StorageUnavailable: The file cannot be read.
            StorageInvalid: It is something else than a file, or what is in it is no key.
        """
        problem = found = ""
        try:
            found = _read(file)
        except FileNotFoundError:
            if not file.is_symlink():
                return None
            problem = "it is a link to a file that is not there"
        except OSError as error:
            problem = error.strerror or type(error).__name__
        except ValueError:
            pass  # bytes that no key has
        if problem:
            raise StorageUnavailable(
                f"the role key {str(file)!r} cannot be used ({problem})", remedy="make it readable, or set role_key"
            )
        if len(found) < _SHORTEST:
            raise StorageInvalid(
                f"{str(file)!r} holds no role key", remedy="restore it from a copy, or see `worldagent doctor --rekey`"
            )
        return cls(found)

    @classmethod
    def renew(cls, file: Path, *, replace: bool) -> RoleKey:
        """Put a new key into `file` (0600), whole or not at all.

        Args:
            file: Where.
            replace: Whether one that is there may go.

        Raises:
            InvalidArgument: One is there that may not go.
            StorageUnavailable: The file cannot be made.
        """
        made = _make(file, replace=replace)
        if made is None:
            raise InvalidArgument(f"{str(file)!r} is there already", remedy="say so, if it is to be replaced")
        return cls(made)

    def digest(self, role: ResolvedRole) -> str | None:
        """Stands for all texts of a resolved role; None for no role."""
        texts = role.reveal_all()
        if not texts:
            return None
        return self.digest_of(canonical_json(texts))

    def digest_of(self, text: str) -> str:
        """Stands for a text."""
        stands_for = hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:32]
        return f"{self.id}{_SEPARATOR}{stands_for}"

    def made(self, digest: str) -> bool:
        """Whether a digest is one of this key's, so that it can be compared with others of it."""
        return self.named(self.maker(digest)).id == self.maker(digest)

    def named(self, key_id: str) -> RoleKey:
        """The key that compares what the key with this id noted: `earlier` where it is that one, else this one."""
        return self.earlier if self.earlier is not None and self.earlier.id == key_id else self

    @staticmethod
    def maker(digest: str) -> str:
        """The id of the key that a digest is one of."""
        return digest.partition(_SEPARATOR)[0]

    def note(self, role: ResolvedRole) -> dict[str, Any]:
        """What a turn keeps of its role, as JSON."""
        return {"tiers": list(role.tiers), "digest": self.digest(role), "key": self.id}

    def check(self, noted: Mapping[str, Any], role: ResolvedRole, *, scope: str) -> None:
        """Compare a role with what a paused turn kept of its own. A turn that had none needs no key for that.

        Raises:
            RoleKeyMismatch: It was noted with another key.
            RoleRequired: A tier that was active is not; the text names it.
            RoleChanged: It is another one.
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
                f"the paused turn of {scope} would go on under another role (tiers then: {_names(noted['tiers'])}; "
                f"now: {_names(role.tiers)})",
                remedy=f"bring the role back as it was, or {_REFRESH}",
            )

    def mismatch(self, what: str, key: str) -> RoleKeyMismatch:
        """The error for what another key stands over.

        Args:
            what: Who noted what, such as "the turn noted its role".
            key: The id of that key.
        """
        return RoleKeyMismatch(
            f"{what} with the key {key!r}, and this one is {self.id!r}",
            remedy="set role_key to the key of that installation, or put its role.key back; where it is lost, see "
            f"`worldagent doctor --rekey`, and {_REFRESH}",
        )


def _stretched(secret: bytes) -> bytes:
    return hashlib.scrypt(secret, salt=_SALT, n=_COST, r=8, p=1, maxmem=2**26, dklen=32)


def _read(file: Path) -> str:
    """What is in a file. Anything else, such as a pipe, is not opened: that would wait for who is at its other end.

    Raises:
        StorageInvalid: It is something else than a file.
    """
    if stat.S_ISREG(file.stat().st_mode):
        return file.read_text(encoding="ascii").strip()
    raise StorageInvalid(
        f"the role key {str(file)!r} is something else than a file", remedy="move it away, or set role_key"
    )


def _required(missing: list[Tier], scope: str) -> NoReturn:
    remedy = (
        f"give the role again, say on purpose that there is none, or {_REFRESH}"
        if Tier.CALL in missing
        else f"set it again, or {_REFRESH}"
    )
    raise RoleRequired(
        f"the paused turn of {scope} had a {_names(missing)} role, which is not there now", remedy=remedy
    )


def _names(tiers: Any) -> str:
    return " and ".join(str(Tier(tier).value) for tier in tiers) or "none"


def _make(file: Path, *, replace: bool) -> str | None:
    """Make the file whole or not at all: another process may look for it at the same moment.

    Args:
        file: Where.
        replace: Whether one that is there may go.

    Returns:
        What is in it; None where one is there that may not go.
    """
    secret = secrets.token_hex(32)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    problem = ""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as made:
            made.write(f"{secret}\n")
            made.flush()
            os.fsync(made.fileno())
        (os.replace if replace else os.link)(draft, file)
    except FileExistsError:
        return None
    except OSError as error:
        problem = error.strerror or type(error).__name__
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    if problem:
        raise StorageUnavailable(
            f"the role key {str(file)!r} cannot be made ({problem})",
            remedy="make its folder writable and move away what is there, or set role_key",
        )
    return secret
