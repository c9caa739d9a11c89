"""Exports a thread's conversation as of one moment, and imports it: completely or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from pydantic import ValidationError

from ...core import Scope
from ...core.errors import (
    AttachmentMissing,
    InvalidArgument,
    NameTaken,
    StorageInvalid,
    StorageUnavailable,
    UnknownMessage,
)
from ...memory import thread_key
from ...memory.attachments import Attachment, Loaded
from ...memory.branches import Branches
from ...memory.conversation import KeptMessages
from ...memory.titles import ThreadTitles
from ...memory.upkeep import ReadChain, ReadMessage, chain_of
from ...storage import Lease, Transaction
from ..stores import Stores
from .thread_files import (
    End,
    Header,
    Item,
    Piece,
    ThreadFile,
    ThreadFileWriter,
    check_target,
    drafted,
    name_of,
    publish,
    readable,
)

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


async def export(stores: Stores, scope: Scope, target: Path | IO[bytes]) -> Exported:
    """Write a thread's conversation to a file or a stream.

    Raises:
        InvalidArgument: The thread has no message, or no longer has one; a message is too long to be read again; or
            `target` exists and is not an export, or belongs to the home.
        StorageInvalid: A stored message has changed.
        StorageUnavailable: The database or the file fails, or messages are removed again and again; no file is left.
    """
    if isinstance(target, Path):
        await asyncio.to_thread(check_target, stores.storage, target)
    for _ in range(_TRIES):
        with suppress(UnknownMessage):  # messages were removed meanwhile: the thread may be gone, or edited
            return await _export(stores, scope, target)
    raise StorageUnavailable(
        f"messages of the thread {thread_key(scope)!r} are removed while they are read", remedy="export it again"
    )


async def _export(stores: Stores, scope: Scope, target: Path | IO[bytes]) -> Exported:
    found = await _conversation(stores, scope)
    with drafted(target) as draft:
        writer = ThreadFileWriter(draft)
        await asyncio.to_thread(writer.header, found.header)
        hashes = await _write_messages(stores, writer, found)
        missing = await _write_pieces(stores, writer, hashes)
        if missing:  # their messages may have been removed too
            await stores.log.history(found.header.head, limit=1)
        await asyncio.to_thread(writer.end, found.kept, found.title)
        await asyncio.to_thread(publish, draft, target)
    return Exported(
        file=target if isinstance(target, Path) else None,
        messages=found.header.messages,
        attachments=len(hashes) - len(missing),
        missing=tuple(sorted(missing)),
    )


async def _conversation(stores: Stores, scope: Scope) -> _Conversation:
    key = thread_key(scope)
    head = (await stores.position(key)).head
    if head is None:
        raise InvalidArgument(f"thread {key!r} has no message", remedy="export a thread that has a message")
    ids, root = await stores.database.read(lambda tx: chain_of(tx, head))
    given = {"workspace": scope.workspace, "thread": scope.thread, "root": root, "head": head, "messages": len(ids)}
    header = None
    with suppress(ValidationError):
        header = Header.model_validate({**given, "exported": stores.clock.now()})
    if header is None:
        raise StorageInvalid(
            f"the root of thread {key!r} must be a thread key, got {root[:100]!r}", remedy=RESTORE_REMEDY
        )
    # An edit keeps marks on messages that have left the thread.
    thread_ids = set(ids)
    kept = [message for message in await stores.kept.of(key) if message in thread_ids]
    return _Conversation(header, ids, kept, await stores.titles.get(key))


async def _write_messages(stores: Stores, writer: ThreadFileWriter, found: _Conversation) -> set[str]:
    """Write all messages, oldest first; returns the hashes of their attachments."""
    hashes: set[str] = set()
    chain = ReadChain(found.header.root)
    for begin in range(0, len(found.ids), _PAGE):
        page = found.ids[begin : begin + _PAGE]
        read = [ReadMessage.of(message) for message in await stores.log.history(page[-1], limit=len(page))]
        hashes |= await asyncio.to_thread(_write_checked, writer, read, chain, stores.database.name)
    return hashes


async def _write_pieces(stores: Stores, writer: ThreadFileWriter, hashes: set[str]) -> set[str]:
    missing: set[str] = set()
    for sha256 in sorted(hashes):
        try:
            data = await stores.attachments.read(sha256)
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


_WAIT: Final = 1.0  # seconds to wait for the owner of a requested name


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import.

    Attributes:
        thread: The id of the thread that has the conversation.
        messages: The number of its messages.
        added: How many of them the database did not have, on this thread or another one.
        made: Whether the thread is new; otherwise it had the conversation already.
    """

    thread: str
    messages: int
    added: int
    made: bool


