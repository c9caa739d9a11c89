"""Reads Gemini's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dspy import lm15

from ....core.generation import CODE_EXECUTION, FILE_SEARCH, WEB_FETCH, WEB_SEARCH
from ..partial_arguments import PartialArguments
from ..services import Served, tool_of
from .base import Call, Reader, as_dict, as_dicts, as_text, first_number

_OF_PIECES: Final = frozenset({"partialArgs", "willContinue"})
"""Fields of a piece of a call that a whole call lacks."""


class GeminiReader(Reader):
    """Gemini's content parts. Each event is like a whole answer with some of the parts."""

    PROTOCOL = "gemini"

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._parts: list[dict[str, Any]] = []
        self._open: list[tuple[Call, dict[str, Any], PartialArguments]] = []
        self._sources: dict[str, Any] = {}

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event or a whole answer."""
        if data.get("error"):
            self._failed(data)
        yield from self._start(data.get("responseId"), data.get("modelVersion"))
        self._count(data.get("usageMetadata"))
        if as_dict(data.get("promptFeedback")).get("blockReason"):
            self._declined = True
        for candidate in as_dicts(data.get("candidates") or [])[:1]:
            for part in as_dicts(as_dict(candidate.get("content")).get("parts") or []):
                yield from self._read(part)
            for name in ("groundingMetadata", "urlContextMetadata") if self.services else ():
                self._sources |= {key: each for key, each in as_dict(candidate.get(name)).items() if each}
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
            last["text"] = as_text(last.get("text")) + as_text(part.get("text"))
        else:
            self._parts.append(dict(part))
        if part.get("thought"):
            yield from self._think(as_text(part.get("text")))
        elif "executableCode" in part or "toolCall" in part:
            self._interrupted()
        else:
            yield from self._say(as_text(part.get("text")))

    def _read_call(self, part: Mapping[str, Any], called: Mapping[str, Any]) -> Iterator[Any]:
        """Read a call, or a piece of one: it continues the open call with its id, or else the last one."""
        call_id, name, given = as_text(called.get("id")), as_text(called.get("name")), called.get("args")
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
        arguments.value.update(as_dict(given))
        for each in as_dicts(called.get("partialArgs") or []):
            arguments.add(each)
        if not called.get("willContinue"):
            yield from self._close(call, kept, arguments)

    def _close(
        self, call: Call, kept: dict[str, Any], arguments: PartialArguments, *, cut: bool = False
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
            if code := as_dict(part.get("executableCode")):
                asked[CODE_EXECUTION] = code
            elif ran := as_dict(part.get("codeExecutionResult")):
                failed, code = ran.get("outcome") != "OUTCOME_OK", asked.pop(CODE_EXECUTION, {})
                found.append(Served.of(CODE_EXECUTION, {"code": code.get("code")}, ran.get("output"), failed=failed))
            elif called := as_dict(part.get("toolCall")):
                asked[as_text(called.get("id"))] = called
            elif given := as_dict(part.get("toolResponse")):
                call = asked.pop(as_text(given.get("id")), {})
                tool = tool_of(as_text(given.get("toolType") or call.get("toolType")))
                found.append(Served.of(tool, as_dict(call.get("args")), given.get("response")))
        chunks = as_dicts(self._sources.get("groundingChunks") or [])
        pages = [each["web"] for each in chunks if isinstance(each.get("web"), Mapping)]
        files = [each["retrievedContext"] for each in chunks if "retrievedContext" in each]
        known = {each.tool for each in found}
        if WEB_SEARCH not in known and (queries := self._sources.get("webSearchQueries")):
            found.append(Served.of(WEB_SEARCH, {"queries": queries}, None))
        if FILE_SEARCH not in known and files:
            found.append(Served.of(FILE_SEARCH, {}, files))
        for fetched in as_dicts(self._sources.get("urlMetadata") or []) if WEB_FETCH not in known else ():
            status = as_text(fetched.get("urlRetrievalStatus"))
            url = {"url": fetched.get("retrievedUrl")}
            found.append(Served.of(WEB_FETCH, url, None, failed=not status.endswith("SUCCESS")))
        return Served.cited(found, [{"url": each.get("uri"), "title": each.get("title")} for each in pages])

    def usage(self, given: Mapping[str, Any]) -> lm15.Usage:
        """As in `Reader`; what tools of the service gave is counted apart, and is input too."""
        counted, results = super().usage(given), first_number(given, "toolUsePromptTokenCount") or 0
        return (
            counted if counted.input_tokens is None else replace(counted, input_tokens=counted.input_tokens + results)
        )
