"""The turns that begin on a branch of a thread: a message that is run again, and one that is edited.

A replay runs a message again on a new thread, and an edit changes it on its own thread. The branches are one row for
each thread (`memory.branches`), written in one transaction with the turn, so that a killed process leaves both behind
or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from ...core import Scope, check_id
from ...core.errors import InvalidArgument
from ...core.events import TurnKind
from ...graphs import SKILL, Composed, TurnRequest
from ...memory import thread_key
from ...memory.branches import Branch, Branches
from ...storage import Lease, Transaction
from ..choices import turn_models
from .work import RunnerParts, handed_by

if TYPE_CHECKING:
    from ..requests import Replay

SURFACES: Final[tuple[TurnKind, ...]] = get_args(TurnKind)
"""The kinds of messages that turns begin with."""

_SKILL: Final = "pass the skill that the turn began with, or none if it ran none"


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a turn that does not begin at its thread's head.

    Attributes:
        branches: The branches to write with the turn. The last one is the turn's own and ends before its message.
        leases: The ownership of each branch's thread.
        body: The body of the message that goes into the log.
        depth: How deep the last message before it is.
    """

    branches: tuple[Branch, ...]
    leases: tuple[Lease, ...]
    body: Mapping[str, Any]
    depth: int = -1

    @property
    def kept_as(self) -> str:
        """The id of the thread that keeps the messages from before the edit; empty if there is none."""
        return self.branches[0].name if len(self.branches) > 1 else ""

    def write(self, transaction: Transaction, asked: str) -> None:
        """Write the branches. The turn's own thread ends with its message, even if the turn gives no answer."""
        *kept, own = self.branches
        Branches.write(transaction, [*kept, replace(own, head=asked)], self.leases)


@dataclass(frozen=True, slots=True)
class Again:
    """Run a turn again on a new thread.

    Attributes:
        origin: The thread that the turn first ran on.
        head: The message before the one that the turn begins with.
        to: The new thread's id; None creates one.
    """

    origin: Scope
    head: str | None
    to: str | None

    async def claim(self, parts: RunnerParts, held: AsyncExitStack) -> tuple[Scope, Lease]:
        """Acquire ownership of the new thread."""
        return await parts.branching.claim(held, self.origin, self.to, "to")

    async def start(self, parts: RunnerParts, request: TurnRequest, lease: Lease, held: AsyncExitStack) -> Start:
        """Return where the turn begins."""
        branch = parts.stores.branches.branch(request.thread_key, self.head, origin=thread_key(self.origin))
        return Start((branch,), (lease,), request.body)


@dataclass(frozen=True, slots=True)
class Edited:
    """Edit a message and continue from there; the messages that followed it stay available as another thread.

    Attributes:
        at: The id of the message; None is a person's newest message.
        keep_as: The id of the other thread; None creates one.
    """

    at: str | None
    keep_as: str | None

    async def start(self, parts: RunnerParts, request: TurnRequest, lease: Lease, held: AsyncExitStack) -> Start:
        """Return where the turn begins; nothing is written."""
        message = await parts.branching.find(request.scope, self.at, ("message",))
        if message.author != request.author:
            raise InvalidArgument(
                f"the message {message.id!r} was written by another account",
                remedy="edit it on a thread handle of that account, or fork the thread",
            )
        key = request.thread_key
        position = await parts.engine.heads.position(key)
        kept, kept_lease = await parts.branching.claim(held, request.scope, self.keep_as, "keep_as")
        branch = parts.stores.branches.branch
        rows = (
            branch(thread_key(kept), position.head, origin=key, handed=handed_by(lease)),
            branch(key, message.parent, origin=key, after=position.turn),
        )
        body = parts.engine.converse.kept_inputs({**message.body, **request.body})
        return Start(rows, (lease, kept_lease), body, message.depth - 1)


async def run_again(parts: RunnerParts, scope: Scope, replay: Replay) -> tuple[TurnRequest, Again]:
    """Build the request that runs a turn again from a message of a thread.

    Raises:
        UnknownMessage: `at` is not one of the thread's.
        InvalidArgument: No turn began with the message, `skill` is missing, has another shape, or is not needed, or the
            message lacks an input that the agent's class requires.
        UnknownShape, UnknownWorker, ParamsInvalid: Something that a task needs is gone or is declared differently.
    """
    to, skill = replay.to, replay.skill
    if to is not None:
        check_id("to", to)
    if skill is not None and not isinstance(skill, Composed):
        raise InvalidArgument(f"`skill` must be a composed skill, got a {type(skill).__name__}", remedy=_SKILL)
    message = await parts.branching.find(scope, replay.at, SURFACES)
    kind = cast("TurnKind", message.kind)
    body = parts.engine.body(message)
    if skill is None and kind == "skill" and body["shape"] != SKILL:
        raise InvalidArgument(f"the turn that began with the message {message.id!r} ran a skill", remedy=_SKILL)
    if skill is not None and (kind != "skill" or skill.shape != body["shape"]):
        problem = f"the turn that began with the message {message.id!r} did not run this skill"
        raise InvalidArgument(problem, remedy=_SKILL)
    work = parts.engine.work(body["shape"], body["params"]) if kind in ("task", "skill") else None
    body = parts.engine.converse.kept_inputs(body) if work is None else body
    prompt = None if skill is None else skill.prompt
    request = TurnRequest(kind, scope, body, work, prompt, model=turn_models(replay.model), example=replay.example)
    return request, Again(scope, message.parent, to)
