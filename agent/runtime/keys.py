"""Starts with a key. A repeated start is the same turn, in this process or another, whatever its status (T10).

In one process the second start holds the run of the first. Between processes the thread's lease decides: the key is
written with the turn under that lease, so only one turn exists. A start that waits for the lease polls for that turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ...core import ROOT, ModelUsage, digest
from ...core import events as ev
from ...core.errors import AgentClosed, BudgetReached, EventsGone, KeyReused, NothingToResume, WorldAgentError
from ...core.events import TurnEvent
from ...graphs import TurnRequest
from ...harness.journal import pause_of
from ...memory import TurnRecord
from ...memory.attachments import Attachment, AttachmentSource
from ...memory.turn_log import END, RecordedTurn, TurnLog
from ...role_resolution import Role
from ..following import EventFollower
from ..recording import Recording
from ..settings import UNSET
from ..turns import RunningTurn, Turn, TurnUsage, Withheld, cancel_once
from .work import KeyBegun, NewTurn, ResumedTurn, Resumption, RunnerParts

if TYPE_CHECKING:
    from .runner import TurnRunner

_SHOWN_EVENTS: Final = (ev.Usage, ev.RoleTierSkipped, ev.MemoryRecalled, ev.RoleWithheld)
_SO_FAR: Final = ('"usage"', '"call_started"', '"call_progress"', '"call_ended"')
_COUNTED: Final = tuple(field.name for field in fields(ModelUsage) if field.name != "calls")


async def outcome_of(parts: RunnerParts, record: TurnRecord) -> Turn:
    """Return the `Turn` of a turn that is over or waits. This calls no model and counts against no limit.

    Raises:
        WorldAgentError: The turn failed. The type is that of its error; the error's text is not stored.
        UnknownShape, StorageInvalid: The turn's result cannot be read.
    """
    shown = await _usage_events(parts, record)
    recalled = [event for event in shown if isinstance(event, ev.MemoryRecalled) and event.call_id == record.id]
    given: dict[str, Any] = {
        "id": record.id,
        "thread": record.scope.thread or "",
        "role_tiers": record.sent_tiers,
        "skipped_tiers": tuple(event.tier for event in shown if isinstance(event, ev.RoleTierSkipped)),
        "usage": _usage(shown),
        "withheld": Withheld.of(shown),
        "recalled": recalled[0].entries if recalled else (),
    }
    match record.status:
        case "done":
            _, work = await parts.engine.load_opening_message(record.asked, record.kind)
            [last] = await parts.stores.log.of_turn(record.thread, record.id, limit=1)
            outcome = await parts.engine.ended(record.thread, work, head=last.id)
            text = outcome.text or ("" if outcome.result is None else outcome.result.model_dump_json())
            outputs = parts.engine.converse.read_outputs(outcome.outputs)
            given["labels"] = outcome.labels
            return Turn(status="done", text=text, result=outcome.result, outputs=outputs, **given)
        case "paused":
            records = await parts.stores.journal.load(record.id)
            pauses = tuple(pause_of(entry) for entry in records.values() if entry.open)
            return Turn(status="paused", pauses=pauses, **given)
        case "failed":
            raise _error(record)
        case ended:
            status: Literal["cancelled", "abandoned"] = "abandoned" if ended == "abandoned" else "cancelled"
            return Turn(id=record.id, thread=given["thread"], status=status)


async def so_far(log: TurnLog, turn: str) -> tuple[TurnUsage, str | None]:
    """What the models of a recorded turn used so far, and its newest call in words.

    That is a call that runs, with its progress, else the one that ended last; None before the first one. Once the
    events of the turn have been removed, nothing is known.
    """
    after, found = 0, list[TurnEvent | None]()
    while (page := await log.page(turn, after)) is not None and page.events:
        found += [log.event(turn, seq, line) for seq, line in page.events if any(each in line for each in _SO_FAR)]
        after = page.events[-1][0]
    events, running, last = [event for event in found if event is not None], dict[str, str](), None
    titles = {event.call_id: event.title or event.function for event in events if isinstance(event, ev.CallStarted)}
    for event in events:
        match event:
            case ev.CallStarted(call_id=call):
                running[call] = titles[call]
            case ev.CallProgress(call_id=call) if call in running:
                of = "" if event.total is None else f" of {event.total:g}"
                running[call] = f"{titles[call]}: {event.message or f'{event.progress:g}{of}'}"
            case ev.CallEnded(call_id=call):
                last = titles.get(call, last)
                running.pop(call, None)
            case _:
                pass
    return _usage(events), next(reversed(running.values()), last)


async def _usage_events(parts: RunnerParts, record: TurnRecord) -> list[TurnEvent]:
    """Read the turn's events that its outcome is made of; empty once the events have been removed."""
    follower = EventFollower(parts.recorder, record.id, workspace=record.scope.workspace)
    found: list[TurnEvent] = []
    try:
        async for event in follower:
            if isinstance(event, _SHOWN_EVENTS):
                found.append(event)
    except EventsGone:
        pass
    return found


