"""Where the content of attachments is kept: pieces by their hash, below a folder (T4)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from ...core.errors import AttachmentInvalid, StorageUnavailable
from ...core.files import read_regular, replace_file, storage_errors, sync

_NEW: Final = ".new-"
_ASIDE: Final = ".aside-"
_HELD: Final = ".held-"
SHARD: Final = 2
"""Hex digits in the name of a piece's folder, so that no folder has too many files."""
# Errors of opening a path that is not a readable file: it is missing, a folder, a socket or a circular link.
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ELOOP})


class Pieces(Protocol):
    """A store of pieces. All methods block, so call them on threads. All raise `StorageUnavailable` if it fails.

    Attributes:
        place: Where it is, for texts, without a password.
    """

    place: str

    def keep(self, sha256: str, data: bytes) -> None:
        """Write a piece, unless it is stored and intact. It is durable once this returns.

        Raises:
            AttachmentInvalid: The content does not have this hash.
        """
        ...

    def read(self, sha256: str) -> bytes | None:
        """The content, or None if it is missing or does not match its hash."""
        ...

    def has(self, sha256: str) -> bool:
        """Whether the piece is stored. A piece that is set aside is put back. The content is not read."""
        ...

    def names(self) -> frozenset[str]:
        """The hashes of all pieces."""
        ...

    def hold(self, sha256: str) -> None:
        """Mark a piece that a message will refer to later."""
        ...

    def let_go(self, sha256: str) -> None:
        """Remove the mark."""
        ...

    def held(self, seconds: float) -> frozenset[str]:
        """The hashes that were marked within the last `seconds`. Older marks are deleted."""
        ...

    def set_aside(self, sha256: str) -> None:
        """Set a piece aside, before it is deleted."""
        ...

    def put_back(self, sha256: str) -> None:
        """Put back a piece that was set aside."""
        ...

    def drop_aside(self, sha256: str) -> None:
        """Delete a piece that was set aside."""
        ...

    def drop_unfinished(self, seconds: float) -> None:
        """Clean up what killed processes left unfinished at least `seconds` ago."""
        ...


class FolderPieces(Pieces):
    """Pieces as files below one folder.

    Args:
        folder: The folder. It is made at the first write, and only its owner can access it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, str(folder)

    def keep(self, sha256: str, data: bytes) -> None:
        with self._writable():
            place = self._path(sha256)
            # A piece that is set aside does not count, because it may be deleted next.
            if _content(place) == data:
                return
            if hashlib.sha256(data).hexdigest() != sha256:
                raise AttachmentInvalid(
                    f"the content does not have the hash {sha256}", remedy="store it under its own hash"
                )
            self._check_free(place)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(place, data, prefix=_NEW)
            for folder in (place.parent, self.folder, self.folder.parent):
                sync(folder)

    def read(self, sha256: str) -> bytes | None:
        place = self._path(sha256)
        problem = f"the folder {str(self.folder)!r} cannot be read"
        with storage_errors(problem, remedy="make it readable for this user"):
            for path in (place, self._aside(place), place):  # a piece can be put back between the first two reads
                data = _content(path)
                if data is not None:
                    return data if hashlib.sha256(data).hexdigest() == sha256 else None
        return None

    def has(self, sha256: str) -> bool:
        self.put_back(sha256)
        return self._path(sha256).is_file()

    def names(self) -> frozenset[str]:
        """The hashes of all pieces, including those set aside."""
        return frozenset(
            path.name.removeprefix(_ASIDE)
            for path in self._files()
            if not path.name.startswith((_NEW, _HELD)) and not path.is_dir()
        )

    def hold(self, sha256: str) -> None:
        with self._writable():
            self._path(sha256).with_name(f"{_HELD}{sha256}").touch(mode=0o600)

    def let_go(self, sha256: str) -> None:
        with self._writable():
            self._path(sha256).with_name(f"{_HELD}{sha256}").unlink(missing_ok=True)

    def held(self, seconds: float) -> frozenset[str]:
        return frozenset(path.name.removeprefix(_HELD) for path in self._recent_files(_HELD, seconds))

    def set_aside(self, sha256: str) -> None:
        with self._writable(), contextlib.suppress(FileNotFoundError):
            os.replace(self._path(sha256), self._aside(self._path(sha256)))

    def put_back(self, sha256: str) -> None:
        with self._writable(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.replace(self._aside(self._path(sha256)), self._path(sha256))

    def drop_aside(self, sha256: str) -> None:
        with self._writable():
            self._aside(self._path(sha256)).unlink(missing_ok=True)

    def drop_unfinished(self, seconds: float) -> None:
        """Delete unfinished files that killed processes left at least `seconds` ago."""
        self._recent_files(_NEW, seconds)

    def _recent_files(self, kind: str, seconds: float) -> list[Path]:
        """Files of one kind that are younger than `seconds`. Older ones are deleted."""
        before, young = time.time() - seconds, list[Path]()
        with self._writable():
            for path in self._files():
                if path.name.startswith(kind):
                    with contextlib.suppress(FileNotFoundError):  # another process was faster
                        if path.stat().st_mtime > before:
                            young.append(path)
                        else:
                            path.unlink()
        return young

    def _files(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from self.folder.glob(f"{'?' * SHARD}/*")

    def _check_free(self, place: Path) -> None:
        """Refuse a place that a write cannot replace. Anything but a folder is replaced by the file."""
        for folder in (self.folder, place.parent):
            if folder.exists() and not folder.is_dir():
                raise StorageUnavailable(
                    f"{str(folder)!r} is not a folder", remedy="move it away, then attach the content again"
                )
        if place.is_dir() and not place.is_symlink():
            raise StorageUnavailable(
                f"{str(place)!r} is a folder where a file should be",
                remedy="move it away, then attach the content again",
            )

    def _path(self, sha256: str) -> Path:
        return self.folder / sha256[:SHARD] / sha256

    @staticmethod
    def _aside(place: Path) -> Path:
        return place.with_name(f"{_ASIDE}{place.name}")

    def _writable(self) -> AbstractContextManager[None]:
        remedy = "free disk space, or make it writable for this user"
        return storage_errors(f"the folder {str(self.folder)!r} cannot be written", remedy=remedy)


def _content(path: Path) -> bytes | None:
    """The content of a regular file, else None. It never waits, for example for a pipe."""
    try:
        return read_regular(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
