"""The store of attachments, `agent.attachments`: content by its hash, references in messages (T4).

It passes nothing to a model. A model can reach it only through functions of the embedder.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from copy import copy
from fnmatch import fnmatchcase
from functools import partial
from glob import escape
from typing import Any, Final, Self

from ...core import Scope
from ...core.errors import AttachmentInvalid, AttachmentMissing, InvalidArgument
from ...storage import Database, Transaction
from ..conversation import Message
from ..turns import keys_of, name_of, thread_key
from .pieces import Pieces
from .sources import MOST, Attachment, AttachmentSource, Loaded, attachments_of, check_sha256, load

ATTACHMENT_TABLES: Final = (
    """CREATE TABLE wa_attachment(
         sha256 TEXT NOT NULL,
         message TEXT NOT NULL REFERENCES wa_message(id) ON DELETE CASCADE,
         PRIMARY KEY(sha256, message))""",
    "CREATE INDEX wa_attachment_message ON wa_attachment(message)",
)
"""A migration of the log's schema, after the one that makes `wa_message`."""

READER_TABLES: Final = (
    """CREATE TABLE wa_attachment_reader(
         sha256 TEXT NOT NULL,
         workspace TEXT NOT NULL,
         account TEXT NOT NULL,
         PRIMARY KEY(workspace, account, sha256))""",
    "CREATE INDEX wa_attachment_reader_sha256 ON wa_attachment_reader(sha256)",
)
"""A migration of the same schema: who added content, in the words of `reader_of`."""

_HASHES: Final = re.compile(r"\b[0-9a-f]{64}\b")
_WITHOUT: Final = "\x1f"  # no id has this character
_ALLOW = "INSERT INTO wa_attachment_reader(sha256, workspace, account) VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_ALLOWED = "SELECT 1 FROM wa_attachment_reader WHERE sha256=? AND workspace=? AND account=?"
_READERS = "SELECT account FROM wa_attachment_reader WHERE sha256=? AND workspace=?"
_BEGAN = "SELECT DISTINCT account FROM wa_turn WHERE thread IN ({}) AND account IS NOT NULL"
_FORGET_READER = "DELETE FROM wa_attachment_reader WHERE workspace=? AND account=?"
_FORGET_READERS = "DELETE FROM wa_attachment_reader WHERE sha256=?"
_THREADS = """SELECT DISTINCT m.thread FROM wa_attachment a JOIN wa_message m ON m.id=a.message
              WHERE a.sha256=? AND m.thread >= ? AND m.thread < ?"""
# A message is stored under the thread that it was said in. Forks that share it have a later message, or begin at one.
_FORKS = """WITH RECURSIVE below(id, thread) AS (
              SELECT id, thread FROM wa_message WHERE id IN (SELECT message FROM wa_attachment WHERE sha256=?)
              UNION
              SELECT m.id, m.thread FROM below JOIN wa_message m ON m.parent=below.id)
            SELECT thread FROM below WHERE thread >= ? AND thread < ?
            UNION
            SELECT b.thread FROM wa_branch b JOIN below ON b.head=below.id WHERE b.thread >= ? AND b.thread < ?"""
_NOTE = "INSERT INTO wa_attachment(sha256, message) VALUES(?, ?) ON CONFLICT DO NOTHING"
_ALL = "SELECT DISTINCT sha256 FROM wa_attachment"
_SOME = "SELECT DISTINCT sha256 FROM wa_attachment WHERE sha256 IN ({})"
REFERENCES: Final = '"attachments":'
"""What a body with references contains, as canonical JSON writes it."""


def reader_of(account: str | None, threads: Iterable[str]) -> str:
    """Return how it is noted who added content: an account, or those who have none and use the same threads.

    Args:
        account: The account, if any.
        threads: Globs over the ids of the threads that a caller without an account uses.
    """
    return account or _WITHOUT.join(("", *sorted(threads)))


