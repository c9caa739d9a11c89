"""Turns over HTTP: events as server-sent events while the turn runs, or one JSON answer at its end.

The data of an event is the event as JSON, and its id is the event's number (`seq`). The last one has the type `turn`
with the answer that the sidecar's tools give, or the type `error` with an error of a turn that has begun. A turn that
cannot begin answers with the status of its error. A stream that breaks is taken up with `GET /turns/TURN/events` and
the header `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...agent import WorldAgent
from ...core.errors import MissingExtra, ModelNotConfigured, WorldAgentError
from ...core.events import TurnEvent, UnnumberedEvent
from ...memory.attachments import Attachment
from ..service import turns
from ..service.arguments import (
    ConverseArguments,
    EventsArguments,
    ResumeArguments,
    WorkspaceArguments,
)
from ..service.call import Call, Caller, Refused
from ..service.following import (
    QUIET_SECONDS,
    EventsRead,
    Following,
    Start,
    collect,
    events_answer,
    reached_turn,
    read_answer,
)
from ..service.next_steps import advised, is_over, name_turn
from ..service.pool import Limits
from ..service.records import EventsAnswer, TurnAnswer
from ..service.threads import thread_of
from ..service.validation import Label, Wire
from ..sidecar.following import SidecarParts
from .errors import HttpRefused, error_content, internal, status_of

A = TypeVar("A", bound=WorkspaceArguments)
T = TypeVar("T")

LOG = logging.getLogger("worldagent.web")

MAX_ATTACHMENTS: Final = 16  # of one message
EVENT_STREAM: Final = "text/event-stream"
SILENT_SECONDS: Final = 1.0  # without a first event, after which the stream begins, so that its client can leave it
STREAM_HEADERS: Final = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx and others then send each event at once
}


class AttachmentArgument(Wire):
    """An image or a file of a message: the record that `POST /attachments` returned, or the address of an image."""

    name: Label
    media_type: Label
    bytes: int | None = Field(default=None, ge=0)
    sha256: str | None = Field(default=None, max_length=64)
    url: str | None = Field(default=None, max_length=2000)


class MessageArguments(ConverseArguments):
    """The arguments of a message that is sent over HTTP."""

    attachments: list[AttachmentArgument] = Field(
        default_factory=list,
        max_length=MAX_ATTACHMENTS,
        description="images and files: records that POST /attachments returned",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCall(Call[A]):
    """A call over HTTP.

    Attributes:
        parts: The parts that all calls share.
    """

    parts: SidecarParts = field(repr=False)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[WorldAgent]:
        """Yield the agent, and count the call inside the block as one that follows a turn or waits for changes.

        Raises:
            Refused: Its account has too many such calls, or the server ends.
        """
        agents, workspace = self.parts.agents, self.caller.workspace
        with agents.reader(workspace, self.caller.account):
            async with agents.use(workspace) as agent:
                yield agent


TurnCall = WebCall[Any]
"""A call with `SurfaceArguments` or `ResumeArguments`."""


class Failed(Exception):
    """A call failed.

    Args:
        failure: Why.
        advice: What to say about it besides, from `advised`.
        status: The HTTP status; None is that of the error.
    """

    def __init__(
        self, failure: WorldAgentError | Refused, advice: Mapping[str, Any], *, status: int | None = None
    ) -> None:
        super().__init__(failure.code)
        self.failure, self.advice = failure, advice
        self.status = status_of(failure) if status is None else status


async def failed(call: Call[Any], agent: WorldAgent, error: WorldAgentError) -> Failed:
    """Return a failure of a call with what the caller can do next."""
    await name_turn(call, agent, error)
    # What is missing for a model that the caller chose is not the server's fault.
    chosen = isinstance(error, ModelNotConfigured | MissingExtra) and getattr(call.given, "model", None) is not None
    return Failed(error, await advised(call, agent, error), status=400 if chosen else None)


async def run_turn(call: TurnCall) -> AsyncGenerator[TurnEvent | TurnAnswer]:
    """Begin or resume a turn, and yield its events and then the answer.

    Raises:
        Failed: It could not begin, or it failed.
        Refused: The server ends, or has too many turns.
    """
    given, agents, seq = call.given, call.parts.agents, call.given.after
    async with call.reading() as agent:
        following: Following | None = None
        try:
            start = await _start(call, agent)
            if isinstance(given, ResumeArguments):
                given = turns.with_detach(call).given
            following = Following(agents, call.caller.workspace, start, detach=bool(given.detach))
            del start  # it holds the call's role
            after = given.after if "after" in given.model_fields_set else None
            async with aclosing(following.events_after(after)) as events:
                async for event in events:
                    call.facts.turn = following.turn_id
                    if isinstance(event, UnnumberedEvent):
                        yield event
                    elif event.seq > given.after:
                        seq = event.seq
                        yield event
            turn = await following.outcome()
            state = await agent.turn(turn.id)
            if state is not None:
                call.note_turn(state)
            yield turns.turn_answer(call, turn, seq=seq)
        except WorldAgentError as error:
            if following is not None:
                error.turn_id, call.facts.kept = error.turn_id or following.turn_id, following.kept
            failure = await failed(call, agent, error)
        else:
            return
        finally:
            if following is not None:
                following.stop()
        raise failure


async def _start(call: TurnCall, agent: WorldAgent) -> Start:
    given, name = call.given, getattr(call.given, "name", None)
    thread = thread_of(agent, call, name=name)
    if isinstance(given, ResumeArguments):
        answers = await turns.checked_answers(call, thread)
        return Start.answering(given, thread, answers)
    named = given.attachments if isinstance(given, MessageArguments) else ()
    await turns.check_start(call, thread)
    for each in named:
        if each.sha256 is not None:
            await check_attachment(call.caller, agent, each.sha256)
    sources = [Attachment(size=each.bytes, **each.model_dump(exclude={"bytes"})) for each in named]
    return Start.beginning(given, thread, sources)


async def add_attachment(caller: Caller, agent: WorldAgent, content: bytes, **described: str | None) -> Attachment:
    """Store content that a caller sent, for the caller; `described` are further arguments of `Attachments.add`."""
    stored = await agent.attachments.add(content, account=caller.account, **described)
    if caller.account is None:
        await agent.attachments.allow(stored, workspace=caller.workspace, account=caller.reader)
    return stored


async def check_attachment(caller: Caller, agent: WorldAgent, sha256: str) -> None:
    """Check that a caller can read stored content, by `Attachments.check_reached`."""
    allows = caller.grant.allows_thread
    await agent.attachments.check_reached(sha256, workspace=caller.workspace, account=caller.reader, allows=allows)


async def follow_turn(call: WebCall[EventsArguments]) -> AsyncGenerator[TurnEvent | TurnAnswer]:
    """Yield the events of a turn after a number, up to the end of its run, and then the turn.

    Raises:
        Failed: There is no such turn, or its events are gone.
        Refused: The server ends, or the account follows too many.
    """
    read = EventsRead(call.given.after)
    async with call.reading() as agent:
        try:
            await reached_turn(call, agent)
            async for event in agent.events(call.given.turn_id, after=call.given.after):
                read.note(event)
                yield event
            read.ended = True
            yield await read_answer(call, agent, read)
        except WorldAgentError as error:
            failure = await failed(call, agent, error)
        else:
            return
        raise failure


async def read_events(call: WebCall[EventsArguments], agent: WorldAgent) -> EventsAnswer:
    """Return the events of a turn after a number as JSON, for clients behind a proxy that holds streams back.

    It waits up to `wait` seconds for the first event.
    """
    given, read = call.given, EventsRead(call.given.after)
    await reached_turn(call, agent)
    events = agent.events(given.turn_id, after=given.after)
    async with call.reading():
        await collect(read, events, limit=given.limit, seconds=max(given.wait, QUIET_SECONDS))
    return await events_answer(call, agent, read)


def wants_stream(request: Request) -> bool:
    """Whether the client accepts server-sent events; a client that accepts anything gets JSON."""
    return EVENT_STREAM in request.headers.get("accept", "")


async def turn_response(
    request: Request, items: AsyncGenerator[TurnEvent | TurnAnswer], call: WebCall[Any]
) -> Response:
    """Return a turn as a response: a stream if the client accepts one, else JSON at its end.

    Args:
        request: The request.
        items: What `run_turn` or `follow_turn` yields.
        call: The call.

    Raises:
        Failed, Refused: It could not begin.
    """
    if not wants_stream(request):
        async with aclosing(items):
            answer: TurnAnswer | None = None
            async for item in items:
                answer = item if isinstance(item, TurnAnswer) else None
        assert answer is not None, "the last item is the answer"
        return JSONResponse(answer.model_dump(mode="json"))
    first = asyncio.ensure_future(anext(items))
    try:
        await asyncio.wait({first}, timeout=SILENT_SECONDS)
    except asyncio.CancelledError:
        first.cancel()
        raise
    if first.done():
        item = first.result()  # or the error of a turn that cannot begin, which has a status
        if isinstance(item, TurnAnswer) and "last-event-id" in request.headers and is_over(item.turn.status):
            await items.aclose()
            return Response(status_code=204)  # a browser's EventSource then stops to connect again, for good
    return EventStream(streamed(_messages(first, items), _error), call.parts.limits)


class EventStream(EventSourceResponse):
    """A stream whose client is disconnected if it does not read.

    Args:
        lines: What to send.
        limits: When it is disconnected, and when a quiet stream sends a comment.
        headers: Further headers.
    """

    def __init__(
        self, lines: AsyncIterable[ServerSentEvent], limits: Limits, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            lines,
            headers={**STREAM_HEADERS, **(headers or {})},
            ping=limits.heartbeat,
            send_timeout=limits.reader_stall,
            sep="\n",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:  # the server then closes the connection, and the client can take the stream up again
            LOG.info("a client has read nothing for %s s, and is disconnected", self.send_timeout)


async def begun(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Wait for the first item of a stream, so that an error before it has a status, and return all items."""
    first = await anext(items)

    async def together() -> AsyncGenerator[T]:
        async with aclosing(items):
            yield first
            async for item in items:
                yield item

    return together()


