"""How a member answers: a turn in which it looks into what it knows and what it may do, and acts on nothing (A6).

The turn runs a worker of its own, beside the one that acts on messages. Its instructions are the soul, its tools are
the ambient ones, and a ceiling keeps everything else out of reach, whatever the policy or the member's authority says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field

from ..agent.runtime.inside import inside
from ..agent.thread import Thread, as_member
from ..agent.turns import Turn
from ..core import canonical_json, digest, new_id
from ..core.errors import WorldAgentError
from ..core.scope import account_of
from ..core.validation import ClosedModel
from ..graphs import SUBAGENT
from ..graphs.shape import OPERATOR
from ..harness import Function, Worker
from ..harness.gate import Ceiling
from ..memory.entries import Episode
from ..memory.entries.recall import RECALL, Passage
from ..role_resolution import Role
from .capability import WORKERS, Members
from .data.accounts import thread_of
from .data.roles import AUTHORITIES, MAX_GOALS, active, goals_text
from .functions import AMBIENT, AUTHORITY, BOARD, GOALS, LOOK_UP
from .life.members import LIVE, Member
from .life.memory import AgentMemory
from .mail.rules import not_live
from .workers import MemberWorkers, responder_name

if TYPE_CHECKING:
    from ..agent import WorldAgent

RESPOND: Final = "respond"
"""The capability of the episodes of `respond()`."""

_MAX_QUOTED: Final = 1900  # characters of the message, and of the answer, in an episode


class RespondRequest(ClosedModel):
    """What a member is given to answer."""

    message: str = Field(description="the message to answer", min_length=1)


class RespondWithGoals(RespondRequest):
    """The same for a member that has goals."""

    goals: str = Field(description="your goals, and how far they are reached")


def responder_of(member: Member, *, remembers: bool, briefs: bool = False, llm: str | None = None) -> Worker:
    """The worker with which a member answers. It can call what looks into something that is there, and nothing else.

    Args:
        member: The member.
        remembers: Whether the agent has memory.
        briefs: Whether it was given a task brief, or gave one.
        llm: The model, by name or as a model string; None is the agent's.
    """
    goals, authority = bool(active(member.spec.goals)), member.spec.authority
    there = {
        RECALL: remembers,
        GOALS: goals,
        LOOK_UP: True,
        AUTHORITY: any(getattr(authority, level) for level in AUTHORITIES),
        BOARD: briefs,
    }
    tools = tuple(name for name in AMBIENT if there[name])
    return Worker(
        responder_name(member.id),
        member.spec.soul,
        f"Answers for the member {member.name}.",
        tools=tools,
        input=RespondWithGoals if goals else RespondRequest,
        model=llm,
        ceiling=Ceiling(functions=tools),
        memory=True,
        variant=digest(member.spec.soul),
        offered=False,
    )


def workers_of(agent: WorldAgent) -> MemberWorkers:
    """The workers of an open agent's members. A turn that resumes gives its member its worker by itself.

    Raises:
        AgentClosed: The agent is not open.
        InvalidArgument: The agent has no society.
    """
    agent.get(Members)
    workers: MemberWorkers = inside(agent).opened[WORKERS]
    return workers


async def respond(
    agent: WorldAgent,
    role_id: str,
    message: str,
    context: str | Sequence[str | Passage] = "",
    *,
    role: Role | None = None,
    channel: str | None = None,
    key: str | None = None,
    llm: str | None = None,
) -> Turn:
    """Let a member answer a message; see `AutonomousRole.respond`."""
    society = agent.get(Members)
    member = await society.members.member(agent.workspace, role_id)
    if member.life.status not in LIVE:
        raise not_live(member)
    recall = inside(agent).parts.engine.services.recall
    worker = responder_of(member, remembers=recall is not None, briefs=await society.board.has_any(role_id), llm=llm)
    workers = workers_of(agent)
    await workers.update(member)
    workers.put(worker)
    request = {"message": message}
    if worker.params is RespondWithGoals:
        request["goals"] = goals_text(member.spec.goals, MAX_GOALS)
    given = ([context] if context else []) if isinstance(context, str) else context
    account = account_of(agent.workspace, role_id)
    thread = as_member(agent.thread(thread_of(role_id), account=account, channel=channel), role_id)
    params, start = {"worker": worker.name, "request": request}, {"role": role, "key": key, "context": given}
    return await _recorded(agent, role_id, thread, Run(SUBAGENT, params, RESPOND, message), start)


async def run_operator(
    agent: WorldAgent, role_id: str, operator: str, input: object, *, key: str | None = None
) -> Turn:
    """Let a member run one of its operators; see `Operator`."""
    member = await agent.get(Members).members.member(agent.workspace, role_id)
    await workers_of(agent).update(member)
    # A thread of its own, as for an event: a run that waits for a person holds up nothing else.
    thread = agent.thread(f"operator {key or new_id('run')}", account=account_of(agent.workspace, role_id))
    given = input.model_dump(mode="json") if isinstance(input, BaseModel) else input
    run = Run(OPERATOR, {"worker": operator, "request": given}, operator, canonical_json(given))
    return await _recorded(agent, role_id, as_member(thread, role_id), run, {"key": key})


@dataclass(frozen=True, slots=True)
class Run:
    """What a turn does, and what its episode says of it.

    Attributes:
        shape: The shape of its task.
        params: The params of the task.
        action: The capability.
        said: What the member was given.
    """

    shape: str
    params: Mapping[str, Any]
    action: str
    said: str


async def _recorded(agent: WorldAgent, role_id: str, thread: Thread, run: Run, start: dict[str, Any]) -> Turn:
    """Run a turn and record its episode; one that waits or was stopped is not over and has none yet."""
    begun = inside(agent).clock.now()
    try:
        turn = await thread.task(run.shape, run.params, **start)
    except WorldAgentError as error:
        # One that is begun again with its key is not over.
        if error.turn_id is not None and not (error.retryable and start.get("key") is not None):
            await _record(agent, role_id, run, begun, error.turn_id, error.code)
        raise
    if turn.status not in ("paused", "stopped"):
        turn = replace(turn, text="" if turn.result is None else turn.result.text)
        answer = turn.text if turn.roleless is None and not turn.role_tiers else turn.roleless
        await _record(agent, role_id, run, begun, turn.id, "" if turn.status == "done" else turn.status, answer)
    return turn


async def _record(
    agent: WorldAgent, role_id: str, run: Run, begun: datetime, turn: str, code: str, answer: str | None = None
) -> None:
    now = inside(agent).clock.now()
    shown = f"\nAnswered: {answer[:_MAX_QUOTED]}" if answer else ""
    episode = Episode(
        id=f"{run.action}.{turn}",
        role_id=role_id,
        action=run.action,
        outcome={"success": not code, **({"code": code} if code else {})},
        at=now,
        text=f"Asked: {run.said[:_MAX_QUOTED]}{shown}",
        seconds=max(0.0, (now - begun).total_seconds()),
    )
    await agent.get(Members).outcomes.record(await AgentMemory(agent, role_id).remember(episode, turn))


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a member: call it with its input, and it runs as a turn of the member (A14).

    It runs for the member: under its ceiling, its limits and the gate, with what its account remembers and its
    clearance admits. A run that needs an approval pauses, and each that is over is one episode.

    Args:
        agent: An open agent with a society.
        role_id: The member.
        id: The name of a function or a worker.
    """

    agent: WorldAgent = field(repr=False)
    role_id: str
    id: str

    @property
    def function(self) -> Function:
        """The function, or the worker as one.

        Raises:
            UnknownFunction: The agent has none of this name.
        """
        return inside(self.agent).parts.engine.services.registry.function(self.id)

    async def __call__(self, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Turn:
        """Run it, and return the turn with the result as text.

        Args:
            input: Its params.
            key: Makes a repeated run the same turn, with one episode.

        Raises:
            UnknownMember, UnknownFunction, ParamsInvalid: It cannot be run so; nothing was written.
            CallRefused: The gate refuses it.
            TaskFailed, HostError, ResultInvalid: It failed.
        """
        return await run_operator(self.agent, self.role_id, self.id, input, key=key)
