"""Branches of threads: which message a branch begins at, its name, and the turns that begin on one.

A replay runs a message again on a new thread, and an edit changes it on its own thread. The branches are one row for
each thread (`memory.branches`), written in one transaction with the turn, so that a killed process leaves both behind
or neither. `runtime` runs the turn; nothing here needs a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from ...core import Scope, check_id
from ...core.errors import InvalidArgument, NameTaken, ThreadBusy
from ...core.events import TurnKind
from ...graphs import SKILL, Composed, TurnRequest
from ...harness.limits import Usage
from ...memory import Message, thread_key
from ...memory.branches import Branch, Branches
from ...storage import Lease, Transaction
from ..stores import Stores

if TYPE_CHECKING:
    from ..runtime.work import RunnerParts

NAME_WAIT_SECONDS: Final = 1.0  # seconds to wait for the owner of a requested name
PAGE_MESSAGES: Final = 50
MAX_BASE_NAME_CHARACTERS: Final = 180  # characters of a name before the added number; a name can have 200


@dataclass(frozen=True, slots=True)
class Branching:
    """Creates branches of threads.

    Attributes:
        stores: The stores of the database.
        usage: Counts forks among the threads that an account begins; None counts nothing.
    """

    stores: Stores
    usage: Usage | None = None

    async def fork(self, scope: Scope, *, at: str | None, to: str | None) -> Scope:
        """Create a thread that continues from a message of another one.

        Args:
            scope: The other thread.
            at: The message's id; None is the newest.
            to: The new thread's id; None makes one.

        Returns:
            The new thread's scope.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: The thread has no message, or `to` is not a valid id.
            NameTaken, ThreadBusy: The thread `to` exists, or another call is creating it.
            LimitReached: The account, or the workspace, begins too many threads today.
        """
        head = (await self.find(scope, at)).id
        async with AsyncExitStack() as held:
            new, lease = await self.claim(held, scope, to, "to")
            branch = self.stores.branches.branch(thread_key(new), head, origin=thread_key(scope))
            if self.usage is not None:
                await self.usage.store(scope, size=0, threads=1)
            await self.stores.branches.add(branch, lease=lease)
        return new

    async def find(self, scope: Scope, at: str | None, kinds: Collection[str] = ()) -> Message:
        """Return a message of a thread.

        Args:
            scope: The thread.
            at: The message's id; None is the newest of `kinds`.
            kinds: The kinds of message to accept; empty accepts all.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: `at` is of another kind, or the thread has no message of `kinds`.
        """
        head = (await self.stores.position(thread_key(scope))).head
        if at is None:
            newest = await self._newest(head, kinds)
            if newest is not None:
                return newest
            what = f"message of kind {' or '.join(kinds)}" if kinds else "message"
            raise InvalidArgument(f"thread {scope.thread!r} has no {what}", remedy="send a message on it first")
        if not isinstance(at, str):
            raise InvalidArgument(f"`at` must be a string, got {type(at).__name__!r}", remedy="pass a message's id")
        if at != head:
            await self.stores.log.history(head, before=at, limit=1)  # raises if the message is not in this conversation
        [found] = await self.stores.log.history(at, limit=1)
        if kinds and found.kind not in kinds:
            raise InvalidArgument(
                f"the message {found.id!r} is of kind {found.kind!r}",
                remedy=f"pass the id of one of kind {' or '.join(kinds)}, from the thread's history",
            )
        return found

    async def claim(self, held: AsyncExitStack, scope: Scope, wanted: str | None, name: str) -> tuple[Scope, Lease]:
        """Acquire a name that no thread has.

        Args:
            held: Releases the name when it exits.
            scope: The thread to branch.
            wanted: The name; None makes one from the thread's own name and a number.
            name: The argument's name, for errors about `wanted`.

        Raises:
            InvalidArgument: `wanted` is not a valid id.
            NameTaken, ThreadBusy: The thread `wanted` exists, or another call is creating it.
        """
        if wanted is not None:
            new = replace(scope, thread=check_id(name, wanted))
            lease = await self._claimed(held, thread_key(new), NAME_WAIT_SECONDS)
            if lease is None:
                raise NameTaken(
                    f"the thread {wanted!r} exists already",
                    remedy=f"pass a name in `{name}` that no thread has, or omit it",
                )
            return new, lease
        first = 2 + await self.stores.branches.count(thread_key(scope))
        for number in count(first):
            new = replace(scope, thread=f"{(scope.thread or '')[:MAX_BASE_NAME_CHARACTERS]}.{number}")
            try:
                lease = await self._claimed(held, thread_key(new), 0)
            except ThreadBusy:
                continue
            if lease is not None:
                return new, lease
        raise AssertionError("numbers do not end")

    async def _claimed(self, held: AsyncExitStack, key: str, wait: float) -> Lease | None:
        if await self._taken(key):
            return None
        async with AsyncExitStack() as claimed:
            lease = await claimed.enter_async_context(self.stores.leases.hold(key, wait=wait))
            if await self._taken(key):  # its owner until now has created the thread
                return None
            held.push_async_exit(claimed.pop_all())
            return lease

    async def _taken(self, key: str) -> bool:
        # Homes of older versions have threads that only checkpoints show.
        return await self.stores.branches.taken(key) or await (await self.stores.find_heads()).values(key) is not None

    async def _newest(self, head: str | None, kinds: Collection[str]) -> Message | None:
        before: str | None = None
        while page := await self.stores.log.history(head, before=before, limit=PAGE_MESSAGES):
            for message in reversed(page):
                if not kinds or message.kind in kinds:
                    return message
            before = page[0].id
        return None


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
    """

    branches: tuple[Branch, ...]
    leases: tuple[Lease, ...]
    body: Mapping[str, Any]

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
class Edit:
    """Edit a message and continue from there; the messages that followed it stay available as another thread.

    Attributes:
        at: The id of the message; None is a person's newest message.
        keep_as: The id of the other thread; None creates one.
    """

    at: str | None = None
    keep_as: str | None = None

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
            branch(thread_key(kept), position.head, origin=key),
            branch(key, message.parent, origin=key, after=position.turn),
        )
        body = parts.engine.converse.kept_inputs({**message.body, **request.body})
        return Start(rows, (lease, kept_lease), body)


@dataclass(frozen=True, slots=True)
class Replay:
    """A person's request to run a turn again.

    Attributes:
        at: The id of the message that the turn began with; None is the newest.
        to: The new thread's id; None creates one.
        skill: The skill, if the turn ran one.
        model: The names of the models for this run; empty means the agent's models.
        example: Whether the turn is kept as examples.
    """

    at: str | None = None
    to: str | None = None
    skill: Composed | None = field(default=None, repr=False)
    model: tuple[str, ...] = ()
    example: bool = False


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
    request = TurnRequest(kind, scope, body, work, prompt, model=replay.model, example=replay.example)
    return request, Again(scope, message.parent, to)
