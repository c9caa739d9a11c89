"""Removes finished work of members that is older than an age, some rows in each transaction (A12, C2).

What something still needs stays: an event that is open, a message that waits, is answered later or has an answer that a
turn waits for, a member's last task, and a brief that another one waits for. Of outcomes their sum stays, so that trust
is what all of them made it (A8).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from ...agent.upkeep.by_age import ByAge
from ...core import Scope
from ...core.scope import member_of
from ...memory import thread_key
from ...storage import Transaction, portions
from ..data.limits import drop_limits
from ..events.events import MESSAGES, part_of
from ..mail.posted import OLD_BRIEFS, drop_briefs
from .outcomes import fold_outcomes, members_with_old

_ALL: Final = 1_000_000  # pauses
_ACCOUNTS: Final = "SELECT DISTINCT account FROM wa_turn WHERE thread=?"


async def prune_members(work: ByAge, before: float) -> dict[str, int]:
    """Remove finished work of the workspace's members; returns how many of each kind."""
    return await _Members(work).run(before)


class _Members:
    def __init__(self, work: ByAge) -> None:
        self._work = work

    async def run(self, before: float) -> dict[str, int]:
        total = await self._work.stores.database.read(lambda tx: count_old(tx, self._work.workspace, before))
        if self._work.dry_run:
            return total
        done = {"messages": await self._mail(before), "outcomes": await self._outcomes(before), "steps": 0, "briefs": 0}
        for name, drop in (("steps", drop_steps), ("briefs", drop_briefs)):
            while gone := await self._work.transact(partial(drop, workspace=self._work.workspace, before=before)):
                done[name] += gone
        return {**done, "events": await self._events(before, total["events"])}

    async def _events(self, before: float, total: int) -> int:
        done, last = 0, FIRST
        while True:
            find = partial(old_events, workspace=self._work.workspace, before=before, last=last)
            found = await self._work.stores.database.read(find)
            if not found:
                return done
            last = found[-1]
            ids = [id_ for _, id_ in found]
            named = await self._work.stores.database.read(partial(named_after, workspace=self._work.workspace, ids=ids))
            free = [id_ for id_ in ids if id_ not in named and await self._without_turns(id_, before)]
            done += await self._work.transact(partial(drop_events, workspace=self._work.workspace, ids=free))
            self._work.progress("events", done, max(done, total))

    async def _without_turns(self, event: str, before: float) -> bool:
        """Remove the thread of an event; False if a turn of it is not over, began since, or is not a member's."""
        name = f"event {part_of(event)}"
        key = thread_key(Scope(workspace=self._work.workspace, thread=name))
        accounts = [account for (account,) in await self._work.read(_ACCOUNTS, (key,))]
        if not accounts:
            return True
        if any(
            member_of(self._work.workspace, each) is None for each in accounts
        ):  # a person uses a thread of this name
            return False
        removed = await self._work.remove(key, name, before)
        self._work.unreferenced |= removed
        self._work.left += not removed
        return removed

    async def _mail(self, before: float) -> int:
        waits = await self._work.stores.journal.open_replies(self._work.workspace, limit=_ALL)
        waited, done = {id_ for each in waits for id_ in each.message_ids}, 0
        while True:  # a message goes once no answer to it is left, so each round takes the ends of conversations
            gone = 0
            last: Place | None = FIRST
            while last is not None:
                drop = partial(drop_mail, workspace=self._work.workspace, before=before, last=last, waited=waited)
                some, last = await self._work.transact(drop)
                gone += some
            done += gone
            self._work.progress("messages", done, done)
            if not gone:
                if done:
                    await self._work.transact(lambda tx: drop_tasks(tx, self._work.workspace))
                return done

    async def _outcomes(self, before: float) -> int:
        done = 0
        for member in await self._work.stores.database.read(
            lambda tx: members_with_old(tx, self._work.workspace, before)
        ):
            fold = partial(fold_outcomes, workspace=self._work.workspace, role_id=member, before=before)
            while gone := await self._work.transact(fold):
                done += gone
                self._work.progress("outcomes", done, done)
        return done


BATCH: Final = 500
"""Rows that one transaction looks at."""

_EVENTS: Final = "wa_occurrence WHERE workspace=? AND state='done' AND ended < ?"
_FIND_EVENTS: Final = f"SELECT ended, id FROM {_EVENTS} AND (ended, id) > (?, ?) ORDER BY ended, id LIMIT {BATCH}"
_DROP_EVENTS: Final = "DELETE FROM wa_occurrence WHERE workspace=? AND state='done' AND id IN ({}) RETURNING id"
_TOLD: Final = "SELECT id FROM wa_mail WHERE workspace=? AND id IN ({})"
_DID: Final = "SELECT episode FROM wa_outcome WHERE workspace=? AND episode IN ({})"
_OVER: Final = "state IN ('handled', 'recorded')"
_MAIL: Final = f"""wa_mail AS m WHERE m.workspace=? AND m.sent < ? AND m.{_OVER}
                   AND NOT EXISTS (SELECT 1 FROM wa_mailbox AS b WHERE b.workspace=m.workspace AND b.member=m.receiver
                                   AND b.task=m.id AND NOT EXISTS (
                                     SELECT 1 FROM wa_member AS w WHERE w.workspace=b.workspace AND w.id=b.member
                                     AND w.status='terminated'))
                   AND NOT EXISTS (SELECT 1 FROM wa_mail AS a WHERE a.workspace=m.workspace AND a.answers=m.id
                                   AND a.answers <> '')"""
