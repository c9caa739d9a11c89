"""What sinks receive, the format `trace/1` of the records that are made of it, and the tree of a turn.

A sink receives the events of every turn, with their ids. They contain no text of a model or a person unless capture is
on, and never a role. A file of traces has one record a line, as a JSON object; its first line names the format. A line
with the `run`, `seq` and `kind` of an earlier line replaces it: a record of a turn, a task or a call is written when it
begins and again when it ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core import ROOT, CaptureKind, Scope, summed
from ...core.errors import TraceInvalid
from ...core.events import TurnEvent
from ..gate.labels import Form

FORMAT: Final = "trace/1"
HEADER: Final = json.dumps({"format": FORMAT})

RecordKind = Literal[
    "turn",
    "task",
    "call",
    "model",
    "approval",
    "held",
    "pause",
    "retry",
    "check",
    "message",
    "introduction",
    "refusal",
    "error",
    "dropped",
]
"""What a record is of; the guide on traces says what each is."""


class ValueSource(BaseModel):
    """Where an argument of a call, or a part of an answer, comes from; see `Pause.labels`."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    origins: tuple[str, ...]
    """`person`, or `FUNCTION.FIELD` with `*` for a field that is not known."""
    form: Form
    """What the value can carry at most."""
    chosen: tuple[str, ...] = ()
    """What chose it among others, as origins."""
    through: tuple[str, ...] = ()
    """Whether a `reader` or a `program` made it."""
    restricted: bool = False
    """Whether not everybody may see it."""
    decided: bool = False
    """Whether the decision about the call depends on where it comes from."""


class Flow(ValueSource):
    """What reached an argument of a call, or the answer of a turn, and what the gate decided about that."""

    call: str
    """The path id of the call or task; of an answer, the turn's id."""
    function: str
    """The function, worker or shape; of an answer, `answer`."""
    argument: str
    """The dotted path of the argument, empty for all of them; of an answer, `text`, `result` or `outputs`."""
    decision: str = ""
    """The decision, as in `call_decided`; empty for an answer."""
    gate: str = ""
    """What decided."""
    record: str = ""
    """The id of the record that has it."""

    @property
    def target(self) -> str:
        """The function with the argument, such as `send_mail.to`."""
        return f"{self.function}.{self.argument or '*'}"


