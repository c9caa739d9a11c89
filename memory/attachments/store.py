"""The store of attachments, `agent.attachments`: content in files by its hash, references in messages (T4).

It passes nothing to a model. A model can reach it only through functions of the embedder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ...core.errors import AttachmentInvalid, AttachmentMissing, InvalidArgument, StorageUnavailable
from ...core.files import read_regular, replace_file, storage_errors, sync
from ...storage import Database, Transaction
from ..conversation import Message
from .sources import MOST, Attachment, AttachmentSource, Loaded, attachments_of, check_sha256, load

_NEW: Final = ".new-"
_ASIDE: Final = ".aside-"
_HELD: Final = ".held-"
_SHARD: Final = 2  # hex digits in the folder's name, so that no folder has too many files
# Errors of opening a path that is not a readable file: it is missing, a folder, a socket or a circular link.
_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ELOOP})


class Pieces:
    """Files below one folder. All methods block, so call them on threads.

    Args:
        folder: The folder. It is made at the first write, and only its owner can access it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, sha256: str, data: bytes) -> None:
        """Write a piece, unless it is stored and intact. It survives a power failure once this returns.

        Raises:
            AttachmentInvalid: The content does not have this hash.
            StorageUnavailable: It cannot be written.
        """
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
        """The content, or None if it is missing or does not match its hash.

        Raises:
            StorageUnavailable: It cannot be read.
        """
        place = self._path(sha256)
        problem = f"the folder {str(self.folder)!r} cannot be read"
        with storage_errors(problem, remedy="make it readable for this user"):
            for path in (place, self._aside(place), place):  # a piece can be put back between the first two reads
                data = _content(path)
                if data is not None:
                    return data if hashlib.sha256(data).hexdigest() == sha256 else None
        return None

    def has(self, sha256: str) -> bool:
        """Whether the piece is stored. A piece that is set aside is put back. The content is not read."""
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
        """Mark a piece that a message will refer to later."""
        with self._writable():
            self._path(sha256).with_name(f"{_HELD}{sha256}").touch(mode=0o600)

    def let_go(self, sha256: str) -> None:
        """Remove the mark."""
        with self._writable():
            self._path(sha256).with_name(f"{_HELD}{sha256}").unlink(missing_ok=True)

    def held(self, seconds: float) -> frozenset[str]:
        """The hashes that were marked within the last `seconds`. Older marks are deleted."""
        return frozenset(path.name.removeprefix(_HELD) for path in self._recent_files(_HELD, seconds))

    def set_aside(self, sha256: str) -> None:
        """Set a piece aside, before it is deleted."""
        with self._writable(), contextlib.suppress(FileNotFoundError):
            os.replace(self._path(sha256), self._aside(self._path(sha256)))

    def put_back(self, sha256: str) -> None:
        """Put back a piece that was set aside."""
        with self._writable(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.replace(self._aside(self._path(sha256)), self._path(sha256))

    def drop_aside(self, sha256: str) -> None:
        """Delete a piece that was set aside."""
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
            yield from self.folder.glob(f"{'?' * _SHARD}/*")

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
        return self.folder / sha256[:_SHARD] / sha256

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


ATTACHMENT_TABLES: Final = (
    """CREATE TABLE wa_attachment(
         sha256 TEXT NOT NULL,
         message TEXT NOT NULL REFERENCES wa_message(id) ON DELETE CASCADE,
         PRIMARY KEY(sha256, message))""",
    "CREATE INDEX wa_attachment_message ON wa_attachment(message)",
)
"""A migration of the log's schema, after the one that makes `wa_message`."""

_NOTE = "INSERT INTO wa_attachment(sha256, message) VALUES(?, ?) ON CONFLICT DO NOTHING"
_ALL = "SELECT DISTINCT sha256 FROM wa_attachment"
_SOME = "SELECT DISTINCT sha256 FROM wa_attachment WHERE sha256 IN ({})"
_KEY: Final = '"attachments":'  # as canonical JSON writes it


def note_references(transaction: Transaction, message_id: str, body: str) -> None:
    """Index the references of a message. Call it in every transaction that inserts a row into `wa_message`.

    Args:
        transaction: The transaction that inserts the message.
        message_id: The message's id.
        body: Its body, as stored. Invalid references are ignored.
    """
    if _KEY not in body:
        return
    given = json.loads(body).get("attachments")
    for one in given if isinstance(given, list) else ():
        sha256 = one.get("sha256") if isinstance(one, dict) else None
        if isinstance(sha256, str):
            transaction.execute(_NOTE, (sha256, message_id))


LIMIT: Final = 10 * 1024 * 1024
"""The default limit of one attachment in bytes."""

HELD: Final = 86400.0
"""Seconds for which added content is kept without a message that refers to it."""

UNFINISHED: Final = 3600.0
"""Seconds after which an unfinished file counts as abandoned."""


class Attachments:
    """Images and files that messages refer to. Each is stored once, however often it is attached.

    Args:
        folder: The folder of the content; made at the first write.
        database: The database of the messages, opened with the schema `CONVERSATION`.
        limit: The most bytes that one attachment can have.

    Attributes:
        limit: The most bytes that one attachment can have.
    """

    def __init__(self, folder: Path, database: Database, *, limit: int = LIMIT) -> None:
        self._pieces = Pieces(folder)
        self._database = database
        self.limit = limit

    async def add(
        self, source: AttachmentSource, *, name: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store content to attach later: `attachments=[that]`. You need it only to set a name or a media type.

        The content is kept for a day, and after that as long as a message refers to it.

        Args:
            source: A path, bytes, or an address as text, which is not fetched.
            name: Its name; None uses the name of the file or the address.
            media_type: Its media type, such as `image/png`; None finds it from content and name.

        Raises:
            AttachmentInvalid: It cannot be attached; the text says why.
            StorageUnavailable: It cannot be written.
        """
        loaded = await asyncio.to_thread(load, source, limit=self.limit, name=name, media_type=media_type)
        await self.hold([loaded])
        return loaded.attachment

    async def open(self, attachment: Attachment | str) -> io.BytesIO:
        """The content as a file to read from, after a check of its hash.

        Args:
            attachment: The reference, or its `sha256`.

        Raises:
            AttachmentMissing: The content is gone, or is not what was stored.
            InvalidArgument: It is an address, whose content is not stored, or it is not a hash.
        """
        return io.BytesIO(await self.read(attachment))

    async def read(self, attachment: Attachment | str) -> bytes:
        """Like `open`, but returns the bytes."""
        if isinstance(attachment, Attachment) and attachment.sha256 is None:
            raise InvalidArgument(
                f"the content of {attachment.name!r} is not stored", remedy="fetch it from the attachment's url"
            )
        sha256 = check_sha256(str(attachment.sha256) if isinstance(attachment, Attachment) else attachment)
        data = await asyncio.to_thread(self._pieces.read, sha256)
        if data is None:
            raise _missing(attachment, self._pieces.folder)
        return data

    @staticmethod
    def of(message: Message) -> tuple[Attachment, ...]:
        """The attachments of a message in a thread's history.

        Raises:
            StorageInvalid: The references in the message cannot be read.
        """
        return attachments_of(message)

    async def drop_unreferenced(self, *, held: float = HELD, unfinished: float = UNFINISHED) -> tuple[str, ...]:
        """Delete content that no message refers to, after messages were deleted or when a turn never began.

        It can run at the same time as turns that attach the same content: the turns get it back. It reads file names
        and the index of references, not the messages.

        Args:
            held: Seconds for which content from `add` is kept without a message.
            unfinished: Seconds after which an unfinished file of a killed process is deleted too.

        Returns:
            The hashes of the deleted content.

        Raises:
            StorageUnavailable: The database or the folder fails.
        """
        there = await asyncio.to_thread(self._pieces.names)
        waiting = await asyncio.to_thread(self._pieces.held, held)
        referred = {str(sha256) for (sha256,) in await self._database.read(lambda tx: tx.execute(_ALL))}
        free = there - waiting - referred
        await asyncio.to_thread(_each, self._pieces.set_aside, free)
        # A message written before this read gets the content back. A later message writes the content again.
        needed = {str(sha256) for (sha256,) in await self._database.find(_SOME, sorted(free))}
        await asyncio.to_thread(_each, self._pieces.put_back, needed)
        await asyncio.to_thread(_each, self._pieces.drop_aside, free - needed)
        await asyncio.to_thread(self._pieces.drop_unfinished, unfinished)
        return tuple(sorted(free - needed))

    async def load(self, sources: Sequence[AttachmentSource]) -> tuple[Loaded, ...]:
        """Read the attachments of a message, and write nothing.

        Raises:
            AttachmentInvalid: There are too many, or one of them is invalid.
        """
        check_count(sources)
        found: list[Loaded] = []
        for source in sources:
            found.append(await asyncio.to_thread(load, source, limit=self.limit))
        return tuple(found)

    async def keep(self, loaded: Sequence[Loaded]) -> None:
        """Store loaded attachments, before the message that refers to them is written.

        Raises:
            AttachmentMissing: An attachment that should be stored already is missing.
            StorageUnavailable: The content cannot be written.
        """
        await self._store(loaded, lambda sha256: None)

    async def hold(self, loaded: Sequence[Loaded]) -> None:
        """Like `keep`, for a message that can come much later. The content is kept for a day, or until `settle`.

        Raises:
            AttachmentMissing, StorageUnavailable: As for `keep`.
        """
        await self._store(loaded, self._pieces.hold)

    async def settle(self, loaded: Sequence[Loaded]) -> None:
        """Make sure that content is stored once a message refers to it, and remove the mark of `hold`.

        `drop_unreferenced` may have deleted it before it could see the message.

        Raises:
            AttachmentMissing, StorageUnavailable: As for `keep`.
        """
        await self._store(loaded, self._pieces.let_go)

    async def _store(self, loaded: Sequence[Loaded], then: Callable[[str], None]) -> None:
        """Store loaded attachments, and call `then` with the hash of each."""

        def work(item: Loaded, sha256: str) -> None:
            if item.data is not None:
                self._pieces.keep(sha256, item.data)
            elif not self._pieces.has(sha256):
                raise _missing(item.attachment, self._pieces.folder)
            then(sha256)

        for item in loaded:
            if item.attachment.sha256 is not None:
                await asyncio.to_thread(work, item, item.attachment.sha256)


def check_count(sources: Sequence[object]) -> None:
    """Refuse too many attachments for one message.

    Raises:
        AttachmentInvalid: There are too many.
    """
    if len(sources) > MOST:
        raise AttachmentInvalid(
            f"a message can have at most {MOST} attachments, got {len(sources)}",
            remedy="spread them over several messages",
        )


def _each(do: Callable[[str], None], hashes: Iterable[str]) -> None:
    for sha256 in hashes:
        do(sha256)


def _missing(attachment: Attachment | str, folder: Path) -> AttachmentMissing:
    named = repr(attachment) if isinstance(attachment, str) else f"{attachment.name!r} ({attachment.sha256})"
    return AttachmentMissing(
        f"the attachment {named} is gone, or is not what was stored",
        remedy=f"copy its file to {str(folder)!r}, such as from the home where it was attached, or attach it again",
    )
