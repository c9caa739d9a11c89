"""A real `dspy.LM` that answers as a test scripted it: the script with its replies, and its interface to dspy."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import dspy
from dspy.lm15 import (
    DocumentPart,
    FinishReason,
    FunctionTool,
    ImagePart,
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from dspy.utils.exceptions import LMError
from pydantic_core import to_json

from ..core.errors import InvalidArgument
from ..signatures import LAST_STEP, OFFERED

Format: TypeAlias = Literal["chat", "json", "native"]
Outcome: TypeAlias = str | Mapping[str, Any] | BaseException | type[BaseException]

_HEADER = re.compile(r"\s*\[\[ ## (\w+) ## \]\]")
_REMINDERS = (
    "\n\nRespond with the corresponding output fields, starting with the field `[[ ## ",
    "\n\nRespond with a JSON object in the following order of fields: `",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """One request that reached the scripted model. Its repr shows no text, so that a failing test prints no role.

    Attributes:
        index: The number of the call, from 1.
        system: The system message, or an empty string.
        messages: All other messages in order, as pairs of speaker (`"user"`, `"assistant"`) and text.
        media: All images and documents in order, as pairs of kind (`"image"`, `"document"`) and address or data URI.
        tools: The names of the tools that were offered by the service's own means, apart from the messages.
        may_call: Whether the model can use them; at the last step it must answer.
    """

    index: int
    system: str = field(repr=False)
    messages: tuple[tuple[str, str], ...] = field(repr=False)
    media: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tools: tuple[str, ...] = ()
    may_call: bool = False

    # Marks this object for the scan for roles as the fake's own record.
    _holds_prompts = True

    @property
    def text(self) -> str:
        """Everything that the model was sent, as one string."""
        return "\n\n".join((self.system, *(text for _, text in self.messages)))

    @property
    def user(self) -> str:
        """The user messages since the last answer, joined by blank lines: the message, results in words, the role."""
        return "\n\n".join(self._since)

    @property
    def fields(self) -> dict[str, str]:
        """The input fields in those messages: the text after each `[[ ## name ## ]]` line."""
        return {name: value for text in self._since for name, value in _sections(text).items()}

    @property
    def steps(self) -> tuple[str, ...]:
        """The results of the calls that the model asked for since the last answer, and notes on its outputs, in order.

        Each result is shown as the model reads it, whether in words or by its service's own means.
        """
        return tuple(
            text for speaker, text in self._turn if speaker == "tool" or (speaker == "user" and _is_note(text))
        )

    @property
    def _since(self) -> list[str]:
        return [text for speaker, text in self._turn if speaker == "user"]

    @property
    def _turn(self) -> list[tuple[str, str]]:
        """The messages since the last answer, from the turn's own message on."""
        found: list[tuple[str, str]] = []
        following = ""
        for speaker, text in reversed(self.messages):
            # An assistant message before the results of its calls is a step, not an answer.
            if speaker == "assistant" and following != "tool":
                break
            following = speaker
            found.insert(0, (speaker, text))
        # The turn before can have ended without an answer, so its message and its results come first. The role is last.
        headers = [(place, _HEADER.match(text)) for place, (speaker, text) in enumerate(found) if speaker == "user"]
        begins = [place for place, header in headers if header is not None and header[1] != "role"]
        return found[begins[-1] if begins else 0 :]

    @property
    def role(self) -> str | None:
        """The `role` field, or None if the prompt has none."""
        return self.fields.get("role")


Reply: TypeAlias = Outcome | Awaitable[Outcome] | AsyncIterable[str] | Callable[[ScriptedCall], Any]


def _is_note(message: str) -> bool:
    return not (_HEADER.match(message) or message.startswith(tuple(each.lstrip() for each in _REMINDERS)))


def _sections(message: str) -> dict[str, str]:
    cut = max(message.rfind(reminder) for reminder in _REMINDERS)
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (message[:cut] if cut >= 0 else message).splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            lines = found[header[1]] = [line[header.end() :]]
        else:
            lines.append(line)
    return {name: "".join(parts).strip("\n") for name, parts in found.items()}


def render(outcome: str | Mapping[str, Any], form: Format) -> str:
    """Return the completion text for `outcome`: a string as it is, fields in the form that the adapter reads."""
    if isinstance(outcome, str):
        return outcome
    if form == "json":
        return to_json(dict(outcome)).decode()
    shown = {name: value if isinstance(value, str) else to_json(value).decode() for name, value in outcome.items()}
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in shown.items()) + "[[ ## completed ## ]]"


def pieces(text: str, size: int | None) -> Iterator[str]:
    """Cut `text` into pieces of `size` characters, or into words with the white space after them."""
    if size is None:
        return (found[0] for found in re.finditer(r"\s*\S+\s*|\s+", text))
    return (text[at : at + size] for at in range(0, len(text), size))


