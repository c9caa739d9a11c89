"""Decides about the calls of one run of a turn, by the policy, by what the turn has read, and by earlier answers (H9).

The gate learns of earlier runs from the journal's records, and keeps nothing beyond the run. `harness.approval` and the
journal act on its verdicts.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...core import Clock, SystemClock, canonical_json, digest
from ...core.marks import mark_of, readers_in, sources_in
from ...core.pauses import Approve, Pause, Reject
from ..bounds import Bounds
from ..function import HOST, READ_ONLY, Function, readers_of_any
from .arguments import declared_keys
from .ceiling import Ceiling, has_effects
from .labels import OWN, Form, Label, Sources, Steps, as_json, joined, leaves, read_label
from .policy import Decision, Policy, Rule, several

if TYPE_CHECKING:
    from ..journal import CallRecord
    from ..places import Places
    from ..worker import Worker


class Labelled(Protocol):
    """Arguments of a guarded model's call; see `harness.handles.Resolved`."""

    def label_of(self, argument: str, value: Any, /) -> Label:
        """The label of a text, number or key in an argument."""
        ...

    def has(self, argument: str, /) -> bool:
        """Whether the model gave this argument."""
        ...


class Approver(Protocol):
    """Answers approval requests in the process, such as with a dialog of the host."""

    async def __call__(self, pause: Pause, /) -> Approve | Reject | None:
        """Answer an approval request, or return None to pause the turn until a person answers.

        Args:
            pause: The approval request. Its `id` is the id of the call, and the call would run with its `arguments`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a call.

    Attributes:
        name: A worker, a shape, a function, `converse` for the conversation, `code` for the host's own code, or the
            member that the turn runs for.
        model_influenced: Whether a model could have influenced the call, here or further up.
        workers: The workers that it works for, the outermost first. Their policies and ceilings narrow what it can
            call.
        instead_of: Who would call if the conversation had not been handed to this member (A21). Rules count for both.
    """

    name: str
    model_influenced: bool = False
    workers: tuple[str, ...] = ()
    instead_of: str = ""

    def calling(self, name: str) -> Caller:
        """Return the caller of the calls that a function makes which this caller calls."""
        return replace(self, name=name, instead_of="")

    def working(self, name: str) -> Caller:
        """Return the caller of the calls that a worker makes which this caller calls."""
        return Caller(name, model_influenced=True, workers=(*self.workers, name))

    def with_model_influence(self, *, model_influenced: bool) -> Caller:
        """Return the same caller, marked if a model could have influenced it since."""
        return replace(self, model_influenced=True) if model_influenced and not self.model_influenced else self


CODE: Final = Caller(HOST)
"""The host's own code."""

Trust = Callable[[Caller, Function], float]
"""Returns how much a caller is trusted with calls of a function, from 0 to 1 (A8)."""

MIN_TRUST: Final = 0.70
"""Above this, trust can replace an approval under a ceiling."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one call.

    Attributes:
        decision: The decision.
        by: What decided: `code`, `default`, `rule:NAME`, `worker:NAME`, `worker:NAME:RULE`, `ceiling:NAME`, `trust`,
            `dry_run`, `always`, `function`, `approver` or `person`.
        reason: Why the call requires approval or is refused.
        approvers: Globs over the accounts that can answer; empty allows any account.
        expires: How many seconds to wait for an answer; None waits for ever.
        decided: The arguments of which the gate looked at where they come from.
    """

    decision: Decision
    by: str
    reason: str = ""
    approvers: tuple[str, ...] = ()
    expires: float | None = None
    decided: tuple[str, ...] = ()


