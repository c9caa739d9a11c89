"""The upkeep of one workspace behind one face: what `agent.upkeep` and the commands use of this folder."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import IO

from ...core import Scope, check_id
from .backup import Backup, back_up
from .exchange import Exported, Imported, export, import_thread
from .parts import UpkeepParts
from .removal import Removed, remove
from .retention import Pruned, Retention, prune


class Upkeep:
    """Keeps the threads of a workspace in shape, and no turn waits for it: get it from `agent.upkeep`.

    Args:
        parts: The database and what belongs to it.
        workspace: The workspace's id.
    """

    def __init__(self, parts: UpkeepParts, workspace: str) -> None:
        self._parts = parts
        self._workspace = workspace

    async def remove(self, thread: str, *, cancel: bool = False) -> Removed | None:
        """Remove a thread with all that was said and done on it, so that no file holds any of it.

        Messages that a fork shares stay for as long as there is one. A SQLite file is written anew for it, which takes
        time with its size; on Postgres the rows are gone, and their space is the server's matter.

        Args:
            thread: The thread's id.
            cancel: Whether a turn that is under way or can go on is cancelled first, in whatever process it runs.

        Returns:
            What was removed; None where there is no such thread.

        Raises:
            InvalidArgument: `thread` is no id.
            ThreadBusy: A turn runs, and `cancel` is False, or it did not end in time.
            ThreadPaused: A turn can go on, and `cancel` is False.
            StorageUnavailable: The database fails, or the file of what was typed, and nothing is removed; or all rows
                are gone and their bytes are still in a file, as the text says.
        """
        return await remove(self._parts, self._scope(thread), cancel=cancel)

    async def export(self, thread: str, file: Path | IO[bytes]) -> Exported:
        """Write a thread's conversation to a file, as it stands now: messages, attachments, and what is kept.

        Turns and what they called are not in it, so a turn that waits goes on where it is and not in a copy.

        Args:
            thread: The thread's id.
            file: Where to; an export that is there is replaced once the new one is whole. A stream of bytes gets all of
                it at the end, or nothing.

        Raises:
            InvalidArgument: `thread` is no id, or the thread has no message, or is removed meanwhile; or what is at
                `file` is no export of a thread, or the home needs that name itself.
            StorageInvalid: A message is not what was written.
            StorageUnavailable: The database or the file fails; no part of a file is left.
        """
        return await export(self._parts, self._scope(thread), _place(file))

    async def import_thread(self, file: Path | IO[bytes], *, to: str | None = None) -> Imported:
        """Read an exported conversation into a thread, all of it or nothing. Again is no harm.

        Attachments that are gone meanwhile are brought back by it.

        Each message has the id that follows from what it says and where it stands, or nothing is written.

        Args:
            file: The file, or a stream of bytes, such as a pipe; that is read to its end first.
            to: The thread's id; None is the one that it had.

        Raises:
            ExportInvalid: The file is not, or no longer, what an export wrote.
            NameTaken: The thread has another conversation.
            ThreadBusy: Somebody owns the thread.
            InvalidArgument: `to` is no id.
            StorageUnavailable: The file or the database fails.
        """
        scope = None if to is None else self._scope(to)
        return await import_thread(self._parts, _place(file), scope, self._workspace)

    async def prune(self, *, keep: int | None = None, age: float | None = None) -> Pruned:
        """Delete checkpoints that nothing goes on from any more, on all threads, and give the space back.

        What an open turn may need stays, and so does the newest checkpoint of each thread. Attachments that no message
        refers to go too, and what a removal left in the files that was interrupted.

        Args:
            keep: How many of the newest stay of each thread, 1 to 1,000,000,000; None does not count.
            age: How many seconds they stay, up to 315,360,000 (ten years); None is no limit.

        Raises:
            InvalidArgument: A number is out of bounds.
            StorageUnavailable: The database fails, or another process kept it.
        """
        retention = Retention(self._parts.checkpoints, self._parts.clock, keep, age)
        return await prune(self._parts, self._workspace, retention)

    async def back_up(self, folder: Path, *, roles: bool = True, home_only: bool = False) -> Backup:
        """Copy the whole home, of all workspaces, while turns run. The copy is a home: open an agent on it.

        Args:
            folder: Where to; it is made, and only once the copy is whole.
            roles: Whether the stored roles and the key of role digests go along. With them the copy is as
                confidential as the home.
            home_only: Whether a home whose database is on a Postgres server is copied without it.

        Raises:
            InvalidArgument: There is something at `folder`, the database is on a server, or another run makes the
                same copy.
            StorageUnavailable, StorageInvalid: A file cannot be read or written, or is no sound database.
        """
        return await back_up(self._parts.storage, Path(folder), roles=roles, home_only=home_only)

    def _scope(self, thread: str) -> Scope:
        return Scope(workspace=self._workspace, thread=check_id("thread", thread))


def _place(file: Path | IO[bytes]) -> Path | IO[bytes]:
    return Path(file) if isinstance(file, str | PathLike) else file


__all__ = ["Upkeep"]
