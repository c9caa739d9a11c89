"""One turn's trace as a tree with totals. The hosts draw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ...core import summed
from .records import TraceRecord

_COUNTED: Final = (
    "calls",
    "models",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "unpriced",
)


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
            **{name: getattr(runs[0], name) for name in ("name", "workspace", "thread", "account", "start")},
            **{name: getattr(runs[-1], name) for name in ("status", "code", "end")},
            runs=len(runs),
            **counts,
            cost=_cost(runs),
            records=every,
        )

    def tree(self) -> TraceNode:
        """Return the records as a tree, from the turn down."""
        return _tree(self.records)


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


__all__ = ["TraceNode", "TurnTrace"]
