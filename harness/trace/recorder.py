"""Makes records of `trace/1` from events. It keeps the state of a turn's run until the run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from ...core import ROOT, Scope, summed
from ...core import events as ev
from ...core.errors import ModelRateLimited
from ...core.pauses import call_id_of
from .records import TOKENS, Captured, Dropped, RecordKind, Traced, TraceRecord, ValueSource

_Fields = dict[str, Any]
"""The fields of a record that is not complete: making a `TraceRecord` at the begin and at the end would cost twice."""

_NO_TOTALS: Final = {**dict.fromkeys((*TOKENS, "models", "unpriced", "calls"), 0), "cost": None}
_TURN_ERRORS: Final[dict[type, Callable[[Any], _Fields]]] = {
    ev.RoleTierSkipped: lambda event: {"name": event.tier, "label": "role", "code": event.code},
    ev.PlanRejected: lambda event: {"name": "plan", "code": "plan_rejected"},
    ev.SummaryFailed: lambda event: {"name": "summary", "code": event.code},
    ev.AttachmentLeftOut: lambda event: {"name": "attachment", "label": event.reason, "code": "attachment_left_out"},
}
"""Failures that a turn continues after."""


@dataclass(slots=True)
class _Run:
    """One run of a turn that has not ended."""

    turn: TraceRecord
    open: dict[str, _Fields] = field(default_factory=dict)
    held: dict[str, _Fields] = field(default_factory=dict)  # captured before the call that it belongs to has begun
    prompts: dict[str, list[Any]] = field(default_factory=dict)
    withheld: dict[str, int] = field(default_factory=dict)  # of the model call whose usage follows
    last: int = 0
    totals: _Fields = field(default_factory=_NO_TOTALS.copy)


class Recorder:
    """Makes records of the items that a sink receives."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def records(self, items: Iterable[Traced]) -> list[TraceRecord]:
        """Return the records of the items; a record that begins and ends among them is returned once, as it ended."""
        found: dict[tuple[str, datetime, int, str], TraceRecord | _Fields] = {}
        for item in items:
            for made in self._made(item):
                found[_key(made)] = made
        return [TraceRecord(**made) if isinstance(made, dict) else made for made in found.values()]

    def _made(self, item: Traced) -> Iterator[TraceRecord | _Fields]:
        match item.what:
            case Captured():
                self._captured(item.what)
            case Dropped() as dropped:
                run = self._runs.get(dropped.turn_id)
                if run is None:  # it ended while its sink failed: a run made here would stay open for ever
                    return
                yield _moment(run, "dropped", dropped.turn_id, run.last, dropped.at, count=dropped.count)
            case event:
                run = self._run(item.scope, event.turn_id, event.at, event)
                run.last = event.seq
                yield from self._of_event(run, event)

    def _run(self, scope: Scope, turn_id: str, at: datetime, event: ev.TurnEvent | None = None) -> _Run:
        if isinstance(event, ev.TurnStarted) or turn_id not in self._runs:
            self._runs[turn_id] = _Run(_turn(scope, turn_id, at, event))
        return self._runs[turn_id]

    def _captured(self, captured: Captured) -> None:
        run = self._runs.get(captured.turn_id)
        if run is None:
            return
        if captured.what == "prompts":
            run.prompts.setdefault(captured.call_id, []).append(captured.value)
        elif captured.call_id in run.open:
            # A copy, because the old fields may already have been returned as a record.
            run.open[captured.call_id] = {**run.open[captured.call_id], captured.what: captured.value}
        else:
            run.held.setdefault(captured.call_id, {})[captured.what] = captured.value

    def _of_event(self, run: _Run, event: ev.TurnEvent) -> Iterator[TraceRecord | _Fields]:
        match event:
            case ev.CallStarted():
                more = {"risk": event.risk, "gate": event.gate, "labels": event.labels}
                yield _begun(run, "call", event.call_id, event.parent, event, name=event.function, **more)
            case ev.CallEnded():
                yield from _ended(run, "call", event.call_id, event)
            case ev.TurnStarted():
                yield run.turn
            case ev.TurnEnded():
                yield from self._ended_turn(run, event)
            case ev.TaskStarted():
                more = {"label": event.label, "risk": event.risk, "gate": event.gate, "labels": event.labels}
                yield _begun(run, "task", event.task_id, event.parent, event, name=event.shape, **more)
            case ev.TaskEnded():
                yield from _ended(run, "task", event.task_id, event)
            case ev.RoleWithheld():
                run.withheld[event.call_id] = event.characters
            case ev.Usage():
                yield _model(run, event)
            case _:
                moment = _of_call(run, event) or _of_message(run, event) or _of_turn(run, event)
                if moment is not None:
                    yield moment

    def _ended_turn(self, run: _Run, event: ev.TurnEnded) -> Iterator[TraceRecord]:
        del self._runs[event.turn_id]
        yield from _unanswered(run, event.turn_id, event)
        if event.code is not None:
            yield _moment(run, "error", event.turn_id, event.seq, event.at, name=run.turn.name, code=event.code)
        labels = event.labels and {part: ValueSource(**label) for part, label in event.labels.items()}
        ended = {"end": event.at, "status": event.status, "code": event.code or "", "labels": labels}
        yield run.turn.model_copy(update=ended | run.totals)


