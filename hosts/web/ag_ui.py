"""AG-UI on the web app: `POST /ag-ui` takes a run of a client and streams the events of its turn as AG-UI's events.

The thread's log is the history, so only the last user message of a request is read. A pause is an interrupt, and the
next run answers it with `resume`. The call's role comes in `forwardedProps.role`, and is in no event.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...core import events
from ...core.errors import InvalidArgument, MissingExtra
from ...core.events import TurnEvent
from ...core.pauses import call_id_of
from ...memory.reports import is_report
from ..bounds import CONVERSATION
from ..service.arguments import HistoryArguments, ResumeArguments, ThreadArguments
from ..service.records import TurnAnswer
from ..service.threads import history, thread_of
from ..service.validation import errors_of
from .turns import EventStream, MessageArguments, TurnCall, WebCall, begun, run_turn, streamed

if TYPE_CHECKING:
    from ag_ui.core import BaseEvent, Interrupt, ResumeEntry, RunAgentInput

    from .app import WebApp

MAX_MESSAGES: Final = 200  # of the log, in a snapshot of the messages
_REASONS: Final[Mapping[str, str]] = {"approval": "tool_call", "question": "input_required"}  # by the kind of the pause
_BESIDE: Final = ("steer", "queue")
_OPTIONS: Final = ("model", "attachments", "inputs", "guard", "interrupt")
_OURS: Final = frozenset({"v", "turn_id", "at", "type"})  # fields of ours that a custom event does not have
_APPROVAL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "why not"},
        "arguments": {"type": "object", "description": "other arguments for the call"},
    },
    "required": ["approved"],
}


def ag_ui_routes(web: WebApp, checked: Any, body: Any) -> list[Route]:
    """Return the route of AG-UI.

    Args:
        web: The web app.
        checked: Wraps an endpoint, so that it answers with the record of an error.
        body: Reads the JSON body of a request, within bounds.
    """

    async def run(request: Request) -> Response:
        given = _read(await body(request, CONVERSATION))
        call = await _call(web, request, given)
        items, made = await begun(run_turn(call)), _Translation(given)
        return EventStream(streamed(_lines(web, call, made, items), made.refusal), web.parts.limits)

    return [Route("/ag-ui", checked(run), methods=["POST"], name="ag_ui")]


# --- the request ------------------------------------------------------------------------------------------------------


def _read(body: dict[str, Any]) -> RunAgentInput:
    """Read a request.

    Raises:
        MissingExtra: The package of the protocol is not installed.
        InvalidArgument: It is not AG-UI's `RunAgentInput`, or asks for what is not supported.
    """
    try:
        from ag_ui.core import RunAgentInput
        from pydantic import ValidationError
    except ImportError:
        raise MissingExtra("AG-UI needs a package", remedy="install worldagent[agui]") from None
    problem, given = "", None
    try:
        given = RunAgentInput.model_validate(body)
    except ValidationError as error:  # its text quotes the values
        named = {str(each["loc"][0]) for each in errors_of(error) if each["loc"]}
        problem = ", ".join(sorted(named & {*RunAgentInput.model_fields, "threadId", "runId", "messages", "resume"}))
    if given is None:
        raise InvalidArgument(
            f"the request is not a RunAgentInput of AG-UI: see {problem or 'its fields'}",
            remedy="send `threadId`, `runId` and `messages`, as AG-UI's clients do",
        )
    if not isinstance(given.forwarded_props, dict | None):
        raise InvalidArgument(
            "`forwardedProps` must be an object",
            remedy="send one with `role`, `model`, `attachments` or `inputs`, or omit it",
        )
    beside = [name for name in _BESIDE if (given.forwarded_props or {}).get(name)]
    if beside:
        raise InvalidArgument(
            f"`forwardedProps.{beside[0]}` is not supported: a run begins a turn of its own, and follows it",
            remedy=f"say it with POST /threads/THREAD/{beside[0]}, or send `interrupt` to cancel the running turn",
        )
    if given.tools:
        raise InvalidArgument(
            "tools of the client are not supported", remedy="omit `tools`; the agent has its own functions"
        )
    return given


async def _call(web: WebApp, request: Request, given: RunAgentInput) -> TurnCall:
    props: dict[str, Any] = given.forwarded_props or {}
    # The component of assistant-ui for AG-UI cannot set other properties than this one.
    custom = props.get("runConfig")
    props = {**(custom if isinstance(custom, dict) else {}), **props}
    named = {name: props[name] for name in ("workspace", "account", "role", "subagents") if props.get(name) is not None}
    common = {"thread": given.thread_id, **named}
    if given.resume:
        where: dict[str, Any] = {name: common[name] for name in ("thread", "workspace", "account") if name in common}
        kinds = await _kinds(web, await web.call(request, ThreadArguments, where))
        if len({each.interrupt_id for each in given.resume}) < len(given.resume):
            raise InvalidArgument("`resume` answers an interrupt twice", remedy="send one answer for each interrupt")
        answers = {each.interrupt_id: _answer(kinds.get(each.interrupt_id), each) for each in given.resume}
        return await web.call(request, ResumeArguments, {**common, "answers": answers})
    more = {name: props[name] for name in _OPTIONS if props.get(name) is not None}
    return await web.call(request, MessageArguments, {**common, **more, "text": _text(given), "key": given.run_id})


def _text(given: RunAgentInput) -> str:
    """Return the text of the last user message."""
    said = next((message for message in reversed(given.messages) if message.role == "user"), None)
    if said is None:
        raise InvalidArgument(
            "the request has no user message", remedy="send one, or `resume` with the answers to interrupts"
        )
    if isinstance(said.content, str):
        return said.content
    texts = [part.text for part in said.content if part.type == "text"]
    if len(texts) < len(said.content):
        raise InvalidArgument(
            "only text is read of a message",
            remedy="store files with POST /attachments, and name the records in `forwardedProps.attachments`",
        )
    return "\n".join(texts)


async def _kinds(web: WebApp, call: WebCall[ThreadArguments]) -> dict[str, str]:
    """Return the kinds of the thread's pauses by their ids, since an answer is read as its pause needs it."""
    async with web.parts.agents.use(call.caller.workspace) as agent:
        return {pause.id: pause.kind for pause in await thread_of(agent, call).pauses()}


