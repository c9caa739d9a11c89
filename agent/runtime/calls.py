"""Calls without a turn. They are traced like turns, under the id of their root, and emit no events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ...core import Emitter, Scope, new_id
from ...core.errors import WorldAgentError
from ...core.events import TurnEnded, TurnStarted
from ...harness.running import call_alone
from .work import RunnerParts


async def call_without_turn(parts: RunnerParts, scope: Scope, name: str, input: Mapping[str, Any] | BaseModel) -> Any:
    """Call a function, worker or shape by name; see `WorldAgent.call`."""
    path, tap = new_id("call"), parts.tracer.tap(scope)
    emit = Emitter(path, parts.clock, tap, tap)
    use = await parts.usage.open(path, scope)
    root = parts.engine.root(path, scope, emit, use)
    emit(TurnStarted, thread="", kind="call")
    status, code = "cancelled", None
    try:
        value = await call_alone(name, input, root)
        status = "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        emit(TurnEnded, status=status, code=code)
        await use.close()
    return value


__all__ = ["call_without_turn"]
