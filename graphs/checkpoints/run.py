"""The one function that runs graphs."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Literal

from langgraph.errors import NodeCancelledError

from ...core.errors import ModelUnavailable
from ..apart import apart
from ..context import TurnContext
from .saver import LEASE

Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""


async def run_graph(
    graph: Any,
    state: Any,
    *,
    turn: TurnContext,
    context: Any,
    steps: int | None = None,
) -> dict[str, Any]:
    """Run a compiled graph to its end. Start and recovery both use this function (D8).

    Args:
        graph: The compiled graph.
        state: Its input; None resumes the thread from its checkpoint.
        turn: The turn it runs for.
        context: The context that its nodes get.
        steps: The limit of its steps; None derives it from the turn's rounds and the checks of its answers.
    """
    options = turn.services.options
    config = {
        "configurable": {"thread_id": turn.thread_key, LEASE: turn.lease},
        "recursion_limit": 3 * options.max_rounds + 2 * options.verifications + 10 if steps is None else steps,
    }
    mode = DURABILITY.get()
    extra = {"durability": mode} if graph.checkpointer else {}
    if mode != "sync" and turn.lease is not None:
        await turn.lease.flush()  # no checkpoint precedes the first node, so the beginning of the turn is written now
    try:
        with apart():
            result: dict[str, Any] = await graph.ainvoke(state, config, context=context, **extra)
        return result
    except NodeCancelledError:
        pass  # the turn was not cancelled: only what a node awaited was, and tasks report that themselves
    raise ModelUnavailable(
        f"a call of the model {turn.services.caller.connection.name!r} was cancelled from within", remedy="try again"
    )
