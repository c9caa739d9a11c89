"""Reads Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..services import Served, tool_of
from .base import _PAUSED, Call, Reader, arguments_in, as_dict, as_dicts, as_number, as_text


class MessagesReader(Reader):
    """Anthropic's messages."""

    PROTOCOL = "messages"

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._numbers: dict[int, int] = {}
        self._places: dict[int, Call] = {}

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event, or a whole message: its blocks are read as events that have all of a block."""
        place = as_number(data.get("index"))
        if place is None:
            place = max(self._blocks, default=0)
        match data.get("type"):
            case "message_start":
                yield from self._begin(as_dict(data.get("message")))
            case "message":
                yield from self._begin(data)
                self._close(data)
            case "content_block_start":
                number = place if place not in self._blocks else self._next  # some numbers come twice
                self._numbers[place] = number
                yield from self._open(number, as_dict(data.get("content_block")))
            case "content_block_delta":
                yield from self._continue(self._numbers.get(place, place), as_dict(data.get("delta")))
            case "message_delta":
                self._close({**as_dict(data.get("delta")), "usage": data.get("usage")})
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
        for block in as_dicts(message.get("content") or []):
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
                yield from self._say(as_text(block.get("text")))
            case "thinking":
                yield from self._think(as_text(block.get("thinking")))
            case "tool_use":
                call = self._places[place] = self._new_call()
                given = block.get("input")
                arguments = "" if not given else given if isinstance(given, str) else json.dumps(given)
                named = {"call_id": as_text(block.get("id")), "name": as_text(block.get("name"))}
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
                block[name] = as_text(block.get(name)) + delta[name]
        if "citation" in delta:
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        match delta.get("type"):
            case "text_delta":
                yield from self._say(as_text(delta.get("text")))
            case "thinking_delta":
                yield from self._think(as_text(delta.get("thinking")))
            case "input_json_delta":
                piece = as_text(delta.get("partial_json"))
                if call := self._places.get(place):
                    yield from self._call(call, arguments=piece)
                else:  # a tool of the service itself
                    block["input_text"] = as_text(block.get("input_text")) + piece
            case _:
                pass

    def message(self) -> dict[str, Any]:
        """The blocks as they came, without empty texts, which the service refuses."""
        content = []
        for place, block in sorted(self._blocks.items()):
            kept = {name: value for name, value in block.items() if name != "input_text"}
            if place in self._places:
                kept["input"] = arguments_in(self._places[place].arguments)
            elif "input_text" in block:
                kept["input"] = arguments_in(block["input_text"])
            if kept.get("type") != "text" or kept.get("text"):
                content.append(kept)
        return {"role": "assistant", "content": content}

    def served(self) -> list[Served]:
        """The results of the service's tools. It gives that of a call beside calls of functions in its next answer."""
        content = self.message()["content"]
        uses = {as_text(each.get("id")): each for each in content if each.get("type") == "server_tool_use"}
        found, cited = [], [each for block in content for each in as_dicts(block.get("citations") or [])]
        for block in content:
            kind, use_id = as_text(block.get("type")), as_text(block.get("tool_use_id"))
            if kind.endswith("_tool_result") and kind != "mcp_tool_result":
                use = uses.pop(use_id, {})
                name, result = as_text(use.get("name")) or kind.removesuffix("_tool_result"), block.get("content")
                failed = as_text(as_dict(result).get("type")).endswith("_error")
                found.append(Served.of(tool_of(name), as_dict(use.get("input")), result, failed=failed))
        if not self._calls:
            for use in uses.values():
                found.append(Served.of(tool_of(as_text(use.get("name"))), as_dict(use.get("input")), None, failed=True))
        return Served.cited(found, cited)
