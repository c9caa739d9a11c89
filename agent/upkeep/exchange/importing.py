"""Imports a conversation: all or nothing, only valid messages, and none that the database already has."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ....core import Scope
from ....core.errors import InvalidArgument, NameTaken, StorageUnavailable, UnknownMessage
from ....memory import thread_key
from ....memory.attachments import Attachment, Loaded
from ....memory.branches import Branches
from ....memory.kept import KeptMessages
from ....memory.titles import ThreadTitles
from ....memory.upkeep import ReadChain, ReadMessage
from ....storage import Lease, Transaction
from ..parts import UpkeepParts
from .places import name_of, readable
from .thread_files import End, Header, Item, Piece, ThreadFile

_WAIT: Final = 1.0  # seconds to wait for the owner of a requested name
_TRIES: Final = 5  # each after messages were removed during the import


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


async def import_thread(parts: UpkeepParts, source: Path | IO[bytes], scope: Scope | None, workspace: str) -> Imported:
    """Read a conversation from a file or a stream into a thread.

    Args:
        parts: The database and its stores.
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
        async with parts.leases.hold(key, wait=_WAIT) as lease:
            made = not await _has_conversation(parts, key, header)
            added = 0
            if made:
                await _pieces(found, parts.attachments.hold)
                added = await _write_conversation(parts, lease, found, header)
            # Restores contents that were dropped meanwhile, or were lost since an earlier import.
            await _pieces(found, parts.attachments.settle)
    return Imported(thread=scope.thread or "", messages=header.messages, added=added, made=made)


async def _has_conversation(parts: UpkeepParts, key: str, header: Header) -> bool:
    """Whether a thread has the conversation already, possibly with more messages.

    Raises:
        NameTaken: It has another one.
    """
    head = (await parts.position(key)).head
    if head is None and not await parts.branches.taken(key):
        return False
    with suppress(UnknownMessage):
        if head not in (None, header.head):
            await parts.log.history(head, before=header.head, limit=1)  # raises if it is not in the conversation
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


async def _write_conversation(parts: UpkeepParts, lease: Lease, source: ThreadFile, header: Header) -> int:
    """Write the conversation; returns how many of its messages were missing."""
    for _ in range(_TRIES):
        with suppress(UnknownMessage):  # an existing message was removed; the next try writes it with the others
            return await parts.database.transact(lambda tx: _write(tx, parts.branches, lease, source, header))
    raise StorageUnavailable(
        f"messages of {source.name!r} are removed from {parts.database.name!r} while it is imported",
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


__all__ = ["Imported", "import_thread"]
