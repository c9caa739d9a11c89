"""The events of turns, and the messages of a thread, as updates of a session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from acp.helpers import SessionUpdate, resource_link_block, text_block, tool_content
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
    UserMessageChunk,
)

from ...core import events as ev
from ...core.pauses import Pause, call_id_of
from ...memory import Message
from ...memory.attachments import attachments_of
from ...memory.reports import is_report
from ..service.answers import message_of
from ..service.pauses import one_line, shortened

Send: TypeAlias = Callable[[SessionUpdate], Awaitable[None]]

MAX_TITLE_CHARACTERS: Final = 200

_KINDS: Final[Mapping[str, ToolKind]] = {
    "read_file": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "glob_files": "search",
    "grep_content": "search",
    "shell": "execute",
    "web_search": "search",
    "web_fetch": "fetch",
}
"""The kinds of built-in tools. The kind of another tool follows from its risk."""

_STATUSES: Final[Mapping[str, ToolCallStatus]] = {
    "done": "completed",
    "failed": "failed",
    "cancelled": "failed",
    "paused": "pending",
}


class Updates:
    """Sends the updates of one session.

    Text that was sent cannot be replaced in the protocol. Text that replaces it begins a new message.

    Args:
        send: Sends an update.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._calls: set[str] = set()  # the ids of the tool calls that the client knows
        self._turn = ""
        self._messages = 0
        self._shown = ""  # the text of the current message

    async def event(self, event: ev.TurnEvent) -> None:
        """Send what an event changes. Most kinds change nothing that the protocol can show."""
        match event:
            case ev.TurnStarted():
                self._turn = event.turn_id
                self._begin_message()
            case ev.TextDelta():
                await self._add(event.text)
            case ev.ReasoningDelta():
                thought = text_block(event.text)
                await self._send(AgentThoughtChunk(session_update="agent_thought_chunk", content=thought))
            case ev.TextReplaced() | ev.TurnEnded(status="done"):
                await self._replace(event.text)
            case ev.StepEnded(interim=True):
                self._begin_message()
            case ev.MessageTaken(kind="report"):
                await self.say(event.text)
            case ev.MessageTaken():
                await self.said(event.text)
            case ev.AttachmentLeftOut():
                await self.say(f"The model gets only the name of {event.name} ({event.reason.replace('_', ' ')}).")
            case _:
                await self._call_event(event)

    async def say(self, text: str) -> None:
        """Send a message of the agent's host."""
        self._begin_message()
        await self._add(text)
        self._begin_message()

    async def said(self, text: str) -> None:
        """Send a message of the person that did not come with a prompt."""
        self._begin_message()
        await self._user(text)

    async def waits(self, pause: Pause) -> ToolCallUpdate:
        """Send the call or the question of a pause as a tool call that waits, and return it for a request."""
        title = pause.question if pause.kind == "question" else pause.function
        found = ToolCallUpdate(
            tool_call_id=call_id_of(pause.id),
            title=one_line(shortened(title or pause.function, MAX_TITLE_CHARACTERS)),
            kind=_kind(pause.function, pause.risk),
            status="pending",
            content=[tool_content(text_block(message_of(pause)))],
            raw_input=dict(pause.arguments) or None,
        )
        await self.call(found)
        return found

    async def call(self, call: ToolCallUpdate) -> None:
        """Send the state of a tool call."""
        fields: dict[str, Any] = {name: getattr(call, name) for name in call.model_fields_set}
        if call.tool_call_id in self._calls:
            await self._send(ToolCallProgress.model_validate({"session_update": "tool_call_update", **fields}))
            return
        self._calls.add(call.tool_call_id)
        named = {"title": call.tool_call_id, **fields}
        await self._send(ToolCallStart.model_validate({"session_update": "tool_call", **named}))

    async def replay(self, message: Message) -> None:
        """Send a message of a thread's history."""
        body, self._turn = message.body, message.turn_id
        match message.kind:
            case "message" | "word" if is_report(message.author):
                await self.say(str(body["text"]))
            case "message":
                await self._user(str(body["text"]))
                for attached in attachments_of(message):
                    where = attached.url or f"attachment:{attached.sha256}"
                    link = resource_link_block(attached.name, where, mime_type=attached.media_type, size=attached.size)
                    await self._send(UserMessageChunk(session_update="user_message_chunk", content=link))
            case "word":
                await self._user(str(body["text"]))
            case "task" | "skill":
                await self._user(f"{message.kind} {body.get('skill') or body['shape']}: {_json(body['params'])}")
            case "schedule":
                await self._user(f"schedule {body['schedule']}: {_json(body['payload'])}")
            case "answer":
                await self.say(str(body["text"]))
            case "plan" if body.get("text"):
                await self.say(str(body["text"]))
            case "result":
                await self._result(message)
            case _:
                pass

    async def _result(self, message: Message) -> None:
        body = message.body
        done = body["status"] == "done"
        await self.call(
            ToolCallUpdate(
                tool_call_id=message.id,
                title=str(body["to"]),
                kind=_kind(str(body["to"]), ()),
                status="completed" if done else "failed",
                raw_input=body.get("arguments"),
                raw_output=body["result"] if done else body["error"],
            )
        )

    async def _call_event(self, event: ev.TurnEvent) -> None:
        match event:
            case ev.TaskStarted():
                await self._started(event.task_id, event.label or event.shape, "other", event.arguments)
            case ev.CallStarted():
                kind = _kind(event.function, event.risk)
                await self._started(event.call_id, event.title or event.function, kind, event.arguments)
            case ev.TaskEnded():
                await self.call(ToolCallUpdate(tool_call_id=event.task_id, status=_STATUSES[event.status]))
            case ev.CallEnded():
                await self.call(ToolCallUpdate(tool_call_id=event.call_id, status=_STATUSES[event.status]))
            case ev.CallDecided(decision="reject" | "refuse"):
                failed = ToolCallUpdate(tool_call_id=event.call_id, title=event.function, status="failed")
                await self.call(failed)
            case _:
                pass

    async def _started(self, call_id: str, title: str, kind: ToolKind, arguments: dict[str, Any] | None) -> None:
        call = ToolCallUpdate(tool_call_id=call_id, title=title, kind=kind, status="in_progress")
        if arguments is not None:  # of functions that are declared with `capture=True`
            call.raw_input = arguments
        await self.call(call)

    # --- messages ---

    def _begin_message(self) -> None:
        self._messages += 1
        self._shown = ""

    async def _add(self, text: str) -> None:
        if not text:
            return
        self._shown += text
        chunk = AgentMessageChunk(
            session_update="agent_message_chunk",
            content=text_block(text),
            message_id=f"{self._turn}.{self._messages}",
        )
        await self._send(chunk)

    async def _replace(self, text: str) -> None:
        if text.strip() == self._shown.strip():
            return
        if not text.startswith(self._shown):
            self._begin_message()
        await self._add(text[len(self._shown) :])

    async def _user(self, text: str) -> None:
        await self._send(UserMessageChunk(session_update="user_message_chunk", content=text_block(text)))


def _kind(function: str, risk: Sequence[ev.Risk]) -> ToolKind:
    if function in _KINDS:
        return _KINDS[function]
    return "read" if "read_only" in risk else "fetch" if tuple(risk) == ("network",) else "other"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
