"""What is due for members between their turns: what they inherit, and what is left of those that ended (A7, A11).

What is due is a row that is stored with the step that causes it, and deleted after it was done. Each work can be done
twice without a difference, so a kill in between loses nothing and does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...agent.runtime.inside import inside
from ...agent.runtime.stale import end_stale
from ...core import digest
from ...core.errors import UnknownMember, WorldAgentError
from ...core.scope import account_of
from ...memory.entries import Insight
from ..capability import Members
from ..data.roles import RoleStatus
from ..responding import workers_of
from ..society import Society
from .lives import MemoryDue
from .members import Member
from .memory import MAX_LISTED, AgentMemory

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...agent.threads import ThreadStatus

INHERITED: Final = "inherited"
"""The tag of an insight that a member has from its parent."""

INHERITED_SHARE: Final = 0.7
"""What part of its confidence an insight keeps when it is inherited: the child must verify it itself (A9)."""

MAX_INHERITED: Final = 20

_OPEN: Final[tuple[ThreadStatus, ...]] = ("running", "cut_off", "paused", "stopped", "failed")
_THREADS: Final = 1000
_HOUR: Final = 3600.0  # seconds
_HOURS: Final = 24
_LOG: Final = logging.getLogger("worldagent.gateway")


def inherited(insights: Iterable[Insight], child: Member, tags: Iterable[str]) -> tuple[Insight, ...]:
    """The insights that a child has from its parent, as its own (A9).

    They are those of the child's domains with one of the tags, or with no tag at all; without tags, all of its domains.
    The most certain ones count.

    Args:
        insights: The parent's.
        child: The child.
        tags: What the child is about.
    """
    about = {each.casefold() for each in tags}
    found = [
        each
        for each in insights
        if each.domain in child.spec.domains
        and (not about or not each.tags or about & {tag.casefold() for tag in each.tags})
    ]
    best = sorted(found, key=lambda each: (-each.confidence, each.id))[:MAX_INHERITED]
    return tuple(
        replace(
            _as_of(each, child.id),
            confidence=round(each.confidence * INHERITED_SHARE, 4),
            tags=tuple(dict.fromkeys((*each.tags, INHERITED))),
        )
        for each in best
    )


def learned(insights: Iterable[Insight], parent: str) -> tuple[Insight, ...]:
    """The insights that a child leaves to its parent, as the parent's: those that it did not inherit (A7).

    Args:
        insights: The child's.
        parent: The parent.
    """
    return tuple(_as_of(each, parent) for each in insights if INHERITED not in each.tags)


def _as_of(insight: Insight, member: str) -> Insight:
    return replace(insight, id=f"{member}.{digest([insight.role_id, insight.id])}", role_id=member)


class MemberUpkeep:
    """Does what is due for the members of an agent's society. The gateway of each process calls `run` in its loop.

    Args:
        agent: An open agent with a society.
    """

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self._seen = 0

    async def run(self) -> int:
        """Terminate members whose lifetime is over, and do what is due; returns how many works were done.

        A work that fails is tried again in the next call, and what is due after it is done without it.
        """
        await self._society.expire()
        await end_stale(inside(self._agent).parts, self._agent.workspace)
        await self._take_workers()
        done = 0
        for due in await self._society.memory_due():
            try:
                if await self._done(due):
                    await self._society.memory_done(due.number)
                    done += 1
            except WorldAgentError as error:
                _LOG.warning("%s of the memory of %r failed: %s", due.work, due.member, error.code)
        return done

    async def prune(self) -> None:
        """Remove finished work of members after the setting `society_age`, each hour until this is cancelled.

        Content of attachments that no message refers to is removed each day.
        """
        age, passed = self._agent.settings.society_age, 0
        while True:
            try:
                if age is not None:
                    await self._agent.upkeep.prune_by_age(society=age)
                if passed % _HOURS == 0:
                    await inside(self._agent).stores.attachments.drop_unreferenced()
            except WorldAgentError as error:  # the next hour tries again
                _LOG.warning("what is old of members could not be removed: %s", error.code)
            passed += 1
            await inside(self._agent).clock.sleep(_HOUR)

    async def _take_workers(self) -> None:
        """Take their workers from members that were terminated, also by another process."""
        while steps := await self._society.steps_since(self._seen):
            self._seen = steps[-1].number
            last = {each.member: each.status for each in steps}
            for member in (each for each, status in last.items() if status is RoleStatus.TERMINATED):
                try:
                    await workers_of(self._agent).enlist(member)
                except UnknownMember:  # it was removed since
                    continue

    async def _done(self, due: MemoryDue) -> bool:
        """Do one work; False if it must wait until turns have ended."""
        if due.work == "inherit":
            child = await self._society.members.member(self._agent.workspace, due.member)
            found = await self._insights(due.parent)
            await AgentMemory(self._agent, due.member).store_insights(inherited(found, child, due.tags))
            return True
        if await self._cancel_turns(due.member):
            return False
        if due.work == "merge_to_parent" and due.parent and await self._exists(due.parent):
            found = await self._insights(due.member)
            await AgentMemory(self._agent, due.parent).store_insights(learned(found, due.parent))
        if due.work == "delete":
            workspace = self._agent.workspace
            await inside(self._agent).parts.stores.entries.forget_account(workspace, account_of(workspace, due.member))
        return True

    async def _cancel_turns(self, member: str) -> bool:
        """Cancel the turns of a member; returns whether one still runs, which could still write to its memory."""
        account = account_of(self._agent.workspace, member)
        for status in _OPEN:
            for state in await self._agent.threads(status=status, account=account, archived=None, limit=_THREADS):
                await self._agent.thread(state.thread, account=account).cancel()
        return bool(await self._agent.threads(status="running", account=account, archived=None, limit=1))

    async def _insights(self, member: str) -> tuple[Insight, ...]:
        """The member's own insights."""
        found = await AgentMemory(self._agent, member).recall_insights(limit=MAX_LISTED)
        return tuple(each for each in found if each.role_id == member)

    async def _exists(self, member: str) -> bool:
        return await self._society.members.get(self._agent.workspace, member) is not None

    @property
    def _society(self) -> Society:
        return self._agent.get(Members)