class Script:
    """The replies and the record of calls, shared by all copies of one scripted model. It is thread-safe."""

    _holds_prompts = True

    def __init__(
        self, replies: Sequence[Reply] | Callable[[ScriptedCall], Any], on_call: Callable[[ScriptedCall], None] | None
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self._answer = replies if callable(replies) else None
        self._replies: list[Reply] = [] if callable(replies) else list(replies)
        self._on_call = on_call
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Script:
        return self

    @property
    def size(self) -> int | None:
        """The number of replies; None for a function, which never runs out."""
        return None if self._answer else len(self._replies)

    def take(self, **sent: Any) -> tuple[ScriptedCall, Reply | None]:
        """Record a call with these fields of `ScriptedCall`, and return it with its reply; None if there is no more."""
        with self._lock:
            call = ScriptedCall(index=len(self.calls) + 1, **sent)
            self.calls.append(call)
        if self._on_call:
            self._on_call(call)
        if self._answer:
            return call, self._answer
        return call, self._replies[call.index - 1] if call.index <= len(self._replies) else None


# --- the model --------------------------------------------------------------------------------------------------------


class ScriptExhausted(LMError, AssertionError):
    """The model was called more often than there are replies, or less often than a test claims."""


class ScriptedLM(dspy.LM):
    """A model that gives scripted replies and records every prompt.

    A reply is one of:

    * a string: the raw completion;
    * a mapping of output fields, rendered as the chat (or JSON) adapter expects it, values other than strings as JSON;
    * an exception or exception class, raised as the engine's failure: dspy turns errors of `dspy.lm15` into its own
      `LM...Error`, and anything else into `LMUnexpectedError`;
    * an awaitable that gives one of these, which keeps the call open until it is done;
    * an async iterator of strings, streamed piece by piece as it yields;
    * a function of the `ScriptedCall`, sync or async, that returns any of these.

    Example:
        `lm = ScriptedLM([{"reply": "Queen Ada."}])`, then `WorldAgent("novel", lm=lm)`.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Callable[[ScriptedCall], Any],
        *,
        delay: float = 0.0,
        chunk: int | None = None,
        model: str = "scripted",
        form: Format = "chat",
        on_call: Callable[[ScriptedCall], None] | None = None,
    ) -> None:
        """Create a model.

        Args:
            replies: Consumed in order, or one function that answers every call (for concurrent calls, whose order
                is not fixed).
            delay: Seconds before the first token of each reply.
            chunk: Characters in one streamed piece; the default is one word in each piece.
            model: The name that the model reports.
            form: The adapter that a mapping is rendered for, `"chat"` or `"json"`. A `"native"` model takes tools by
                its service's own means: if it is offered tools, the `calls` of a mapping are tool calls, and the one
                other field is its text. Otherwise it is like `"chat"`.
            on_call: Called with each `ScriptedCall` before it is answered.

        Raises:
            InvalidArgument: `replies` is one text or mapping, `form` is unknown, or `chunk` is below 1.
        """
        if isinstance(replies, str | bytes | Mapping):
            raise InvalidArgument(
                "`replies` must be a list or a function", remedy="pass a list of replies, or a function"
            )
        if form not in get_args(Format):
            raise InvalidArgument(f"form {form!r} is unknown", remedy="use 'chat', 'json' or 'native'")
        if chunk is not None and chunk < 1:
            raise InvalidArgument(
                f"`chunk` must be at least 1, got {chunk!r}", remedy="pass 1 or more, or None for words"
            )
        self._script = Script(replies, on_call)
        engine = _Engine(self._script, delay=delay, chunk=chunk, form=form)
        super().__init__(model, engine=engine, async_engine=_AsyncEngine(engine), cache=False, num_retries=0)

    @property
    def calls(self) -> list[ScriptedCall]:
        """Every call so far, including those of copies of this model."""
        return self._script.calls

    def assert_all_used(self) -> None:
        """Check that there were exactly as many calls as replies.

        An agent replaces errors of a model by its own, so a test that must notice too many calls needs this check.

        Raises:
            ScriptExhausted: There were fewer calls, or more.
        """
        size = self._script.size
        if size is not None and len(self.calls) != size:
            raise ScriptExhausted(f"the scripted model has {size} replies and was called {len(self.calls)} times")


class _Engine:
    """The engine that dspy calls without an event loop; it also holds what both engines share."""

    def __init__(self, script: Script, *, delay: float, chunk: int | None, form: Format) -> None:
        self.script, self.delay, self.chunk = script, delay, chunk
        self.form: Format = form
        self.supports_function_calling = form == "native"  # dspy and others read an engine's abilities from this

    def complete(self, request: Request) -> Response:
        call, reply = self.begin(request)
        time.sleep(self.delay)
        while callable(reply) and not isinstance(reply, type):
            reply = reply(call)
        if inspect.isawaitable(reply) or isinstance(reply, AsyncIterable):
            if inspect.iscoroutine(reply):
                reply.close()
            raise InvalidArgument("this scripted reply is async", remedy="call the program with `acall`")
        return self.response(request, call, *self.said(call, reply))

    def begin(self, request: Request) -> tuple[ScriptedCall, Reply]:
        system = request.system or ""
        if not isinstance(system, str):
            system = "".join(getattr(part, "text", "") for part in system)
        messages = tuple((message.role, text) for message in request.messages for text in _texts(message))
        media = tuple(found for message in request.messages for found in _media(message))
        tools = tuple(tool.name for tool in request.tools or () if isinstance(tool, FunctionTool))
        choice = request.config.tool_choice
        in_words = OFFERED in system and all(text != LAST_STEP for _, text in messages)
        may_call = (bool(tools) and (choice is None or choice.mode != "none")) or in_words
        call, reply = self.script.take(system=system, messages=messages, media=media, tools=tools, may_call=may_call)
        if reply is None:
            raise ScriptExhausted(
                f"the scripted model was called {call.index} times and has {self.script.size} replies; "
                "add replies, or pass a function that answers every call"
            )
        return call, reply

    def said(self, call: ScriptedCall, outcome: Any) -> tuple[str, tuple[ToolCallPart, ...]]:
        """Return an outcome as a text and as tool calls."""
        if not (call.tools and self.supports_function_calling and isinstance(outcome, Mapping)):
            return self.text(outcome), ()
        asked = tuple(
            # Services do not allow dots in names, so tools have other names there.
            ToolCallPart(f"call_{call.index}_{place}", each["tool"].replace(".", "_"), each.get("arguments") or {})
            for place, each in enumerate(outcome.get("calls", ()))
        )
        rest = {name: value for name, value in outcome.items() if name != "calls"}
        if len(rest) > 1:  # each is told by its marker
            return render(rest, "chat"), asked
        text = "".join(value if isinstance(value, str) else to_json(value).decode() for value in rest.values())
        return text, asked

    def text(self, outcome: Any) -> str:
        if isinstance(outcome, type) and issubclass(outcome, BaseException):
            raise outcome("scripted failure")
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, str | Mapping):
            return render(outcome, self.form)
        raise InvalidArgument(
            f"a {type(outcome).__name__!r} is not a scripted reply",
            remedy="pass a string, a mapping of output fields, an exception, or something that gives one of these",
        )

    def response(
        self, request: Request, call: ScriptedCall, text: str, asked: tuple[ToolCallPart, ...] = ()
    ) -> Response:
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant((*((TextPart(text),) if text else ()), *asked) if asked else text),
            finish_reason="tool_call" if asked else "stop",
            usage=_usage(call, text),
        )

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _AsyncEngine:
    """The engine that dspy awaits. A plain completion is a stream read to its end, so both behave alike."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine

    async def complete(self, request: Request) -> Response:
        call, reply = self.engine.begin(request)
        async with contextlib.aclosing(self._deltas(call, reply)) as deltas:
            said = [delta async for delta in deltas]
        text = "".join(delta for delta in said if isinstance(delta, str))
        return self.engine.response(request, call, text, tuple(each for each in said if not isinstance(each, str)))

    async def stream(
        self, request: Request
    ) -> AsyncGenerator[StreamStartEvent | StreamDeltaEvent | StreamEndEvent, None]:
        call, reply = self.engine.begin(request)
        said: list[str | ToolCallPart] = []
        async with contextlib.aclosing(self._deltas(call, reply)) as deltas:
            yield StreamStartEvent(id=None, model=request.model)
            async for delta in deltas:
                said.append(delta)
                if isinstance(delta, str):
                    yield StreamDeltaEvent(TextDelta(text=delta))
                else:
                    arguments_json = to_json(delta.input).decode()
                    yield StreamDeltaEvent(ToolCallDelta(arguments_json, len(said), id=delta.id, name=delta.name))
        text = "".join(delta for delta in said if isinstance(delta, str))
        reason: FinishReason = "stop" if all(isinstance(delta, str) for delta in said) else "tool_call"
        yield StreamEndEvent(finish_reason=reason, usage=_usage(call, text))

    async def _deltas(self, call: ScriptedCall, reply: Any) -> AsyncGenerator[str | ToolCallPart, None]:
        await asyncio.sleep(self.engine.delay)
        while not isinstance(reply, type) and (callable(reply) or inspect.isawaitable(reply)):
            reply = await reply if inspect.isawaitable(reply) else reply(call)
        if isinstance(reply, AsyncIterable):
            async for delta in reply:
                yield delta
            return
        text, asked = self.engine.said(call, reply)
        for delta in pieces(text, self.engine.chunk):
            # A real stream lets other tasks run between tokens, and can be cancelled there.
            await asyncio.sleep(0)
            yield delta
        for each in asked:
            yield each

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _texts(message: Message) -> list[str]:
    """Return the text of a message, or one text for each result of a call in it."""
    if message.role == "tool":
        results = message.parts_of(ToolResultPart)
        return ["\n\n".join(each.text for each in part.content if isinstance(each, TextPart)) for part in results]
    return ["\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))]


def _media(message: Message) -> Iterator[tuple[str, str]]:
    for part in message.parts:
        if isinstance(part, ImagePart | DocumentPart):
            yield part.type, part.url or f"data:{part.media_type};base64,{part.data}"


def _usage(call: ScriptedCall, text: str) -> Usage:
    asked, said = len(call.text.split()), len(text.split())
    return Usage(input_tokens=asked, output_tokens=said, total_tokens=asked + said)
