"""Starts with a key: a repeated one is the same turn, in this process or another, whatever became of it (T10).

In one process whoever comes second holds the same run. Between processes the lease of the thread decides: under it the
key is written with the turn, so there is one turn, and whoever waits for the lease meanwhile looks for the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...core import Scope, digest
from ...core.errors import AgentClosed, KeyReused, NothingToResume
from ...core.events import Event
from ...graphs import TurnRequest
from ...memory import TurnRecord
from ...memory.attachments import Attachment, AttachmentSource
from ...memory.events import RecordedTurn
from ...role_resolution import Role
from .._stream import RunningTurn, cancel_once
from .._turns import Turn
from .._unset import UNSET
from ..events import EventFollower
from .ended import outcome_of, passing
from .limits import KeyBegun
from .work import NewTurn, ResumedTurn, Resumption, RunnerParts

if TYPE_CHECKING:
    from .runner import TurnRunner

_END: Final = 1 << 62  # behind any event


@dataclass(slots=True, eq=False)
class Keyed:
    """A start with a key that is under way in this process.

    Attributes:
        asked: Stands for what is asked.
        prompt: Stands for a skill's prompt, in this process alone.
        turn_id: The turn, once it is known.
        task: Comes to its end.
        runs: How often there was news of it.
        news: Is set with the next: the turn is known, goes on here, or is over.
        holders: How many streams hold it.
        detached: Whether one of them wants it to go on when they have all left.
    """

    asked: str
    prompt: str | None = None
    turn_id: str = ""
    task: asyncio.Task[Turn] | None = None
    runs: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    holders: int = 0
    detached: bool = False

    @property
    def is_ending(self) -> bool:
        """Whether it is cancelled, and comes to its end."""
        return self.task is not None and self.task.cancelling() > 0

    def learn(self, turn_id: str) -> None:
        """The turn is there, and runs here if it runs."""
        self.turn_id = turn_id
        self.tell()

    def tell(self) -> None:
        """Wake who waits for news."""
        self.runs += 1
        news, self.news = self.news, asyncio.Event()
        news.set()

    def leave(self) -> bool:
        """Remove one stream; returns whether the turn is to be cancelled."""
        self.holders -= 1
        return self.holders == 0 and not self.detached


class KeyedStarts:
    """The starts with keys of one agent.

    Args:
        runner: Runs the turns.
    """

    def __init__(self, runner: TurnRunner) -> None:
        self._runner = runner
        self._here: dict[tuple[str, str], Keyed] = {}

    async def hold(self, parts: RunnerParts, work: NewTurn, *, detach: bool) -> RunningTurn:
        """Start a turn, or hold the one that was begun with the key.

        Raises:
            KeyReused: It was begun with something else.
        """
        turn, key, asked = _asked(work)
        place = (turn.thread, key)
        prompt = None if work.request.prompt is None else parts.resolver.key.digest_of(work.request.prompt)
        while (keyed := self._here.get(place)) is not None and keyed.is_ending:
            assert keyed.task is not None, "it runs"
            await asyncio.wait({keyed.task})  # what is cancelled is not held; whether it has begun is known then
            parts = self._runner.parts
        if keyed is None:
            keyed = self._here[place] = Keyed(asked, prompt)
            keyed.task = self._runner.spawn(turn.turn, self._run(parts, keyed, work))
            keyed.task.add_done_callback(lambda _: self._over(place))
        else:
            work.role = None  # whoever came first has brought one, or none
            if (keyed.asked, keyed.prompt) != (asked, prompt):
                raise _reused(key)
        keyed.holders += 1
        keyed.detached |= detach
        return await self._held(parts, keyed, work.scope)

    async def repeats(self, parts: RunnerParts, thread: str, key: str) -> bool:
        """Whether a start with a key would give a turn that is there, and run none here."""
        if (thread, key) in self._here:
            return True
        found = await parts.recorder.log.keyed(thread, key)
        record = None if found is None else await parts.turns.get(found.turn)
        if record is None:
            return found is not None
        if record.status == "running" and await parts.leases.owned([thread]):
            return True
        return not await _can_go_on(parts, record)

    def _over(self, place: tuple[str, str]) -> None:
        self._here.pop(place).tell()

    async def _held(self, parts: RunnerParts, keyed: Keyed, scope: Scope) -> RunningTurn:
        task = keyed.task
        assert task is not None, "it runs"
        try:
            while not keyed.turn_id and not task.done():
                await keyed.news.wait()
        except asyncio.CancelledError:
            if keyed.leave():
                cancel_once(task)
            raise
        if not keyed.turn_id:
            keyed.leave()
            return RunningTurn("", scope.thread or "", task, _nothing, _not_there, lambda: 0, recorded=False)

        async def end() -> bool:
            return await self._runner.cancel_turn(parts, keyed.turn_id, scope)

        events = _KeyedEvents(parts, keyed, scope.workspace)
        return RunningTurn(
            keyed.turn_id,
            scope.thread or "",
            task,
            events.next,
            end,
            lambda: events.follower.behind,
            recorded=True,
            leave=keyed.leave,
        )

    async def _run(self, parts: RunnerParts, keyed: Keyed, work: NewTurn) -> Turn:
        """Come to the turn's end, whoever runs it."""
        log, (turn, key, asked) = parts.recorder.log, _asked(work)
        found = await log.keyed(turn.thread, key)
        if found is None:
            with contextlib.suppress(KeyBegun):
                return await self._runner.running(parts, turn.turn, work, lambda: keyed.learn(turn.turn))
            found = await log.keyed(turn.thread, key)
        assert found is not None, "a key goes with its thread alone"
        await self._check(parts, found, work.request, asked)
        keyed.learn(found.turn)
        return await self._go_on(parts, keyed, found, work)

    async def _check(self, parts: RunnerParts, found: RecordedTurn, request: TurnRequest, asked: str) -> None:
        """Compare what is asked with what was asked.

        Raises:
            KeyReused: It is something else.
        """
        same = found.asked == asked
        if same and request.prompt is not None:
            record = await parts.turns.get(found.turn)
            kept, noted = None if record is None else record.prompt, parts.resolver.key
            same = (
                kept is None or not noted.made(kept) or kept == noted.named(noted.maker(kept)).digest_of(request.prompt)
            )
        if not same:
            raise _reused(found.key or "")

    async def _go_on(self, parts: RunnerParts, keyed: Keyed, found: RecordedTurn, work: NewTurn) -> Turn:
        assert keyed.task is not None, "it runs"
        while True:
            await self._followed(parts, found.turn)
            record = await parts.turns.get(found.turn)
            if record is None:  # its thread is removed
                return Turn(id=found.turn, thread=work.scope.thread or "", status="cancelled")
            if not await _can_go_on(parts, record):
                outcome = await outcome_of(parts, record)
                if outcome.status == "paused" and not outcome.pauses:
                    continue  # all was answered since it was looked at
                return outcome
            how = Resumption(
                UNSET if work.role is None else work.role, prompt=work.request.prompt, output=work.request.output
            )
            recording = parts.recorder.recording(found, again=True)
            resumed = ResumedTurn(record, how, origin=work.request.origin, recording=recording, by_key=True)
            work.role = None  # what was ended meanwhile does not go on a second time
            del how
            self._runner.enlist(found.turn, keyed.task)
            try:
                return await self._runner.running(parts, found.turn, resumed, keyed.tell)
            except NothingToResume:
                pass
            except KeyBegun:  # nothing was made of the role yet
                work.role = resumed.how.role if isinstance(resumed.how.role, Role) else None
                keyed.tell()  # whoever follows the turn follows the other run at it

    async def _followed(self, parts: RunnerParts, turn_id: str) -> None:
        """Wait for the end of a run that is elsewhere.

        Raises:
            AgentClosed: This agent was closed meanwhile.
        """
        try:
            async with parts.drain.refusing():
                return await _no_longer_runs(parts, turn_id)
        except asyncio.CancelledError:
            if self._runner.is_open:
                raise
        except AgentClosed:
            pass
        raise AgentClosed(
            f"the agent was closed while it followed the turn {turn_id!r}",
            remedy="call it again with the same key, once the agent is open: it gives the turn as it stands then",
        )