_BY_CODE: Final = Verdict("approve", "code")
_BY_DEFAULT: Final = Verdict("approve", "default")
_BY_TRUST: Final = Verdict("approve", "trust")
_BY_DRY_RUN: Final = Verdict("approve", "dry_run")
_STRICTNESS: Final[Mapping[Decision, int]] = {"approve": 0, "ask": 1, "refuse": 2}


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval with "always", which covers further calls for the rest of a turn.

    Attributes:
        covers: The digest of the arguments that it covers; empty if it covers any.
        description: The digest of the function's description at that time; None if an earlier version did not record
            it.
        at: When it was given, in seconds since 1970.
    """

    covers: str
    description: str | None
    at: float


_WORKER: Final = "worker"
"""The argument of the shape that runs workers which has the name of the worker."""

BOUNDED: Final[Form] = "bounded"
"""The form of a result that carries no text, as the journal keeps it with the decision about a call."""


@dataclass(slots=True, eq=False)
class _Frame:
    """What a part of a turn has read: the turn itself, or a task or flow below it that has a frame of its own.

    Attributes:
        above: The frame of its caller; None for the turn.
        marks: The marks of what it has read: names of untrusted functions, and who may see it; see `Label`.
        held: Those of results that are in it or below it, although it has not read them.
        passes_on: Whether the frame above it is marked by the same functions.
        sealed: Whether its caller does not read its result, and is never marked by it.
        wrote: Those that mark the frame above it because words of them were written here, and not before.
    """

    above: _Frame | None = None
    marks: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    passes_on: bool = False
    sealed: bool = False
    wrote: set[str] = field(default_factory=set)

    @property
    def all_marks(self) -> set[str]:
        return self.marks if self.above is None else self.marks | (self.above.all_marks - self.wrote)

    @property
    def restricting(self) -> frozenset[tuple[str, ...]]:
        """Who may see what its calls can be made of, if a guarded model called it or what is above it."""
        frame = self
        while not frame.sealed and frame.above is not None:
            frame = frame.above
        return readers_in(self.all_marks) if frame.sealed else frozenset()

    def mark(self, sources: Iterable[str]) -> None:
        self.marks.update(sources)
        if self.above is not None:
            (self.above.mark if self.passes_on else self.above.hold)(self.marks)

    def hold(self, sources: Iterable[str]) -> None:
        self.held.update(sources)
        if self.above is not None and sources:
            self.above.hold(sources)

    def pass_on(self) -> None:
        self.passes_on = not self.sealed
        self.mark(())

    def show(self) -> None:
        """Its result has parts of results that it has not read."""
        if self.above is not None and not self.sealed:
            self.above.mark(self.held)


@dataclass(frozen=True, slots=True, eq=False)
class _Proposed:
    """A call about which the gate decides; see `Gate.decide` and `Gate.labels`."""

    callee: Function
    arguments: Mapping[str, Any]
    caller: Caller
    before: Mapping[str, Any] | None
    resolved: Labelled | None

    @property
    def keys(self) -> frozenset[str]:
        return declared_keys(self.callee.params)

    @property
    def kept(self) -> Collection[str] | None:
        """The values that a person did not replace; None if the arguments are as they were."""
        return None if self.before is None else {canonical_json(each) for _, each in leaves(self.before, self.keys)}

    def is_default(self, steps: Steps, argument: str | None, value: Any) -> bool:
        """Whether a value is nothing, or the default of its argument, so that it is made of nothing."""
        field = self.callee.params.model_fields.get(str(steps[0]) if argument is None else argument)
        default = None if field is None or field.is_required() else field.default
        return value in (None, "") or (type(default) is type(value) and bool(default == value))

    def label_of(self, argument: str, value: Any) -> Label:
        """The label of a value that a guarded model had put in an argument. A worker's name can be added to them."""
        if self.resolved is None:
            return OWN
        if argument == _WORKER and value == self.callee.name and not self.resolved.has(argument):
            return OWN
        return self.resolved.label_of(argument, value)


