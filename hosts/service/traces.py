"""The call that shows what a turn did: its trace, without what was said."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from ...agent import WorldAgent
from ...harness.trace.records import TraceNode
from .arguments import WorkspaceArguments
from .call import Call
from .following import reached_turn
from .operation import operation
from .pauses import flow_record, flow_ways
from .records import Answer
from .validation import Label, Wire

_HIDDEN: Final = {"inputs", "outputs", "prompt", "labels", "run", "seq", "v"}  # of a record; flows have its labels


class TurnTraceArguments(WorkspaceArguments):
    """Arguments of `turn_trace`."""

    turn_id: Label = Field(description="the turn", examples=["3f2a9c0d11be"])


class TraceSummary(Wire):
    """The trace of a turn."""

    id: str
    name: str
    thread: str
    account: str
    status: str
    code: str
    cost: float | None = Field(description="US dollars; null is unknown")
    start: str
    end: str | None
    input_tokens: int | None
    output_tokens: int | None
    ways: list[list[str]] = Field(
        description="the ways of values, to draw: each from an origin, perhaps by a reader or a program, to what they "
        "reached"
    )
    nodes: list[dict[str, Any]] = Field(
        description="what happened, each node behind the one that it is part of: its `kind`, its `depth`, how many "
        "seconds it `took`, its `tokens` and `cost`, and what its kind has besides"
    )
    flows: list[dict[str, Any]] = Field(
        description="which values reached which arguments and the answer: the `target`, its `origins`, what made it of "
        "them as `through`, the `decision`, the `gate`, the `record` that is the `id` of a node, and what it `says` in "
        "words; empty if the turn is not guarded and read nothing that strangers can have written"
    )


class TurnTraceAnswer(Answer):
    """Answer of `turn_trace`."""

    trace: TraceSummary


@operation("Show a trace", "What a turn did: its calls, decisions, times, tokens and costs, without what was said.")
async def turn_trace(call: Call[TurnTraceArguments], agent: WorldAgent) -> TurnTraceAnswer:
    """Return the trace of a turn as nodes in the order of its tree.

    Raises:
        UnknownTurn: As for `reached_turn`.
        TraceInvalid: The turn has no trace.
    """
    await reached_turn(call, agent)
    found = await agent.traces.get(call.given.turn_id)
    summary = TraceSummary(
        id=found.id,
        name=found.name,
        thread=found.thread,
        account=found.account,
        status=found.status,
        code=found.code,
        cost=found.cost,
        start=found.start.isoformat(),
        end=None if found.end is None else found.end.isoformat(),
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
        nodes=_nodes(found.tree()),
        flows=[flow_record(flow) for flow in found.flows],
        ways=[[*way] for way in flow_ways(found)],
    )
    return TurnTraceAnswer(trace=summary)


def _nodes(root: TraceNode) -> list[dict[str, Any]]:
    """Return the nodes of a trace, each behind the one that it is part of, without recursion."""
    found: list[dict[str, Any]] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        record = node.record.model_dump(mode="json", exclude_defaults=True, exclude=_HIDDEN)
        tokens = None if None in node.tokens else sum(each or 0 for each in node.tokens)
        more = {"depth": depth, "took": node.seconds, "tokens": tokens, "cost": node.cost}
        found.append({"kind": node.record.kind, **record, **more})
        waiting += [(child, depth + 1) for child in reversed(node.children)]
    return found
