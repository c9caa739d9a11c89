"""Reads OpenAI's chat protocol, as its many servers speak it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ....core.generation import WEB_FETCH, WEB_SEARCH
from ...calling import MAX_SECTIONS
from ..services import Served, tool_of
from .base import Call, Reader, arguments_in, as_dict, as_dicts, as_number, as_text
from .events import json_or_text

_OUTPUT_ONLY: Final = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio", "parsed"}
)
"""Fields of a message that are read here, or that services give and do not take."""

_READ: Final = frozenset({"index", "id", "function", "name", "arguments"})
"""Fields of a call that are read here."""

_TWICE: Final = re.compile(r"\}\s*\{")
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


class ChatReader(Reader):
    """OpenAI's chat protocol, as its many servers speak it."""

    PROTOCOL = "chat"

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._places: dict[int, Call] = {}
        self._content: list[Any] = []
        self._further: dict[str, Any] = {}
        self._cited: list[Any] = []
        self._in_pieces = False

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read a chunk, or a whole answer: its message is read as a chunk with everything."""
        if not data.get("choices"):  # an envelope
            data = next(
                (inner for name in ("data", "provider") if (inner := as_dict(data.get(name))).get("choices")), data
            )
        report = as_dict(data.get("base_resp"))
        if report.get("status_code"):
            self._failed({"message": report.get("status_msg")})
        choices = as_dicts(data.get("choices") or [])
        for each in (data, *choices):
            if each.get("error"):
                self._failed(each)
        yield from self._start(data.get("id"), data.get("model"))
        for report in (data, *choices, as_dict(data.get("x_groq"))):
            self._count(report.get("usage"))
        if data.get("service_tier") is not None:
            self._report["service_tier"] = data["service_tier"]
        for choice in choices:  # one answer, even if its calls are in another choice than its text
            delta = as_dict(choice.get("delta"))
            self._in_pieces = self._in_pieces or bool(delta)
            # A message after pieces says them once more.
            yield from self._read(delta if self._in_pieces else as_dict(choice.get("message")))
            self._ends(choice.get("finish_reason"), choice.get("native_finish_reason"))

    def _read(self, delta: Mapping[str, Any]) -> Iterator[Any]:
        for name, value in delta.items():
            if name not in _OUTPUT_ONLY:
                self._further[name] = _joined(self._further.get(name), value)
        yield from self._think(_reasoning(delta))
        if self.services:
            self._cited += as_dicts(delta.get("annotations") or [])
        content = delta.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield from self._read_content(part)
        yield from self._say(as_text(delta.get("refusal")))
        calls = as_dicts(delta.get("tool_calls") or [])
        if not calls and isinstance(delta.get("function_call"), Mapping):
            calls = [{"function": delta["function_call"]}]
        for call in calls:
            yield from self._read_call(call)

    def _read_content(self, part: object) -> Iterator[Any]:
        if not isinstance(part, Mapping):
            text = as_text(part)
            self._content = _extended(self._content, {"type": "text", "text": text} if text else None)
            yield from self._say(text)
            return
        self._content = _extended(self._content, part)
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text") or part.get("summary") or []
            texts = [inner] if isinstance(inner, str) else [as_text(each.get("text")) for each in as_dicts(inner)]
            yield from self._think("".join(texts))
        elif "text" in part:
            yield from self._say(as_text(part["text"]))

    def _read_call(self, given: Mapping[str, Any]) -> Iterator[Any]:
        """Read a piece of a call. Servers omit the index, or give all calls the same one, or repeat names and ids."""
        function = as_dict(given.get("function")) or given
        call_id, name, said = as_text(given.get("id")), as_text(function.get("name")), function.get("arguments")
        name = "" if name == "null" else name
        arguments = said if isinstance(said, str) else json.dumps(said) if said else ""
        place = as_number(given.get("index"))
        call = self._places.get(place) if place is not None else next(reversed(self._calls), None)
        if call is None or (name and self._begins(call, call_id, name)):
            call = self._new_call()
            if place is not None:
                self._places[place] = call
        call.kept.update({key: value for key, value in given.items() if key not in _READ and value not in (None, "")})
        yield from self._call(call, call_id=call_id, name=name, arguments=arguments)

    @staticmethod
    def _begins(call: Call, call_id: str, name: str) -> bool:
        """Whether a piece with a name begins another call than the one at its place."""
        if call_id and call.id:
            return call_id != call.id
        return bool(call.name) and (name != call.name or call.is_complete)

    def message(self) -> dict[str, Any]:
        """The message with all its fields. Missing ids have lm15's numbers, and arguments are JSON."""
        texts = all(part.get("type") == "text" for part in self._content)
        content: Any = "".join(as_text(part.get("text")) for part in self._content) if texts else self._content
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
        for each in as_dicts(self._further.get("executed_tools") or []):
            result = each.get("search_results") or each.get("code_results") or each.get("output")
            arguments = as_dict(json_or_text(as_text(each.get("arguments"))))
            found.append(Served.of(tool_of(as_text(each.get("type"))), arguments, result))
        counts = as_dict(self._tokens.get("server_tool_use") or self._tokens.get("server_tool_use_details"))
        for name, tool in (("web_search_requests", WEB_SEARCH), ("web_fetch_requests", WEB_FETCH)):
            count = min(as_number(counts.get(name)) or 0, MAX_SECTIONS)
            found += [Served.of(tool, {}, None) for _ in range(count)]
        return Served.cited(found, [as_dict(each.get("url_citation")) or each for each in self._cited])


def _reasoning(delta: Mapping[str, Any]) -> str:
    """The reasoning in a piece of a message. Some services say it twice, under two names."""
    for name in _REASONING:
        found = delta.get(name)
        found = found.get("text") if isinstance(found, Mapping) else found
        if isinstance(found, str) and found:
            return found
    details = as_dicts(delta.get("reasoning_details") or [])
    return "".join(as_text(each.get("text") or each.get("summary")) for each in details)


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


def _arguments_text(call: Call) -> str:
    if not call.shown:
        return "{}"
    twice = _TWICE.search(call.arguments)  # one object after another
    return json.dumps(arguments_in(call.arguments)) if twice else call.arguments
