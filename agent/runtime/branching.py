"""Turns that begin on a branch: what was said is run again on a new thread, or said otherwise on its own.

The rows of the branches are written with the turn's, in one transaction: a process that is killed leaves both or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

from ...core import Scope, check_id
from ...core.errors import InvalidArgument
from ...core.events import TurnKind
from ...graphs import Composed, TurnRequest
from ...memory import thread_key
from ...memory.branches import Branch, Branches
from ...storage import Lease, Transaction
from .work import RunnerParts

SURFACES: Final[tuple[TurnKind, ...]] = get_args(TurnKind)
"""The kinds of messages that turns begin with."""

_SKILL: Final = "give the skill that the turn began with, and none where it ran none"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a turn begins that does not begin at its thread's head.

    Attributes:
        branches: What is written with the turn; the last one is its own thread's, with what stands before its message.
        leases: The ownership of each.
        body: What goes into the log.
    """

    branches: tuple[Branch, ...]
    leases: tuple[Lease, ...]
    body: Mapping[str, Any]

    @property
    def kept_as(self) -> str:
        """The id of the thread that keeps what was; empty where there is none."""
        return self.branches[0].name if len(self.branches) > 1 else ""

    def write(self, transaction: Transaction, asked: str) -> None:
        """Write down the branches; the turn's own thread ends with its message, even if nothing comes of it."""
        *kept, own = self.branches
        Branches.write(transaction, [*kept, replace(own, head=asked)], self.leases)


@dataclass(frozen=True, slots=True)
class Again:
    """Run a turn again, on a new thread.

    Attributes:
        origin: The thread of the first time.
        head: What stands before the message that it begins with.
        to: The new thread's id; None makes one.
    """

    origin: Scope
    head: str | None
    to: str | None

    async def claim(self, parts: RunnerParts, held: AsyncExitStack) -> tuple[Scope, Lease]:
        """Come to own the new thread."""
        return await parts.branching.claim(held, self.origin, self.to, "to")

    async def start(self, parts: RunnerParts, request: TurnRequest, lease: Lease, held: AsyncExitStack) -> Start:
        """Where the turn begins."""
        branch = parts.branches.branch(request.thread_key, self.head, origin=thread_key(self.origin))
        return Start((branch,), (lease,), request.body)


@dataclass(frozen=True, slots=True)
class Edit:
    """Say a message otherwise, and go on from there; what came of it is kept under another name.

    Attributes:
        at: The message's id; None is the newest of a person.
        keep_as: The other name; None makes one.
    """

    at: str | None = None
    keep_as: str | None = None

    async def start(self, parts: RunnerParts, request: TurnRequest, lease: Lease, held: AsyncExitStack) -> Start:
        """Where the turn begins; nothing is written."""
        message = await parts.branching.find(request.scope, self.at, ("message",))
        if message.author != request.author:
            raise InvalidArgument(
                f"the message {message.id!r} was said by another account",
                remedy="edit it on a thread handle of that account, or fork the thread",
            )
        key = request.thread_key
        position = await parts.engine.heads.position(key)
        kept, kept_lease = await parts.branching.claim(held, request.scope, self.keep_as, "keep_as")
        branch = parts.branches.branch
        rows = (
            branch(thread_key(kept), position.head, origin=key),
            branch(key, message.parent, origin=key, after=position.turn),
        )
        return Start(rows, (lease, kept_lease), {**message.body, **request.body})


@dataclass(frozen=True, slots=True)
class Replay:
    """What a person wants run again.

    Attributes:
        at: The message that the turn began with; None is the newest.
        to: The new thread's id; None makes one.
        skill: The skill, where the turn ran one.
        model: The names of the models that it runs with this time; empty is the agent's.
    """

    at: str | None = None
    to: str | None = None
    skill: Composed | None = field(default=None, repr=False)
    model: tuple[str, ...] = ()


async def run_again(parts: RunnerParts, scope: Scope, replay: Replay) -> tuple[TurnRequest, Again]:
    """What runs the turn again that began with a message of a thread.

    Raises:
        UnknownMessage: `at` is not one of the thread's.
        InvalidArgument: No turn began with it, or the skill is missing, of another shape, or none belongs there.
        UnknownShape, UnknownWorker, ParamsInvalid: What a task needs is gone, or is declared otherwise.
    """
    to, skill = replay.to, replay.skill
    if to is not None:
        check_id("to", to)
    if skill is not None and not isinstance(skill, Composed):
        raise InvalidArgument(f"a skill of type {type(skill).__name__} was given", remedy=_SKILL)
    message = await parts.branching.find(scope, replay.at, SURFACES)
    kind = cast("TurnKind", message.kind)
    body = parts.engine.body(message)
    if skill is None and kind == "skill":
        raise InvalidArgument(f"the turn that began with the message {message.id!r} ran a skill", remedy=_SKILL)
    if skill is not None and (kind != "skill" or skill.shape != body["shape"]):
        raise InvalidArgument(f"the turn that began with the message {message.id!r} ran no such skill", remedy=_SKILL)
    work = parts.engine.work(body["shape"], body["params"]) if kind in ("task", "skill") else None
    request = TurnRequest(kind, scope, body, work, None if skill is None else skill.prompt, model=replay.model)
    return request, Again(scope, message.parent, to)
