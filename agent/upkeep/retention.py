"""How long checkpoints without further use are kept, by count and by age; those of an open turn are always kept.

A turn resumes from its newest checkpoint only, and messages are in the log, so older checkpoints serve inspection only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ...core import Clock
from ...core.errors import InvalidArgument, ThreadBusy
from ...memory.upkeep import keys_of
from ...storage import Transaction
from .checkpoints import CheckpointRows
from .parts import UpkeepParts

KEEP_LIMIT: Final = 1_000_000_000
"""The maximum number of checkpoints of a thread that can be kept."""

AGE_LIMIT: Final = 315_360_000
"""The maximum seconds that checkpoints and traces can be kept: ten years."""

_SLACK: Final = 4  # deleting costs a turn half as many page writes again, so a quarter of `keep` goes at once

_KEYS: Final = "SELECT DISTINCT thread FROM wa_turn WHERE thread >= ? AND thread < ? ORDER BY thread"
# A turn that waited for its thread can begin after one with a newer id. A failed turn can resume while it is newest.
_OPEN: Final = """SELECT id, status FROM wa_turn
                  WHERE thread=? AND (status IN ('running', 'paused', 'stopped')
                    OR (status='failed' AND id=(SELECT MAX(id) FROM wa_turn WHERE thread=?)))
                  ORDER BY id"""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints are kept.

    Attributes:
        rows: The tables.
        clock: Source of time.
        keep: How many of the newest of each thread, 1 to `KEEP_LIMIT`; None sets no count.
        age: How many seconds, 0 to `AGE_LIMIT`; None means no limit. The newest one is kept.

    Raises:
        InvalidArgument: A number is out of bounds.
    """

    rows: CheckpointRows
    clock: Clock
    keep: int | None = None
    age: float | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and not (_is_a(int, self.keep) and 1 <= self.keep <= KEEP_LIMIT):
            raise InvalidArgument("`keep` is out of bounds", remedy=f"pass keep= 1 to {KEEP_LIMIT}, or None")
        if self.age is not None and not (_is_a((int, float), self.age) and 0 <= self.age <= AGE_LIMIT):
            raise InvalidArgument("`age` is out of bounds", remedy=f"pass age= in seconds, 0 to {AGE_LIMIT}, or None")

    def __call__(self, transaction: Transaction, thread: str) -> int:
        """Prune a thread whose turn is over, once several turns' checkpoints are due; returns how many went."""
        return self._prune(transaction, thread, slack=(self.keep or 0) // _SLACK)

    def exactly(self, transaction: Transaction, thread: str) -> int:
        """Prune a thread whose turn is over of all checkpoints that are due; returns how many went."""
        return self._prune(transaction, thread, slack=0)

    def _prune(self, transaction: Transaction, thread: str, *, slack: int) -> int:
        if self.keep is None and self.age is None:
            return 0
        before = None if self.age is None else self.clock.now() - timedelta(seconds=self.age)
        return self.rows.prune(transaction, thread, keep=self.keep, before=before, slack=slack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The result of pruning all threads.

    Attributes:
        threads: How many threads lost checkpoints.
        checkpoints: How many checkpoints they lost.
        left: How many threads were skipped because their turn is running or can be resumed.
        attachments: How many images and files without a message were removed.
    """

    threads: int
    checkpoints: int
    left: int
    attachments: int


def _is_a(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def open_turns(transaction: Transaction, thread: str) -> list[tuple[str, str]]:
    """Return the running and resumable turns of a thread, with their status."""
    return [(row[0], row[1]) for row in transaction.execute(_OPEN, (thread, thread))]


async def prune(parts: UpkeepParts, workspace: str, retention: Retention) -> Pruned:
    """Apply a retention to all threads of a workspace, one transaction each; then remove unreferenced attachments.

    Args:
        parts: The database and its stores.
        workspace: The workspace's id.
        retention: Which checkpoints are kept.

    Raises:
        StorageUnavailable: The database fails, or another process kept it locked.
    """
    keys = [row[0] for row in await parts.database.read(lambda tx: tx.execute(_KEYS, keys_of(workspace)))]
    threads = checkpoints = left = 0
    for key in keys:
        gone = await _pruned(parts, key, retention)
        left += gone is None
        threads += bool(gone)
        checkpoints += gone or 0
    dropped = await parts.attachments.drop_unreferenced()
    await parts.database.scrub()
    async with parts.traces() as traces:
        await traces.scrub()
    return Pruned(threads=threads, checkpoints=checkpoints, left=left, attachments=len(dropped))


async def _pruned(parts: UpkeepParts, key: str, retention: Retention) -> int | None:
    """Prune a thread; returns how many checkpoints are gone, or None if it has an open turn."""

    def work(transaction: Transaction) -> int | None:
        lease.verify(transaction)
        if open_turns(transaction, key) or not retention.rows.made(transaction):
            return None
        return retention.exactly(transaction, key)

    try:
        async with parts.leases.hold(key, wait=0) as lease:
            return await parts.database.transact(work)
    except ThreadBusy:
        return None


__all__ = ["AGE_LIMIT", "KEEP_LIMIT", "Pruned", "Retention", "open_turns", "prune"]
