"""Streaming of one output field: text deltas of a completion in, text deltas of the field's value out (D18).

The parsers follow the formats of dspy's adapters, delta by delta. The text that dspy parses at the end is
authoritative, and the caller compares it with the streamed text. `echo` decides what can be shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from .calling import MAX_CHARACTERS
from .disclosure import RoleFilter, RoleGuard
from .engines.classification import AnswerTooLong
from .matching import SLICE, Pause, in_turns
from .thinking import Thoughts


class FieldParser(Protocol):
    """Converts the deltas of one completion to the deltas of one output field of type `str`."""

    def feed(self, text: str) -> str:
        """Take the completion's next delta and return the field's delta."""
        ...

    def close(self) -> str:
        """End the completion and return the rest of the field."""
        ...


class PlainFieldParser:
    """The field is the complete completion, stripped."""

    def __init__(self) -> None:
        self._begun = False
        self._blank = ""  # white space at the end, which is shown when more text follows

    def feed(self, text: str) -> str:
        """Take the completion's next delta and return the field's delta."""
        text = self._blank + text if self._begun else text.lstrip()
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        self._begun = self._begun or bool(shown)
        return shown

    def close(self) -> str:
        """End the completion. White space at the end is dropped."""
        self.drop_blank()
        return ""

    def drop_blank(self) -> None:
        """Drop the white space at the end of the text so far."""
        self._blank = ""


_LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")  # the breaks of str.splitlines
_HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
_HEADER_BEGIN, _HEADER_END = "[[ ## ", " ## ]]"
_NAME = re.compile(r"\w*")


class ChatFieldParser:
    """The field comes after its header `[[ ## name ## ]]`, in the format of dspy's `ChatAdapter`.

    As in dspy, a header counts at the beginning of a line, the first one of the field counts, and any next header ends
    it.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._value = PlainFieldParser()
        self._inside = self._ended = False  # both are false before the field
        self._line: str | None = ""  # the current line while it could still become a header, else None
        self._header_line = False
        self._after_return = False

    def feed(self, text: str) -> str:
        """Take the completion's next delta and return the field's delta."""
        if not text:
            return ""
        *lines, rest = _LINE_BREAK.split(text)
        if self._after_return and text.startswith("\n"):  # the break \r\n came in two deltas
            del lines[0]
        self._after_return = text.endswith("\r")
        return "".join([self._go_on(line) + self._end_line() for line in lines]) + self._go_on(rest)

    def close(self) -> str:
        """End the completion and return text that was delayed because it could have become a header."""
        return self._decide() + self._value.close()

    def _go_on(self, text: str) -> str:
        if self._line is None:
            return self._put(text)
        self._line += text
        return "" if _may_become_header(self._line) else self._decide()

    def _end_line(self) -> str:
        shown = self._decide()
        if self._header_line:  # the parser strips the text after a header
            self._value.drop_blank()
        self._line, self._header_line = "", False
        return shown + self._put("\n")

    def _decide(self) -> str:
        """The line is a header, or can no longer become one."""
        line, self._line = self._line or "", None
        header = _HEADER.match(line.lstrip())
        if header is None:
            return self._put(line)
        self._ended = self._ended or self._inside
        self._inside = not self._ended and header[1] == self._field
        self._header_line = True
        return self._put(line[header.end() :])  # from the indented line, as in ChatAdapter.parse

    def _put(self, text: str) -> str:
        return self._value.feed(text) if self._inside else ""


def _may_become_header(line: str) -> bool:
    start = line.lstrip()
    if len(start) <= len(_HEADER_BEGIN):
        return _HEADER_BEGIN.startswith(start)
    if not start.startswith(_HEADER_BEGIN):
        return False
    name = _NAME.match(start, len(_HEADER_BEGIN))
    end = start[name.end() :] if name else ""
    return end != _HEADER_END and _HEADER_END.startswith(end)


class AnswerFieldParser:
    """The field is the complete completion, unless it begins with a marker: then it is parsed like one with markers."""

    def __init__(self, field: str) -> None:
        self._chat = ChatFieldParser(field)
        self._begin = ""
        self._parser: FieldParser | None = None

    def feed(self, text: str) -> str:
        """Take the completion's next delta and return the field's delta."""
        if self._parser is not None:
            return self._parser.feed(text)
        self._begin += text
        if _may_become_header(self._begin.lstrip().partition("\n")[0]) and "\n" not in self._begin.lstrip():
            return ""
        return self._decide()

    def close(self) -> str:
        """End the completion and return text that was delayed because it could have become a marker."""
        shown = "" if self._parser is not None else self._decide()
        assert self._parser is not None
        return shown + self._parser.close()

    def _decide(self) -> str:
        self._parser = self._chat if _HEADER.match(self._begin.lstrip()) else PlainFieldParser()
        text, self._begin = self._begin, ""
        return self._parser.feed(text)