def _answer(kind: str | None, given: ResumeEntry) -> Any:
    """Return the answer to a pause: as the contract has it, or from `{"approved": true}` or the value of a question.

    Args:
        kind: The kind of the pause; None if no such pause is open, which the turn then reports.
        given: The answer of the client.

    Raises:
        InvalidArgument: A pause that cannot be rejected was cancelled, or it is not said whether a call is approved.
    """
    payload: Any = given.payload
    if given.status == "cancelled":
        if kind in ("question", "uncertain"):
            raise InvalidArgument(
                "only an approval can be cancelled",
                remedy="resolve the interrupt, or cancel the turn with POST /threads/THREAD/cancel",
            )
        return {"reject": {"reason": "the person cancelled"}}
    if kind == "question":
        return {"answer": payload}
    if kind == "uncertain" or not isinstance(payload, dict) or "approved" not in payload:
        return payload
    if payload["approved"] is True:
        return {"approve": {"arguments": payload["arguments"]} if "arguments" in payload else {}}
    if payload["approved"] is not False:
        raise InvalidArgument("`approved` of an answer must be true or false", remedy="send a boolean")
    return {"reject": {"reason": payload.get("reason") or ""}}


# --- the events -------------------------------------------------------------------------------------------------------


class _Translation:
    """Translates the events of one turn. What was begun is ended before something else begins.

    Args:
        given: The request. Calls in its messages are not begun again.

    Attributes:
        replaced: Whether text that was sent is not the text of the answer.
    """

    def __init__(self, given: RunAgentInput) -> None:
        self._thread, self._run = given.thread_id, given.run_id
        self._answered = [call_id_of(each.interrupt_id) for each in given.resume or ()]
        self._open: tuple[str, str] | None = None  # the kind and the id of the message that is being sent
        self._texts: dict[str, str] = {}
        said = (message for message in given.messages if message.role == "assistant")
        self._called = {call.id for message in said for call in message.tool_calls or ()}
        self._results: set[str] = set()
        self.replaced = False

    def begun(self) -> BaseEvent:
        from ag_ui.core import RunStartedEvent

        return RunStartedEvent(thread_id=self._thread, run_id=self._run)

    def of(self, event: TurnEvent) -> Iterator[BaseEvent]:
        """Return AG-UI's events for one of ours; none for those that AG-UI does not have.

        A client appends each text message to its conversation, also one of a subagent. So what a worker says is a
        custom event, and what was said beside the run.
        """
        from ag_ui.core import CustomEvent

        match event:
            case events.TextDelta():
                yield from self._said("text", f"{event.turn_id}:{event.step}", event.text)
            case events.ReasoningDelta():
                yield from self._said("reasoning", f"{event.turn_id}:{event.step}:reasoning", event.text)
            case events.TextReplaced():
                yield from self._replaced(event)
            case events.StepEnded():
                yield from self.ended()
            case events.CallStarted():
                yield from self._call(event.call_id, event.function, event.arguments)
            case events.CallEnded() if event.status != "paused":
                yield self._result(event.call_id, event.code or event.status)
            case events.TaskDelta() | events.MessageTaken():
                value = event.model_dump(mode="json", exclude=set(_OURS))
                yield CustomEvent(name=event.type, value=value)
            case _:
                pass

    def ended(self) -> Iterator[BaseEvent]:
        """Return the end of the message that is being sent."""
        from ag_ui.core import ReasoningEndEvent, ReasoningMessageEndEvent, TextMessageEndEvent

        if self._open is None:
            return
        kind, message_id = self._open
        self._open = None
        if kind == "text":
            yield TextMessageEndEvent(message_id=message_id)
            return
        yield ReasoningMessageEndEvent(message_id=message_id)
        yield ReasoningEndEvent(message_id=message_id)

    def finished(self, answer: TurnAnswer) -> Iterator[BaseEvent]:
        """Return the end of the run."""
        from ag_ui.core import RunFinishedEvent, StateSnapshotEvent

        yield from self.ended()
        turn = answer.turn
        waiting = [pause for pause in turn.pauses if not pause.get("answered")]
        for pause in waiting:
            if pause["kind"] == "approval":
                yield from self._call(call_id_of(pause["id"]), pause["function"], pause["arguments"])
        open_ = {call_id_of(pause["id"]) for pause in waiting} | self._results
        for call_id in self._answered:
            if call_id in self._called - open_:
                yield self._result(call_id, "rejected")
        state: dict[str, Any] = {"thread": self._thread, "turn": turn.id, "status": turn.status, "pauses": waiting}
        if turn.outputs:
            state["outputs"] = turn.outputs
        if turn.labels:
            state["labels"] = turn.labels
        if turn.withheld is not None:
            state["withheld"] = turn.withheld.model_dump()
        yield StateSnapshotEvent(snapshot=state)
        outcome: Any = {"type": "success"}
        if turn.status == "paused" and waiting:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(pause) for pause in waiting]}
        elif turn.status not in ("done", "paused"):
            outcome = {"type": "cancelled"}
        yield RunFinishedEvent(thread_id=self._thread, run_id=self._run, result=turn.result, outcome=outcome)

    def refusal(self, content: Mapping[str, Any], status: int) -> Iterator[ServerSentEvent]:
        """Return the last lines of a run that failed."""
        from ag_ui.core import RunErrorEvent

        error = content["error"]
        message = f"{error['problem']}; {error['remedy']}"
        yield from map(_line, self.ended())
        yield _line(RunErrorEvent(message=message, code=error["code"]))

    def _said(self, kind: str, message_id: str, text: str) -> Iterator[BaseEvent]:
        from ag_ui.core import (
            ReasoningMessageContentEvent,
            ReasoningMessageStartEvent,
            ReasoningStartEvent,
            TextMessageContentEvent,
            TextMessageStartEvent,
        )

        if not text:  # AG-UI's messages have no empty parts
            return
        if self._open != (kind, message_id):
            yield from self.ended()
            self._open = (kind, message_id)
            if kind == "text":
                yield TextMessageStartEvent(message_id=message_id, role="assistant")
            else:
                yield ReasoningStartEvent(message_id=message_id)
                yield ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
        if kind == "text":
            self._texts[message_id] = self._texts.get(message_id, "") + text
            yield TextMessageContentEvent(message_id=message_id, delta=text)
        else:
            yield ReasoningMessageContentEvent(message_id=message_id, delta=text)

    def _replaced(self, event: events.TextReplaced) -> Iterator[BaseEvent]:
        """Send a text that nothing was sent of; of another one, the log has the final words."""
        last = next(reversed(self._texts), f"{event.turn_id}:0")
        message_id = last if event.step is None else f"{event.turn_id}:{event.step}"
        sent = self._texts.get(message_id, "")
        if sent and not event.text.startswith(sent):
            self.replaced = True
            return
        yield from self._said("text", message_id, event.text[len(sent) :])

    def _result(self, call_id: str, content: str) -> BaseEvent:
        from ag_ui.core import ToolCallResultEvent

        self._results.add(call_id)
        return ToolCallResultEvent(content=content, message_id=f"{call_id}:result", tool_call_id=call_id)

    def _call(self, call_id: str, function: str, arguments: Mapping[str, Any] | None) -> Iterator[BaseEvent]:
        from ag_ui.core import ToolCallArgsEvent, ToolCallEndEvent, ToolCallStartEvent

        yield from self.ended()
        if call_id in self._called:
            return
        self._called.add(call_id)
        yield ToolCallStartEvent(tool_call_name=function, tool_call_id=call_id)
        if arguments is not None:
            yield ToolCallArgsEvent(delta=json.dumps(arguments), tool_call_id=call_id)
        yield ToolCallEndEvent(tool_call_id=call_id)


