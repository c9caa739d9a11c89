"""Exports a thread's conversation as of one moment: either the complete file or none."""

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
_TRIES: Final = 5  # each after messages were removed during the export
RESTORE_REMEDY: Final = "restore the database from a backup, or continue on another thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export.

    Attributes:
        file: The file; None for a stream.
        messages: The number of messages.
        attachments: The number of attachments with content.
        missing: The hashes of attachments whose content is gone or has changed.
    """

    file: Path | None
    messages: int
    attachments: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What is read of a thread before any of it is written.

    Attributes:
        header: The first line.
        ids: The ids of its messages, oldest first.
        kept: The ids of the messages that are kept word for word.
        title: The title that the host set, if any.
    """

    header: Header
    ids: list[str]
    kept: list[str]
    title: str | None


async def export(parts: UpkeepParts, scope: Scope, target: Path | IO[bytes]) -> Exported:
    """Write a thread's conversation to a file or a stream.

    Raises:
        InvalidArgument: The thread has no message, or no longer has one; a message is too long to be read again; or
            `target` exists and is not an export, or belongs to the home.
        StorageInvalid: A stored message has changed.
        StorageUnavailable: The database or the file fails, or messages are removed again and again; no file is left.
    """
    if isinstance(target, Path):
        await asyncio.to_thread(check_target, parts.storage, target)
    for _ in range(_TRIES):
        with suppress(UnknownMessage):  # messages were removed meanwhile: the thread may be gone, or edited
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
        if missing:  # their messages may have been removed too
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
        raise InvalidArgument(f"thread {key!r} has no message", remedy="export a thread that has a message")
    ids, root = await parts.database.read(lambda tx: chain_of(tx, head))
    given = {"workspace": scope.workspace, "thread": scope.thread, "root": root, "head": head, "messages": len(ids)}
    header = None
    with suppress(ValidationError):
        header = Header.model_validate({**given, "exported": parts.clock.now()})
    if header is None:
        raise StorageInvalid(
            f"the root of thread {key!r} must be a thread key, got {root[:100]!r}", remedy=RESTORE_REMEDY
        )
    # An edit keeps marks on messages that have left the thread.
    thread_ids = set(ids)
    kept = [message for message in await KeptMessages(parts.database).of(key) if message in thread_ids]
    return _Conversation(header, ids, kept, await ThreadTitles(parts.database).get(key))


async def _write_messages(parts: UpkeepParts, writer: ThreadFileWriter, found: _Conversation) -> set[str]:
    """Write all messages, oldest first; returns the hashes of their attachments."""
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
    """Write messages after the checks that an import makes; returns the hashes of their attachments."""
    hashes: set[str] = set()
    for message in messages:
        problem = ""
        try:
            hashes |= {one.sha256 for one in chain.add(message) if one.sha256 is not None}
        except InvalidArgument as error:
            problem = error.problem
        if problem:
            raise StorageInvalid(
                f"the message {message.id!r} in {database!r} has changed since it was written: it {problem}",
                remedy=RESTORE_REMEDY,
            )
    writer.messages(messages)
    return hashes


__all__ = ["Exported", "export"]
