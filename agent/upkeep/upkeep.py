"""The maintenance of one workspace, as `agent.upkeep` and the command line use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import IO

from ...core import Scope, check_id
from ...role_resolution import RoleStore
from ..stores import Stores
from .accounts import RemovedAccount, remove_account
from .backup import Backup, back_up
from .by_age import AgedPart, PrunedByAge, PruneProgress, prune_by_age
from .exchange import Exported, Imported, export, import_thread
from .removal import Pruned, Removed, Retention, prune, remove


class Upkeep:
    """Maintains the threads of a workspace without delaying turns; get it from `agent.upkeep`.

    Args:
        stores: The database and its stores.
        workspace: The workspace's id.
        roles: Where stored roles are; None removes none with a member.
        aged: What capabilities remove by age, by the name of the age.
        society_age: How many seconds `prune` keeps finished work of the workspace's members; None keeps it.

    Attributes:
        stores: The database and its stores.
        workspace: The workspace's id.
        roles: Where stored roles are.
    """

    def __init__(
        self,
        stores: Stores,
        workspace: str,
        roles: RoleStore | None = None,
        *,
        aged: Mapping[str, AgedPart] | None = None,
        society_age: float | None = None,
    ) -> None:
        self._aged = aged or {}
        self._society_age = society_age if "society" in self._aged else None
        self.stores = stores
        self.workspace = workspace
        self.roles = roles

    async def remove(self, thread: str, *, cancel: bool = False) -> Removed | None:
        """Remove a thread with all its messages and turns, so that no file contains any of it.

        Messages that a fork shares are kept while the fork exists. A SQLite file is rewritten, which takes time in
        proportion to its size. On Postgres the rows are deleted, and the server reclaims their space.

        Args:
            thread: The thread's id.
            cancel: Whether to cancel a running or resumable turn first, in whatever process it runs.

        Returns:
            The counts of what was removed; None if the thread does not exist.

        Raises:
            InvalidArgument: `thread` is not a valid id.
            ThreadBusy: A turn runs and `cancel` is False, or the turn did not end within the setting `thread_wait`.
            ThreadPaused: A turn can be resumed, and `cancel` is False.
            StorageUnavailable: The database or the chat's history fails, and nothing is removed; or all rows are
                removed and their bytes are still in a file, as the text says.
        """
        return await remove(self.stores, self._scope(thread), cancel=cancel)

    async def remove_account(self, account: str, *, cancel: bool = False) -> RemovedAccount:
        """Remove an account from the workspace: schedules, threads as `remove` does, memory entries, and logins.

        Logins are those to MCP servers that this machine has.

        A thread on which another account has a turn is kept, and named in the result: remove it by itself. Three more
        things are kept. Numbers of usage name the account and the day, so that removing it does not reset a limit, and
        go after two days. A stored role serves all workspaces: see `agent.roles.delete`. What a store of the host's has
        (`Memory(source=...)`) is up to that store.

        Args:
            account: The account's id.
            cancel: Whether to cancel its running or resumable turns first.

        Returns:
            The counts of what was removed. Repeating the call removes what an interrupted one left.

        Raises:
            InvalidArgument: `account` is not a valid id.
            ThreadBusy: A turn of it runs and `cancel` is False, or a turn did not end within the setting `thread_wait`.
            ThreadPaused: A turn of it can be resumed, and `cancel` is False.
            StorageUnavailable: As for `remove`.
        """
        return await remove_account(self.stores, self.workspace, check_id("account", account), cancel=cancel)

    async def export(self, thread: str, file: Path | IO[bytes]) -> Exported:
        """Write a thread's conversation to a file as it is now: messages, attachments, and marks of kept messages.

        Turns and their calls are not in the file. A turn that waits can be resumed here, but not in a copy.

        Args:
            thread: The thread's id.
            file: The file; an existing export is replaced once the new one is complete. A stream of bytes gets all of
                it at the end, or nothing.

        Raises:
            InvalidArgument: `thread` is not a valid id, or the thread has no message or is removed meanwhile; or `file`
                exists and is not an export of a thread, or belongs to the home.
            StorageInvalid: A stored message has changed.
            StorageUnavailable: The database or the file fails; no part of a file is left.
        """
        return await export(self.stores, self._scope(thread), _place(file))

    async def import_thread(self, file: Path | IO[bytes], *, to: str | None = None) -> Imported:
        """Read an exported conversation into a thread, all of it or nothing. Repeating an import is harmless.

        It restores attachments that were dropped since.

        The id of each message must match its content and its place in the conversation, or nothing is written.

        Args:
            file: The file, or a stream of bytes such as a pipe, which is read to its end first.
            to: The thread's id; None is the one that it was exported with.

        Raises:
            ExportInvalid: The file differs from what an export wrote.
            NameTaken: The thread has another conversation.
            ThreadBusy: Another process or call owns the thread.
            InvalidArgument: `to` is not a valid id.
            StorageUnavailable: The file or the database fails.
        """
        scope = None if to is None else self._scope(to)
        return await import_thread(self.stores, _place(file), scope, self.workspace)

    async def prune(self, *, keep: int | None = None, age: float | None = None) -> Pruned:
        """Delete checkpoints that no turn continues from, on all threads, and free their space.

        Checkpoints that an open turn may need are kept, and so is the newest of each thread. Of as many turns the
        recorded events are kept. Unreferenced attachments are removed too, and so are examples of turns that were not
        completed, expired memory entries, what an interrupted removal left in files, locks of threads that never began,
        and work of members that was finished before the setting `society_age`, as by `prune_by_age`.

        Args:
            keep: How many of the newest to keep of each thread, and of how many turns the recorded events, 1 to
                1,000,000,000; None sets no count.
            age: How many seconds to keep both, up to 315,360,000 (ten years); None means no limit.

        Raises:
            InvalidArgument: A number is out of bounds.
            StorageUnavailable: The database fails, or another process kept it locked.
        """
        retention = Retention(self.stores.checkpoints, self.stores.clock, keep, age)
        old = None if self._society_age is None else await self.prune_by_age(society=self._society_age)
        pruned = await prune(self.stores, self.workspace, retention)
        if old is None:
            return pruned
        attachments = pruned.attachments + old.attachments
        return replace(
            pruned,
            attachments=attachments,
            events=old.events,
            messages=old.messages,
            outcomes=old.outcomes,
            steps=old.steps,
            briefs=old.briefs,
        )

    async def prune_by_age(
        self,
        *,
        runs: float | None = None,
        calls: float | None = None,
        traces: float | None = None,
        threads: float | None = None,
        society: float | None = None,
        dry_run: bool = False,
        progress: PruneProgress | None = None,
        **capabilities: float | None,
    ) -> PrunedByAge:
        """Remove what has not changed for a number of seconds, in small transactions, while turns run.

        A turn or a run that can be resumed keeps all that it needs. The file of a SQLite database does not shrink, and
        bytes of removed rows can stay in it until `prune` rewrites it.

        Args:
            runs: The age of runs of schedules that are over. A slot that was handled does not fire again.
            calls: The age of turns that are over, whose calls are removed from the journal. Their messages stay.
            traces: The age of traces in this home. The setting `trace_age` removes them too.
            threads: The age of threads whose newest turn is done, failed or cancelled. They are removed as by `remove`.
            society: The age of finished work of the workspace's members: events with the threads and episodes of their
                turns, messages that were handled, what members did, briefs, and steps of their lives. Trust stays as it
                is. The setting `society_age` removes them too.
            dry_run: Whether to count only.
            progress: Called after each batch.
            capabilities: The age of what a capability has, by the name that it gave it (`Hooks.aged`).

        Raises:
            InvalidArgument: No age is given, none here has it, or it is not from 0 to 315,360,000 (ten years).
            StorageUnavailable: The database fails. Complete batches are removed.
        """
        return await prune_by_age(
            self.stores,
            self.workspace,
            runs=runs,
            calls=calls,
            traces=traces,
            threads=threads,
            capabilities={"society": society, **capabilities},
            dry_run=dry_run,
            progress=progress or (lambda *_: None),
            aged=self._aged,
        )

    async def back_up(self, folder: Path, *, roles: bool = True, home_only: bool = False) -> Backup:
        """Copy the entire home, of all workspaces, while turns run. The copy is a home: open an agent on it to use it.

        Args:
            folder: The folder of the backup; it is created, and only once the backup is complete.
            roles: Whether to include the stored roles and the key of role digests. With them the copy is as
                confidential as the home.
            home_only: Whether to copy a home whose database is on a Postgres server without that database.

        Raises:
            InvalidArgument: `folder` exists, the database is on a server, or another run makes the same
                backup.
            StorageUnavailable, StorageInvalid: A file cannot be read or written, or a database is damaged.
        """
        return await back_up(self.stores.storage, Path(folder), roles=roles, home_only=home_only)

    def _scope(self, thread: str) -> Scope:
        return Scope(workspace=self.workspace, thread=check_id("thread", thread))


def _place(file: Path | IO[bytes]) -> Path | IO[bytes]:
    return Path(file) if isinstance(file, str | PathLike) else file


__all__ = ["Upkeep"]
