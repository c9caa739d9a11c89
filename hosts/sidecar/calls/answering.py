"""Converts turns and errors to answers of the `contract`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from ....agent import Turn
from ....agent.threads import ThreadState
from ....core.errors import KeyReused, UnknownMessage, UnknownPause, UnknownShape, WorldAgentError
from ....core.pauses import Pause
from ..contract.answers import Answer, ErrorAnswer, ErrorRecord, NextStep, TurnAnswer, TurnRecord
from ..contract.words import WorkspaceArguments
from ..pauses import next_steps, pause_result
from ..ports import Refused, names
from ..validation import ArgumentsInvalid, validation_error_of
from .call import Call

_UNQUOTED: Final[Mapping[type[Exception], str]] = {
    KeyReused: "the key was used on this thread for another call",
    UnknownMessage: "the thread has no such message",
    UnknownPause: "the thread has no such pause",
    UnknownShape: "there is no such shape",
}
"""New texts for problems of the package that quote what the caller sent."""


def turn_record(turn: Turn, thread: str) -> TurnRecord:
    """Return a turn as a record."""
    pauses = [pause_result(pause) for pause in turn.pauses]
    return TurnRecord.model_validate({**turn.to_json(), "thread": turn.thread or thread, "pauses": pauses})


def turn_answer(call: Call[Any], turn: Turn, *, seq: int) -> TurnAnswer:
    """Return the answer of a tool that followed a turn to its end or a pause."""
    record = turn_record(turn, call.given.thread)
    return TurnAnswer(turn=record, seq=seq, next=to_call(call, turn.status, turn.id, turn.pauses, seq=seq))


def status_answer(call: Call[Any], state: ThreadState, pauses: Sequence[Pause], *, seen: int) -> TurnAnswer:
    """Return the answer of a tool that did not follow the turn: its status, and what to call for the rest.

    Args:
        call: The call.
        state: The state of the turn.
        pauses: The pauses that it waits for.
        seen: The number of the last event that was sent to the client.
    """
    seq = max(call.given.after, seen)
    record = {"id": state.turn_id, "thread": state.thread, "status": state.status}
    made = to_call(call, state.status, state.turn_id, pauses, seq=seq)
    if not made and call.noted.own:
        made = [NextStep(tool="history", arguments=call.ids, why="the turn is over; read its messages")]
    return TurnAnswer(
        turn=TurnRecord.model_validate({**record, "pauses": [pause_result(pause) for pause in pauses]}),
        seq=seq,
        next=made,
    )


def to_call(
    call: Call[Any],
    status: str,
    turn_id: str,
    pauses: Sequence[Pause],
    *,
    seq: int = 0,
    ids: Mapping[str, str] | None = None,
) -> list[NextStep]:
    """Return what the caller can call to continue a turn; empty if it is over or only another account can resume it.

    Args:
        call: The call. Its `noted` says whether the turn is the caller's own and keeps its events.
        status: The status of the turn.
        turn_id: The id of the turn.
        pauses: The pauses that it waits for.
        seq: The number of the last event that the client has.
        ids: The ids to repeat, if they differ from those of the call.
    """
    known = call.ids if ids is None else ids
    followed = status == "running" and call.noted.recorded
    if not call.noted.own:
        pauses = [pause for pause in pauses if names(pause, call.caller)]
        if not followed and (status == "running" or not pauses):
            return []
    seen = seq if call.noted.recorded else None
    needs = call.noted.needs if call.noted.own else ()
    steps = next_steps(status, turn_id, ids=known, pauses=pauses, seq=seen, needs=needs)
    return [NextStep.model_validate(step) for step in steps]


def answered(answer: Answer) -> CallToolResult:
    """Return an answer as a tool result. Its text block is the agent's answer if there is one, else the JSON.

    From the JSON, a client that shows only text can read what a paused turn asks, and in `next` how to answer.
    """
    content = answer.model_dump(mode="json")
    text = answer.turn.text if isinstance(answer, TurnAnswer) and answer.turn.status == "done" else None
    return CallToolResult(content=[_block(text or _as_json(content))], structured_content=content)


def failed(failure: WorldAgentError | Refused, advice: Mapping[str, Any] | None = None) -> CallToolResult:
    """Return an error as a tool result. `advice` has fields that replace or extend its record."""
    error = ErrorRecord(
        code=failure.code,
        problem=_UNQUOTED.get(type(failure), failure.problem),
        remedy=failure.remedy,
        retryable=failure.retryable,
        turn_id=failure.turn_id or None,  # a turn that never began has an empty id
    ).model_copy(update=dict(advice or {}))
    content = ErrorAnswer(error=error).model_dump(mode="json", exclude_none=True)
    sentence = f"{error.code}: {error.problem}; {error.remedy}"
    return CallToolResult(
        content=[_block(f"{sentence}\n{_as_json(content)}")], structured_content=content, is_error=True
    )


def checked(model: type[WorkspaceArguments], arguments: Mapping[str, Any]) -> WorkspaceArguments | ArgumentsInvalid:
    """Return the validated arguments, or the validation error."""
    try:
        return model.model_validate(arguments)
    except ValidationError as failure:
        return validation_error_of(model, failure)


def _block(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


__all__ = ["answered", "checked", "failed", "status_answer", "to_call", "turn_answer", "turn_record"]