def note_references(transaction: Transaction, message_id: str, body: str) -> None:
    """Index the references of a message. Call it in every transaction that inserts a row into `wa_message` with some.

    Args:
        transaction: The transaction that inserts the message.
        message_id: The message's id.
        body: Its body, as stored, which contains `REFERENCES`. Invalid references are ignored.
    """
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
        pieces: Where the content is.
        database: The database of the messages, opened with the schema `CONVERSATION`.
        limit: The most bytes that one attachment can have.

    Attributes:
        limit: The most bytes that one attachment can have.
        count: Counts the bytes that an account adds, or refuses them; None counts nothing.
        workspace: The workspace of the accounts that are named to `add`; None notes no account.
    """

    def __init__(self, pieces: Pieces, database: Database, *, limit: int = LIMIT) -> None:
        self.count: Callable[[str, int], Awaitable[None]] | None = None
        self.workspace: str | None = None
        self._scope: Scope | None = None
        self._pieces = pieces
        self._database = database
        self.limit = limit

    def reached_by(self, scope: Scope) -> Self:
        """The same store for code that runs for an account: it reads what the account reaches, and notes what it adds.

        Within reach is content that a message of the turn's own thread has, or of a thread on which the account began
        a turn, forks included; and content that the account added. A turn without an account reaches its own thread,
        and what callers without an account added who use that thread. Everything else is `AttachmentMissing`, in the
        same words as content that is not stored: a hash is not a secret.

        Args:
            scope: That of the turn or the call, such as `ctx.scope`. One with neither account nor thread is the host's
                own, which reaches everything.
        """
        found = copy(self)
        found._scope = None if scope.account is None and scope.thread is None else scope
        return found

    async def add(
        self,
        source: AttachmentSource,
        *,
        name: str | None = None,
        media_type: str | None = None,
        account: str | None = None,
    ) -> Attachment:
        """Store content to attach later: `attachments=[that]`. You need it only to set a name or a media type.

        The content is kept for a day, and after that as long as a message refers to it.

        Args:
            source: A path, bytes, or an address as text, which is not fetched.
            name: Its name; None uses the name of the file or the address.
            media_type: Its media type, such as `image/png`; None finds it from content and name.
            account: Who adds it: it counts for the limit of bytes a day of this account, whose turns then reach it.
                None counts for none.

        Raises:
            AttachmentInvalid: It cannot be attached; the text says why.
            LimitReached: It is more than the account can store today.
            StorageUnavailable: It cannot be written.
        """
        loaded = await asyncio.to_thread(load, source, limit=self.limit, name=name, media_type=media_type)
        if account is not None and self.count is not None and loaded.data is not None:
            await self.count(account, len(loaded.data))
        await self.hold([loaded])
        scope, threads = self._scope, list[str]()
        if scope is not None and account is None:
            account, threads = scope.account, [escape(scope.thread or "")]
        workspace = self.workspace if scope is None else scope.workspace
        if workspace is not None and (account is not None or scope is not None):
            await self.allow(loaded.attachment, workspace=workspace, account=reader_of(account, threads))
        return loaded.attachment

    async def open(self, attachment: Attachment | str) -> io.BytesIO:
        """The content as a file to read from, after a check of its hash.

        Args:
            attachment: The reference, or its `sha256`.

        Raises:
            AttachmentMissing: The content is gone, is not what was stored, or is out of reach of a turn (`reached_by`).
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
        reached = self._scope is None or await self._is_reached(sha256, self._scope)
        data = await asyncio.to_thread(self._pieces.read, sha256) if reached else None
        if data is None:
            raise _missing(attachment, self._pieces.place)
        return data

    async def allow(self, attachment: Attachment, *, workspace: str, account: str) -> None:
        """Note who added content, for `check_reached`.

        Args:
            attachment: What `add` returned. An address, whose content is not stored, is ignored.
            workspace: The workspace that it was added in.
            account: Who added it.
        """
        given = (attachment.sha256, workspace, account)
        if attachment.sha256 is not None:
            await self._database.transact(lambda tx: tx.execute(_ALLOW, given))

    async def check_reached(self, sha256: str, *, workspace: str, account: str, allows: Callable[[str], bool]) -> None:
        """Check that a caller of a host can read content: they added it, or a message on a thread of theirs has it.

        To know a hash is not a right to read: prompts and exports name hashes.

        Args:
            sha256: The hash of the content.
            workspace: The caller's workspace.
            account: The caller, as they were named to `allow`.
            allows: Whether the caller can use the thread with an id.

        Raises:
            AttachmentMissing: They cannot. The error does not say whether it is stored.
            InvalidArgument: It is not a hash.
        """
        check_sha256(sha256)
        if await self._database.read(lambda tx: tx.execute(_ALLOWED, (sha256, workspace, account))):
            return
        async for keys in self._threads(sha256, workspace):
            if any(allows(name_of(key)) for key in keys):
                return
        raise _missing(sha256, self._pieces.place)

    async def pass_on(self, text: str, receiver: Scope) -> None:
        """Let turns of another account read the files whose hashes a message to it names, as far as its sender can.

        Args:
            text: The message. Its first 16 hashes count.
            receiver: That of the turns that it is for.
        """
        named = [*dict.fromkeys(_HASHES.findall(text))][:MOST]
        reached = [one for one in named if self._scope is None or await self._is_reached(one, self._scope)]
        reader = reader_of(receiver.account, [escape(receiver.thread or "")])
        if reached:
            rows = [(one, receiver.workspace, reader) for one in reached]
            await self._database.transact(lambda tx: [tx.execute(_ALLOW, row) for row in rows])

    async def _is_reached(self, sha256: str, scope: Scope) -> bool:
        rows = await self._database.read(lambda tx: tx.execute(_READERS, (sha256, scope.workspace)))
        if any(_includes(str(reader), scope) for (reader,) in rows):
            return True
        own = None if scope.thread is None else thread_key(scope)
        async for keys in self._threads(sha256, scope.workspace):
            if own in keys:
                return True
            if scope.account is not None and (scope.account,) in await self._database.find(_BEGAN, keys):
                return True
        return False

    async def _threads(self, sha256: str, workspace: str) -> AsyncGenerator[list[str]]:
        """Yield the keys of the threads with a message that has the content: where it was said, and then its forks."""
        bounds = keys_of(workspace)
        for query, given in ((_THREADS, (sha256, *bounds)), (_FORKS, (sha256, *bounds, *bounds))):
            yield [str(thread) for (thread,) in await self._database.read(partial(_rows, query, given))]

    async def forget_reader(self, workspace: str, account: str) -> None:
        """Forget what an account added. What messages refer to is kept."""
        await self._database.transact(lambda tx: tx.execute(_FORGET_READER, (workspace, account)))

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
            StorageUnavailable: The database or the store of the content fails.
        """
        await asyncio.to_thread(self._pieces.drop_unfinished, unfinished)
        there = await asyncio.to_thread(self._pieces.names)
        waiting = await asyncio.to_thread(self._pieces.held, held)
        referred = {str(sha256) for (sha256,) in await self._database.read(lambda tx: tx.execute(_ALL))}
        free = there - waiting - referred
        await asyncio.to_thread(_each, self._pieces.set_aside, free)
        # A message written before this read gets the content back. A later message writes the content again.
        needed = {str(sha256) for (sha256,) in await self._database.find(_SOME, sorted(free))}
        await asyncio.to_thread(_each, self._pieces.put_back, needed)
        await asyncio.to_thread(_each, self._pieces.drop_aside, free - needed)
        dropped = tuple(sorted(free - needed))
        if dropped:
            await self._database.transact(lambda tx: [tx.execute(_FORGET_READERS, (sha256,)) for sha256 in dropped])
        return dropped

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
                raise _missing(item.attachment, self._pieces.place)
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


def _includes(reader: str, scope: Scope) -> bool:
    """Whether a turn is one of an account that added content, or of the callers without an account who did."""
    if scope.account is not None:
        return reader == scope.account
    return any(fnmatchcase(scope.thread or "", glob) for glob in reader.split(_WITHOUT)[1:])


def _rows(query: str, given: Sequence[str], transaction: Transaction) -> list[tuple[Any, ...]]:
    return transaction.execute(query, given)


def _each(do: Callable[[str], None], hashes: Iterable[str]) -> None:
    for sha256 in hashes:
        do(sha256)


def _missing(attachment: Attachment | str, place: str) -> AttachmentMissing:
    named = repr(attachment) if isinstance(attachment, str) else f"{attachment.name!r} ({attachment.sha256})"
    return AttachmentMissing(
        f"the attachment {named} is gone, or is not what was stored",
        remedy=f"copy its file to {place!r}, such as from the home where it was attached, or attach it again",
    )