class TraceRecord(BaseModel):
    """One record of a trace, and one line of `trace/1`. Fields with their default are omitted from the line."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    kind: RecordKind
    """What it is a record of."""
    turn: str
    """The turn's id; of a call outside any turn, the id of its root."""
    run: datetime
    """When this run of the turn began; a turn that is resumed has several."""
    seq: int = Field(ge=0)
    """The number of the event that it is from; orders the records of a run."""
    id: str
    """Its id: the path id of a turn, task or call; of the others, what it is about and `#seq`."""
    parent: str = ""
    """The id of the turn, task or call that it is part of; none of a turn."""
    name: str = ""
    """The function, shape, Signature or surface; of an error, where it came from; of a held result, its outline; of a
    message that a turn has read, who said it."""
    label: str = ""
    """Of a task, its entry Signature; of a pause, its kind; of a message, its type; else a further word."""
    start: datetime
    """When it began."""
    end: datetime | None = None
    """When it ended; none while it runs or if it was interrupted."""
    status: str = ""
    """`running`, or how it ended; of an approval or a check, the decision."""
    code: str = ""
    """The error's code."""
    call: str = ""
    """Of an approval, held result, pause or retry: the path id of the call that it is about."""
    risk: tuple[str, ...] = ()
    """Of a call, task or pause: what it may do to the world."""
    gate: str = ""
    """Of a call, task or approval: what decided, as in `call_started`."""
    labels: dict[str, ValueSource] = {}
    """Of a call, task or approval: where each argument comes from; of a turn, its answer; as in `call_started`."""
    account: str = ""
    """Of a turn, who speaks; of an approval, who answered."""
    workspace: str = ""
    """Of a turn: its workspace."""
    thread: str = ""
    """Of a turn: its thread."""
    channel: str = ""
    """Of a turn: its channel."""
    on_behalf_of: str = ROOT
    """Of a turn: the member that it ran for; `root` for a turn of no member."""
    role_tiers: tuple[str, ...] = ()
    """Of a turn: which tiers of a role were active; never what they say."""
    model: str = ""
    """Of a model call: the model."""
    input_tokens: int | None = 0
    """Input tokens of a model call, or of all of a turn, with `cached_tokens`; null if not known."""
    output_tokens: int | None = 0
    """The same for output, with `reasoning_tokens`."""
    cached_tokens: int = 0
    """Input tokens that the service read from a cache."""
    reasoning_tokens: int = 0
    """Output tokens that are reasoning."""
    cost: float | None = None
    """US dollars of a model call, or of all of a turn whose cost is known."""
    withheld: int = 0
    """Of a model call: how many characters were withheld, because they disclosed a role."""
    models: int = 0
    """Of a turn: how many model calls."""
    unpriced: int = 0
    """Of a turn: how many of them have no known cost."""
    calls: int = 0
    """Of a turn: how many calls and tasks."""
    attempt: int = 0
    """Of a retry: the number of the next try; of a check: which answer; of a message that a turn has read: the
    step before which it did."""
    seconds: float = 0.0
    """Of a retry: how many seconds it waits."""
    count: int = 0
    """Of dropped events: how many."""
    message: str = ""
    """Of a message or introduction: the id of the message."""
    sender: str = ""
    """Of a message, introduction or refusal: who sent it."""
    receiver: str = ""
    """Of a message, introduction or refusal: who receives it; none for an unknown id."""
    introduced: str = ""
    """Of an introduction: who is introduced to the receiver."""
    chain: int = 0
    """Of a message or introduction: how many messages led to it since the last of a person or event."""
    inputs: Any = None
    """Params, or what a message says, as JSON, if they are captured."""
    outputs: Any = None
    """The result as JSON, if it is captured."""
    prompt: Any = None
    """The messages of a model call, if they are captured; a role is `[role: N characters]`."""

    def line(self) -> str:
        """Return the record as JSON on one line, without a newline."""
        return self.model_dump_json(exclude_defaults=True)

    @property
    def key(self) -> tuple[datetime, int, str]:
        """Its key among the records of its turn: its run, its event, and its kind with its number among several."""
        number = self.id.removeprefix(f"{self.parent}#{self.seq}") if self.kind == "model" else ""
        return self.run, self.seq, self.kind + number

    @property
    def lasts(self) -> bool:
        """Whether it has a begin and an end, and other records can be part of it."""
        return self.kind in ("turn", "task", "call")


def read_record(line: str | bytes) -> TraceRecord | None:
    """Read one line.

    Returns:
        The record; None for a kind that this version does not know.

    Raises:
        TraceInvalid: The line is not a record.
    """
    try:
        return TraceRecord.model_validate_json(line)
    except ValidationError as error:
        wrong = [(item["loc"], item["type"]) for item in error.errors(include_input=False, include_url=False)]
    if wrong == [(("kind",), "literal_error")]:
        return None
    raise TraceInvalid("a line is not a record of a trace", remedy="remove it, or export the trace again")