class Gate:
    """Decides about calls.

    Args:
        policy: The policy of the agent.
        approver: Is asked first, before the turn pauses.
        clock: The clock.
        workers: The workers by name, whose policies and ceilings narrow the calls that are made for them.
        trust: Approves calls that `write` or use the `network` where the agent's policy has no rule for them, if every
            ceiling that sets authorities has them as `autonomous`, and it returns more than `MIN_TRUST` (A8).
        sources: Makes what the values of calls are compared with for their labels, when a call first needs them.
        records: The turn's recorded calls by their path ids, where calls of this run are added later.
        places: The marks of what functions write; None knows none.

    Attributes:
        places: As passed.
    """

    __slots__ = (
        "_clock",
        "_first",
        "_frame",
        "_frames",
        "_granted",
        "_read",
        "_records",
        "_sources",
        "_trust",
        "_used",
        "_workers",
        "_written",
        "approver",
        "places",
        "policy",
    )

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        approver: Approver | None = None,
        clock: Clock | None = None,
        workers: Mapping[str, Worker] | None = None,
        trust: Trust | None = None,
        sources: Callable[[], Sources] = Sources,
        records: Mapping[str, CallRecord] | None = None,
        places: Places | None = None,
    ) -> None:
        self.places = places
        self.policy = policy if policy is not None else Policy()
        self._workers = {} if workers is None else workers  # the agent's own mapping, which sees workers added later
        self._trust = trust
        self.approver = approver
        self._frame = _Frame()
        self._frames: dict[str, _Frame] = {}  # of tasks and flows, by their path ids
        self._written: set[str] = set()  # untrusted functions whose words a guarded model had written somewhere
        self._read: dict[str, Collection[str]] = {}  # the marks of places that calls have read, by their path ids
        self._sources = cache(sources)
        self._records = {} if records is None else records
        self._clock = clock or SystemClock()
        self._used: Counter[str] = Counter()
        self._first: dict[str, float] = {}
        self._granted: dict[tuple[str, str], dict[str, Grant]] = {}

    @property
    def marks(self) -> set[str]:
        """What is kept with what the turn, or the task that this gate is for, writes.

        These are the names of the untrusted functions and senders whose texts it has read, and who may see them.
        """
        return self._frame.all_marks

    @property
    def all_marks(self) -> set[str]:
        """The marks of everything that the turn and its tasks have got, whether or not a model has read it."""
        return self.marks.union(*(frame.all_marks | frame.held for frame in (self._frame, *self._frames.values())))

    @property
    def _strangers(self) -> list[str]:
        return sources_in(self.marks)

    def recall(
        self,
        untrusted: Iterable[str],
        writes: Callable[[str], bool] = lambda name: True,
        restricted: Iterable[Function] = (),
    ) -> None:
        """Restore the decisions, the marks and the "always" approvals of earlier runs of the turn.

        Args:
            untrusted: The names of untrusted functions.
            writes: Whether calls of the function of this name change something; see `changes_something`.
            restricted: The functions whose results not everybody may see.
        """
        records = self._records
        restricting = {function.name: _marks_of_readers(function) for function in restricted}
        strangers = frozenset(untrusted)
        self._recall_frames()
        for record in records.values():
            said: Mapping[str, Any] = record.recorded_decision or {}
            self._recall_marks(record, said, strangers, restricting, writes)
            function, caller = said.get("function", record.name), said.get("caller", "")
            if said.get("decision") == "approve":
                self._count(_use(said["by"], function, caller), record.at)
            if said.get("always"):
                # Versions up to 0.1.0 did not record `covers`: such a grant covers the arguments that it approved.
                given = said.get("arguments") or record.arguments
                covers = said["covers"] if "covers" in said else digest_of(given)
                self._grant(function, caller, Grant(covers, said.get("description"), record.at))
        for path in self._frames:  # once all frames know what they hold
            shown = any(record.parent == path and _shows(record) for record in records.values())
            if shown and self._outcome_carries_text(records[path]):
                self._frames[path].show()

    def _recall_frames(self) -> None:
        for record in self._records.values():
            result = (record.recorded_decision or {}).get("result", {})
            own = result.get("held") or result.get("guard") or result.get("form") == BOUNDED
            if own and record.kind in ("task", "flow"):
                self._frames[record.id] = _Frame(sealed=bool(result.get("held")))
        for path, frame in self._frames.items():
            frame.above = self._frame_at(path.rpartition("/")[0])
            frame.passes_on = not frame.sealed and self._outcome_carries_text(self._records[path])

    def _recall_marks(
        self,
        record: CallRecord,
        said: Mapping[str, Any],
        strangers: Collection[str],
        restricting: Mapping[str, Collection[str]],
        writes: Callable[[str], bool],
    ) -> None:
        frame = self._frame_at(record.id.rpartition("/")[0])
        is_read = record.over and not record.refused and record.kind != "offer"
        marks = {*restricting.get(record.name, ())} if is_read else set[str]()
        if record.kind == "service" or (is_read and (record.name in strangers or _was_untrusted(said))):
            marks.add(record.name)
        if read := said.get("result", {}).get("read"):
            self._read[record.id] = read
            marks.update(read)
        if marks:
            (frame.hold if said.get("result", {}).get("held") else frame.mark)(marks)
        if record.state == "waiting" or record.refused or not (self._frames or "labels" in said):
            return
        if record.kind in ("leaf", "flow"):
            self._take_note(frame, writes(record.name))
        if "labels" in said:
            self._take_labels(record.id, said["labels"].values(), writes(record.name))

    def _take_labels(self, path: str, labels: Iterable[Mapping[str, Any]], writes: bool) -> None:
        """Take note of the labels of the arguments of a call that runs.

        Args:
            path: The path id of the call.
            labels: Its labels as JSON.
            writes: Whether it can change something, so that another function can read its words back.
        """
        read = [read_label(each) for each in labels]
        if path in self._frames:
            self._frames[path].mark(mark for label in read for mark in label.marks)
        if writes:
            words = _words_in(read)
            self._written.update(words)
            above = self._frame_at(path.rpartition("/")[0])
            if above.above is not None and not above.sealed:
                above.wrote |= words - above.above.all_marks  # a guarded model has not read what it passed on
                above.above.mark(words)

    def _frame_at(self, path: str) -> _Frame:
        """The frame that a call belongs to, by its path id."""
        while path and self._frames:
            if path in self._frames:
                return self._frames[path]
            path = path.rpartition("/")[0]
        return self._frame

    def _outcome_carries_text(self, record: CallRecord) -> bool:
        """Whether the outcome of a recorded task can carry a text: it failed, or is not what the worker declares."""
        if record.state != "done" or record.result is None:
            return record.state == "failed"
        worker = self._workers.get(record.recorded_decision["function"]) if record.kind == "task" else None
        return _carries_text(None if worker is None else worker.bounds, json.loads(record.result))

    @staticmethod
    def _take_note(frame: _Frame, writes: bool) -> None:
        each: _Frame | None = frame
        while writes and each is not None:
            each.pass_on()
            each = each.above

    def mark(self, *sources: str, at: str = "") -> None:
        """Take note that what has these marks was read.

        Args:
            sources: The marks: names of untrusted functions and senders, and who may see it.
            at: The path id of the recorded call that read them; by default what this gate is for has read them.
        """
        (self._frame_at(at) if at else self._frame).mark(sources)

    def say(self, text: str) -> None:
        """Take note of what the person wrote while the turn runs."""
        self._sources().say(text)

    def hold(self, *sources: str, at: str = "") -> None:
        """Take note that there is something with these marks that a guarded model does not read.

        Args:
            sources: The marks.
            at: See `mark`.
        """
        (self._frame_at(at) if at else self._frame).hold(sources)

    def marks_of_writing(self, callee: Function, labels: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """The marks of what a call can write; none if it changes nothing.

        Args:
            callee: The function.
            labels: The labels of its arguments as JSON.
        """
        if not changes_something(callee):
            return frozenset()
        return frozenset({*self.marks, *_words_in(map(read_label, labels)), *_marks_of(callee)})

    def take_note_of_result(self, path: str, callee: Function, read: Collection[str], *, held: bool) -> None:
        """Take note that a function has returned something.

        Args:
            path: The path id of the call.
            callee: The function.
            read: The marks of the places that it has read.
            held: Whether the model that called it does not read it if it has marks.
        """
        if read:
            self._read[path] = read
        if read or callee.untrusted or callee.readers is not None:
            (self.hold if held else self.mark)(*_marks_of(callee), *read)

    def of_call(self, path: str, callee: Function, labels: Iterable[Mapping[str, Any]] | None) -> Gate:
        """The gate for what a task or a flow does. In three cases, what it reads does not mark its caller.

        - Its result is bounded. The caller is marked too from the moment on that the task changes something, which can
          be read back elsewhere, and if it fails, because an error can contain a text.
        - The caller's model is guarded, and does not read the result either.
        - The task's own model is guarded. The caller is marked if the result has parts of what it has not read.

        Args:
            path: The path id of the task or flow.
            callee: The worker, shape or flow.
            labels: The labels of its arguments as JSON, if the caller's model is guarded; else None.
        """
        if labels is None and not callee.guard and callee.bounds is None:
            return self
        gate = copy.copy(self)  # all else is shared
        gate._frame = self._frames.setdefault(path, _Frame(self._frame, sealed=labels is not None))
        self._take_labels(path, labels or (), writes=False)
        return gate

    def result_of(self, path: str, callee: Function, text: str, labels: Iterable[Mapping[str, Any]]) -> Label:
        """The label of a result that a guarded model must not read; the person's if it can read it.

        Args:
            path: The path id of the call.
            callee: The function.
            text: The result as text, or as canonical JSON.
            labels: The labels of its arguments as JSON.
        """
        label = joined(read_label(each) for each in labels)
        if path in self._read:
            label = label.join(Label.of_marks(self._read[path]))
        if self.was_untrusted(path, callee):
            return label
        frame = None if callee.kind == "leaf" else self._frames.get(path)
        touched = self._written if frame is None else self._written | frame.marks | frame.held
        label = label.join(Label.of_marks(touched))
        if callee.bounds is None or not callee.bounds.hold(text):
            return label
        if callee.bounds.is_choice(text) and not label.readers:
            return OWN
        # A model that sees a number or an id writes it as its own, also in another form.
        return replace(label, form=BOUNDED) if sources_in(label.marks) else label

    def was_untrusted(self, path: str, callee: Function) -> bool:
        """Whether a function is declared as untrusted, or was when it was called."""
        record = self._records.get(path)
        return callee.untrusted or (record is not None and _was_untrusted(record.recorded_decision or {}))

    def fields_of(self, path: str, callee: Function) -> tuple[str, ...]:
        """The fields of a result that the function's system makes, as they were declared when it was called."""
        record = self._records.get(path)
        said: Mapping[str, Any] = {} if record is None else (record.recorded_decision or {}).get("result", {})
        return tuple(said.get("fields", ())) if "form" in said else callee.fields

    def take_note_of_answer(self) -> None:
        """Take note that the result of this gate's task has parts of what its guarded model has not read."""
        self._frame.show()

    def take_note_of_end(self, callee: Function, result: Mapping[str, Any] | None) -> None:
        """Take note that the task of this gate has ended. If its outcome can carry a text, its marks are passed on.

        Args:
            callee: The worker or shape that ran it.
            result: Its result as JSON; None if it failed.
        """
        own = callee.bounds is not None or callee.guard
        if own and (result is None or _carries_text(callee.bounds, result)):
            self._frame.pass_on()

    def take_note_of_change(self, path: str, callee: Function, labels: Iterable[Mapping[str, Any]]) -> None:
        """Take note that a call begins. If it can change something, the marks of its task are its caller's too.

        Args:
            path: The path id of the call.
            callee: The function.
            labels: The labels of its arguments as JSON.
        """
        if self._frame.above is not None:
            self._take_note(self._frame, changes_something(callee))
        if labels:  # else nothing of them is a stranger's
            self._take_labels(path, labels, changes_something(callee))

    @property
    def _is_labelling(self) -> bool:
        return bool(self._frames or self.marks)

    def follows(self, caller: Caller, resolved: Labelled | None) -> bool:
        """Whether arguments of a call can come from elsewhere than the person or the host; see `labels`."""
        return caller.model_influenced and (resolved is not None or bool(self._frames or self._frame.all_marks))

    def labels(
        self,
        callee: Function,
        arguments: Mapping[str, Any],
        caller: Caller,
        before: Mapping[str, Any] | None = None,
        resolved: Labelled | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Return the labels of arguments as JSON, by dotted paths; those of the person's values are left out.

        It is asked about calls that the gate `follows`.

        Args:
            callee: The function that is called.
            arguments: Its params as JSON.
            caller: The caller.
            before: The arguments that a person replaced by these, if any; what was not among them is the person's.
            resolved: The arguments as a guarded model said them; None if the model is not guarded.
        """
        return as_json(self._labels_in(_Proposed(callee, arguments, caller, before, resolved)))

    def _labels_in(
        self, call: _Proposed, value: Any = None, argument: str | None = None
    ) -> Iterator[tuple[Steps, Label]]:
        """Yield the labels of the values in arguments, and of keys in them that the function does not declare.

        Args:
            call: The call.
            value: A value in the arguments.
            argument: The argument that it is in; None takes all arguments.
        """
        own = not call.caller.model_influenced or not self._is_labelling
        if not own:
            self._sources().learn([*self._records.values()], self._marks_of_bounded)
        kept = call.kept
        # A null of a model that has read nothing is its own; of a handle, it can be a stranger's.
        nulls = call.resolved is not None and bool(call.arguments)
        readers = self._frame.restricting if call.caller.model_influenced else ()
        for steps, each in leaves(call.arguments if argument is None else value, call.keys, nulls=nulls):
            label = OWN
            if kept is None or canonical_json(each) in kept:
                label = call.label_of(str(steps[0]) if argument is None else argument, each)
                if label == OWN and not own:
                    # What has read it can have put it anywhere, also where it equals something else.
                    is_default = call.is_default(steps, argument, each)
                    label = self._written_label(call, each)
                    label = replace(label, readers=frozenset()) if is_default else label.seen_by(readers)
            yield steps, label

    def _written_label(self, call: _Proposed, value: Any) -> Label:
        """The label of what a model wrote. A guarded one passes values on by handles, so equal ones do not count."""
        if call.resolved is not None and self._strangers:
            return Label.of_marks(self.marks, "words" if isinstance(value, str) else "bounded")
        return self._sources().label_of(value, self.marks)

    def _marks_of_bounded(self, path: str) -> Collection[str]:
        frame = self._frames.get(path)
        return frame.marks if frame is not None and not frame.passes_on else ()

    def grant(
        self,
        callee: Function,
        caller: Caller,
        arguments: Mapping[str, Any] | None,
        labels: Mapping[str, Any] | None = None,
    ) -> Grant:
        """Take note that a person approves calls for the rest of the turn, within the policy's limits.

        Args:
            callee: The function that is called.
            caller: The caller.
            arguments: The arguments that the grant covers; None covers any.
            labels: Their labels, if the caller's model is guarded: other calls must have the same.
        """
        covers = "" if arguments is None else _covered(arguments, labels)
        grant = Grant(covers, digest_of(callee.description), self._now())
        self._grant(callee.name, caller.name, grant)
        return grant

    def _grant(self, function: str, caller: str, grant: Grant) -> None:
        given = self._granted.setdefault((function, caller), {})
        before = given.get(grant.covers)
        if before is None or before.description != grant.description:
            given[grant.covers] = grant

    def decide(
        self,
        callee: Function,
        arguments: Mapping[str, Any],
        caller: Caller,
        shape: Function | None = None,
        *,
        resolved: Labelled | None = None,
    ) -> Verdict:
        """Decide about a new call.

        Args:
            callee: The function that is called.
            arguments: Its params as JSON.
            caller: The caller.
            shape: The shape that is called by name to run a worker, the `callee`; None if the callee is called itself.
            resolved: The arguments as a guarded model said them; None if the model is not guarded. A rule approves them
                only if it names an origin for all that is not the person's.
        """
        verdict = self.by_policy(callee, arguments, caller, shape, resolved=resolved)
        if verdict.decision == "approve" and callee.approval:
            verdict = Verdict("ask", "function", "the function always requires approval")
        if verdict.decision == "ask" and self.is_dry(callee, caller):
            verdict = _BY_DRY_RUN
        if verdict.decision == "ask":
            verdict = self._by_grant(verdict, _Proposed(callee, arguments, caller, None, resolved))
        if verdict.decision == "approve":
            self._count(_use(verdict.by, callee.name, caller.name), self._now())
        if verdict.decision == "ask" and verdict.expires is None:
            verdict = replace(verdict, expires=self.policy.expires)
        return verdict

    def by_policy(
        self,
        callee: Function,
        arguments: Mapping[str, Any],
        caller: Caller,
        shape: Function | None = None,
        *,
        before: Mapping[str, Any] | None = None,
        resolved: Labelled | None = None,
    ) -> Verdict:
        """Return the verdict of the policies and ceilings. A call that they refuse must never run.

        The strictest verdict counts, so a worker's own policy and its ceiling can only narrow the agent's policy (H6).

        Args:
            callee: The function that is called.
            arguments: Its params as JSON.
            caller: The caller.
            shape: See `decide`.
            before: The arguments that a person replaced by these, if any; see `labels`.
            resolved: See `decide`.
        """
        call = _Proposed(callee, arguments, caller, before, resolved)
        verdict = self._by_agent(call)
        if caller.instead_of:
            verdict = self._for_both(verdict, replace(call, caller=replace(caller, name=caller.instead_of)))
        if shape is not None:
            above = self.by_policy(shape, arguments, caller, before=before, resolved=resolved)
            verdict = _stricter(verdict, above)
        if not caller.workers:
            return verdict
        verdicts = [verdict, *(self._by_worker(name, call) for name in caller.workers)]
        verdicts += [_by_ceiling(ceiling, callee, caller) for ceiling in self._ceilings(caller)]
        return _stricter(*verdicts)

    def _for_both(self, verdict: Verdict, call: _Proposed) -> Verdict:
        """The verdict on a call of a member that speaks for somebody: a rule approves it if it does so for both.

        Args:
            verdict: The verdict for the member.
            call: The call as of the one for whom it speaks.
        """
        other = self._by_agent(call)
        if verdict.decision == other.decision == "approve" and verdict.by != other.by:
            return Verdict("ask", other.by, "no rule approves it both for the conversation and for who speaks in it")
        if verdict.decision == other.decision == "ask":
            if verdict.approvers and other.approvers and verdict.approvers != other.approvers:
                why = "the rules for the conversation and for who speaks in it let different accounts approve it"
                return Verdict("refuse", other.by, why)
            return verdict if verdict.approvers else other
        return _stricter(verdict, other)

    def _by_worker(self, name: str, call: _Proposed) -> Verdict:
        """Return the verdict of a worker's policy. It approves calls that no rule matches, unless it sets `default`."""
        worker = self._workers.get(name)
        if worker is None:  # its policy and its ceiling are unknown
            return Verdict("refuse", f"worker:{name}", f"it is made for {name!r}, which no longer exists")
        policy = worker.policy
        if policy is None:
            return _BY_DEFAULT
        rule = self._rule(policy, call)
        if rule is None and "default" in policy.model_fields_set and not _is_harmless(call.callee):
            return Verdict(policy.default, f"worker:{name}", f"nothing in the policy of {name!r} allows it")
        if rule is None or rule.decision == "approve":
            return _BY_DEFAULT
        reason = f"the rule {rule.name!r} of {name!r} {rule.decision}s"
        return Verdict(rule.decision, f"worker:{name}:{rule.name}", reason, expires=rule.expires, decided=rule.decided)

    def _ceilings(self, caller: Caller) -> Iterator[Ceiling]:
        for name in caller.workers:
            worker = self._workers.get(name)
            if worker is not None and worker.ceiling is not None:
                yield from worker.ceiling.lineage()

    def is_dry(self, callee: Function, caller: Caller) -> bool:
        """Whether a call runs the function's dry run, because a ceiling of its caller allows nothing else."""
        return callee.dry_run is not None and has_effects(callee) and any(c.dry_run for c in self._ceilings(caller))

    def _is_trusted(self, callee: Function, caller: Caller) -> bool:
        """Whether trust approves a call for which the agent's policy has no rule."""
        if self._trust is None or self._strangers or "destructive" in callee.risk:
            return False
        given = [each.authority_over(callee)[0] for each in self._ceilings(caller) if each.authority is not None]
        return bool(given) and set(given) == {"autonomous"} and self._trust(caller, callee) > MIN_TRUST

    def _by_agent(self, call: _Proposed) -> Verdict:
        callee, caller = call.callee, call.caller
        harmless = _is_harmless(callee)
        rule = self._rule(self.policy, call)
        if rule is not None:
            verdict = self._by_rule(rule, callee, caller, harmless=harmless)
            return replace(verdict, decided=rule.decided) if rule.decided and not harmless else verdict
        if not caller.model_influenced:
            return _BY_CODE
        if harmless:
            return _BY_DEFAULT
        why, strange = "nothing in the policy allows it", self._strange(call)
        if strange:
            names = tuple(dict.fromkeys(str(steps[0]) for steps, _ in strange))
            why = f"nothing in the policy allows it with values that the person did not give: {', '.join(names)}"
            why += self._nearest(call, strange)
            return Verdict(self.policy.default, "default", self._why(callee, why), decided=names)
        elif self.policy.default == "ask" and self._is_trusted(callee, caller):
            return _BY_TRUST
        return Verdict(self.policy.default, "default", self._why(callee, why))

    def _nearest(self, call: _Proposed, strange: Sequence[tuple[Steps, Label]]) -> str:
        """What of a call the first rule does not allow which would approve calls of its function."""

        def labels_in(argument: str, value: Any) -> Iterator[Label]:
            return (label for _, label in self._labels_in(call, value, argument))

        callee, caller = call.callee, call.caller
        for rule in self.policy.rules:
            about = rule.decision == "approve" and rule.about(callee.name, callee.risk, caller.name)
            if not about or not rule.arguments:
                continue
            found = [*rule.misfits(call.arguments, callee.params, labels_in)]
            if not found and not rule.covers(strange):
                found = ["where its other arguments come from, or who may see them"]
            if found:
                return f"; the rule {rule.name!r} does not allow {', or '.join(found)}"
        return ""

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _rule(self, policy: Policy, call: _Proposed) -> Rule | None:
        def labels_in(argument: str, value: Any) -> Iterator[Label]:
            return (label for _, label in self._labels_in(call, value, argument))

        strange = self._strange(call)
        callee = call.callee
        for rule in policy.rules:
            if rule.after and not rule.matches_marks(self._strangers):
                continue
            if strange and rule.decision == "approve" and not rule.covers(strange):
                continue
            if rule.matches(callee.name, callee.risk, call.caller.name, call.arguments, callee.params, labels_in):
                return rule
        return None

    def _strange(self, call: _Proposed) -> Sequence[tuple[Steps, Label]]:
        """The values in the arguments that are not the person's, if a guarded model calls, or that not all may see."""
        if call.resolved is not None:
            return [(steps, label) for steps, label in self._labels_in(call) if label != OWN]
        if not self._frame.restricting:
            return []
        return [(steps, OWN.seen_by(label.readers)) for steps, label in self._labels_in(call) if label.readers]

    def _by_rule(self, rule: Rule, callee: Function, caller: Caller, *, harmless: bool) -> Verdict:
        by = f"rule:{rule.name}"
        match rule.decision:
            case "refuse":
                return Verdict("refuse", by, f"the rule {rule.name!r} of the policy refuses it")
            case "ask":
                why = self._why(callee, f"the rule {rule.name!r} asks")
                return Verdict("ask", by, why, several(rule.approvers), rule.expires)
            case "approve":
                pass
        if harmless or not caller.model_influenced:  # needs no approval, so it does not count against the rule's limits
            return _BY_DEFAULT if caller.model_influenced else _BY_CODE
        if "destructive" in callee.risk:
            return Verdict("ask", by, "destructive calls are approved one by one")
        if self._strangers and not rule.after:
            return Verdict("ask", by, self._why(callee, ""))
        if self._is_used_up(_use(by, callee.name, caller.name), rule.times, rule.seconds):
            return Verdict("ask", by, f"the rule {rule.name!r} reached its limit of approvals for one turn")
        return Verdict("approve", by)

    def _why(self, callee: Function, otherwise: str) -> str:
        if self._strangers and not _is_harmless(callee):
            return f"the turn has read untrusted results of: {', '.join(self._strangers)}"
        return otherwise

    def _by_grant(self, verdict: Verdict, call: _Proposed) -> Verdict:
        """Approve a call that requires approval if a person's "always" covers it; otherwise return the verdict."""
        callee, caller = call.callee, call.caller
        given = self._granted.get((callee.name, caller.name))
        if not given or "destructive" in callee.risk or (self._strangers and not _is_harmless(callee)):
            return verdict
        for_any = None if self._strange(call) else given.get("")
        labels = None if call.resolved is None else as_json(self._labels_in(call))
        found = [grant for grant in (for_any, given.get(_covered(call.arguments, labels))) if grant is not None]
        same = [grant for grant in found if grant.description in (None, digest_of(callee.description))]
        if found and not same:
            return replace(verdict, reason=f"{verdict.reason}; its description has changed since it was approved")
        if all(self._now() - grant.at > self.policy.seconds for grant in same):
            return verdict
        if self._used[_use("always", callee.name, caller.name)] >= self.policy.times:
            return verdict
        return Verdict("approve", "always")

    # --- counting ---------------------------------------------------------------------------------------------------

    def _is_used_up(self, use: str, times: int, seconds: float) -> bool:
        return self._used[use] >= times or (use in self._first and self._now() - self._first[use] > seconds)

    def _count(self, use: str, at: float) -> None:
        self._used[use] += 1
        self._first[use] = min(at, self._first.get(use, at))

    def _now(self) -> float:
        now: datetime = self._clock.now()
        return now.timestamp()


def digest_of(value: object) -> str:
    """Return a digest of arguments or a description, by which equal ones are recognised."""
    return digest(value, length=16)


def _covered(arguments: Mapping[str, Any], labels: Mapping[str, Any] | None) -> str:
    """Return what an "always" for equal arguments covers: also where they come from, if a stranger wrote any."""
    return digest_of([arguments, labels] if labels else arguments)


def _stricter(*verdicts: Verdict) -> Verdict:
    """Return the strictest of several verdicts, the first of equal ones."""
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.decision])


