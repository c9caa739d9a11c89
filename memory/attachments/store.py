"""The store of attachments: `agent.attachments`. Content by its hash in files, references in messages (T4).

It hands nothing to a model, and no model reaches it but through functions of the embedder's.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from ...core.errors import AttachmentInvalid, AttachmentMissing, InvalidArgument
from ...storage import Database
from ..conversation import Message
from .attachment import MOST, Attachment, attachments_of, check_sha256
from .pieces import Pieces
from .references import referred_to, still_referred_to
from .sources import AttachmentSource, Loaded, load

LIMIT: Final = 10 * 1024 * 1024
"""How many bytes one attachment may have where nothing else is set."""

HELD: Final = 86400.0
"""Seconds that what was added waits for a message that refers to it."""

UNFINISHED: Final = 3600.0
"""Seconds after which what was begun to be written counts as left behind."""


class Attachments:
    """Images and files that messages refer to, each stored once however often it is attached.

    Args:
        folder: Where the content is; made at the first write.
        database: Where the messages are, opened with the schema `CONVERSATION`.
        limit: How many bytes one may have.

    Attributes:
        limit: As it was given.
    """

    def __init__(self, folder: Path, database: Database, *, limit: int = LIMIT) -> None:
        self._pieces = Pieces(folder)
        self._database = database
        self.limit = limit

    async def add(
        self, source: AttachmentSource, *, name: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store something to attach later: `attachments=[that]`. Needed only to name it, or to say what it is.

        It is kept for a day, and then for as long as a message refers to it.

        Args:
            source: A path, bytes, or an address as text, which is not fetched.
            name: What it is called, if not as the file or the address.
            media_type: What it is, if content and name do not tell, such as `image/png`.

        Raises:
            AttachmentInvalid: It cannot be attached; the text says why.
            StorageUnavailable: It cannot be written.
        """
        loaded = await asyncio.to_thread(load, source, limit=self.limit, name=name, media_type=media_type)
        await self.hold([loaded])
        return loaded.attachment

    async def open(self, attachment: Attachment | str) -> io.BytesIO:
        """The content, compared with its hash, as a file to read from.

        Args:
            attachment: The reference, or its `sha256`.

        Raises:
            AttachmentMissing: It is gone, or is not what was stored.
            InvalidArgument: It is an address, whose content is not stored, or no hash.
        """
        if isinstance(attachment, Attachment) and attachment.sha256 is None:
            raise InvalidArgument(
                f"the content of {attachment.name!r} is not stored", remedy="fetch it from the attachment's url"
            )
        return io.BytesIO(await self.read(attachment))

    async def read(self, attachment: Attachment | str) -> bytes:
        """As `open`, the bytes themselves."""
        sha256 = check_sha256(str(attachment.sha256) if isinstance(attachment, Attachment) else attachment)
        data = await asyncio.to_thread(self._pieces.read, sha256)
        if data is None:
            raise _missing(attachment, self._pieces.folder)
        return data

    @staticmethod
    def of(message: Message) -> tuple[Attachment, ...]:
        """What is attached to a message of a thread's history.

        Raises:
            StorageInvalid: What the message holds of it cannot be read.
        """
        return attachments_of(message)

    async def drop_unreferenced(self, *, held: float = HELD, unfinished: float = UNFINISHED) -> tuple[str, ...]:
        """Delete the content that no message refers to: after messages were deleted, or when a turn never began.

        It may run beside turns that attach the same content: they get it back. It looks at each file's name and at the
        index of references, never at messages.

        Args:
            held: Seconds that what was added by `add` waits for its first message.
            unfinished: Seconds after which what a killed process left half written goes, too.

        Returns:
            The hashes of what was deleted.

        Raises:
            StorageUnavailable: The database or the folder fails.
        """
        there = await asyncio.to_thread(self._pieces.names)
        waiting = await asyncio.to_thread(self._pieces.held, held)
        free = there - waiting - await self._database.read(referred_to)
        await asyncio.to_thread(_each, self._pieces.set_aside, free)
        # A message that was written since finds it again; one that is written from now on writes the content again.
        needed = await self._database.read(lambda tx: still_referred_to(tx, free))
        await asyncio.to_thread(_each, self._pieces.put_back, needed)
        await asyncio.to_thread(_each, self._pieces.drop_aside, free - needed)
        await asyncio.to_thread(self._pieces.drop_unfinished, unfinished)
        return tuple(sorted(free - needed))

    async def load(self, sources: Sequence[AttachmentSource]) -> tuple[Loaded, ...]:
        """Read what a message is given, and write nothing.

        Raises:
            AttachmentInvalid: There is too much of it, or one of them does not fit.
        """
        check_count(sources)
        found: list[Loaded] = []
        for source in sources:
            found.append(await asyncio.to_thread(load, source, limit=self.limit))
        return tuple(found)

    async def keep(self, loaded: Sequence[Loaded]) -> None:
        """Write what was read, before a message is written that refers to it.

        Raises:
            AttachmentMissing: One that should be stored already is not.
            StorageUnavailable: It cannot be written.
        """
        for item in loaded:
            sha256 = item.attachment.sha256
            if sha256 is not None:
                await asyncio.to_thread(self._kept, item, sha256)

    async def hold(self, loaded: Sequence[Loaded]) -> None:
        """As `keep`, where the message may come much later: for a day nobody drops it, or until it is settled.

        Raises:
            AttachmentMissing, StorageUnavailable: As for `keep`.
        """
        await self.keep(loaded)
        for item in loaded:
            if item.attachment.sha256 is not None:
                await asyncio.to_thread(self._pieces.hold, item.attachment.sha256)

    async def settle(self, loaded: Sequence[Loaded]) -> None:
        """See that it is there now that a message refers to it: whoever drops what is free did not see the message yet.

        Raises:
            AttachmentMissing, StorageUnavailable: As for `keep`.
        """
        await self.keep(loaded)
        for item in loaded:
            if item.attachment.sha256 is not None:
                await asyncio.to_thread(self._pieces.let_go, item.attachment.sha256)

    def _kept(self, item: Loaded, sha256: str) -> None:
        if item.data is not None:
            self._pieces.keep(sha256, item.data)
        elif not self._pieces.has(sha256):
            raise _missing(item.attachment, self._pieces.folder)


def check_count(sources: Sequence[object]) -> None:
    """Refuse too many attachments on one message.

    Raises:
        AttachmentInvalid: There are too many.
    """
    if len(sources) > MOST:
        raise AttachmentInvalid(
            f"a message has {len(sources)} attachments, and {MOST} is the most", remedy="spread them over messages"
        )


def _each(do: Callable[[str], None], hashes: Iterable[str]) -> None:
    for sha256 in hashes:
        do(sha256)


def _missing(attachment: Attachment | str, folder: Path) -> AttachmentMissing:
    named = repr(attachment) if isinstance(attachment, str) else f"{attachment.name!r} ({attachment.sha256})"
    return AttachmentMissing(
        f"the attachment {named} is gone, or is not what was stored",
        remedy=f"bring its file to {str(folder)!r}, perhaps from the home where it was attached, or attach it again",
    )


__all__ = ["LIMIT", "Attachments", "check_count"]
