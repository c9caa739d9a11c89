"""The worker of a member: its soul is its instructions, and its ceiling is what it may do (A13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field

from ..core import digest
from ..harness import Function, Worker
from ..harness.gate import Ceiling
from ..society import Member, WorkspaceConfig
from ..society.functions import AMBIENT, FUNCTIONS, prompts
from ..society.members import LIVE
from ..society.roles import AUTHORITIES, Authority, RoleStatus, TrustProfile

if TYPE_CHECKING:
    from ..agent import WorldAgent

MAX_NAME: Final = 64  # characters of the name of a worker


class EarlierMessage(BaseModel):
    """A message before the one that a member acts on."""

    id: str
    text: str


class MemberRequest(BaseModel):
    """What a member's worker is given for one message."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

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


def worker_of(member: Member, config: WorkspaceConfig) -> Worker:
    """The worker of a member: its soul is its instructions, and it reaches what its operators and authority allow.

    Args:
        member: The member.
        config: Its workspace.
    """
    own = member.spec.language
    listed: dict[str, Authority] = dict.fromkeys(FUNCTIONS, "autonomous")
    for level in AUTHORITIES:
        listed |= dict.fromkeys(getattr(member.spec.authority, level), level)
    reached = (*FUNCTIONS, *member.spec.operator_ids)
    return Worker(
        member.id,
        member.spec.soul,
        f"The member {member.name}.",
        tools=reached,
        input=MemberRequest,
        # A member in testing has no effect outside (A7).
        ceiling=Ceiling(
            functions=(*reached, *AMBIENT, responder_name(member.id)),  # the others are for `respond()`
            authority=listed,
            dry_run=member.life.status is RoleStatus.TESTING,
        ),
        descriptions=prompts(config, own) if own not in (None, config.language) else {},
        memory=True,
        variant=digest(member.spec.soul),  # a turn that waits keeps the soul that it began with (A13)
        offered=False,
    )


def responder_name(role_id: str) -> str:
    """The name of the worker with which a member answers. The capital keeps it apart from the ids of members."""
    name = f"{role_id}.Respond"
    return name if len(name) <= MAX_NAME else f"Respond.{digest(role_id)}"


def enlist(agent: WorldAgent, worker: Worker, *, trust: Callable[[Function], float] | None = None) -> None:
    """Give a member's worker to an agent, in place of one of its name that is defined differently.

    Args:
        agent: The agent.
        worker: The worker.
        trust: Returns how far its calls of a function are trusted; None is not at all.

    Raises:
        NameTaken: The agent has a function or a worker of its own with this name.
    """
    known = agent.parts.engine.services.registry.workers.get(worker.name)
    if known == worker:
        return
    if known is not None and known.variant:  # that of the member before its definition changed
        agent.remove_worker(worker.name)
    agent.add_worker(worker, trust=trust)


def enlist_member(agent: WorldAgent, member: Member) -> None:
    """Give a member its worker, as it is defined now; a draft and one that is terminated lose it.

    A suspended member keeps it, so that it finishes what it is in the middle of.

    Args:
        agent: An open agent with a society.
        member: The member.

    Raises:
        NameTaken: The agent has a function or a worker of its own with the id of the member.
    """
    trusted = _TRUST.setdefault(agent, {})
    trusted[member.id] = member.trust  # read at each call, so that what is stored later changes the turns that run now
    if member.life.status in (*LIVE, RoleStatus.SUSPENDED):
        enlist(agent, worker_of(member, agent.society.config), trust=partial(_trust_of, trusted, member.id))
        return
    known = agent.parts.engine.services.registry.workers.get(member.id)
    if known is not None and known.variant:
        agent.remove_worker(member.id)


_TRUST: Final[WeakKeyDictionary[WorldAgent, dict[str, TrustProfile]]] = WeakKeyDictionary()
"""How far the members of each agent are trusted, as they were enlisted last."""


def _trust_of(trusted: Mapping[str, TrustProfile], member_id: str, callee: Function) -> float:
    return trust_in(trusted[member_id], callee)


def trust_in(profile: TrustProfile, callee: Function) -> float:
    """How far a member is trusted with a function: the least trust in its name and capabilities that have a record.

    Args:
        profile: The trust of the member.
        callee: The function.
    """
    names = (callee.name, *callee.capabilities)
    return min((profile.scores[each] for each in names if each in profile.scores), default=profile.default)


__all__ = ["MemberRequest", "enlist", "enlist_member", "responder_name", "trust_in", "worker_of"]