def _by_ceiling(ceiling: Ceiling, callee: Function, caller: Caller) -> Verdict:
    authority, said = ceiling.authority_over(callee)
    if authority == "autonomous":
        return _BY_DEFAULT
    reason = f"{caller.name!r} is under the ceiling of {ceiling.name!r}, which {said}"
    return Verdict("refuse" if authority == "forbidden" else "ask", f"ceiling:{ceiling.name}", reason)


def _carries_text(bounds: Bounds | None, result: Mapping[str, Any]) -> bool:
    return bounds is None or not bounds.hold(str(result["text"]))


def _marks_of(callee: Function) -> list[str]:
    """The marks of what a function itself returns or writes."""
    return [*([callee.name] if callee.untrusted else ()), *_marks_of_readers(callee)]


def _words_in(labels: Iterable[Label]) -> set[str]:
    """The marks of labels whose values can carry words of strangers, and who may see any of the values."""
    return {
        mark
        for label in labels
        for mark in (label.marks if label.form in ("span", "words") else map(mark_of, label.readers))
    }


def _marks_of_readers(callee: Function) -> list[str]:
    """Who may see what code makes of a result of a function, as marks."""
    return [mark_of(each) for each in readers_of_any(callee.readers)]


def _was_untrusted(said: Mapping[str, Any]) -> bool:
    """Whether a function was declared as untrusted when a decision about a call of it was recorded."""
    return bool(said.get("result", {}).get("form") == "words")


def changes_something(callee: Function) -> bool:
    """Whether a call of a function can itself change something that other functions read."""
    return has_effects(callee) and not {"write", "destructive"}.isdisjoint(callee.risk)


_HANDLE: Final = re.compile(r'\{\s*\\*"\$')


def _shows(record: CallRecord) -> bool:
    """Whether a recorded step of a model is an answer with handles."""
    said = record.result or ""
    return record.kind == "model" and '"result":' in said and _HANDLE.search(said) is not None


def _is_harmless(callee: Function) -> bool:
    return callee.risk == READ_ONLY


def _use(by: str, function: str, caller: str) -> str:
    """Return the key under which uses of a rule or an "always" are counted."""
    return f"{by}:{function}:{caller}" if by == "always" else by
