"""Submitted turns: detached starts with a key that wait in a queue until a worker process begins them (D10).

The queue holds the start as JSON and no role. What makes a start once is its key in the agent's database, as for every
keyed start. So a start that a queue gives to two workers, or to one worker twice, is one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ..core import ROOT, Tier, check_id, digest, new_id
from ..core.errors import InvalidArgument, RoleNotStorable, UnknownTier, UnknownTurn, WorldAgentError
from ..core.events import TurnEvent
from ..core.validation import check_integer
from ..harness.inside import Inside, Origin
from ..memory import TurnRecord, thread_key
from ..memory.turn_log import END, RecordedTurn
from ..role_resolution import Role
from .choices import Unattended
from .following import EventFollower
from .queues import QueueClient, Queued
from .requests import Say, Skill, Task
from .runtime.keys import key_reused, may_succeed_later, outcome_of, request_digest
from .runtime.runner import TurnStream
from .settings import UNSET, Unset
from .starts import Start, read_start, request_of, start_of, start_to_json
from .thread import Thread
from .threads import ThreadStatus
from .turns import Turn

if TYPE_CHECKING:
    from .runtime import RunnerParts, TurnRunner

MAX_PRIORITY: Final = 2**31 - 1
FIRST_POLL_SECONDS: Final = 0.02
MAX_POLL_SECONDS: Final = 0.5

SubmissionStatus = Literal["queued"] | ThreadStatus
"""`queued` until a worker has begun the turn, then the turn's status."""


# --- submit and run ---------------------------------------------------------------------------------------------------


async def submit(
    runner: TurnRunner,
    given: Start | Say | Task | Skill,
    thread: Thread,
    *,
    key: str | None,
    role: Role | Unset | None,
    unattended: Unattended,
    priority: int | None,
) -> Submission:
    """Put a start into the queue; see `WorldAgent.submit`."""
    parts = runner.parts
    if not isinstance(thread, Thread) or thread._runner is not runner:
        raise InvalidArgument("`thread` must be a thread of this agent", remedy="pass agent.thread(ID)")
    guard = None
    if isinstance(given, Say | Task | Skill):
        guard = given.guard
        role, key, unattended = given.role or role, given.key if key is None else key, unattended or given.unattended
    inside = Inside.now()
    if inside is not None and thread._on_behalf_of == ROOT:
        thread = replace(thread, _on_behalf_of=inside.on_behalf_of)
    if priority is not None:
        check_integer("priority", priority, MAX_PRIORITY, remedy="1 is the most urgent, and None is before all numbers")
    _refuse_role(parts, thread, role)
    start = start_of(given)
    request = thread._request_of(_request(thread, start, unattended, guard=guard))
    asked = request_digest(request)
    submission = Submission(runner, thread, new_id("submission") if key is None else check_id("key", key))
    if key is not None:
        found = await parts.recorder.log.find(thread_key(thread.scope), key)
        if found is not None and found.asked != asked:
            raise key_reused(key)
    client, id = await _connected(parts), submission.queue_id
    stored = _to_json(start, thread, submission.key, unattended, asked)
    stored["origin"] = None if inside is None else inside.origin.to_json()
    if request.guard or guard is not None:  # the worker's own setting cannot take it away
        stored["guard"] = request.guard
    if not await client.put(id, stored, priority=priority):
        queued = await client.find(id)
        if queued is not None and queued.request != asked:
            raise key_reused(submission.key)
    return submission


def submitted(open_thread: Callable[..., Thread], stored: Mapping[str, Any]) -> TurnStream:
    """Return the stream that begins or resumes the turn of a stored start.

    Args:
        open_thread: Makes a thread of a worker's agent, as `WorldAgent.thread` does.
        stored: The start, as `QueueClient.put` got it.

    Raises:
        WorldAgentError: This agent cannot run it, for example because it has no such task.
    """
    tiers = stored["tiers"]
    scope = {name: stored[name] for name in ("account", "channel", "name")}
    thread = open_thread(stored["thread"], **scope, tiers=None if tiers is None else [Tier(tier) for tier in tiers])
    start = read_start(stored["start"])
    member = {f"_{name}": stored[name] for name in ("on_behalf_of", "sender")}
    thread = replace(thread, **member, _marks=tuple(stored["marks"]), _origin=Origin.read(stored["origin"]))
    how = {"key": stored["key"], "guard": stored.get("guard"), "detach": True}
    return thread.stream(_request(thread, start, stored["unattended"], **how))


