"""Removes what is over of members for longer than an age, as a part of `agent.upkeep.prune_by_age` (C2)."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...agent.upkeep.by_age import ByAge
from ...core import Scope
from ...core.scope import member_of
from ...memory import thread_key
from ..events.events import part_of
from .outcomes import fold_outcomes, members_with_old
from .retention import FIRST, Place, count_old, drop_events, drop_mail, drop_steps, named_after, old_events

_ALL: Final = 1_000_000  # pauses
_ACCOUNTS: Final = "SELECT DISTINCT account FROM wa_turn WHERE thread=?"


async def prune_members(work: ByAge, before: float) -> dict[str, int]:
    """Remove what is over of the workspace's members; returns how many of each kind."""
    return await _Members(work).run(before)


class _Members:
    def __init__(self, work: ByAge) -> None:
        self._work = work

    async def run(self, before: float) -> dict[str, int]:
        total = await self._work.stores.database.read(lambda tx: count_old(tx, self._work.workspace, before))
        if self._work.dry_run:
            return total
        done = {"messages": await self._mail(before), "outcomes": await self._outcomes(before), "steps": 0}
        while gone := await self._work.transact(lambda tx: drop_steps(tx, self._work.workspace, before)):
            done["steps"] += gone
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
        """Remove the thread of an event; False if a turn of it is not over, began since, or is no member's."""
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
        waited, done = {each.message_id for each in waits}, 0
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