def _usage(events: Iterable[TurnEvent]) -> TurnUsage:
    models: dict[str, ModelUsage] = {}
    for event in events:
        if isinstance(event, ev.Usage):
            used = ModelUsage(calls=1, **{name: getattr(event, name) for name in _COUNTED})
            models[event.model] = models.get(event.model, ModelUsage()) + used
    return TurnUsage.of(models)


def may_succeed_later(record: TurnRecord) -> bool:
    """Whether a turn that failed can succeed later without a change: a budget begins again with its next period."""
    kind = WorldAgentError.kind_of(record.code or "")
    return record.status == "failed" and (kind.retryable or kind is BudgetReached)


def _error(record: TurnRecord) -> WorldAgentError:
    error = WorldAgentError.kind_of(record.code or "")(
        f"the turn {record.id!r} failed before with {record.code!r}",
        remedy="look at its events, or begin another turn with another key",
    )
    error.turn_id = record.id
    return error


@dataclass(slots=True, eq=False)
class Keyed:
    """A start with a key that this process is running.

    Attributes:
        turn: The turn that it creates if none exists.
        prompt: The digest of a skill's prompt; it stays in this process.
        turn_id: The id of the turn with this key, once it is known.
        runs: How often `notify` was called.
        news: Is set when the turn becomes known, is resumed here, or is over.
        holders: How many streams hold it.
        detached: Whether the turn continues after all streams have left, because one of them asked for that.
        task: Ends when the turn ends.
    """

    turn: RecordedTurn
    prompt: str | None
    turn_id: str = ""
    runs: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    holders: int = 0
    detached: bool = False
    task: asyncio.Task[Turn] = field(init=False)

    def notify(self, turn_id: str = "") -> None:
        """Wake the tasks that wait for news; a `turn_id` means that the turn is now known."""
        self.turn_id = turn_id or self.turn_id
        self.runs += 1
        news, self.news = self.news, asyncio.Event()
        news.set()

    def leave(self) -> bool:
        """Remove one stream; returns whether to cancel the turn."""
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
        """Start a turn, or hold the one that began with this key.

        Raises:
            KeyReused: The key was used for another request.
        """
        assert work.recording is not None, "a turn with a key is recorded"
        turn, prompt = work.recording.turn, work.request.prompt
        place, key = (turn.thread, turn.key or ""), parts.resolver.key
        this = Keyed(turn, None if prompt is None else key.digest_of(prompt))
        while (keyed := self._here.get(place)) is not None and keyed.task.cancelling():
            await asyncio.wait({keyed.task})  # a cancelled start is not held; its end shows whether the turn began
            parts = self._runner.parts
        if keyed is None:
            keyed = self._here[place] = this
            keyed.task = self._runner.spawn(turn.turn, self._run(parts, keyed, work))
            keyed.task.add_done_callback(lambda _: self._here.pop(place).notify())
        else:
            work.role = None  # the role of the first start applies
            if (keyed.turn.asked, keyed.prompt) != (turn.asked, this.prompt):
                raise key_reused(turn.key)
        keyed.holders += 1
        keyed.detached |= detach
        return await self._held(parts, keyed, work)

    async def repeats(self, parts: RunnerParts, thread: str, key: str) -> bool:
        """Whether a start with this key returns an existing turn and runs none here."""
        if (thread, key) in self._here:
            return True
        found = await parts.recorder.log.find(thread, key)
        record = None if found is None else await parts.stores.turns.get(found.turn)
        if record is None:
            return found is not None
        if record.status == "running" and await parts.stores.leases.owned([thread]):
            return True
        return not await _is_resumable(parts, record)

    async def _held(self, parts: RunnerParts, keyed: Keyed, work: NewTurn) -> RunningTurn:
        """Hold a turn once it is known, with its events over all runs, or a start that failed before that."""
        task, scope, deltas = keyed.task, work.scope, work.deltas
        try:
            while not keyed.turn_id and not task.done():
                await keyed.news.wait()
        except asyncio.CancelledError:
            if keyed.leave():
                cancel_once(task)
            raise
        turn_id, workspace = keyed.turn_id, scope.workspace
        follower = EventFollower(parts.recorder, turn_id, workspace=workspace, strict=False, deltas=deltas)

        async def next_event() -> TurnEvent | None:
            while turn_id:
                runs, over = keyed.runs, task.done()
                event = await follower.next()
                if event is not None or over:
                    return event
                # The run has ended: either the turn is resumed here, or it is over.
                if keyed.runs == runs and not task.done():
                    await keyed.news.wait()
            return None

        async def end() -> bool:
            return bool(turn_id) and await self._runner.cancel_turn(parts, turn_id, scope)

        return RunningTurn(
            lambda: turn_id,
            scope.thread or "",
            task,
            next_event,
            end,
            lambda: follower.behind,
            recorded=bool(turn_id),
            leave=keyed.leave,
        )

    async def _run(self, parts: RunnerParts, keyed: Keyed, work: NewTurn) -> Turn:
        """Follow or resume the turn to its end, whichever process runs it."""
        turn = keyed.turn
        while (found := await parts.recorder.log.find(turn.thread, turn.key or "")) is None:
            recording = work.recording = Recording(parts.recorder, turn)

            def begun(recording: Recording = recording) -> None:
                keyed.notify(recording.turn.turn)

            with contextlib.suppress(KeyBegun):
                return await self._runner.running(parts, turn.turn, work, begun)
        if found.asked != turn.asked or not await _same_prompt(parts, found, work.request.prompt):
            raise key_reused(turn.key)
        keyed.notify(found.turn)
        return await self._resume_or_return(parts, keyed, found, work)

    async def _resume_or_return(self, parts: RunnerParts, keyed: Keyed, found: RecordedTurn, work: NewTurn) -> Turn:
        while True:
            await self._followed(parts, found.turn)
            record = await parts.stores.turns.get(found.turn)
            if record is None:  # its thread was removed
                return Turn(id=found.turn, thread=work.scope.thread or "", status="cancelled")
            if not await _is_resumable(parts, record):
                outcome = await outcome_of(parts, record)
                if outcome.status == "paused" and not outcome.pauses:
                    continue  # all pauses were answered since the record was read
                return outcome
            how = Resumption(
                UNSET if work.role is None else work.role,
                prompt=work.request.prompt,
                output=work.request.output,
                view=work.request.view,
            )
            recording = Recording(parts.recorder, found, again=True)
            resumed = ResumedTurn(
                record, how, origin=work.request.origin, recording=recording, deltas=work.deltas, by_key=True
            )
            work.role = None  # a turn that another caller ended meanwhile is not resumed a second time
            del how
            self._runner.enlist(found.turn, keyed.task)
            try:
                return await self._runner.running(parts, found.turn, resumed, keyed.notify)
            except NothingToResume:
                pass
            except KeyBegun:  # the role was not used yet
                work.role = resumed.how.role if isinstance(resumed.how.role, Role) else None
                keyed.notify()  # a reader of the turn follows the other run

    async def _followed(self, parts: RunnerParts, turn_id: str) -> None:
        """Wait for the end of a run that another process, or another caller in this one, has started.

        Raises:
            AgentClosed: This agent was closed meanwhile.
        """
        try:
            async with parts.drain.refusing():
                record = await parts.stores.turns.get(turn_id)
                if record is not None and record.status == "running":
                    workspace = record.scope.workspace
                    follower = EventFollower(parts.recorder, turn_id, workspace=workspace, after=END, strict=False)
                    while await follower.next() is not None:
                        pass
                return
        except asyncio.CancelledError:
            if self._runner.is_open:
                raise
        except AgentClosed:
            pass
        raise AgentClosed(
            f"the agent was closed while it followed the turn {turn_id!r}",
            remedy="start it again with the same key once the agent is open; that returns the turn as it is by then",
        )


