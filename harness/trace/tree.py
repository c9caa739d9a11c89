"""One turn's trace as a tree: what is part of what, with totals. How it is drawn is a host's matter."""

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
    """What is kept of one turn, or of a call outside any.

    Attributes:
        id: Its id.
        name: The surface: `message`, `task`, `skill`, `schedule`, or `call`.
        workspace: Its workspace.
        thread: Its thread; empty outside any.
        account: Who spoke.
        status: How its last run ended; `running` where that is under way or was cut off.
        code: The error's, where it failed.
        start: When it began.
        end: When its last run ended.
        runs: How often it began or was resumed.
        calls: How many calls and tasks, of all runs; so are the rest.
        models: How many model calls.
        input_tokens: What they were sent; None where that is not known of one. So are the other tokens counted.
        output_tokens: What they gave.
        cached_tokens: Those of the input that services read from their caches.
        reasoning_tokens: Those of the output that are reasoning.
        cost: US dollars of those whose cost is known; None where none is.
        unpriced: How many have no known cost.
        records: Every record, in order; none where traces are listed.
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
        """The trace that records of one turn are; at least one is of its runs."""
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
        """What is part of what, from the turn down."""
        return _tree(self.records)


@dataclass(slots=True, eq=False)
class TraceNode:
    """A record with what is part of it.

    Attributes:
        record: The record; of what ran several times, since the turn was resumed, the last.
        runs: All of them, the oldest first.
        children: What is part of it, in order.
        tokens: Input and output tokens of all that is part of it; None where that is not known of one.
        cost: US dollars of it, where they are known.
    """

    record: TraceRecord
    runs: list[TraceRecord] = field(default_factory=list)
    children: list[TraceNode] = field(default_factory=list)
    tokens: tuple[int | None, int | None] = (0, 0)
    cost: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it was under way, over all runs; None where that is not known."""
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
    """What a record hangs from: what it is about or part of, or the nearest above that is there."""
    if record.call in nodes:
        return nodes[record.call]
    parent = record.parent
    while parent and (parent not in nodes or parent == record.id):
        parent = parent.rpartition("/")[0]
    return nodes.get(parent)


def _in_order(root: TraceNode, nodes: Mapping[str, TraceNode], above: Mapping[str, TraceNode]) -> list[TraceNode]:
    """All that lasts, each before what is part of it; without recursion, since a file may be nested without end."""
    order: dict[TraceNode, None] = {}
    for start in (root, *map(nodes.__getitem__, above)):
        if start in order:
            continue
        if start is not root:  # it is part of itself, as only a file that others wrote can say
            above[start.record.id].children.remove(start)
            root.children.append(start)
        found = [start]
        for node in found:  # grows
            found += [child for child in node.children if child.record.lasts]
        order |= dict.fromkeys(found)
    return list(order)


def _cost(parts: Iterable[TraceRecord | TraceNode]) -> float | None:
    """The sum of the costs that are known; None where none is."""
    costs = [part.cost for part in parts if part.cost is not None]
    return sum(costs) if costs else None


__all__ = ["TraceNode", "TurnTrace"]
