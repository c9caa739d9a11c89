"""From the bytes of an answer to events, whatever was asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from ..classification import AnswerTooLong, NoAnswer
from .base import Reader, as_dicts

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
    """The value in a text of JSON, in which numbers that JSON lacks are null; the text itself if it is not JSON."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text


def _objects(text: str) -> Sequence[Mapping[str, Any]]:
    """The object in a text of JSON, or the objects of a list."""
    return as_dicts(json_or_text(text))