async def _same_prompt(parts: RunnerParts, found: RecordedTurn, prompt: str | None) -> bool:
    """Whether a turn began with this prompt of a skill, as far as its digest can be compared."""
    record = None if prompt is None else await parts.stores.turns.get(found.turn)
    if prompt is None or record is None or record.prompt is None:
        return True
    kept, key = record.prompt, parts.resolver.key
    return not key.made(kept) or kept == key.named(key.maker(kept)).digest_of(prompt)


async def _is_resumable(parts: RunnerParts, record: TurnRecord) -> bool:
    """Whether a repeated start resumes the turn.

    That is so if the turn was interrupted, was stopped, or failed with a retryable error. It is also so if all its
    pauses are answered, and the caller that answered them has not resumed the turn yet, or never did.
    """
    if record.status == "paused":
        records = await parts.stores.journal.load(record.id)
        if any(entry.open for entry in records.values()):
            return False
    elif record.status not in ("running", "stopped") and not may_succeed_later(record):
        return False
    latest = await parts.stores.turns.latest(record.thread)
    return latest is not None and latest.id == record.id


def request_digest(request: TurnRequest) -> str:
    """Return a digest of the request. It covers no role, prompt of a skill, display name, mark or guard."""
    body = {name: value for name, value in request.body.items() if name not in ("name", "untrusted", "guard")}
    if "inputs" in body:
        body["inputs"] = {name: value for name, value in body["inputs"].items() if name not in request.filled}
    attached = [_source(source) for source in request.attached]
    given: list[Any] = [request.kind, request.scope.account, request.scope.channel, body, list(request.model), attached]
    if request.on_behalf_of != ROOT:
        given.append([request.on_behalf_of, request.sender])
    return digest(given)


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


def key_reused(key: str | None) -> KeyReused:
    """The error that a key is that of another request."""
    return KeyReused(
        f"the key {key!r} was used on this thread for another request",
        remedy="use a new key for each request; repeat a key only with the same request",
    )
