"""The worker of a member: its soul is its instructions, and its ceiling is what it may do (A13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, Field

from ..agent.runtime.inside import AgentRuntime
from ..core import digest
from ..core.errors import UnknownMember
from ..core.scope import account_of
from ..core.validation import ClosedModel
from ..harness import Function, Worker
from ..harness.gate import Ceiling
from ..harness.limits import Limits
from ..memory.entries import Reader
from .data.roles import AUTHORITIES, Authority, RoleStatus, TrustProfile
from .data.workspace import RoleTemplate, WorkspaceConfig
from .functions import AMBIENT, ASK_MEMBERS, BUDGETS, FUNCTIONS, SPAWN, prompts
from .life.members import LIVE, Member, check_speaks
from .life.reading import reader_of
from .society import Society

MAX_NAME: Final = 64  # characters of the name of a worker


class EarlierMessage(BaseModel):
    """A message before the one that a member acts on."""

    id: str
    text: str


class MemberRequest(ClosedModel):
    """What a member's worker is given for one message."""

    task: str = Field(default="", description="your task brief")
    goals: str = Field(default="", description="your goals, and how far they are reached")
    contacts: list[dict[str, Any]] = Field(
        default=[], description="whom you can write to, and how they want to be asked"
    )
    earlier: list[EarlierMessage] = Field(
        default=[], description="messages that you received and sent before, the oldest first"
    )
    message_id: str = Field(default="", description="the id of the message to act on, for `answers`")
    message: str = Field(description="the message to act on")


def worker_of(member: Member, config: WorkspaceConfig, usable: Sequence[RoleTemplate]) -> Worker:
    """The worker of a member: its soul is its instructions, and it reaches what its operators and authority allow.

    Args:
        member: The member.
        config: Its workspace.
        usable: The templates of which it can make members.
    """
    own = member.spec.language
    told = prompts(own or config.language, usable)
    own_functions = (*FUNCTIONS, *BUDGETS) if config.has_limits else FUNCTIONS
    listed: dict[str, Authority] = dict.fromkeys((*own_functions, ASK_MEMBERS), "autonomous")
    for level in AUTHORITIES:
        listed |= dict.fromkeys(getattr(member.spec.authority, level), level)
    reached = (*own_functions, *member.spec.operator_ids)
    return Worker(
        member.id,
        member.spec.soul,
        f"The member {member.name}.",
        tools=reached,
        input=MemberRequest,
        # A member in testing has no effect outside (A7).
        ceiling=Ceiling(
            functions=(*reached, ASK_MEMBERS, *AMBIENT, responder_name(member.id)),  # the others are for `respond()`
            authority=listed,
            dry_run=member.life.status is RoleStatus.TESTING,
        ),
        descriptions=told if own not in (None, config.language) else {SPAWN: told[SPAWN]},
        memory=True,
        limits=Limits() if member.spec.limits is None else Limits(seconds=member.spec.limits.seconds),
        variant=digest(member.spec.soul),  # a turn that waits keeps the soul that it began with (A13)
        offered=False,
    )


def responder_name(role_id: str) -> str:
    """The name of the worker with which a member answers. The capital keeps it apart from the ids of members."""
    name = f"{role_id}.Respond"
    return name if len(name) <= MAX_NAME else f"Respond.{digest(role_id)}"


class MemberWorkers:
    """The workers of an agent's members. Each is made from its member, as that is stored, when a turn needs it.

    Args:
        society: The members.
        agent: The agent. Its engine is made once all capabilities are open, so it is asked for at each call.
    """

    def __init__(self, society: Society, agent: AgentRuntime) -> None:
        self._society = society
        self._agent = agent
        self._trusted: dict[str, TrustProfile] = {}
        self._marks: dict[str, tuple[str, ...]] = {}

    async def enlist(self, member_id: str) -> Member:
        """Give a member its worker, as it is defined now, and return the member.

        A draft, one that is terminated and a remote agent have no worker.

        Args:
            member_id: The member.

        Raises:
            UnknownMember: There is no such member.
            NameTaken: The agent has a function or a worker of its own with this id.
        """
        member = await self._society.members.member(self._society.config.id, member_id)
        await self.update(member)
        return member

    async def update(self, member: Member) -> None:
        """Do as `enlist` does with a member that was just read.

        A suspended member keeps its worker, so that it finishes what it is in the middle of.

        Raises:
            NameTaken: The agent has a function or a worker of its own with the id of the member.
        """
        self._marks[member.id] = member.spec.untrusted
        self._trusted[member.id] = member.trust  # read at each call, so that what changes later counts in running turns
        if member.life.status in (*LIVE, RoleStatus.SUSPENDED) and member.spec.remote is None:
            usable = await self._society.templates(member.id)
            self.put(worker_of(member, self._society.config, usable), trust=partial(self._trust_of, member.id))
            return
        known = self._agent.registry.workers.get(member.id)
        if known is not None and known.variant:
            self._agent.parts.engine.remove_worker(member.id)

    async def speaking(self, member_id: str) -> Reader | None:
        """What a member may know that is to speak in a conversation (A21), after it has its worker; None if it is gone.

        Args:
            member_id: The member.

        Raises:
            LifecycleError: It is a draft, or suspended.
        """
        config = self._society.config
        try:
            member = await self._society.members.member(config.id, member_id)
            await self.update(member)
            check_speaks(member)
        except UnknownMember:
            return None
        return await reader_of(self._society, account_of(config.id, member_id))

    def marks_of(self, member_id: str) -> tuple[str, ...]:
        """The untrusted content that the definition of a member was made of, which each of its turns has read (M5).

        A member that has no worker here has none.
        """
        return self._marks.get(member_id, ())

    def put(self, worker: Worker, *, trust: Callable[[Function], float] | None = None) -> None:
        """Give the agent a worker, in place of one of its name that is defined differently.

        Args:
            worker: The worker.
            trust: Returns how far its calls of a function are trusted; None is not at all.

        Raises:
            NameTaken: The agent has a function or a worker of its own with this name.
        """
        known = self._agent.registry.workers.get(worker.name)
        if known == worker:
            return
        if known is not None and known.variant:  # that of the member before its definition changed
            self._agent.parts.engine.remove_worker(worker.name)
        self._agent.parts.engine.add_worker(worker, trust=trust)

    def _trust_of(self, member_id: str, callee: Function) -> float:
        return trust_in(self._trusted[member_id], callee)


def trust_in(profile: TrustProfile, callee: Function) -> float:
    """How far a member is trusted with a function: the least trust in its name and capabilities that have a record.

    Args:
        profile: The trust of the member.
        callee: The function.
    """
    names = (callee.name, *callee.capabilities)
    return min((profile.scores[each] for each in names if each in profile.scores), default=profile.default)
