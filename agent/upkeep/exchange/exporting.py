"""Exporting a thread's conversation, as it is at one moment: all of it, or no file."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from pydantic import ValidationError

from ....core import Scope
from ....core.errors import AttachmentMissing, InvalidArgument, StorageInvalid, StorageUnavailable, UnknownMessage
from ....memory import thread_key
from ....memory.kept import KeptMessages
from ....memory.titles import ThreadTitles
from ....memory.upkeep import ReadChain, ReadMessage, chain_of
from ..parts import UpkeepParts
from .places import check_target, drafted, publish
from .thread_files import Header, ThreadFileWriter

_PAGE: Final = 200
_TRIES: Final = 5  # each after a removal that was quicker
_RESTORE: Final = "restore the database from a copy, or go on with another thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written of a thread.

    Attributes:
        file: The file; None for a stream.
        messages: How many messages.
        attachments: How many contents of attachments.
        missing: The hashes of those that are gone, or are not what was stored.
    """

    file: Path | None
    messages: int
    attachments: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What of a thread is read before any of it is written.

    Attributes:
        header: The first line.
        ids: Its messages, the oldest first.
        kept: The messages that are kept word for word.
        title: What the host called the thread, if it did.
    """

    header: Header
    ids: list[str]
    kept: list[str]
    title: str | None


async def export(parts: UpkeepParts, scope: Scope, target: Path | IO[bytes]) -> Exported:
    """Write a thread's conversation to a file or a stream.

    Raises:
        InvalidArgument: The thread has no message, or none any more; a message is too long to be read again; or what is
            at `target` is no export, or the home's own.
        StorageInvalid: A message is not what was written.
        StorageUnavailable: The database or the file fails, or messages are removed again and again; no file is left.
    """
    if isinstance(target, Path):
        await asyncio.to_thread(check_target, parts.storage, target)
    for _ in range(_TRIES):
        with suppress(UnknownMessage):  # what was read first is removed: the thread may be gone, or have gone back
            return await _export(parts, scope, target)
    raise StorageUnavailable(
        f"messages of the thread {thread_key(scope)!r} are removed while they are read", remedy="export it again"
    )


async def _export(parts: UpkeepParts, scope: Scope, target: Path | IO[bytes]) -> Exported:
    found = await _conversation(parts, scope)
    with drafted(target) as draft:
        writer = ThreadFileWriter(draft)
        await asyncio.to_thread(writer.header, found.header)
        hashes = await _write_messages(parts, writer, found)
        missing = await _write_pieces(parts, writer, hashes)
        if missing:  # they went with their messages, perhaps
            await parts.log.history(found.header.head, limit=1)
        await asyncio.to_thread(writer.end, found.kept, found.title)
        await asyncio.to_thread(publish, draft, target)
    return Exported(
        file=target if isinstance(target, Path) else None,
        messages=found.header.messages,
        attachments=len(hashes) - len(missing),
        missing=tuple(sorted(missing)),
    )


async def _conversation(parts: UpkeepParts, scope: Scope) -> _Conversation:
    key = thread_key(scope)
    head = (await parts.position(key)).head
    if head is None:
        raise InvalidArgument(f"thread {key!r} has no message", remedy="export a thread on which something was said")
    ids, root = await parts.database.read(lambda tx: chain_of(tx, head))
    given = {"workspace": scope.workspace, "thread": scope.thread, "root": root, "head": head, "messages": len(ids)}
    header = None
    with suppress(ValidationError):
        header = Header.model_validate({**given, "exported": parts.clock.now()})
    if header is None:
        raise StorageInvalid(f"the thread {key!r} did not begin on a thread, but on {root[:100]!r}", remedy=_RESTORE)
    # An edit leaves marks behind on messages that are none of the thread's any more.
    standing = set(ids)
    kept = [message for message in await KeptMessages(parts.database).of(key) if message in standing]
    return _Conversation(header, ids, kept, await ThreadTitles(parts.database).get(key))


async def _write_messages(parts: UpkeepParts, writer: ThreadFileWriter, found: _Conversation) -> set[str]:
    """Write all messages, the oldest first; give the hashes of what is attached."""
    hashes: set[str] = set()
    chain = ReadChain(found.header.root)
    for begin in range(0, len(found.ids), _PAGE):
        page = found.ids[begin : begin + _PAGE]
        read = [ReadMessage.of(message) for message in await parts.log.history(page[-1], limit=len(page))]
        hashes |= await asyncio.to_thread(_write_checked, writer, read, chain, parts.database.name)
    return hashes


async def _write_pieces(parts: UpkeepParts, writer: ThreadFileWriter, hashes: set[str]) -> set[str]:
    missing: set[str] = set()
    for sha256 in sorted(hashes):
        try:
            data = await parts.attachments.read(sha256)
        except AttachmentMissing:
            missing.add(sha256)
        else:
            await asyncio.to_thread(writer.attachment, sha256, data)
    return missing


def _write_checked(writer: ThreadFileWriter, messages: list[ReadMessage], chain: ReadChain, database: str) -> set[str]:
    """Write messages that were checked as an import will; give the hashes of what is attached to them."""
    hashes: set[str] = set()
    for message in messages:
        problem = ""
        try:
            hashes |= {one.sha256 for one in chain.add(message) if one.sha256 is not None}
        except InvalidArgument as error:
            problem = error.problem
        if problem:
            raise StorageInvalid(
                f"the message {message.id!r} in {database!r} is not what was written: it {problem}",
                remedy=_RESTORE,
            )
    writer.messages(messages)
    return hashes


__all__ = ["Exported", "export"]