_FIND_MAIL: Final = f"SELECT sent, id, answers FROM {_MAIL} AND (m.sent, m.id) > (?, ?) ORDER BY sent, id LIMIT {BATCH}"
_DROP_MAIL: Final = f"DELETE FROM wa_mail WHERE workspace=? AND {_OVER} AND id IN ({{}}) RETURNING id"
_STEPS: Final = f"SELECT number, at FROM wa_member_step WHERE workspace=? ORDER BY number LIMIT {BATCH}"
_DROP_STEPS: Final = "DELETE FROM wa_member_step WHERE workspace=? AND number <= ? RETURNING number"
_DROP_TASKS: Final = (
    """DELETE FROM wa_remote WHERE workspace=? AND stage IN ('over', 'asking') AND NOT EXISTS (
         SELECT 1 FROM wa_mail AS m WHERE m.workspace=wa_remote.workspace AND m.id=wa_remote.letter)""",
    """DELETE FROM wa_offered WHERE workspace=? AND NOT EXISTS (
         SELECT 1 FROM wa_mail AS m WHERE m.workspace=wa_offered.workspace AND m.id=wa_offered.id)""",
)
_COUNTS: Final = {
    "events": f"SELECT COUNT(*) FROM {_EVENTS}",
    "messages": f"SELECT COUNT(*) FROM {_MAIL}",
    "outcomes": "SELECT COUNT(*) FROM wa_outcome WHERE workspace=? AND at < ?",
    "steps": "SELECT COUNT(*) FROM wa_member_step WHERE workspace=? AND at < ?",
    "briefs": f"SELECT COUNT(*) FROM {OLD_BRIEFS}",
}

Place = tuple[float, str]
FIRST: Final[Place] = (0.0, "")
"""The place before all others."""


def count_old(tx: Transaction, workspace: str, before: float) -> dict[str, int]:
    """How many events, messages, outcomes, steps and briefs are over and from before a time, in a transaction.

    A message counts only once no answer to it is left, so a conversation goes from its end to its beginning.
    """
    return {name: int(tx.execute(query, (workspace, before))[0][0]) for name, query in _COUNTS.items()}


def old_events(tx: Transaction, workspace: str, before: float, last: Place) -> list[tuple[float, str]]:
    """When events ended that are over since before a time, and their ids, after a place; in a transaction."""
    return [(float(ended), str(id_)) for ended, id_ in tx.execute(_FIND_EVENTS, (workspace, before, *last))]


def named_after(tx: Transaction, workspace: str, ids: Collection[str]) -> set[str]:
    """Those of some events whose id is still part of that of a message or an outcome, in a transaction.

    An event that would be posted again with such an id would make them a second time.
    """
    messages = {f"event.{part_of(id_)}.{what}": id_ for id_ in ids for what in MESSAGES}
    episodes = {f"event.{part_of(id_)}": id_ for id_ in ids}
    found = set[str]()
    for query, made in ((_TOLD, messages), (_DID, episodes)):
        for marks, some in portions([*made]):
            found |= {made[str(name)] for (name,) in tx.execute(query.format(marks), (workspace, *some))}
    return found


def drop_events(tx: Transaction, workspace: str, ids: Collection[str]) -> int:
    """Delete events that are over, in a transaction; returns how many. Their ids are free again."""
    drop_limits(tx, workspace, [f"case event.{part_of(each)}" for each in ids])
    return sum(len(tx.execute(_DROP_EVENTS.format(marks), (workspace, *some))) for marks, some in portions([*ids]))


def drop_mail(
    tx: Transaction, workspace: str, before: float, last: Place, waited: Collection[str]
) -> tuple[int, Place | None]:
    """Delete messages that are over and from before a time, in a transaction.

    Args:
        tx: The transaction.
        workspace: The workspace.
        before: The time.
        last: The place after which they are looked for.
        waited: The ids of messages to which a turn waits for the reply. What has come of replies is kept, too.

    Returns:
        How many are gone, and the place to go on from; None at the end.
    """
    found: list[tuple[Any, ...]] = tx.execute(_FIND_MAIL, (workspace, before, *last))
    free = [str(id_) for _, id_, answers in found if id_ not in waited and answers not in waited]
    drop_limits(tx, workspace, [f"brief {each}" for each in free])
    gone = sum(len(tx.execute(_DROP_MAIL.format(marks), (workspace, *some))) for marks, some in portions(free))
    return gone, (float(found[-1][0]), str(found[-1][1])) if len(found) == BATCH else None


def drop_tasks(tx: Transaction, workspace: str) -> None:
    """Delete what is noted of tasks over A2A whose first message is gone, in a transaction."""
    for statement in _DROP_TASKS:
        tx.execute(statement, (workspace,))


def drop_steps(tx: Transaction, workspace: str, before: float) -> int:
    """Delete the first steps of members' lives from before a time, in a transaction; returns how many."""
    last = 0
    for number, at in tx.execute(_STEPS, (workspace,)):
        if at >= before:
            break
        last = number
    return len(tx.execute(_DROP_STEPS, (workspace, last))) if last else 0