def _to_json(start: Start, thread: Thread, key: str, unattended: Unattended, asked: str) -> dict[str, Any]:
    scope = thread.scope
    return {
        "start": start_to_json(start),
        "thread": scope.thread,
        "account": scope.account,
        "channel": scope.channel,
        "name": thread.name,
        "tiers": None if thread.tiers is None else [tier.value for tier in thread.tiers],
        "on_behalf_of": thread._on_behalf_of,
        "sender": thread._sender,
        "marks": [*thread._marks],
        "key": key,
        "unattended": unattended,
        "request": asked,
    }


def _request(thread: Thread, start: Start, unattended: Unattended, **how: Any) -> Say | Task | Skill:
    """The request of a submitted turn, which is unattended."""
    return request_of(start, unattended=unattended or (True if thread._on_behalf_of == ROOT else "pause"), **how)


def _refuse_role(parts: RunnerParts, thread: Thread, role: object) -> None:
    """Refuse roles that would have to be stored until a worker begins the turn (R9)."""
    if role is not None and role is not UNSET:
        raise UnknownTier(
            "a submitted turn cannot have a call role, because a call role is never stored",
            remedy="store the role for the workspace or the account, or start the turn in this process",
        )
    if role is UNSET and parts.resolver.threads.get(thread.scope) is not None:
        raise RoleNotStorable(
            f"the thread {thread.scope.thread!r} has a role that only this process knows, so a worker would not use it",
            remedy="pass role=None to submit without it, or start the turn in this process",
        )


# --- the handle -------------------------------------------------------------------------------------------------------


