"""Pieces as objects of an object store, or of any filesystem that fsspec opens, which all machines can share (T4).

An object appears complete or not at all, and has the name that a file of the home has, so that a plain copy moves them.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from ...core.errors import AttachmentInvalid, InvalidArgument, MissingExtra, StorageUnavailable, WorldAgentError
from ...storage import Storage
from .pieces import SHARD, FolderPieces, Pieces

T = TypeVar("T")

_HELD: Final = "held"
_ASIDE: Final = "aside"
_DIGITS: Final = 64  # of a hash
_REMEDY: Final = "check that it can be reached, and that this process has access to it"


def pieces_of(storage: Storage) -> Pieces:
    """Return the store of an agent's attachments: a folder, or what the url names.

    Raises:
        InvalidArgument: fsspec knows no filesystem for the url.
        MissingExtra: The extra `objects`, or the package of that filesystem, is not installed.
        StorageUnavailable: The filesystem cannot be opened.
    """
    url = storage.objects
    return FolderPieces(storage.attachments) if url is None else ObjectPieces(url)


class ObjectPieces(Pieces):
    """Pieces below a url of fsspec.

    Args:
        url: The url, such as `s3://bucket/attachments`. The bucket, or the folder, must exist.

    Raises:
        InvalidArgument, MissingExtra, StorageUnavailable: See `pieces_of`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._files, self._root = self._opened(parts.scheme, url)
        self._own: dict[str, str] = {}  # where this process has set pieces aside

    def _opened(self, scheme: str, url: str) -> tuple[Any, str]:
        error: WorldAgentError
        if find_spec("fsspec") is None:
            raise MissingExtra(
                "attachments at a url need the extra `objects`", remedy="pip install 'worldagent[objects]'"
            )
        from fsspec.core import url_to_fs

        try:
            files, root = url_to_fs(url, skip_instance_cache=True)
            files.dircache.use_listings_cache = False  # other machines add and remove objects
            return files, str(root).rstrip("/")
        except ImportError:
            error = MissingExtra(
                f"the filesystem of {scheme}:// is not installed",
                remedy="install its package, such as s3fs for s3://, gcsfs for gs:// or adlfs for az://",
            )
        except ValueError:
            error = InvalidArgument(
                f"fsspec has no filesystem for {scheme}://", remedy="write it as s3://BUCKET/FOLDER or file:///FOLDER"
            )
        except Exception as failure:  # not named: each filesystem raises the types of its service's client
            problem = f"the attachments at {self.place!r} cannot be opened ({type(failure).__name__})"
            error = StorageUnavailable(problem, remedy=_REMEDY)
        raise error

    def keep(self, sha256: str, data: bytes) -> None:
        path = self._path(sha256)
        if self._content(path) == data:
            return
        if hashlib.sha256(data).hexdigest() != sha256:
            raise AttachmentInvalid(
                f"the content does not have the hash {sha256}", remedy="store it under its own hash"
            )
        self._write(path, data)

    def read(self, sha256: str) -> bytes | None:
        path = self._path(sha256)
        data = self._content(path)
        if data is None:
            aside = self._aside_of(sha256)
            data = None if aside is None else self._content(aside)
            data = self._content(path) if data is None else data  # it can be put back in between
        return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None

    def has(self, sha256: str) -> bool:
        if not self._exists(self._path(sha256)):
            self.put_back(sha256)
        return self._exists(self._path(sha256))

    def names(self) -> frozenset[str]:
        """The hashes of all pieces, without those set aside."""
        found: list[str] = self._do(lambda: self._files.find(self._root), missing=[])
        parts = (path.rsplit("/", 2)[-2:] for path in found)
        return frozenset(name for [*_, shard, name] in parts if len(name) == _DIGITS and shard == name[:SHARD])

    def hold(self, sha256: str) -> None:
        self._write(f"{self._root}/{_HELD}/{sha256}", str(time.time()).encode())

    def let_go(self, sha256: str) -> None:
        self._remove(f"{self._root}/{_HELD}/{sha256}")

    def held(self, seconds: float) -> frozenset[str]:
        before, young = time.time() - seconds, set[str]()
        for path in self._list(_HELD):
            if _number((self._content(path) or b"").decode(errors="replace")) > before:
                young.add(path.rpartition("/")[2])
            else:
                self._remove(path)
        return frozenset(young)

    def set_aside(self, sha256: str) -> None:
        """Set a piece aside, under a name that no other process uses for it."""
        aside = f"{self._root}/{_ASIDE}/{sha256}.{int(time.time())}.{uuid4().hex[:8]}"
        if self._copy(self._path(sha256), aside):
            self._own[sha256] = aside
            self._remove(self._path(sha256))

    def put_back(self, sha256: str) -> None:
        """Put back a piece that was set aside, here or by another process."""
        own = self._own.pop(sha256, None)
        aside = own or self._aside_of(sha256)
        if aside is not None and not self._exists(self._path(sha256)):
            self._copy(aside, self._path(sha256))
        if own is not None:
            self._remove(own)

    def drop_aside(self, sha256: str) -> None:
        """Delete a piece that was set aside here."""
        own = self._own.pop(sha256, None)
        if own is not None:
            self._remove(own)

    def drop_unfinished(self, seconds: float) -> None:
        """Put back the pieces that killed processes had set aside at least `seconds` ago."""
        before = time.time() - seconds
        for path in self._list(_ASIDE):
            sha256, _, rest = path.rpartition("/")[2].partition(".")
            if len(sha256) == _DIGITS and _number(rest.partition(".")[0]) <= before and path not in self._own.values():
                if not self._exists(self._path(sha256)):
                    self._copy(path, self._path(sha256))
                self._remove(path)

    def _aside_of(self, sha256: str) -> str | None:
        return next((path for path in self._list(_ASIDE) if path.rpartition("/")[2].startswith(sha256)), None)

    def _list(self, folder: str) -> list[str]:
        found: list[str] = self._do(lambda: self._files.find(f"{self._root}/{folder}"), missing=[])
        return found

    def _path(self, sha256: str) -> str:
        return f"{self._root}/{sha256[:SHARD]}/{sha256}"

    def _content(self, path: str) -> bytes | None:
        found: bytes | None = self._do(lambda: bytes(self._files.cat_file(path)), missing=None)
        return found

    def _exists(self, path: str) -> bool:
        return self._do(lambda: bool(self._files.info(path)["type"] == "file"), missing=False)

    def _remove(self, path: str) -> None:
        self._do(lambda: self._files.rm_file(path), missing=None)

    def _copy(self, path: str, to: str) -> bool:
        """Copy an object; False if it is missing."""
        data = self._content(path)
        if data is None:
            return False
        self._write(to, data)
        return True

    def _write(self, path: str, data: bytes) -> None:
        def write() -> bool:
            self._files.pipe_file(path, data)
            return True

        def write_in_folder() -> bool:
            if self._files.isdir(self._root):  # some filesystems have folders; no bucket is ever created
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            return write()

        if not (self._do(write, missing=False) or self._do(write_in_folder, missing=False)):
            raise StorageUnavailable(
                f"there is no bucket or folder for the attachments at {self.place!r}", remedy="create it first"
            )

    def _do(self, work: Callable[[], T], missing: T) -> T:
        """Use the filesystem; `missing` if the object is not there.

        Raises:
            StorageUnavailable: It failed. The text names the kind of the failure and shows nothing of its own text.
        """
        problem = ""
        try:
            return work()
        except FileNotFoundError:
            return missing
        except Exception as error:  # not named: the types are those of the service's client
            problem = type(error).__name__
        raise StorageUnavailable(
            f"the attachments at {self.place!r} cannot be read or written ({problem})", remedy=_REMEDY
        )


def _number(text: str) -> float:
    """The time in a text; 0 if another program wrote it."""
    with contextlib.suppress(ValueError):
        return float(text)
    return 0.0