TOKENS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_SAME: Final = ("name", "workspace", "thread", "account", "on_behalf_of", "start")  # in every run of a turn
_COUNTED: Final = ("calls", "models", *TOKENS, "unpriced")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTrace:
    """The trace of one turn, or of a call without a turn.

    The counts, tokens and the cost are sums over all runs.

    Attributes:
        id: Its id.
        name: The surface: `message`, `task`, `skill`, `schedule`, or `call`.
        workspace: Its workspace.
        thread: Its thread; empty for a call without a turn.
        account: The account that spoke.
        on_behalf_of: The member that it ran for; `root` for a turn of no member.
        status: How its last run ended; `running` if that run has not ended or was interrupted.
        code: The code of the error, if it failed.
        start: When it began.
        end: When its last run ended.
        runs: How often it began or was resumed.
        calls: How many calls and tasks.
        models: How many model calls.
        input_tokens: Input tokens of model calls; None if they are not known of one of them.
        output_tokens: Output tokens of model calls; None if they are not known of one of them.
        cached_tokens: Input tokens that services read from their caches.
        reasoning_tokens: Output tokens that are reasoning.
        cost: US dollars of the model calls whose cost is known; None if no cost is known.
        unpriced: How many model calls have no known cost.
        records: Every record, in order; empty in a list of traces.
    """

    id: str
    name: str
    workspace: str
    thread: str
    account: str
    on_behalf_of: str
    status: str
    code: str
    start: datetime
    end: datetime | None
    runs: int
    calls: int
    models: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None
    unpriced: int
    records: tuple[TraceRecord, ...] = field(default=(), repr=False)

    @staticmethod
    def of(records: Iterable[TraceRecord]) -> TurnTrace:
        """Make the trace of the records of one turn; at least one record must be of kind `turn`."""
        every = tuple(sorted(records, key=lambda record: (record.run, record.seq)))
        runs = [record for record in every if record.kind == "turn"]
        counts: dict[str, Any] = {name: summed(getattr(run, name) for run in runs) for name in _COUNTED}
        return TurnTrace(
            id=runs[0].turn,
            **{name: getattr(runs[0], name) for name in _SAME},
            **{name: getattr(runs[-1], name) for name in ("status", "code", "end")},
            runs=len(runs),
            **counts,
            cost=_cost(runs),
            records=every,
        )

    def tree(self) -> TraceNode:
        """Return the records as a tree, from the turn down."""
        return _tree(self.records)

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Where the arguments of its calls and the parts of its answer come from; empty if that was not followed."""
        found: dict[str, dict[str, Flow]] = {}
        for record in sorted(self.records, key=lambda record: record.kind == "turn"):  # the answer comes last
            call = record.call or record.id
            before = found.get(call, {})
            about = {"call": call, "record": record.id, **_decision(record, before)}
            if record.labels:
                found[call] = {path: _flow(path, each, about, before) for path, each in record.labels.items()}
        return tuple(flow for flows in found.values() for flow in flows.values())


def _decision(record: TraceRecord, before: Mapping[str, Flow]) -> dict[str, str]:
    """What a record says of the decision about its call."""
    match record.kind:
        case "turn":
            return {"function": "answer"}
        case "approval":
            return {"function": record.name, "decision": record.status, "gate": record.gate}
        case _:
            changed = any(flow.decision == "modify" for flow in before.values())
            name = record.label if (record.kind, record.name) == ("task", "subagent") else record.name
            return {"function": name, "decision": "modify" if changed else "approve", "gate": record.gate}


def _flow(path: str, source: ValueSource, about: Mapping[str, Any], before: Mapping[str, Flow]) -> Flow:
    """A flow as the newest record has it. It decided if it did in any record, since a person answers later."""
    flow = Flow(argument=path, **about, **source.model_dump())
    return flow.model_copy(update={"decided": True}) if path in before and before[path].decided else flow


@dataclass(slots=True, eq=False)
class TraceNode:
    """A record with the records that are part of it.

    Attributes:
        record: The record; if it ran several times because the turn was resumed, the last one.
        runs: The records of all its runs, the oldest first.
        children: The nodes that are part of it, in order.
        tokens: Input and output tokens of the node and everything below it; None if they are not known of one part.
        cost: US dollars of the node and everything below it, as far as they are known.
    """

    record: TraceRecord
    runs: list[TraceRecord] = field(default_factory=list)
    children: list[TraceNode] = field(default_factory=list)
    tokens: tuple[int | None, int | None] = (0, 0)
    cost: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran, over all runs; None if that is not known."""
        took = [(run.end - run.start).total_seconds() for run in self.runs if run.end is not None]
        return sum(took) if took else None


