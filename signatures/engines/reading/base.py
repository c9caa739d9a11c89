"""What all readers of answers share: how text, reasoning and calls become lm15's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NoReturn

from dspy import lm15

from ....core.files import packaged_table
from ...calling import MAX_CHARACTERS, MAX_SECTIONS, Unreadable, read_arguments
from ...thinking import answer_in
from ..classification import AnswerTooLong, Declined, Malformed, WrittenCall, words
from ..services import Protocol, Served

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
_ENDS: Final = 2000
_OBJECT_IN_WORDS: Final = '"n'  # the beginnings of a text with JSON in it, and of `null`
_NO_OBJECT: Final = "no object: "


@dataclass(slots=True)
class Call:
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

    PROTOCOL: ClassVar[Protocol]
    """The protocol that it reads."""

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
        self._calls: list[Call] = []

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event or a whole answer, and yield lm15's events.

        Raises:
            Reported: It reports an error.
        """
        raise NotImplementedError

    def message(self) -> dict[str, Any]:
        """The model's message as it came, in the form in which the service takes it back."""
        raise NotImplementedError

    def usage(self, given: Mapping[str, Any]) -> lm15.Usage:
        """The tokens of all reports of the answer together."""
        places = packaged_table(__package__, "tokens.toml")[self.PROTOCOL]
        return lm15.Usage(**{name: first_number(given, *paths) for name, paths in places.items()})

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
            if words("written_call").search(answer[:_ENDS] + answer[max(_ENDS, len(answer) - _ENDS) :]):
                raise WrittenCall
        if self._full and not self._texts and not self._calls:
            raise lm15.ContextLengthError("the prompt has filled the context of the model")
        if not self.ended and self._finish is None:
            raise lm15.StreamAssemblyError("the answer ended before it was complete")
        for call in self._calls:
            yield from self._last_of(call)
        # As texts, which lm15 need not walk through.
        data: dict[str, Any] = {"message": json.dumps(self.message())} if self._calls else {}
        if self.services and (served := self.served()[:MAX_SECTIONS]):
            data["served"] = json.dumps([each.json() for each in served])
        if data:
            data["origin"] = self._origin
            yield lm15.StreamDeltaEvent(delta=lm15.ContinuationDelta(provider=KEPT, kind="message", data=data))
        tokens = added([*self._tokens_before, self._tokens]) if self._tokens_before else self._tokens
        yield lm15.StreamEndEvent(
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
        said = [as_text(each).lower() for each in reasons]
        if any(map(words("malformed").search, said)):
            raise Malformed
        if any(map(words("failed").search, said)):
            self._failed({"code": said[0]})
        if said[0] and not said[0].endswith("unspecified"):
            self._finish = _FINISH.get(said[0], "stop")
            self._declined = bool(words("declined").search(said[0]))
            self._full = said[0] == _FULL

    @staticmethod
    def _failed(body: Mapping[str, Any]) -> NoReturn:
        raise Reported(body)

    def _start(self, answer_id: object, model: object) -> Iterator[Any]:
        if not self._started:
            self._started = True
            yield lm15.StreamStartEvent(id=as_text(answer_id) or None, model=as_text(model) or None)

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
            yield lm15.StreamDeltaEvent(delta=lm15.TextDelta(text=text, part_index=self._place("text")))

    def _think(self, text: str) -> Iterator[Any]:
        if text:
            yield lm15.StreamDeltaEvent(delta=lm15.ThinkingDelta(text=text, part_index=self._place("thinking")))

    def _interrupted(self) -> None:
        """A tool of the service runs: text after it is a paragraph of its own."""
        self._gap = self.services and bool(self._texts) and not self._texts[-1].endswith("\n")

    def _new_call(self) -> Call:
        self._part, self._kind = self._part + 1, ""  # text after it is a part of its own
        call = Call(self._part)
        self._calls.append(call)
        return call

    def _call(self, call: Call, *, call_id: str = "", name: str = "", arguments: str = "") -> Iterator[Any]:
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

    def _last_of(self, call: Call) -> Iterator[Any]:
        if not call.shown and call.arguments:
            text = call.arguments.lstrip()
            if not text or text[0] in _OBJECT_IN_WORDS:
                with suppress(Unreadable):
                    call.arguments, call.shown = json.dumps(read_arguments(text)), True
            # Other JSON, such as a long list, is not an object: with the mark, nobody after this one parses it.
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


def _call_delta(call: Call, arguments: str) -> lm15.StreamDeltaEvent:
    delta = lm15.ToolCallDelta(input=arguments, part_index=call.part, id=call.id or None, name=call.name or None)
    return lm15.StreamDeltaEvent(delta=delta)


def as_text(value: object) -> str:
    """A value as a text; a missing one is empty."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def as_dict(value: object) -> Mapping[str, Any]:
    """A value as an object; anything else is empty."""
    return value if isinstance(value, Mapping) else {}


def as_dicts(value: object) -> Sequence[Mapping[str, Any]]:
    """The objects of a list, or one that stands alone."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Mapping)]


def added(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reports of tokens of the parts of an answer, added up."""
    total = dict(reports[0])
    for report in reports[1:]:
        for name, value in report.items():
            before = total.get(name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                total[name] = added([before, value])
            elif as_number(before) is not None and as_number(value) is not None:
                total[name] = before + value
            else:
                total[name] = value
    return total


def as_number(value: object) -> int | None:
    """A value as a number; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def first_number(given: Mapping[str, Any], *paths: str) -> int | None:
    """The first number under one of some paths with dots."""
    for path in paths:
        found: Any = given
        for name in path.split("."):
            found = as_dict(found).get(name)
        if as_number(found) is not None:
            return as_number(found)
    return None


def arguments_in(text: str) -> dict[str, Any]:
    """The arguments of a call. None can be read from text that is not JSON; such a call is refused elsewhere."""
    try:
        return read_arguments(text)
    except Unreadable:
        return {}
