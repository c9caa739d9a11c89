"""Converts turns and errors to answers of the `contract`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams, CallToolResult, TextContent
from pydantic import ValidationError

from ...agent import Thread, Turn, WorldAgent
from ...agent.threads import ThreadState
from ...core.errors import KeyReused, UnknownMessage, UnknownPause, UnknownShape, WorldAgentError
from ...core.pauses import Pause
from ...role_resolution import Role
from ..service.arguments import RoleArgument, ThreadArguments, WorkspaceArguments
from ..service.caller import Caller, Refused, names, owns_turn
from ..service.records import Answer, ErrorAnswer, ErrorRecord, NextStep, TurnAnswer, TurnRecord
from ..service.validation import ArgumentsInvalid, validation_error_of
from .access import Grant
from .asking import next_steps, pause_result
from .client_roles import ClientRoles
from .pool import Agents, Limits

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


A = TypeVar("A", bound=WorkspaceArguments)
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarParts:
    """The parts that all calls share.

    Attributes:
        agents: The agents by workspace.
        limits: The limits of the sidecar.
        ending: Set when the sidecar ends; calls that wait for events then stop.
        client_roles: The roles of the single client, for a client that can keep roles.
    """

    agents: Agents
    limits: Limits
    ending: asyncio.Event
    client_roles: ClientRoles | None = None


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """Facts that a call collects while it runs.

    Attributes:
        tool, workspace, thread, turn: Ids for the request log. The caller was found to reach them.
        code: The code of the answer, for the request log.
        own: Whether the caller can resume the turn. Otherwise they can only answer.
        recorded: Whether the turn's events are kept.
        kept: How many answers of a person were saved before the newest run of the turn.
        sent_events: Whether a run of the turn sent any event.
        needs: The arguments that `resume` needs again (`ThreadState.needs`).
    """

    tool: str | None = None
    workspace: str | None = None
    thread: str | None = None
    turn: str | None = None
    code: str = "ok"
    own: bool = True
    recorded: bool = True
    kept: int = 0
    sent_events: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[A]):
    """One call.

    Attributes:
        house: The parts that all calls share.
        ctx: The request.
        params: Its params. When a client repeats the call with a person's answers, they hold these too.
        given: The arguments.
        grant: The grant of the token.
        caller: The workspace and account of the call.
        noted: Facts that the call collects.
    """

    house: SidecarParts
    ctx: Context = field(repr=False)
    params: CallToolRequestParams = field(repr=False)
    given: A = field(repr=False)
    grant: Grant
    caller: Caller
    noted: CallFacts

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.params.name

    @property
    def ids(self) -> dict[str, str]:
        """The ids to repeat in the next call."""
        given = self.given
        named = {"workspace": self.caller.workspace, "account": self.caller.account}
        if isinstance(given, ThreadArguments):
            named |= {"channel": given.channel, "thread": given.thread}
        return {name: value for name, value in named.items() if value is not None}

    def note_turn(self, state: ThreadState) -> bool:
        """Record the turn that the call is about, and return whether it is the caller's own."""
        self.noted.turn, self.noted.recorded = state.turn_id or None, state.recorded
        self.noted.own, self.noted.needs = owns_turn(self.caller, state), state.needs
        return self.noted.own

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token."""
        meta: Mapping[str, Any] = self.ctx.meta or {}
        return meta.get("progress_token", meta.get("progressToken")) is not None


def thread_of(agent: WorldAgent, call: Call[Any], *, name: str | None = None) -> Thread:
    """Return the handle of the thread that a call names."""
    given: ThreadArguments = call.given
    return agent.thread(given.thread, account=call.caller.account, channel=given.channel, name=name)


def role_of(given: RoleArgument | None) -> Role | None:
    """Return the role that a call sends."""
    if given is None:
        return None
    return Role(given.name, given.content, applies_to=given.applies_to, exclusive=given.exclusive)