def _tree(records: Sequence[TraceRecord]) -> TraceNode:
    nodes: dict[str, TraceNode] = {}
    for record in records:
        if record.lasts:
            node = nodes.setdefault(record.id, TraceNode(record))
            node.record = record
            node.runs.append(record)
    root = next(node for node in nodes.values() if node.record.kind == "turn")
    above: dict[str, TraceNode] = {}
    for record in records:
        if record.id == root.record.id or (record.lasts and record.id in above):
            continue
        place = _place(record, nodes) or root
        if record.lasts:
            above[record.id] = place
            place.children.append(nodes[record.id])
        else:
            tokens = record.input_tokens, record.output_tokens
            place.children.append(TraceNode(record, [record], tokens=tokens, cost=record.cost))
    for node in reversed(_in_order(root, nodes, above)):
        inputs, outputs = zip(*(child.tokens for child in node.children), strict=True) if node.children else ((), ())
        node.tokens, node.cost = (summed(inputs), summed(outputs)), _cost(node.children)
    return root


def _place(record: TraceRecord, nodes: Mapping[str, TraceNode]) -> TraceNode | None:
    """Return the node above a record: the call that it is about, its parent, or the closest known one above that."""
    if record.call in nodes:
        return nodes[record.call]
    parent = record.parent
    while parent and (parent not in nodes or parent == record.id):
        parent = parent.rpartition("/")[0]
    return nodes.get(parent)


def _in_order(root: TraceNode, nodes: Mapping[str, TraceNode], above: Mapping[str, TraceNode]) -> list[TraceNode]:
    """Return all nodes with a begin and an end, each before its parts; without recursion, as a file can nest deep."""
    order: dict[TraceNode, None] = {}
    for start in (root, *map(nodes.__getitem__, above)):
        if start in order:
            continue
        if start is not root:  # it is part of itself, which only happens in a file that we did not write
            above[start.record.id].children.remove(start)
            root.children.append(start)
        found = [start]
        for node in found:  # grows
            found += [child for child in node.children if child.record.lasts]
        order |= dict.fromkeys(found)
    return list(order)


def _cost(parts: Iterable[TraceRecord | TraceNode]) -> float | None:
    """Return the sum of the known costs; None if no cost is known."""
    costs = [part.cost for part in parts if part.cost is not None]
    return sum(costs) if costs else None


@dataclass(frozen=True, slots=True)
class Captured:
    """The params or the result of a call, or the prompt of a model call; only if capture is on.

    Attributes:
        turn_id: The turn's id.
        call_id: The path id of the call or task; of a prompt, of the call, task or turn that made the model call; of
            what a message says, the message's id.
        what: The kind of the value.
        value: Params or result as JSON; the messages of a prompt, with `[role: N characters]` in the role's place.
    """

    turn_id: str
    call_id: str
    what: CaptureKind
    value: Any


@dataclass(frozen=True, slots=True)
class Dropped:
    """Events of a turn that a sink did not receive, because it was too slow or failed.

    Attributes:
        turn_id: The turn's id.
        count: How many events.
        at: When the last one was dropped.
    """

    turn_id: str
    count: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Traced:
    """One item of a turn's trace, or of the trace of a call without a turn.

    Attributes:
        scope: The ids that the turn runs under.
        what: An event without the texts that it has for readers, a captured value, or a count of dropped events.
    """

    scope: Scope
    what: TurnEvent | Captured | Dropped


@runtime_checkable
class TraceSink(Protocol):
    """Receives the items of traces, such as to write them to a file. Implement it to send traces where you want them.

    One task at a time calls the sink, and no turn waits for it. A write that raises, or takes longer than a minute, is
    not repeated; its events count as dropped. The sink is tried again after pauses that grow from a second to a minute.
    """

    async def write(self, items: Sequence[Traced]) -> None:
        """Write the items of all turns since the last call, in order."""
        ...

    async def aclose(self) -> None:
        """Close files and connections. Another `write` can follow if the agent is started again."""
        ...
