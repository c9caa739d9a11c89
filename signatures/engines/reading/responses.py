"""Reads OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core.generation import CODE_EXECUTION, FILE_SEARCH, WEB_SEARCH
from ..services import Served
from .base import Call, Reader, as_dict, as_dicts, as_number, as_text


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
    call: Call | None = None
    in_pieces: bool = False
    done: bool = False


class ResponsesReader(Reader):
    """OpenAI's Responses: output items. Servers omit their numbers, or give two the same, or change their ids."""

    PROTOCOL = "responses"

    def __init__(self, origin: str, *, tools: bool = False) -> None:
        super().__init__(origin, tools=tools)
        self._items: list[_Item] = []

    def event(self, data: Mapping[str, Any]) -> Iterator[Any]:
        """Read an event, or a whole response: its items are read as events that have all of an item."""
        kind = as_text(data.get("type"))
        match kind:
            case "response.created" | "response.in_progress":
                response = as_dict(data.get("response"))
                yield from self._start(response.get("id"), response.get("model"))
            case "response.output_item.added" | "response.output_item.done" if data.get("item"):
                given, done = as_dict(data.get("item")), kind.endswith("done")
                yield from self._read(self._item(data, given, new=not done), given, done=done)
            case "response.completed" | "response.incomplete" | "response.failed":
                yield from self._whole({"status": kind.removeprefix("response."), **as_dict(data.get("response"))})
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
                yield from self._call(item.call, arguments=as_text(item.said.get("arguments")))
        yield from super().end()

    def _whole(self, response: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._start(response.get("id"), response.get("model"))
        self._count(response.get("usage"))
        self._report = {name: response[name] for name in ("service_tier",) if response.get(name) is not None}
        if response.get("error") or response.get("status") == "failed":
            self._failed(response)
        left = list(self._items)
        for given in as_dicts(response.get("output") or []):
            item = next((each for each in left if each.kind == given.get("type")), None)
            if item is not None:
                left.remove(item)
            yield from self._read(item or self._new(given, None), given, done=True)
        incomplete = response.get("status") == "incomplete"
        self._ends(as_dict(response.get("incomplete_details")).get("reason") or ("length" if incomplete else "stop"))

    def _new(self, given: Mapping[str, Any], place: int | None) -> _Item:
        item = _Item(as_text(given.get("type")), place)
        self._items.append(item)
        if item.kind == "function_call":
            item.call = self._new_call()
        return item

    def _item(self, data: Mapping[str, Any], given: Mapping[str, Any], *, new: bool = False) -> _Item:
        """The item that an event is about: by its id, its number, or else the last one of its type."""
        item_id, place = given.get("id") or data.get("item_id"), as_number(data.get("output_index"))
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
            arguments = as_text(given.get("arguments"))
            if item.call.arguments or (not done and Call(0, arguments=arguments).is_complete):
                arguments = ""  # they come, or came, in pieces
            named = {"call_id": as_text(given.get("call_id") or given.get("id")), "name": as_text(given.get("name"))}
            yield from self._call(item.call, **named, arguments=arguments)
        elif done and not item.in_pieces:
            item.in_pieces = True
            for part in as_dicts(given.get("summary") or []):
                yield from self._think(as_text(part.get("text")))
            for part in as_dicts(given.get("content") or []):
                text = as_text(part.get("text") or part.get("refusal"))
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
        item, text = self._item(data, {"type": found}), as_text(data.get("delta"))
        if item.call is not None:
            given = as_text(data.get("arguments"))  # of the event with all of them
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
                parts = as_dicts(said.get("content") or [])
                cited += [each for part in parts for each in as_dicts(part.get("annotations") or [])]
            failed = said.get("status") == "failed"
            match item.kind:
                case "web_search_call":
                    action = dict(as_dict(said.get("action")))
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
