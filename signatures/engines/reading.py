"""Reads what model services answer. Each of their protocols has one reader, for streamed and whole answers alike.

A reader gets the JSON of each event as the service sent it and gives lm15's events. lm15 has readers of its own, two
for each protocol; they miss what many services send, such as calls without an index, text at the beginning of a block
and tokens that are reported elsewhere. A reader also keeps the model's message as it came, since services want it back
unchanged beside the results of its calls, with parts that only they can read (H3).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal, NoReturn

from dspy import lm15
from dspy.lm15 import (
    ContinuationDelta,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)

from ...core.generation import CODE_EXECUTION, FILE_SEARCH, WEB_FETCH, WEB_SEARCH
from ..calling import MAX_CHARACTERS, MAX_SECTIONS, Unreadable, read_arguments
from ..thinking import answer_in
from .classification import AnswerTooLong, Declined, Malformed, NoAnswer, WrittenCall
from .partial_arguments import PartialArguments
from .services import Served, tool_of

KEPT: Final = "worldagent"
"""The owner of the state of a message that holds it as it came."""

_Finish = Literal["stop", "length", "tool_call"]
_CONTROL: Final = "<|"  # begins the tokens with which models divide their output
_FULL: Final = "model_context_window_exceeded"
_PAUSED: Final = "pause_turn"
_FINISH: Final[Mapping[str, _Finish]] = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", _FULL, _PAUSED), "length"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool_call"),
}
_DECLINED: Final = re.compile(
    r"filter|refus|safety|sensitive|moderat|guardrail|armor|escalation|prohibited|blocklist|recitation|spii|language"
)
_WRITTEN: Final = re.compile(
    r"\A\s*(<\|?(\w+:)?(tool_calls?|function_calls?|invoke|function|tools?)\b[^\n]*>|\[TOOL_CALLS\]"
    r"|functools\[|<[|\uff5c\u2016]+DSML|<\|(python_(tag|start)|tool_calls?_(section_)?begin)"
    r"|(<\|channel\|>)?commentary to=)"
    r"|</?((\w+:)?tool_calls?|function_calls)>\s*\Z|<[|\uff5c\u2016]+DSML[^\n<]*\Z",
    re.IGNORECASE,
)
"""A call that a model writes as it learned to: it begins or ends the text."""
_ENDS: Final = 2000
_MALFORMED: Final = re.compile(r"malformed|unexpected_tool_call|too_many_tool_calls|missing_thought_signature")
_FAILED: Final = re.compile(r"error|insufficient_system_resource")


@dataclass(slots=True)
class _Call:
    """One call of an answer, as far as it has come.

    Attributes:
        part: Its number among the parts of the answer.
        id: Its id.
        name: The name of its tool.
        arguments: Its arguments as a text.
        shown: Whether they are passed on as they come, which begins with the brace of an object.
        kept: Its other fields.
    """

    part: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    shown: bool = False
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether its arguments are complete, so that more would begin another call."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except ValueError:
            return False


class Reported(Exception):
    """A service reports an error inside its answer.

    Attributes:
        body: The error, as the service would send it with a status of HTTP.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = body