class _KeyedEvents:
    """The events of a turn from its first one on, over all runs at it that its holders come to see."""

    def __init__(self, parts: RunnerParts, keyed: Keyed, workspace: str) -> None:
        self._keyed = keyed
        self.follower = EventFollower(parts.recorder, keyed.turn_id, workspace=workspace, whole=False, thinks=True)

    async def next(self) -> Event | None:
        """The next event; None after the last one."""
        keyed = self._keyed
        assert keyed.task is not None, "it runs"
        while True:
            runs, over = keyed.runs, keyed.task.done()
            event = await self.follower.next()
            if event is not None or over:
                return event
            # Whoever ran it does not any more: it goes on here, or that was its end.
            if keyed.runs == runs and not keyed.task.done():
                await keyed.news.wait()
            self.follower = self.follower.again()


def _asked(work: NewTurn) -> tuple[RecordedTurn, str, str]:
    """The turn that a start would make, its key, and what stands for what is asked."""
    assert work.recording is not None, "what has a key is recorded"
    turn = work.recording.turn
    assert turn.key is not None, "it has one"
    assert turn.asked is not None, "and tells one start from another"
    return turn, turn.key, turn.asked


async def _nothing() -> None:
    return None


async def _not_there() -> bool:
    return False


async def _no_longer_runs(parts: RunnerParts, turn_id: str) -> None:
    """Wait for the end of the run that another process has under way, or another surface here."""
    record = await parts.turns.get(turn_id)
    if record is not None and record.status == "running":
        follower = EventFollower(parts.recorder, turn_id, workspace=record.scope.workspace, after=_END, whole=False)
        while await follower.next() is not None:
            pass


async def _can_go_on(parts: RunnerParts, record: TurnRecord) -> bool:
    """Whether a repeated start takes the turn up again.

    It was cut off, was stopped, or failed in passing; or all that it asked is answered, and whoever did that has yet to
    go on with it, or never came to that.
    """
    if record.status == "paused":
        records = await parts.journal.load(record.id)
        if any(entry.open for entry in records.values()):
            return False
    elif record.status not in ("running", "stopped") and not passing(record):
        return False
    latest = await parts.turns.latest(record.thread)
    return latest is not None and latest.id == record.id


def asked_of(request: TurnRequest) -> str:
    """Stands for what is asked of a turn. Neither a role nor a skill's prompt is in it, nor how a person is called."""
    body = {name: value for name, value in request.body.items() if name != "name"}
    attached = [_source(source) for source in request.attached]
    return digest([request.kind, request.scope.account, request.scope.channel, body, list(request.model), attached])


def _source(source: AttachmentSource) -> str:
    match source:
        case Attachment():
            return f"kept {source.id}"
        case bytes():
            return hashlib.sha256(source).hexdigest()
        case Path():
            return f"path {source}"
        case _:
            return f"at {source}"


def _reused(key: str) -> KeyReused:
    return KeyReused(
        f"the key {key!r} was used on this thread for something else",
        remedy="give each start a key of its own; a repeated one asks for the same",
    )


__all__ = ["KeyedStarts", "asked_of"]