def _turn(scope: Scope, turn_id: str, at: datetime, event: ev.TurnEvent | None) -> TraceRecord:
    started = event if isinstance(event, ev.TurnStarted) else None
    return TraceRecord(
        kind="turn",
        turn=turn_id,
        run=at,
        seq=1 if started is None else started.seq,
        id=turn_id,
        name="" if started is None else started.kind,
        label="resumed" if started is not None and started.resumed else "",
        start=at,
        status="running",
        workspace=scope.workspace,
        thread=(scope.thread or "") if started is None else started.thread,
        account=scope.account or "",
        channel=scope.channel or "",
        role_tiers=() if started is None else tuple(started.role_tiers),
        on_behalf_of=ROOT if started is None else started.on_behalf_of,
    )


def _key(made: TraceRecord | _Fields) -> tuple[str, datetime, int, str]:
    """Return the key of a record among all records. Incomplete records are the only ones of their kind and event."""
    return (made["turn"], made["run"], made["seq"], made["kind"]) if isinstance(made, dict) else (made.turn, *made.key)


def _begun(run: _Run, kind: RecordKind, path: str, parent: str, event: Any, **more: Any) -> _Fields:
    run.totals["calls"] += 1
    fields = {
        "kind": kind,
        "turn": run.turn.turn,
        "run": run.turn.run,
        "seq": event.seq,
        "id": path,
        "parent": parent or run.turn.id,
        "start": event.at,
        "status": "running",
        **more,
    }
    if run.held:
        fields |= run.held.pop(path, {})
    run.open[path] = fields
    return fields


def _ended(
    run: _Run, kind: RecordKind, path: str, event: ev.CallEnded | ev.TaskEnded
) -> Iterator[TraceRecord | _Fields]:
    fields = run.open.pop(path, None)
    if fields is None:  # its begin was dropped
        fields = _begun(run, kind, path, path.rpartition("/")[0], event)
        del run.open[path]
    if run.prompts:
        yield from _unanswered(run, path, event)
    code = event.code or ""
    if event.status == "failed":
        yield _moment(run, "error", path, event.seq, event.at, name=fields.get("name", ""), code=code)
    yield {**fields, "end": event.at, "status": event.status, "code": code}


def _model(run: _Run, event: ev.Usage) -> TraceRecord:
    tokens, totals = {name: getattr(event, name) for name in TOKENS}, run.totals
    totals |= {name: summed((totals[name], count)) for name, count in tokens.items()}
    totals["models"] += 1
    if event.cost is None:
        totals["unpriced"] += 1
    else:
        totals["cost"] = (totals["cost"] or 0.0) + event.cost
    parent = event.call_id or run.turn.id
    waiting = run.prompts.get(parent)
    return TraceRecord(
        kind="model",
        turn=run.turn.turn,
        run=run.turn.run,
        seq=event.seq,
        id=f"{parent}#{event.seq}",
        parent=parent,
        name=event.signature,
        start=event.at - timedelta(seconds=event.seconds),
        end=event.at,
        status="done",
        model=event.model,
        **tokens,
        cost=event.cost,
        withheld=run.withheld.pop(event.call_id, 0),
        prompt=waiting.pop(0) if waiting else None,
    )