def _interrupt(pause: Mapping[str, Any]) -> Interrupt:
    from ag_ui.core import Interrupt

    options = pause.get("options")
    kind: str = pause["kind"]
    schemas = {"approval": dict(_APPROVAL), "question": {"enum": options} if options else pause.get("schema")}
    return Interrupt(
        id=pause["id"],
        reason=_REASONS.get(kind, kind),
        message=pause.get("question") or f"{pause['function']}({json.dumps(pause.get('arguments') or {})})",
        response_schema=schemas.get(kind),
        tool_call_id=call_id_of(pause["id"]) if kind == "approval" else None,
    )


async def _lines(
    web: WebApp, call: TurnCall, made: _Translation, items: AsyncGenerator[TurnEvent | TurnAnswer]
) -> AsyncGenerator[ServerSentEvent]:
    yield _line(made.begun())
    async with aclosing(items):
        async for item in items:
            if isinstance(item, TurnAnswer) and made.replaced:
                yield _line(await _snapshot(web, call))
            for each in made.finished(item) if isinstance(item, TurnAnswer) else made.of(item):
                yield _line(each)


async def _snapshot(web: WebApp, call: TurnCall) -> BaseEvent:
    """Return the messages of the thread, for a client that was sent text that is not in the log."""
    from ag_ui.core import AssistantMessage, MessagesSnapshotEvent, UserMessage

    given = HistoryArguments(thread=call.given.thread, channel=call.given.channel, limit=MAX_MESSAGES)
    asked: WebCall[HistoryArguments] = WebCall(given=given, caller=call.caller, parts=call.parts)
    async with web.parts.agents.use(call.caller.workspace) as agent:
        found = (await history(asked, agent)).messages
    messages: list[Any] = []
    for each in found:
        text = str(each.body.get("text", ""))
        if each.kind in ("message", "word") and not is_report(each.author):
            messages.append(UserMessage(id=each.id, role="user", content=text))
        elif each.kind == "answer":
            messages.append(AssistantMessage(id=each.id, role="assistant", content=text))
    return MessagesSnapshotEvent(messages=messages)


def _line(event: BaseEvent) -> ServerSentEvent:
    return ServerSentEvent(data=event.model_dump_json(by_alias=True), sep="\n")
