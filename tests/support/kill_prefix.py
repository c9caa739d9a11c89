"""Whether what is on the disk is a prefix of what each owner of a thread wrote, in the order it wrote it.

Each part that a lease takes gets a number, which its transaction writes into a table beside what the part writes.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.databases import execute, rows_of
from support.effects import lines
from worldagent.storage import Lease

_TABLE = "CREATE TABLE IF NOT EXISTS kill_part(owner TEXT NOT NULL, epoch BIGINT NOT NULL, place BIGINT NOT NULL)"
_WRITTEN, _ANSWERED = "parts", "committed"
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def prepare(home: Path) -> None:
    """Make the table in a database that is there."""
    execute(home, _TABLE)


def numbered(home: Path) -> None:
    """Give each part a number, in this process.

    What an owner writes after a transaction that failed, to say how the turn ended, is counted anew under "key!".
    """
    enqueue, commit, recover = Lease.enqueue, Lease.commit, Lease.recover
    counts: Counter[tuple[str, int]] = Counter()
    recovered: set[tuple[str, int]] = set()
    parts, committed = (os.open(home / name, _APPENDING) for name in (_WRITTEN, _ANSWERED))

    def numbered_part(lease: Lease, part: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], bytes]:
        owner = (lease.key, lease.epoch)
        if owner in recovered:
            owner = (f"{lease.key}!", lease.epoch)
        place = counts[owner]
        counts[owner] += 1

        @functools.wraps(part)
        def written(transaction: Any) -> Any:
            transaction.execute("INSERT INTO kill_part(owner, epoch, place) VALUES(?, ?, ?)", (*owner, place))
            return part(transaction)

        line = f"{owner[0]} {owner[1]} {place}\n".encode()
        os.write(parts, line)
        return written, line

    def lease_enqueue(self: Lease, part: Callable[[Any], Any]) -> None:
        enqueue(self, numbered_part(self, part)[0])

    async def lease_commit(self: Lease, part: Callable[[Any], Any], **how: bool) -> Any:
        written, line = numbered_part(self, part)
        done = await commit(self, written, **how)
        os.write(committed, line)
        return done

    def lease_recover(self: Lease) -> None:
        recover(self)
        recovered.add((self.key, self.epoch))

    Lease.recover = lease_recover  # type: ignore[method-assign]  # likewise
    Lease.enqueue = lease_enqueue  # type: ignore[method-assign]  # the order of parts shows nowhere else
    Lease.commit = lease_commit  # type: ignore[method-assign]  # likewise


def lost(home: Path) -> tuple[list[str], list[str]]:
    """What is wrong with the disk, and which parts it has not, as the killed process left them.

    Returns:
        Where it has no prefix, or lacks what the owner was told is committed; and the parts that it lacks.
    """
    found = {f"{owner} {epoch} {place}" for owner, epoch, place in rows_of(home, "SELECT * FROM kill_part")}
    wrong = [f"committed and gone: {part}" for part in lines(home / _ANSWERED) if part not in found]
    missing = [part for part in lines(home / _WRITTEN) if part not in found]
    for part in missing:
        owner, _, place = part.rpartition(" ")
        later = [each for each in found if each.rpartition(" ")[0] == owner and int(each.split()[-1]) > int(place)]
        wrong += [f"{each} is there without {part}" for each in later]
    return wrong, missing