class Reader:
    """Reads one answer. Call `event` for each event, or once for a whole answer, and then `end`.

    Args:
        origin: The model and its address, to which the message can go back.
        tools: Whether tools were offered.

    Attributes:
        ended: Whether the service has said that its answer is complete.
        paused: Whether the service wants its message back, and then continues it.
        can_pause: Whether it is sent back then. Otherwise such an answer is one that is not complete.
        services: Whether tools of the service were offered, so that what it says of them is read.
    """

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        self.ended = self.paused = self.can_pause = self.services = False
        self._origin, self._tools = origin, tools
        self._texts: list[str] = []
        self._started = self._declined = self._full = self._gap = False
        self._finish: _Finish | None = None
        self._tokens: dict[str, Any] = {}
        self._tokens_before: list[dict[str, Any]] = []  # of the answers that this one continues
        self._report: dict[str, Any] = {}
        self._part, self._kind = -1, ""
        self._calls: list[_Call] = []

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event or a whole answer, and yield lm15's events.

        Raises:
            Reported: It reports an error.
        """
        raise NotImplementedError

    def message(self) -> dict[str, Any]:
        """The model's message as it came, in the form in which the service takes it back."""
        raise NotImplementedError

    def usage(self, given: Mapping[str, Any]) -> Usage:
        """The tokens of all reports of the answer together."""
        raise NotImplementedError

    def served(self) -> list[Served]:
        """The calls of tools of the service itself, which it made and answered while it wrote its answer."""
        return []

    def continues(self) -> dict[str, Any]:
        """Be ready to read the next part of an answer that is paused, and return the message so far."""
        self.ended = self.paused = False
        self._finish = None
        self._tokens_before.append(self._tokens)
        self._tokens = {}
        return self.message()

    def end(self) -> Iterator[Any]:
        """Yield the last events.

        Raises:
            Declined: There is nothing to show, because the model or a filter declined.
            WrittenCall: A call stands in the text, since its service does not read it.
            ContextLengthError: There is nothing to show, because the prompt has filled the context.
            StreamAssemblyError: The answer ended before it was complete.
        """
        yield from self._start(None, None)
        if self.paused:
            return
        if self._declined:
            raise Declined
        if self._tools and not self._calls:
            answer = answer_in("".join(self._texts))
            if _WRITTEN.search(answer[:_ENDS] + answer[max(_ENDS, len(answer) - _ENDS) :]):
                raise WrittenCall
        if self._full and not self._texts and not self._calls:
            raise lm15.ContextLengthError("the prompt has filled the context of the model")
        if not self.ended and self._finish is None:
            raise lm15.StreamAssemblyError("the answer ended before it was complete")
        for call in self._calls:
            yield from self._last_of(call)
        # As texts, which lm15 need not walk through.
        data: dict[str, Any] = {"message": json.dumps(self.message())} if self._calls else {}
        if self.services and (served := self.served()):
            data["served"] = json.dumps([each.json() for each in served])
        if data:
            data["origin"] = self._origin
            yield StreamDeltaEvent(delta=ContinuationDelta(provider=KEPT, kind="message", data=data))
        tokens = _added([*self._tokens_before, self._tokens]) if self._tokens_before else self._tokens
        yield StreamEndEvent(
            finish_reason=self._finish or "stop",
            usage=self.usage(tokens) if tokens else None,
            provider_data={**self._report, "usage": tokens},
        )

    def _ends(self, *reasons: object) -> None:
        """Note why the answer ends: the reason, and that of the service behind the one that answers.

        Raises:
            Malformed: The service could not read the call that the model made.
            Reported: The service failed.
        """
        said = [_text(each).lower() for each in reasons]
        if any(map(_MALFORMED.search, said)):
            raise Malformed
        if any(map(_FAILED.search, said)):
            self._failed({"code": said[0]})
        if said[0] and not said[0].endswith("unspecified"):
            self._finish = _FINISH.get(said[0], "stop")
            self._declined = bool(_DECLINED.search(said[0]))
            self._full = said[0] == _FULL

    @staticmethod
    def _failed(body: Mapping[str, Any]) -> NoReturn:
        raise Reported(body)

    def _start(self, answer_id: object, model: object) -> Iterator[Any]:
        if not self._started:
            self._started = True
            yield StreamStartEvent(id=_text(answer_id) or None, model=_text(model) or None)

    def _place(self, kind: str) -> int:
        """The number of the part that text of this kind continues, or begins."""
        if kind != self._kind:
            self._part, self._kind = self._part + 1, kind
        return self._part

    def _say(self, text: str) -> Iterator[Any]:
        if text:
            if self._gap:
                text, self._gap = f"\n\n{text}", False
            self._texts.append(text)
            yield StreamDeltaEvent(delta=TextDelta(text=text, part_index=self._place("text")))

    def _think(self, text: str) -> Iterator[Any]:
        if text:
            yield StreamDeltaEvent(delta=ThinkingDelta(text=text, part_index=self._place("thinking")))

    def _interrupted(self) -> None:
        """A tool of the service runs: text after it is a paragraph of its own."""
        self._gap = self.services and bool(self._texts) and not self._texts[-1].endswith("\n")

    def _new_call(self) -> _Call:
        self._part, self._kind = self._part + 1, ""  # text after it is a part of its own
        call = _Call(self._part)
        self._calls.append(call)
        return call

    def _call(self, call: _Call, *, call_id: str = "", name: str = "", arguments: str = "") -> Iterator[Any]:
        """Add a piece of a call. Arguments that do not begin as an object wait until they can be read."""
        known = (call.id, call.name)
        name = name.partition(_CONTROL)[0]
        if call.shown and arguments.startswith(call.arguments):  # some services send all of them again each time
            arguments = arguments[len(call.arguments) :]
        call.id, call.name, call.arguments = call.id or call_id, call.name or name, call.arguments + arguments
        if len(call.arguments) > MAX_CHARACTERS or len(self._calls) > MAX_SECTIONS:
            raise AnswerTooLong
        if not call.shown and call.arguments.lstrip().startswith("{"):
            call.shown, arguments = True, call.arguments
        shown = arguments if call.shown else ""
        if shown or known != (call.id, call.name):
            yield _call_delta(call, shown)

    def _last_of(self, call: _Call) -> Iterator[Any]:
        if not call.shown and call.arguments:
            text = call.arguments.lstrip()
            if not text or text[0] in _OBJECT_IN_WORDS:
                with suppress(Unreadable):
                    call.arguments, call.shown = json.dumps(read_arguments(text)), True
            # Other JSON, such as a long list, is no object: with the mark, nobody after this one parses it.
            yield _call_delta(call, call.arguments if call.shown else f"{_NO_OBJECT}{call.arguments}")

    def _count(self, usage: object) -> None:
        """Add a report of tokens. A later one can have some of them only."""
        if isinstance(usage, Mapping):
            self._tokens.update({name: value for name, value in usage.items() if value is not None})


def served_in(message: lm15.Message) -> list[Mapping[str, Any]]:
    """The calls of tools of the service in a message that one of the readers read; see `Served`."""
    kept: Mapping[str, Any] = next((each.data for each in message.continuation if each.provider == KEPT), {})
    found: list[Mapping[str, Any]] = json.loads(str(kept.get("served", "[]")))
    return found