async def _connected(parts: RunnerParts) -> QueueClient:
    """The connection to the agent's queue.

    Raises:
        InvalidArgument: The agent has no queue.
        MissingExtra, StorageUnavailable: See `Connecting.client`.
    """
    if parts.queue is None:
        raise InvalidArgument(
            "the agent has no queue", remedy="pass WorldAgent(queue=Queue()), with Queue from worldagent.scheduling"
        )
    return await parts.queue.client()


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted turn. Any process can make this handle: `agent.submission(thread, key)`.

    Attributes:
        thread: Its thread.
        key: Its key.
    """

    _runner: TurnRunner = field(repr=False)
    thread: Thread
    key: str

    @property
    def queue_id(self) -> str:
        """Its id in the queue."""
        return digest([thread_key(self.thread.scope), self.key])

    async def turn_id(self) -> str | None:
        """Return the turn's id; None until a worker has begun it."""
        found = await self._found()
        return None if found is None else found.turn

    async def status(self) -> SubmissionStatus:
        """Return `queued`, or the turn's status. A turn that no worker could begin has `failed` or `cancelled`.

        Raises:
            UnknownTurn: Nothing was submitted with this key, or its thread was removed.
        """
        status = await self._turn_status()
        if status is not None:
            return status
        queued = self._known(await self._queued())
        if queued.state in ("waiting", "taken"):
            return "queued"
        # The turn may have begun, and ended, since the first look.
        return await self._turn_status() or ("cancelled" if queued.code is None else "failed")

    async def wait(self) -> Turn:
        """Wait until the turn is over or waits for a person, whichever worker runs it.

        Returns:
            The turn, as a repeated start with its key would return it.

        Raises:
            UnknownTurn: Nothing was submitted with this key, or its thread was removed.
            WorldAgentError: The turn failed, or no worker could begin it. The error's text is not stored.
        """
        for pause in _polls():
            turn = await self._ended()
            if turn is not None:
                return turn
            await asyncio.sleep(pause)
        raise AssertionError("polling does not end")

    async def events(self, *, after: int = 0) -> AsyncGenerator[TurnEvent]:
        """Follow the turn's events, in whatever process it runs, until it is over or waits for a person.

        Args:
            after: The number (`seq`) of the last event that you have.

        Raises:
            UnknownTurn: Nothing was submitted with this key, or its thread was removed.
            WorldAgentError: No worker could begin the turn; or as for `WorldAgent.events`.
        """
        follower: EventFollower | None = None
        for pause in _polls():
            parts, found = self._runner.parts, await self._found()
            if found is not None and follower is None:
                follower = EventFollower(parts.recorder, found.turn, workspace=self.thread.scope.workspace, after=after)
            while follower is not None and (event := await follower.next()) is not None:
                yield event
            if await self._is_over():
                return
            await asyncio.sleep(pause)

    async def cancel(self) -> bool:
        """Cancel the turn, whether it is queued, runs in a worker or waits for a person.

        Returns:
            False if it was over.

        Raises:
            UnknownTurn: Nothing was submitted with this key, or its thread was removed.
        """
        parts, queued = self._runner.parts, await self._queued()
        waits = queued is not None and queued.state in ("waiting", "taken")
        if waits:  # first, so that no worker begins the turn after the look for it
            await (await _connected(parts)).cancel(self.queue_id)
        found = await self._found()
        if found is not None:
            return await self._runner.cancel_turn(parts, found.turn, self.thread.scope)
        self._known(queued)
        return waits

    async def _turn_status(self) -> ThreadStatus | None:
        found = await self._found()
        if found is None:
            return None
        state = await self._runner.parts.threads.of_turn(self.thread.scope.workspace, found.turn)
        return None if state is None else state.status

    async def _found(self) -> RecordedTurn | None:
        return await self._runner.parts.recorder.log.find(thread_key(self.thread.scope), self.key)

    async def _record(self) -> TurnRecord | None:
        found = await self._found()
        return None if found is None else await self._runner.parts.stores.turns.get(found.turn)

    async def _queued(self) -> Queued | None:
        return await (await _connected(self._runner.parts)).find(self.queue_id)

    def _known(self, queued: Queued | None) -> Queued:
        if queued is None:
            raise UnknownTurn(
                f"nothing was submitted to the thread {self.thread.scope.thread!r} with the key {self.key!r}",
                remedy="use the thread and the key of agent.submit()",
            )
        return queued

    async def _ended(self) -> Turn | None:
        """Return the turn if it is over or waits for a person; follow it as long as it runs.

        Raises:
            WorldAgentError: It failed, or no worker could begin it.
        """
        parts, record = self._runner.parts, await self._record()
        if record is not None and record.status == "running":
            workspace = self.thread.scope.workspace
            follower = EventFollower(parts.recorder, record.id, workspace=workspace, after=END, strict=False)
            while await follower.next() is not None:
                pass
            record = await parts.stores.turns.get(record.id)
        if record is None:
            return await self._not_begun()
        if not await self._settled(record):
            return None
        outcome = await outcome_of(parts, record)
        return None if outcome.status == "paused" and not outcome.pauses else outcome

    async def _settled(self, record: TurnRecord) -> bool:
        """Whether no worker continues the turn by itself."""
        if record.status in ("running", "stopped"):
            return False
        if not may_succeed_later(record):
            return True
        queued = await self._queued()  # a worker tries such a turn again
        return queued is None or queued.state not in ("waiting", "taken")

    async def _not_begun(self) -> Turn | None:
        queued = self._known(await self._queued())
        if queued.code is not None and await self._record() is None:
            raise WorldAgentError.kind_of(queued.code)(
                f"a worker could not begin the turn with the key {self.key!r}: {queued.code!r}",
                remedy="see the worker's log, then submit it with another key",
            )
        if queued.state in ("waiting", "taken") or await self._record() is not None:
            return None
        return Turn(id="", thread=self.thread.scope.thread or "", status="cancelled")

    async def _is_over(self) -> bool:
        record = await self._record()
        if record is None:
            return await self._not_begun() is not None
        return await self._settled(record)


def _polls() -> Iterator[float]:
    """Yield the seconds between polls."""
    pause = FIRST_POLL_SECONDS
    while True:
        yield pause
        pause = min(pause * 2, MAX_POLL_SECONDS)


__all__ = ["Submission", "SubmissionStatus", "submit", "submitted"]