async def streamed(
    lines: AsyncGenerator[ServerSentEvent], refusal: Callable[[Mapping[str, Any], int], Iterable[ServerSentEvent]]
) -> AsyncIterator[ServerSentEvent]:
    """Yield the lines of a stream. If it fails, `refusal` makes its last ones from the error, as JSON, and its status.

    An error that is not ours is logged by its type: custom code runs below, and its text can hold what the client sent.
    """
    async with aclosing(lines):
        try:
            async for line in lines:
                yield line
            return
        except HttpRefused as refused:
            content, status = {"error": refused.record}, refused.status
        except Failed as failed_:
            content, status = error_content(failed_.failure, failed_.advice), failed_.status
        except Exception as error:  # broad: of any type
            if not isinstance(error, Refused):
                LOG.error("a stream failed: %s", type(error).__name__)
                error = internal()
            content, status = error_content(error, {}), status_of(error)
        for line in refusal(content, status):
            yield line


async def _messages(
    first: asyncio.Future[TurnEvent | TurnAnswer], rest: AsyncGenerator[TurnEvent | TurnAnswer]
) -> AsyncGenerator[ServerSentEvent]:
    async with aclosing(rest):
        yield _message(await first)
        async for item in rest:
            yield _message(item)


def _message(item: TurnEvent | TurnAnswer) -> ServerSentEvent:
    if isinstance(item, TurnAnswer):
        return _event({"type": "turn", **item.model_dump(mode="json")})
    number = None if isinstance(item, UnnumberedEvent) else str(item.seq)
    return ServerSentEvent(data=item.model_dump_json(), id=number, sep="\n")


def _error(content: Mapping[str, Any], status: int) -> list[ServerSentEvent]:
    return [_event({"type": "error", **content})]


def _event(content: Mapping[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(content, ensure_ascii=False), sep="\n")