_OBJECT = re.compile("{")
_STRUCTURE = re.compile(r'["{}\[\]:,]')
_HEX = "[0-9a-fA-F]"
# A piece of a JSON string: plain text, a pair of surrogates, one escape.
_STRING_PIECE = re.compile(
    rf'[^"\\]+|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}|\\[^u]|\\u', re.DOTALL
)
# The possible beginning of an escape, or of the second half of a surrogate pair.
_UNFINISHED = re.compile(
    rf"\\(?:u(?:{_HEX}{{0,3}}|[dD][89abAB]{_HEX}{{2}}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?\Z"
)


class JsonFieldParser:
    """The field is the string under its key in the first JSON object of the completion, as in dspy's `JSONAdapter`.

    It is exact for valid JSON with string values and unique keys, whatever text comes before the object. dspy repairs
    other text by its own rules, which this parser does not follow.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._rest = ""  # an incomplete escape
        self._depth = 0
        self._in_string = self._in_value = self._ended = False
        self._key = ""

    def feed(self, text: str) -> str:
        """Take the completion's next delta and return the field's delta."""
        text = self._rest + text
        self._rest = ""
        shown: list[str] = []
        at = 0
        while at < len(text) and not self._ended:
            at = self._string(text, at, shown) if self._in_string else self._structure(text, at)
        return "".join(shown)

    def close(self) -> str:
        """End the completion. Nothing is left."""
        return ""

    @property
    def _wanted(self) -> bool:
        return self._depth == 1 and self._in_value and self._key == self._field

    def _structure(self, text: str, at: int) -> int:
        """Move to the next structural character outside of strings."""
        found = (_STRUCTURE if self._depth else _OBJECT).search(text, at)
        if found is None:
            return len(text)
        match found[0]:
            case '"':
                self._in_string = True
                if self._depth == 1 and not self._in_value:
                    self._key = ""
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self._ended = not self._depth
            case mark if self._depth == 1:
                self._in_value = mark == ":"
            case _:  # inside another value
                pass
        return found.end()

    def _string(self, text: str, at: int, shown: list[str]) -> int:
        """Process one piece of a string."""
        if text[at] == '"':
            self._in_string = False
            self._ended = self._wanted
            return at + 1
        if _UNFINISHED.match(text, at):
            self._rest = text[at:]
            return len(text)
        piece = _STRING_PIECE.match(text, at)
        end = piece.end() if piece else at + 1
        if self._wanted:
            shown.append(_decoded(text[at:end]))
        elif self._depth == 1 and not self._in_value:
            self._key += _decoded(text[at:end])
        return end


def _decoded(piece: str) -> str:
    if not piece.startswith("\\"):
        return piece
    try:
        return str(json.loads(f'"{piece}"'))
    except ValueError:  # not an escape of JSON; a lenient parser drops the backslash
        return piece[1:]


class _Text:
    """A text of an answer on its way to a reader.

    Args:
        parser: Reads it in the completion; None if it comes by itself.
        guard: Finds pieces of the role in it; None if the call has no role.
        emit: Called with each part that is not empty; None if no part is shown.
    """

    def __init__(self, parser: FieldParser | None, guard: RoleGuard | None, emit: Callable[[str], None] | None) -> None:
        self._parser, self._guard, self._emit = parser, guard, emit
        self._filter: RoleFilter | None = None
        self._left = MAX_CHARACTERS

    def count(self, characters: int) -> None:
        """Count characters that the model has sent.

        Raises:
            AnswerTooLong: There are more than the limit.
        """
        self._left -= characters
        if self._left < 0:
            raise AnswerTooLong

    async def feed(self, text: str) -> None:
        """Take the next part."""
        if self._emit is None:
            return
        if self._parser is not None:
            text = self._parser.feed(text)
        if self._guard is not None and text:
            if self._filter is None:
                await in_turns(self._guard.building())
                self._filter = self._guard.filter()
            text = self._filter.feed(text)
            if self._filter.waits:
                await in_turns(self._guard.preparing())
                text += self._filter.feed("")
        if text:
            self._emit(text)

    async def close(self, *, settled: bool = False) -> int:
        """Emit what was delayed. The text ends here.

        Args:
            settled: Whether the answer is known, and nothing of this text is withheld.

        Returns:
            How many characters are withheld.
        """
        if self._emit is None:
            return 0
        withheld = 0
        if self._parser is not None:
            await self.feed(self._parser.close())
        if self._filter is not None:
            text, withheld = (self._filter.close(), 0) if settled else await in_turns(self._filter.closing())
            if text:
                self._emit(text)
        return withheld


class AnswerStream:
    """The `send_stream` of a dspy call: parser, then echo guard, then `emit` (D18).

    Use one per call, and never store it in a state. dspy sends it every chunk of the completion; it reads their text.
    """

    def __init__(
        self,
        parser: FieldParser | None,
        guard: RoleGuard | None,
        emit: Callable[[str], None],
        reason: Callable[[str], None] | None = None,
        argue: Callable[[int, str, str], None] | None = None,
        *,
        ends_reasoning: str = "",
    ) -> None:
        """Connect the parts.

        Args:
            parser: Finds the field in the completion; None if no field is streamed.
            guard: Finds the role in the field and, separately, in the reasoning; None if the call has no role.
                With one, arguments are not streamed.
            emit: Called in the event loop with each non-empty part; it must not block.
            reason: The same for the model's reasoning; None if it is not streamed.
            argue: The same for the arguments of calls that the service returns separately, after the place of the call
                and the name of the tool; None if they are not streamed.
            ends_reasoning: The tag that ends the reasoning that the model's answers do not open.
        """
        self._thoughts = Thoughts(ends_reasoning)
        self._answer = _Text(parser, guard, None if parser is None else emit)
        self._thought = None if reason is None else _Text(None, guard, reason)
        # JSON in parts can be read in another way than as a whole, so arguments are not streamed beside a role.
        self._argue = argue if guard is None else None
        self._arguments: dict[int, _Text] = {}  # by the place of the call
        self._pause = Pause()  # for all chunks, because many can arrive without a chance for other work of the loop

    async def send(self, chunk: Any) -> None:
        """Take one chunk, in the form of OpenAI's chat completion chunks, which is what dspy sends.

        Args:
            chunk: `content` and `reasoning_content` of `choices[0].delta` are read, and `tool_calls` are counted.
                Chunks without them, such as status messages and the last one, are skipped.

        Raises:
            AnswerTooLong: The answer is longer than the limit; dspy closes the connection.
        """
        for choice in getattr(chunk, "choices", None) or ():
            await self._read(*self._thoughts.feed(getattr(choice.delta, "content", None) or ""))
            for call in getattr(choice.delta, "tool_calls", None) or ():
                function = getattr(call, "function", None)
                arguments = getattr(function, "arguments", None) or ""
                self._answer.count(1 + len(arguments))
                if self._argue is not None:
                    await self._take(self._arguments_of(call, function), arguments)
            await self._read("", getattr(choice.delta, "reasoning_content", None) or "")

    async def _read(self, answer: str, thought: str) -> None:
        await self._take(self._answer, answer)
        if self._thought is not None:
            await self._take(self._thought, thought)
        else:
            self._answer.count(len(thought))

    def _arguments_of(self, call: Any, function: Any) -> _Text:
        place = getattr(call, "index", None) or 0
        found = self._arguments.get(place)
        if found is None:  # its first part has its name
            assert self._argue is not None, "the arguments are streamed"
            emit = partial(self._argue, place, getattr(function, "name", None) or "")
            found = self._arguments[place] = _Text(None, None, emit)
        return found

    async def _take(self, shown: _Text, text: str) -> None:
        shown.count(len(text))
        for begin in range(0, len(text), SLICE):
            await shown.feed(text[begin : begin + SLICE])
            await self._pause()

    async def close(self, *, answer: bool = True) -> int:
        """The completion has ended: emit the delayed text, and of the reasoning only what it can show.

        Args:
            answer: Whether nothing is withheld of the answer. If something is, its delayed text is not emitted.

        Returns:
            How many characters of the reasoning are withheld.
        """
        await self._read(*self._thoughts.close())
        withheld = 0 if self._thought is None else await self._thought.close()
        if answer:
            await self._answer.close(settled=True)
        return withheld