def _call_delta(call: _Call, arguments: str) -> StreamDeltaEvent:
    delta = ToolCallDelta(input=arguments, part_index=call.part, id=call.id or None, name=call.name or None)
    return StreamDeltaEvent(delta=delta)


def _text(value: object) -> str:
    """A value as a text; a missing one is empty."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dicts(value: object) -> Sequence[Mapping[str, Any]]:
    """The objects of a list, or one that stands alone."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Mapping)]


def _added(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reports of tokens of the parts of an answer, added up."""
    total = dict(reports[0])
    for report in reports[1:]:
        for name, value in report.items():
            before = total.get(name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                total[name] = _added([before, value])
            elif _number(before) is not None and _number(value) is not None:
                total[name] = before + value
            else:
                total[name] = value
    return total


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(given: Mapping[str, Any], *paths: str) -> int | None:
    """The first number under one of some paths with dots."""
    for path in paths:
        found: Any = given
        for name in path.split("."):
            found = _dict(found).get(name)
        if _number(found) is not None:
            return _number(found)
    return None


# --- OpenAI's chat protocol -------------------------------------------------------------------------------------------

_OUTPUT_ONLY: Final = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio", "parsed"}
)
"""Fields of a message that are read here, or that services give and do not take."""

_READ: Final = frozenset({"index", "id", "function", "name", "arguments"})
"""Fields of a call that are read here."""

_OBJECT_IN_WORDS: Final = '"n'  # the beginnings of a text with JSON in it, and of `null`
_NO_OBJECT: Final = "no object: "
_TWICE: Final = re.compile(r"\}\s*\{")
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


class ChatReader(Reader):
    """OpenAI's chat protocol, as its many servers speak it."""

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._places: dict[int, _Call] = {}
        self._content: list[Any] = []
        self._further: dict[str, Any] = {}
        self._cited: list[Any] = []
        self._in_pieces = False

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read a chunk, or a whole answer: its message is read as a chunk with everything."""
        if not data.get("choices"):  # an envelope
            data = next(
                (inner for name in ("data", "provider") if (inner := _dict(data.get(name))).get("choices")), data
            )
        report = _dict(data.get("base_resp"))
        if report.get("status_code"):
            self._failed({"message": report.get("status_msg")})
        choices = _dicts(data.get("choices") or [])
        for each in (data, *choices):
            if each.get("error"):
                self._failed(each)
        yield from self._start(data.get("id"), data.get("model"))
        for report in (data, *choices, _dict(data.get("x_groq"))):
            self._count(report.get("usage"))
        if data.get("service_tier") is not None:
            self._report["service_tier"] = data["service_tier"]
        for choice in choices:  # one answer, even if its calls are in another choice than its text
            delta = _dict(choice.get("delta"))
            self._in_pieces = self._in_pieces or bool(delta)
            # A message after pieces says them once more.
            yield from self._read(delta if self._in_pieces else _dict(choice.get("message")))
            self._ends(choice.get("finish_reason"), choice.get("native_finish_reason"))

    def _read(self, delta: Mapping[str, Any]) -> Iterator[Any]:
        for name, value in delta.items():
            if name not in _OUTPUT_ONLY:
                self._further[name] = _joined(self._further.get(name), value)
        yield from self._think(_reasoning(delta))
        if self.services:
            self._cited += _dicts(delta.get("annotations") or [])
        content = delta.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield from self._read_content(part)
        yield from self._say(_text(delta.get("refusal")))
        calls = _dicts(delta.get("tool_calls") or [])
        if not calls and isinstance(delta.get("function_call"), Mapping):
            calls = [{"function": delta["function_call"]}]
        for call in calls:
            yield from self._read_call(call)

    def _read_content(self, part: object) -> Iterator[Any]:
        if not isinstance(part, Mapping):
            text = _text(part)
            self._content = _extended(self._content, {"type": "text", "text": text} if text else None)
            yield from self._say(text)
            return
        self._content = _extended(self._content, part)
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text") or part.get("summary") or []
            texts = [inner] if isinstance(inner, str) else [_text(each.get("text")) for each in _dicts(inner)]
            yield from self._think("".join(texts))
        elif "text" in part:
            yield from self._say(_text(part["text"]))

    def _read_call(self, given: Mapping[str, Any]) -> Iterator[Any]:
        """Read a piece of a call. Servers omit the index, or give all calls the same one, or repeat names and ids."""
        function = _dict(given.get("function")) or given
        call_id, name, said = _text(given.get("id")), _text(function.get("name")), function.get("arguments")
        name = "" if name == "null" else name
        arguments = said if isinstance(said, str) else json.dumps(said) if said else ""
        place = _number(given.get("index"))
        call = self._places.get(place) if place is not None else next(reversed(self._calls), None)
        if call is None or (name and self._begins(call, call_id, name)):
            call = self._new_call()
            if place is not None:
                self._places[place] = call
        call.kept.update({key: value for key, value in given.items() if key not in _READ and value not in (None, "")})
        yield from self._call(call, call_id=call_id, name=name, arguments=arguments)

    @staticmethod
    def _begins(call: _Call, call_id: str, name: str) -> bool:
        """Whether a piece with a name begins another call than the one at its place."""
        if call_id and call.id:
            return call_id != call.id
        return bool(call.name) and (name != call.name or call.is_complete)

    def message(self) -> dict[str, Any]:
        """The message with all its fields. Missing ids have lm15's numbers, and arguments are JSON."""
        texts = all(part.get("type") == "text" for part in self._content)
        content: Any = "".join(_text(part.get("text")) for part in self._content) if texts else self._content
        calls = [
            {
                "type": "function",
                **call.kept,
                "id": call.id or f"tool_call_{call.part}",
                "function": {"name": call.name, "arguments": _arguments_text(call)},
            }
            for call in self._calls
        ]
        further = {name: value for name, value in self._further.items() if value not in (None, [], {})}
        return {"role": "assistant", "content": content or None, **further, "tool_calls": calls}

    def served(self) -> list[Served]:
        """What Groq lists as executed, and the searches that OpenRouter counts without saying what was searched."""
        found = []
        for each in _dicts(self._further.get("executed_tools") or []):
            result = each.get("search_results") or each.get("code_results") or each.get("output")
            arguments = _dict(json_or_text(_text(each.get("arguments"))))
            found.append(Served.of(tool_of(_text(each.get("type"))), arguments, result))
        counts = _dict(self._tokens.get("server_tool_use") or self._tokens.get("server_tool_use_details"))
        for name, tool in (("web_search_requests", WEB_SEARCH), ("web_fetch_requests", WEB_FETCH)):
            count = min(_number(counts.get(name)) or 0, MAX_SECTIONS)
            found += [Served.of(tool, {}, None) for _ in range(count)]
        return Served.cited(found, [_dict(each.get("url_citation")) or each for each in self._cited])

    def usage(self, given: Mapping[str, Any]) -> Usage:
        """The tokens, by the names of any vendor."""
        return Usage(
            input_tokens=_first(given, "prompt_tokens", "input_tokens"),
            output_tokens=_first(given, "completion_tokens", "output_tokens"),
            total_tokens=_first(given, "total_tokens"),
            reasoning_tokens=_first(given, "completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
            cache_read_tokens=_first(
                given,
                "prompt_tokens_details.cached_tokens",
                "prompt_cache_hit_tokens",
                "cached_tokens",
                "input_tokens_details.cached_tokens",
                "cache_read_input_tokens",
            ),
            cache_write_tokens=_first(given, "prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),
            input_audio_tokens=_first(given, "prompt_tokens_details.audio_tokens"),
            output_audio_tokens=_first(given, "completion_tokens_details.audio_tokens"),
        )


def _reasoning(delta: Mapping[str, Any]) -> str:
    """The reasoning in a piece of a message. Some services say it twice, under two names."""
    for name in _REASONING:
        found = delta.get(name)
        found = found.get("text") if isinstance(found, Mapping) else found
        if isinstance(found, str) and found:
            return found
    details = _dicts(delta.get("reasoning_details") or [])
    return "".join(_text(each.get("text") or each.get("summary")) for each in details)


def _joined(before: Any, piece: Any) -> Any:
    """A field with its next piece: texts continue, lists grow, and anything else is replaced."""
    if isinstance(before, str) and isinstance(piece, str):
        return before + piece
    if isinstance(before, list) and isinstance(piece, list):
        for each in piece:
            before = _extended(before, each)
        return before
    if isinstance(before, Mapping) and isinstance(piece, Mapping):
        return {**before, **{name: _joined(before.get(name), value) for name, value in piece.items()}}
    if isinstance(piece, list):
        return _joined([], piece)
    return before if piece is None else piece


_IDENTITY: Final = frozenset({"type", "index", "id", "format"})
"""Fields that name a part of a list, and so do not continue in its next piece."""


def _extended(parts: list[Any], piece: Any) -> list[Any]:
    """A list with one more piece, which continues the last part if it has the same type and place."""
    if piece is None:
        return parts
    last = parts[-1] if parts else None
    if not isinstance(piece, Mapping) or not isinstance(last, Mapping):
        return [*parts, piece]
    another = any(last.get(name) != piece.get(name) for name in ("type", "index"))
    named = last.get("id") and piece.get("id") and last["id"] != piece["id"]
    if another or named or ("index" not in piece and "signature" in last):
        return [*parts, piece]
    joined = dict(last)
    for name, value in piece.items():
        if value is not None:
            joined[name] = value if name in _IDENTITY else _joined(last.get(name), value)
    return [*parts[:-1], joined]


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. None can be read from text that is not JSON; such a call is refused elsewhere."""
    try:
        return read_arguments(text)
    except Unreadable:
        return {}


def _arguments_text(call: _Call) -> str:
    if not call.shown:
        return "{}"
    twice = _TWICE.search(call.arguments)  # one object after another
    return json.dumps(_arguments(call.arguments)) if twice else call.arguments


# --- OpenAI's Responses -----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Item:
    """One output item, as far as it has come.

    Attributes:
        kind: Its type.
        place: Its number.
        said: Its fields.
        call: Its call.
        in_pieces: Whether text of it came in pieces.
        done: Whether it is complete.
    """

    kind: str
    place: int | None
    said: Mapping[str, Any] = field(default_factory=dict)
    call: _Call | None = None
    in_pieces: bool = False
    done: bool = False


class ResponsesReader(Reader):
    """OpenAI's Responses: output items. Servers omit their numbers, or give two the same, or change their ids."""

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._items: list[_Item] = []

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event, or a whole response: its items are read as events that have all of an item."""
        kind = _text(data.get("type"))
        match kind:
            case "response.created" | "response.in_progress":
                response = _dict(data.get("response"))
                yield from self._start(response.get("id"), response.get("model"))
            case "response.output_item.added" | "response.output_item.done" if data.get("item"):
                given, done = _dict(data.get("item")), kind.endswith("done")
                yield from self._read(self._item(data, given, new=not done), given, done=done)
            case "response.completed" | "response.incomplete" | "response.failed":
                yield from self._whole({"status": kind.removeprefix("response."), **_dict(data.get("response"))})
            case "response.error" | "error":
                self._failed(data)
            case _ if kind.endswith((".delta", "arguments.done")):
                yield from self._piece(kind, data)
            case _ if not kind and ("output" in data or "error" in data):
                yield from self._whole(data)
            case _:
                pass

    def end(self) -> Iterator[Any]:
        """Yield the last events. Arguments that came only with the announcement of their call count."""
        for item in self._items:
            if item.call is not None and not item.call.arguments:
                yield from self._call(item.call, arguments=_text(item.said.get("arguments")))
        yield from super().end()

    def _whole(self, response: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._start(response.get("id"), response.get("model"))
        self._count(response.get("usage"))
        self._report = {name: response[name] for name in ("service_tier",) if response.get(name) is not None}
        if response.get("error") or response.get("status") == "failed":
            self._failed(response)
        left = list(self._items)
        for given in _dicts(response.get("output") or []):
            item = next((each for each in left if each.kind == given.get("type")), None)
            if item is not None:
                left.remove(item)
            yield from self._read(item or self._new(given, None), given, done=True)
        incomplete = response.get("status") == "incomplete"
        self._ends(_dict(response.get("incomplete_details")).get("reason") or ("length" if incomplete else "stop"))

    def _new(self, given: Mapping[str, Any], place: int | None) -> _Item:
        item = _Item(_text(given.get("type")), place)
        self._items.append(item)
        if item.kind == "function_call":
            item.call = self._new_call()
        return item

    def _item(self, data: Mapping[str, Any], given: Mapping[str, Any], *, new: bool = False) -> _Item:
        """The item that an event is about: by its id, its number, or else the last one of its type."""
        item_id, place = given.get("id") or data.get("item_id"), _number(data.get("output_index"))
        mine = [each for each in reversed(self._items) if each.kind == given.get("type")]
        known = next((each for each in mine if item_id and each.said.get("id") == item_id), None)
        if known is not None or new:
            return known or self._new(given, place)
        open_ones = [each for each in mine if not each.done]
        at_place = [each for each in open_ones if place is not None and each.place == place]
        return next(iter(at_place or open_ones), None) or self._new(given, place)

    def _read(self, item: _Item, given: Mapping[str, Any], *, done: bool) -> Iterator[Any]:
        yield from self._start(None, None)
        item.said, item.done = given, done
        if item.call is not None:
            arguments = _text(given.get("arguments"))
            if item.call.arguments or (not done and _Call(0, arguments=arguments).is_complete):
                arguments = ""  # they come, or came, in pieces
            named = {"call_id": _text(given.get("call_id") or given.get("id")), "name": _text(given.get("name"))}
            yield from self._call(item.call, **named, arguments=arguments)
        elif done and not item.in_pieces:
            item.in_pieces = True
            for part in _dicts(given.get("summary") or []):
                yield from self._think(_text(part.get("text")))
            for part in _dicts(given.get("content") or []):
                text = _text(part.get("text") or part.get("refusal"))
                yield from (self._think(text) if item.kind == "reasoning" else self._say(text))

    def _piece(self, kind: str, data: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._start(None, None)
        types = {
            "function_call": "function_call",
            "reasoning": "reasoning",
            "output_text": "message",
            "refusal": "message",
        }
        found = next((each for name, each in types.items() if name in kind), None)
        if found is None:
            return
        item, text = self._item(data, {"type": found}), _text(data.get("delta"))
        if item.call is not None:
            given = _text(data.get("arguments"))  # of the event with all of them
            yield from self._call(item.call, arguments=text or ("" if item.call.arguments else given))
            return
        item.in_pieces = True
        yield from (self._think(text) if found == "reasoning" else self._say(text))

    def message(self) -> dict[str, Any]:
        """The items as they came. One that was only announced has nothing to give back, apart from a call."""
        items = []
        for item in self._items:
            if item.call is not None:
                items.append({**item.said, "arguments": item.said.get("arguments") or item.call.arguments})
            elif item.done:
                items.append(dict(item.said))
        return {"items": items}

    def served(self) -> list[Served]:
        """The items of tools of the service."""
        found, cited = [], []
        for item in self._items:
            said = item.said
            if item.kind == "message":
                parts = _dicts(said.get("content") or [])
                cited += [each for part in parts for each in _dicts(part.get("annotations") or [])]
            failed = said.get("status") == "failed"
            match item.kind:
                case "web_search_call":
                    action = dict(_dict(said.get("action")))
                    sources = action.pop("sources", None)
                    found.append(Served.of(WEB_SEARCH, action, sources, failed=failed))
                case "file_search_call":
                    queries = {"queries": said.get("queries") or []}
                    found.append(Served.of(FILE_SEARCH, queries, said.get("results"), failed=failed))
                case "code_interpreter_call":
                    code = {"code": said.get("code") or ""}
                    found.append(Served.of(CODE_EXECUTION, code, said.get("outputs"), failed=failed))
                case _:
                    pass
        return Served.cited(found, cited)

    def usage(self, given: Mapping[str, Any]) -> Usage:
        """The tokens."""
        return Usage(
            input_tokens=_first(given, "input_tokens"),
            output_tokens=_first(given, "output_tokens"),
            total_tokens=_first(given, "total_tokens"),
            reasoning_tokens=_first(given, "output_tokens_details.reasoning_tokens"),
            cache_read_tokens=_first(given, "input_tokens_details.cached_tokens"),
            cache_write_tokens=_first(given, "input_tokens_details.cache_write_tokens"),
            input_audio_tokens=_first(given, "input_tokens_details.audio_tokens"),
            output_audio_tokens=_first(given, "output_tokens_details.audio_tokens"),
        )


# --- Anthropic --------------------------------------------------------------------------------------------------------


class MessagesReader(Reader):
    """Anthropic's messages."""

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._numbers: dict[int, int] = {}
        self._places: dict[int, _Call] = {}

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event, or a whole message: its blocks are read as events that have all of a block."""
        place = _number(data.get("index"))
        if place is None:
            place = max(self._blocks, default=0)
        match data.get("type"):
            case "message_start":
                yield from self._begin(_dict(data.get("message")))
            case "message":
                yield from self._begin(data)
                self._close(data)
            case "content_block_start":
                number = place if place not in self._blocks else self._next  # some numbers come twice
                self._numbers[place] = number
                yield from self._open(number, _dict(data.get("content_block")))
            case "content_block_delta":
                yield from self._continue(self._numbers.get(place, place), _dict(data.get("delta")))
            case "message_delta":
                self._close({**_dict(data.get("delta")), "usage": data.get("usage")})
            case "message_stop":
                self.ended = True
            case "error":
                self._failed(data)
            case _:
                pass

    def _begin(self, message: Mapping[str, Any]) -> Iterator[Any]:
        """Read a message, whose blocks can be there from the beginning when it is streamed, too."""
        self._count(message.get("usage"))
        yield from self._start(message.get("id"), message.get("model"))
        for block in _dicts(message.get("content") or []):
            yield from self._open(self._next, block)

    @property
    def _next(self) -> int:
        return max(self._blocks, default=-1) + 1

    def _close(self, data: Mapping[str, Any]) -> None:
        self._count(data.get("usage"))
        self.paused = self.can_pause and data.get("stop_reason") == _PAUSED
        self._ends(data.get("stop_reason"))

    def _open(self, place: int, block: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._start(None, None)
        kept = self._blocks[place] = dict(block)
        match block.get("type"):
            case "text":
                yield from self._say(_text(block.get("text")))
            case "thinking":
                yield from self._think(_text(block.get("thinking")))
            case "tool_use":
                call = self._places[place] = self._new_call()
                given = block.get("input")
                arguments = "" if not given else given if isinstance(given, str) else json.dumps(given)
                named = {"call_id": _text(block.get("id")), "name": _text(block.get("name"))}
                yield from self._call(call, **named, arguments=arguments)
            case "server_tool_use":
                self._interrupted()
            case _:
                kept.setdefault("type", "text")

    def _continue(self, place: int, delta: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._start(None, None)
        block = self._blocks.setdefault(place, {"type": "text", "text": ""})
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = _text(block.get(name)) + delta[name]
        if "citation" in delta:
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        match delta.get("type"):
            case "text_delta":
                yield from self._say(_text(delta.get("text")))
            case "thinking_delta":
                yield from self._think(_text(delta.get("thinking")))
            case "input_json_delta":
                piece = _text(delta.get("partial_json"))
                if call := self._places.get(place):
                    yield from self._call(call, arguments=piece)
                else:  # a tool of the service itself
                    block["input_text"] = _text(block.get("input_text")) + piece
            case _:
                pass

    def message(self) -> dict[str, Any]:
        """The blocks as they came, without empty texts, which the service refuses."""
        content = []
        for place, block in sorted(self._blocks.items()):
            kept = {name: value for name, value in block.items() if name != "input_text"}
            if place in self._places:
                kept["input"] = _arguments(self._places[place].arguments)
            elif "input_text" in block:
                kept["input"] = _arguments(block["input_text"])
            if kept.get("type") != "text" or kept.get("text"):
                content.append(kept)
        return {"role": "assistant", "content": content}

    def served(self) -> list[Served]:
        """The results of the service's tools. It gives that of a call beside calls of functions in its next answer."""
        content = self.message()["content"]
        uses = {_text(each.get("id")): each for each in content if each.get("type") == "server_tool_use"}
        found, cited = [], [each for block in content for each in _dicts(block.get("citations") or [])]
        for block in content:
            kind, use_id = _text(block.get("type")), _text(block.get("tool_use_id"))
            if kind.endswith("_tool_result") and kind != "mcp_tool_result":
                use = uses.pop(use_id, {})
                name, result = _text(use.get("name")) or kind.removesuffix("_tool_result"), block.get("content")
                failed = _text(_dict(result).get("type")).endswith("_error")
                found.append(Served.of(tool_of(name), _dict(use.get("input")), result, failed=failed))
        if not self._calls:
            for use in uses.values():
                found.append(Served.of(tool_of(_text(use.get("name"))), _dict(use.get("input")), None, failed=True))
        return Served.cited(found, cited)

    def usage(self, given: Mapping[str, Any]) -> Usage:
        """The tokens. Those of the beginning count where the end does not say them again."""
        return Usage(
            input_tokens=_first(given, "input_tokens"),
            output_tokens=_first(given, "output_tokens"),
            cache_read_tokens=_first(given, "cache_read_input_tokens"),
            cache_write_tokens=_first(given, "cache_creation_input_tokens"),
            reasoning_tokens=_first(given, "output_tokens_details.thinking_tokens"),
        )


# --- Gemini -----------------------------------------------------------------------------------------------------------


_OF_PIECES: Final = frozenset({"partialArgs", "willContinue"})
"""Fields of a piece of a call that a whole call lacks."""


class GeminiReader(Reader):
    """Gemini's content parts. Each event is like a whole answer with some of the parts."""

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._parts: list[dict[str, Any]] = []
        self._open: list[tuple[_Call, dict[str, Any], PartialArguments]] = []
        self._sources: dict[str, Any] = {}

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event or a whole answer."""
        if data.get("error"):
            self._failed(data)
        yield from self._start(data.get("responseId"), data.get("modelVersion"))
        self._count(data.get("usageMetadata"))
        if _dict(data.get("promptFeedback")).get("blockReason"):
            self._declined = True
        for candidate in _dicts(data.get("candidates") or [])[:1]:
            for part in _dicts(_dict(candidate.get("content")).get("parts") or []):
                yield from self._read(part)
            for name in ("groundingMetadata", "urlContextMetadata") if self.services else ():
                self._sources |= {key: each for key, each in _dict(candidate.get(name)).items() if each}
            self._ends(candidate.get("finishReason"))

    def end(self) -> Iterator[Any]:
        """Yield the last events. Arguments that were cut off stay incomplete, since they would be another call."""
        for each in list(self._open):
            yield from self._close(*each, cut=self._finish == "length")
        yield from super().end()

    def _read(self, part: Mapping[str, Any]) -> Iterator[Any]:
        called = part.get("functionCall")
        if isinstance(called, Mapping):
            yield from self._read_call(part, called)
            return
        last = self._parts[-1] if self._parts else {}
        plain = {"text", "thought"}
        if part.keys() <= plain and last.keys() <= plain and last and part.get("thought") == last.get("thought"):
            last["text"] = _text(last.get("text")) + _text(part.get("text"))
        else:
            self._parts.append(dict(part))
        if part.get("thought"):
            yield from self._think(_text(part.get("text")))
        elif "executableCode" in part or "toolCall" in part:
            self._interrupted()
        else:
            yield from self._say(_text(part.get("text")))

    def _read_call(self, part: Mapping[str, Any], called: Mapping[str, Any]) -> Iterator[Any]:
        """Read a call, or a piece of one: it continues the open call with its id, or else the last one."""
        call_id, name, given = _text(called.get("id")), _text(called.get("name")), called.get("args")
        mine = [each for each in self._open if (call_id or each[0].id) == each[0].id and name in ("", each[0].name)]
        if not mine and not name:
            return  # Vertex ends a call with an empty piece, which can come after its last one
        call, kept, arguments = mine[-1] if mine else (self._new_call(), {}, PartialArguments())
        if not mine:
            self._open.append((call, kept, arguments))
            self._parts.append(kept)
            yield from self._call(call, call_id=call_id, name=name)
        kept.update({**part, "functionCall": {**kept.get("functionCall", {}), **called}})
        if isinstance(given, str):
            yield from self._call(call, arguments=given)
        arguments.value.update(_dict(given))
        for each in _dicts(called.get("partialArgs") or []):
            arguments.add(each)
        if not called.get("willContinue"):
            yield from self._close(call, kept, arguments)

    def _close(
        self, call: _Call, kept: dict[str, Any], arguments: PartialArguments, *, cut: bool = False
    ) -> Iterator[Any]:
        """End a call. What goes back has its arguments as a whole."""
        self._open = [each for each in self._open if each[0] is not call]
        called = kept["functionCall"]
        if not _OF_PIECES.isdisjoint(called):
            whole = {key: value for key, value in called.items() if key not in _OF_PIECES}
            kept["functionCall"] = {**whole, "args": arguments.value}
        if not call.arguments:
            yield from self._call(call, arguments=json.dumps(arguments.value)[: -1 if cut else None])

    def message(self) -> dict[str, Any]:
        """The parts as they came."""
        return {"role": "model", "parts": self._parts}

    def served(self) -> list[Served]:
        """What the parts say of the service's tools; else what the sources of the answer do, which name no call."""
        found: list[Served] = []
        asked: dict[str, Mapping[str, Any]] = {}
        for part in self._parts:
            if code := _dict(part.get("executableCode")):
                asked[CODE_EXECUTION] = code
            elif ran := _dict(part.get("codeExecutionResult")):
                failed, code = ran.get("outcome") != "OUTCOME_OK", asked.pop(CODE_EXECUTION, {})
                found.append(Served.of(CODE_EXECUTION, {"code": code.get("code")}, ran.get("output"), failed=failed))
            elif called := _dict(part.get("toolCall")):
                asked[_text(called.get("id"))] = called
            elif given := _dict(part.get("toolResponse")):
                call = asked.pop(_text(given.get("id")), {})
                tool = tool_of(_text(given.get("toolType") or call.get("toolType")))
                found.append(Served.of(tool, _dict(call.get("args")), given.get("response")))
        chunks = _dicts(self._sources.get("groundingChunks") or [])
        pages = [each["web"] for each in chunks if isinstance(each.get("web"), Mapping)]
        files = [each["retrievedContext"] for each in chunks if "retrievedContext" in each]
        known = {each.tool for each in found}
        if WEB_SEARCH not in known and (queries := self._sources.get("webSearchQueries")):
            found.append(Served.of(WEB_SEARCH, {"queries": queries}, None))
        if FILE_SEARCH not in known and files:
            found.append(Served.of(FILE_SEARCH, {}, files))
        for fetched in _dicts(self._sources.get("urlMetadata") or []) if WEB_FETCH not in known else ():
            status = _text(fetched.get("urlRetrievalStatus"))
            url = {"url": fetched.get("retrievedUrl")}
            found.append(Served.of(WEB_FETCH, url, None, failed=not status.endswith("SUCCESS")))
        return Served.cited(found, [{"url": each.get("uri"), "title": each.get("title")} for each in pages])

    def usage(self, given: Mapping[str, Any]) -> Usage:
        """The tokens. Those of thoughts are not among those of candidates, nor those of tool results in the prompt."""
        prompt, results = _first(given, "promptTokenCount"), _first(given, "toolUsePromptTokenCount") or 0
        return Usage(
            input_tokens=None if prompt is None else prompt + results,
            output_tokens=_first(given, "candidatesTokenCount", "responseTokenCount"),
            total_tokens=_first(given, "totalTokenCount"),
            reasoning_tokens=_first(given, "thoughtsTokenCount"),
            cache_read_tokens=_first(given, "cachedContentTokenCount"),
        )


# --- from bytes to events ---------------------------------------------------------------------------------------------


_FIELD_NAMES: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = "[DONE]"


async def read_answer(answer: AsyncIterator[bytes], reader: Reader, *, longest: int) -> AsyncGenerator[Any]:
    """Read an answer as server-sent events, or as JSON if it has none, whatever was asked for.

    Args:
        answer: Its bytes, in pieces.
        reader: The reader of the service's protocol.
        longest: The most bytes of one event, or of an answer that is one JSON.

    Raises:
        NoAnswer: It is neither.
        AnswerTooLong: It exceeds the limit.
    """
    lines = _lines_of(answer, longest)
    begin = b""
    async for line in lines:
        begin = line.removeprefix(_BOM)
        if begin.strip():
            break
    texts = _events_of if begin.lstrip().startswith(_FIELD_NAMES) else _all_of
    async for text in texts(begin, lines, longest):
        if text.strip() == _DONE:
            reader.ended = True
            break
        found = _objects(text)
        if texts is _all_of and not found:
            raise NoAnswer
        for data in found:
            for event in reader.event(data):
                yield event
    for event in reader.end():
        yield event


async def _lines_of(answer: AsyncIterator[bytes], longest: int) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in answer:
        place = len(rest)
        rest += chunk
        while (end := rest.find(b"\n", place)) >= 0:
            yield bytes(rest[: end + 1])
            del rest[: end + 1]
            place = 0
        if len(rest) > longest:
            raise AnswerTooLong
    if rest:
        yield bytes(rest)


async def _events_of(begin: bytes, lines: AsyncIterator[bytes], longest: int) -> AsyncIterator[str]:
    """The texts of events."""
    sse: Any = import_module("dspy._vendor.lm15.sse")

    async def all_lines() -> AsyncIterator[bytes]:
        yield begin
        async for line in lines:
            yield line

    async for event in sse.aparse_sse(all_lines(), max_line_bytes=longest, max_event_bytes=longest):
        yield event.data


async def _all_of(begin: bytes, lines: AsyncIterator[bytes], longest: int) -> AsyncIterator[str]:
    """The text of an answer that is one JSON, and then the mark that ends a stream."""
    pieces, length = [begin], len(begin)
    async for line in lines:
        pieces.append(line)
        length += len(line)
        if length > longest:
            raise AnswerTooLong
    yield b"".join(pieces).decode("utf-8", "replace")
    yield _DONE


def json_or_text(text: str) -> Any:
    """The value in a text of JSON, in which numbers that JSON lacks are null; the text itself if it is no JSON."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text


def _objects(text: str) -> Sequence[Mapping[str, Any]]:
    """The object in a text of JSON, or the objects of a list."""
    return _dicts(json_or_text(text))