async def import_thread(stores: Stores, source: Path | IO[bytes], scope: Scope | None, workspace: str) -> Imported:
    """Read a conversation from a file or a stream into a thread.

    Args:
        stores: The database and its stores.
        source: The file or the stream, which is read to its end.
        scope: The thread; None uses the name that it was exported with.
        workspace: The workspace.

    Raises:
        ExportInvalid: The file differs from what an export wrote; nothing is written.
        NameTaken: The thread has another conversation.
        ThreadBusy: Another process or call owns the thread.
        InvalidArgument: The stream gives text.
        StorageUnavailable: The file or the database fails, or messages are removed again and again; nothing is written.
    """
    with ExitStack() as opened:
        file = await asyncio.to_thread(opened.enter_context, readable(source))
        found = ThreadFile(file, name_of(source))
        header = await asyncio.to_thread(_check, found)
        scope = scope or Scope(workspace=workspace, thread=header.thread)
        key = thread_key(scope)
        async with stores.leases.hold(key, wait=_WAIT) as lease:
            made = not await _has_conversation(stores, key, header)
            added = 0
            if made:
                await _pieces(found, stores.attachments.hold)
                added = await _write_conversation(stores, lease, found, header)
            # Restores contents that were dropped meanwhile, or were lost since an earlier import.
            await _pieces(found, stores.attachments.settle)
    return Imported(thread=scope.thread or "", messages=header.messages, added=added, made=made)


async def _has_conversation(stores: Stores, key: str, header: Header) -> bool:
    """Whether a thread has the conversation already, possibly with more messages.

    Raises:
        NameTaken: It has another one.
    """
    head = (await stores.position(key)).head
    if head is None and not await stores.branches.taken(key):
        return False
    with suppress(UnknownMessage):
        if head not in (None, header.head):
            await stores.log.history(head, before=header.head, limit=1)  # raises if it is not in the conversation
        if head is not None:
            return True
    raise NameTaken(f"thread {key!r} has another conversation", remedy="import it under another name")


async def _pieces(source: ThreadFile, do: Callable[[Sequence[Loaded]], Awaitable[None]]) -> None:
    found = source.items()
    while (item := await asyncio.to_thread(next, found, None)) is not None:
        if isinstance(piece := item[1], Piece):
            sha256, size = piece.attachment, len(piece.data)
            named = Attachment(name=sha256, media_type="application/octet-stream", size=size, sha256=sha256)
            await do([Loaded(named, piece.data)])


async def _write_conversation(stores: Stores, lease: Lease, source: ThreadFile, header: Header) -> int:
    """Write the conversation; returns how many of its messages were missing."""
    for _ in range(_TRIES):
        with suppress(UnknownMessage):  # an existing message was removed; the next try writes it with the others
            return await stores.database.transact(lambda tx: _write(tx, stores.branches, lease, source, header))
    raise StorageUnavailable(
        f"messages of {source.name!r} are removed from {stores.database.name!r} while it is imported",
        remedy="import it again",
    )


def _write(transaction: Transaction, branches: Branches, lease: Lease, source: ThreadFile, header: Header) -> int:
    """Write the messages of a checked file, and a thread that ends with the last one; returns how many were missing."""
    added = 0
    for _, item in source.items():
        if isinstance(item, ReadMessage):
            added += item.put_back(transaction, header.root)
        elif isinstance(item, End):
            branch = branches.branch(lease.key, header.head, origin=lease.key)
            Branches.write(transaction, [branch], [lease])
            KeptMessages.put_back(transaction, lease.key, item.kept, at=int(branch.at.timestamp() * 1e6))
            if item.title is not None:
                ThreadTitles.put_back(transaction, lease.key, item.title)
    lease.forget(transaction)
    return added


def _check(source: ThreadFile) -> Header:
    """Read an entire file and check that it is one valid conversation; write nothing."""
    found = source.items()
    _, header = next(found)
    assert isinstance(header, Header), "the first line is a header"
    chain, attached = ReadChain(header.root), set[str | None]()
    for number, item in found:
        problem = ""
        try:
            if isinstance(item, ReadMessage):
                attached |= {one.sha256 for one in chain.add(item)}
            else:
                problem = _misplaced(item, header, chain, attached)
        except InvalidArgument as error:
            problem = error.problem
        if problem:
            raise source.invalid(number, problem)
    return header


def _misplaced(item: Item, header: Header, chain: ReadChain, attached: set[str | None]) -> str:
    """Return what is wrong with a line after the messages, or an empty string."""
    if isinstance(item, Piece):
        if item.attachment not in attached:
            return "holds the content of an attachment that no earlier message has"
        intact = hashlib.sha256(item.data).hexdigest() == item.attachment
        return "" if intact else "begins a content with another hash"
    if len(chain.places) != header.messages or chain.last != header.head:
        return "comes after messages that do not match the first line"
    return "" if isinstance(item, End) and chain.places.keys() >= set(item.kept) else "keeps messages that are missing"
