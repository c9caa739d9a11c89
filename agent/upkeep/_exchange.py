"""Exporting a thread's conversation to a file, and importing one: all or nothing, and what is there is not doubled.

A conversation is what was said, with its attachments and marks. Turns, calls and checkpoints stay behind, and there is
no role in any of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core import Scope
from ...core.errors import (
    AttachmentMissing,
    ExportInvalid,
    InvalidArgument,
    NameTaken,
    StorageInvalid,
    UnknownMessage,
)
from ...memory import Message, thread_key
from ...memory.attachments import Attachment, Loaded
from ...memory.branches import Branches
from ...memory.kept import KeptMessages
from ...memory.upkeep import ReadMessage, root_of
from ...storage import Lease, Transaction
from ._parts import UpkeepParts
from ._target import check_target
from ._thread_file import End, Header, Piece, ThreadFileWriter, lines, written

_PAGE = 200
_WAIT = 1.0  # seconds for the owner of a name that is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What is in the file of a thread.

    Attributes:
        file: The file.
        messages: How many messages.
        attachments: How many contents of attachments.
        missing: The hashes of those that are gone, or are not what was stored.
    """

    file: Path
    messages: int
    attachments: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import.

    Attributes:
        thread: The id of the thread that has the conversation.
        messages: How many messages it has.
        added: How many of them were not there before, on this thread or another one.
        made: Whether the thread is new; else it had the conversation already.
    """

    thread: str
    messages: int
    added: int
    made: bool


async def export(parts: UpkeepParts, scope: Scope, path: Path) -> Exported:
    """Write a thread's conversation to a file, as it stands now.

    Raises:
        InvalidArgument: The thread has no message; or what is at `path` is no export, or the home's own.
        StorageInvalid: A message is not what was written.
        StorageUnavailable: The database or the file fails; no file is left.
    """
    await asyncio.to_thread(check_target, parts.storage, path)
    key = thread_key(scope)
    head = (await parts.position(key)).head
    if head is None:
        raise InvalidArgument(f"thread {key!r} has no message", remedy="export a thread on which something was said")
    ends, count = [head], 0
    while True:
        page = await parts.log.history(ends[-1], limit=_PAGE)
        count += len(page)
        if page[0].parent is None:
            break
        ends.append(page[0].parent)
    root = await parts.database.read(lambda tx: root_of(tx, page[0].id))
    marked = await KeptMessages(parts.database).of(key)
    # An edit leaves marks behind on messages that are none of the thread's any more.
    standing = {message.id for message in await parts.log.some(head, marked)}
    kept = [message_id for message_id in marked if message_id in standing]
    with written(path) as writer:
        header = Header(
            workspace=scope.workspace,
            thread=scope.thread or "",
            root=root,
            head=head,
            messages=count,
            exported=parts.clock.now(),
        )
        await asyncio.to_thread(writer.header, header)
        hashes = await _write_messages(parts, writer, ends, root)
        missing = await _write_pieces(parts, writer, hashes)
        await asyncio.to_thread(writer.end, kept)
    return Exported(file=path, messages=count, attachments=len(hashes) - len(missing), missing=tuple(sorted(missing)))


async def _write_messages(parts: UpkeepParts, writer: ThreadFileWriter, ends: list[str], root: str) -> set[str]:
    """Write the pages that end with `ends`, the newest first of these; give the hashes of what is attached."""
    hashes: set[str] = set()
    for end in reversed(ends):
        page = await parts.log.history(end, limit=_PAGE)
        read = [_read(message) for message in page]
        await asyncio.to_thread(_checked, read, root, parts.database.name)
        await asyncio.to_thread(writer.messages, read)
        hashes |= {one.sha256 for message in page for one in parts.attachments.of(message) if one.sha256 is not None}
    return hashes


async def _write_pieces(parts: UpkeepParts, writer: ThreadFileWriter, hashes: set[str]) -> set[str]:
    missing: set[str] = set()
    for sha256 in sorted(hashes):
        try:
            data = await parts.attachments.read(sha256)
        except AttachmentMissing:
            missing.add(sha256)
        else:
            await asyncio.to_thread(writer.piece, Piece(sha256, data))
    return missing


async def import_thread(parts: UpkeepParts, path: Path, scope: Scope | None, workspace: str) -> Imported:
    """Read a conversation from a file into a thread.

    Args:
        parts: The database and what belongs to it.
        path: The file.
        scope: Names the thread; None is the name that it had.
        workspace: The workspace.

    Raises:
        ExportInvalid: The file is not, or no longer, what an export wrote; nothing is written.
        NameTaken: The thread has another conversation.
        ThreadBusy: Somebody owns the thread.
        StorageUnavailable: The file or the database fails; nothing is written.
    """
    header = await asyncio.to_thread(_check, path)
    scope = scope or Scope(workspace=workspace, thread=header.thread)
    key = thread_key(scope)
    async with parts.leases.hold(key, wait=_WAIT) as lease:
        made = not await _there(parts, key, header)
        added = 0
        if made:
            await _pieces(path, parts.attachments.hold)
            added = await parts.database.transact(lambda tx: _write(tx, parts.branches, lease, path))
        # What is dropped meanwhile, or was lost since an earlier import, is there again.
        await _pieces(path, parts.attachments.settle)
    return Imported(thread=scope.thread or "", messages=header.messages, added=added, made=made)


async def _there(parts: UpkeepParts, key: str, header: Header) -> bool:
    """Whether a thread has the conversation already, and perhaps more.

    Raises:
        NameTaken: It has another one.
    """
    head = (await parts.position(key)).head
    if head is None and not await parts.branches.taken(key):
        return False
    try:
        if head == header.head or (head is not None and await _follows(parts, head, header.head)):
            return True
    except UnknownMessage:
        pass
    raise NameTaken(f"thread {key!r} has another conversation", remedy="import it under another name")


async def _follows(parts: UpkeepParts, head: str, earlier: str) -> bool:
    await parts.log.history(head, before=earlier, limit=1)  # raises where it is none of the conversation
    return True


async def _pieces(path: Path, do: Callable[[Sequence[Loaded]], Awaitable[None]]) -> None:
    found = iter(lines(path))
    while (item := await asyncio.to_thread(next, found, None)) is not None:
        if isinstance(item, Piece):
            named = Attachment(
                name=item.sha256, media_type="application/octet-stream", size=len(item.data), sha256=item.sha256
            )
            await do([Loaded(named, item.data)])


def _write(transaction: Transaction, branches: Branches, lease: Lease, path: Path) -> int:
    """Write the messages of a checked file, and the thread that ends with the last of them; how many were not there."""
    header, added = None, 0
    for item in lines(path):
        match item:
            case Header():
                header = item
            case ReadMessage():
                assert header is not None, "the first line is a header"
                added += item.put_back(transaction, header.root)
            case End():
                assert header is not None, "the first line is a header"
                branch = branches.branch(lease.key, header.head, origin=lease.key)
                Branches.write(transaction, [branch], [lease])
                KeptMessages.put_back(transaction, lease.key, item.kept, at=int(branch.at.timestamp() * 1e6))
            case Piece():
                pass
    lease.forget(transaction)
    return added


def _check(path: Path) -> Header:
    """Read a whole file and check that it is one conversation; write nothing."""
    header, ids = None, set[str]()
    last: str | None = None
    for item in lines(path):
        match item:
            case Header():
                header = item
            case ReadMessage():
                assert header is not None, "the first line is a header"
                if item.parent != last:
                    raise _invalid(path, f"its message {len(ids) + 1} does not follow the one before it")
                _hold(path, item, header.root)
                last = item.id
                ids.add(item.id)
            case Piece():
                if hashlib.sha256(item.data).hexdigest() != item.sha256:
                    raise _invalid(path, f"the content {item.sha256!r} has another hash")
            case End():
                _check_end(path, header, last, ids, item)
    assert header is not None, "what ends has a first line"
    return header


def _check_end(path: Path, header: Header | None, last: str | None, ids: set[str], end: End) -> None:
    if header is None or last != header.head or len(ids) != header.messages:
        raise _invalid(path, "its messages are not those that its first line tells of")
    if not ids.issuperset(end.kept):
        raise _invalid(path, "it keeps messages that it does not have")


def _hold(path: Path, message: ReadMessage, root: str) -> None:
    try:
        message.check(root)
    except InvalidArgument:
        pass
    else:
        return
    raise _invalid(path, f"the id {message.id[:40]!r} is not that of its message")


def _checked(messages: list[ReadMessage], root: str, database: str) -> None:
    for message in messages:
        try:
            message.check(root)
        except InvalidArgument:
            pass
        else:
            continue
        raise StorageInvalid(
            f"the message {message.id!r} in {database!r} is not what was written",
            remedy="restore the database from a copy, or go on with another thread",
        )


def _read(message: Message) -> ReadMessage:
    return ReadMessage(
        id=message.id,
        parent=message.parent,
        turn_id=message.turn_id,
        author=message.author,
        kind=message.kind,
        body=message.body,
        at=message.at,
    )


def _invalid(path: Path, what: str) -> ExportInvalid:
    return ExportInvalid(f"{str(path)!r} is no export of a thread: {what}", remedy="use the file as it was exported")


__all__ = ["Exported", "Imported", "export", "import_thread"]