def _unanswered(run: _Run, path: str, event: Any) -> Iterator[TraceRecord]:
    """Yield the model calls of a call, task or turn that gave no answer, if their prompts were captured."""
    for number, prompt in enumerate(run.prompts.pop(path, ()), start=1):
        # All of them are from one event, so the number in the id distinguishes them.
        record_id = f"{path}#{event.seq}" + f".{number}" * (number > 1)
        yield _moment(run, "model", path, event.seq, event.at, id=record_id, status="failed", prompt=prompt)


def _of_call(run: _Run, event: ev.TurnEvent) -> TraceRecord | None:
    """Return the record of an event about a call that is not its begin or end; None for other events."""
    kind: RecordKind
    about: _Fields
    match event:
        case ev.CallDecided():
            kind, path = "approval", event.call_id
            about = {"parent": event.parent or run.turn.id, "name": event.function, "status": event.decision}
            about |= {"gate": event.gate, "account": event.account or "", "labels": event.labels}
        case ev.ResultHeld():
            kind, path = "held", event.call_id
            about = {"name": event.outline}
        case ev.CallRetried():
            kind, path = "retry", event.call_id
            about = {"name": event.function, "code": event.code, "attempt": event.attempt, "seconds": event.seconds}
        case ev.ModelWaiting():
            kind, path = "retry", event.call_id
            about = {"name": event.model, "code": ModelRateLimited.code, "seconds": event.seconds}
        case ev.PauseOpened() | ev.PauseNotified() | ev.PauseClosed():
            kind, path = "pause", call_id_of(event.pause_id)
            about = {"parent": path.rpartition("/")[0] or run.turn.id, "status": event.type.removeprefix("pause_")}
            if isinstance(event, ev.PauseOpened):
                about |= {"name": event.function, "label": event.kind, "risk": event.risk}
        case _:
            return None
    return _moment(run, kind, path, event.seq, event.at, call=path, **about)


def _of_message(run: _Run, event: ev.TurnEvent) -> TraceRecord | None:
    """Return the record of a message to a member or a person, or of one that the turn has read; None for others."""
    if isinstance(event, ev.MessageTaken):
        read = {"name": event.name or event.author, "label": event.kind, "message": event.message_id}
        return _moment(run, "message", run.turn.id, event.seq, event.at, status="read", attempt=event.step, **read)
    if not isinstance(event, ev.MessageSent | ev.MessageRefused):
        return None
    about = {"sender": event.sender, "receiver": event.receiver}
    path = event.call_id or run.turn.id
    if isinstance(event, ev.MessageRefused):
        return _moment(run, "refusal", path, event.seq, event.at, status="refused", code=event.code, **about)
    about |= {"message": event.message_id, "label": event.message_type, "introduced": event.introduces}
    captured = run.held.pop(event.message_id, {})
    kind, status = _kind_of(event)
    return _moment(run, kind, path, event.seq, event.at, status=status, chain=event.chain, **about, **captured)


def _kind_of(event: ev.MessageSent) -> tuple[RecordKind, str]:
    match event.message_type:
        case "introduction_request":
            return "introduction", "referral" if event.answers else "request"
        case "introduction_response":
            return "introduction", "introduced" if event.introduces else "declined"
        case _:
            return "message", "sent"


def _of_turn(run: _Run, event: ev.TurnEvent) -> TraceRecord | None:
    """Return the record of an event about the turn; None for an event that traces omit."""
    about = _TURN_ERRORS.get(type(event))
    if about is not None:
        return _moment(run, "error", run.turn.id, event.seq, event.at, **about(event))
    if not isinstance(event, ev.AnswerChecked):
        return None
    status = "satisfied" if event.satisfied else "wanting"
    return _moment(run, "check", run.turn.id, event.seq, event.at, name="answer", status=status, attempt=event.check)


def _moment(run: _Run, kind: RecordKind, path: str, seq: int, at: datetime, **more: Any) -> TraceRecord:
    about: dict[str, Any] = {"id": f"{path}#{seq}", "parent": path, **more}
    return TraceRecord(kind=kind, turn=run.turn.turn, run=run.turn.run, seq=seq, start=at, end=at, **about)
