"""How long bodies of clients that are long, deep or invalid hold the event loop, on every path and tool with a body.

Run `python benchmarks/hostile_requests.py [--quick] [--json]`. It prints a table by path and tool, one by surface and
kind, and one JSON line, which README.md explains.
"""

from __future__ import annotations

import gc
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from worldagent.benchmarks import _surfaces as surfaces
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.benchmarks.hostile_answers import held
from worldagent.hosts.bounds import MAX_QUERY, MAX_TEXT

_AIM = 50.0  # ms
_MOST = (4 << 20) - 4096  # bytes of a hostile part, so that the whole is below the limit of bytes
_VALUES = 4000  # of a part that is within the bounds of a call
_MANY = 16_000  # of one that is within those of a conversation
_CHARACTERS = MAX_TEXT - 100

KINDS: Final = ("nested", "values", "texts", "messages", "schemas", "unknown")


def _filled(item: bytes, count: int, ends: bytes = b"[]") -> bytes:
    return ends[:1] + b",".join([item] * count) + ends[1:]


def _keys(value: bytes, most: int | None = None) -> bytes:
    """The inside of an object of many keys: as many as fit, or `most`."""
    count = _MOST // (len(value) + 11) if most is None else most
    return b",".join(b'"k%d":%s' % (number, value) for number in range(count))


@cache
def parts(kind: str) -> Sequence[bytes]:
    """Hostile JSON of a kind: of 4 MiB, and just within the bounds."""
    string, user = b'{"type":"string"}', b'{"id":"m","role":"user","content":"Hello."}'
    other = b'{"id":"m","role":"assistant","content":1,"tool_calls":[{}]}'
    schema = b'{"type":"object","properties":{%s}}'
    image = b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]'
    match kind:
        case "nested":
            deep = b"[" * 60 + b"]" * 60
            return [b"[" * (_MOST // 2) + b"]" * (_MOST // 2), _filled(deep, 60), _filled(deep, _MANY // 62)]
        case "values":
            return [
                _filled(b"1", _MOST // 2),
                _filled(b"[]", _MOST // 3),
                *(_filled(each, count // 2) for each in (b"1", b"{}") for count in (_VALUES, _MANY)),
            ]
        case "texts":
            marks = ("word and ", "\n", "[[ ## reply ## ]]", "\U0001f600")
            texts = [json.dumps((each * _CHARACTERS)[:_CHARACTERS], ensure_ascii=False).encode() for each in marks]
            return [b'"%s"' % (b"x" * _MOST), b'"%s"' % (b"\\n" * (_MOST // 2)), *texts, image % (b"A" * (3 << 20))]
        case "messages":
            return [_filled(each, count) for each in (user, other) for count in (_MOST // 60, _MANY // 5, _VALUES // 5)]
        case "schemas":
            return [schema % _keys(string), schema % _keys(string, _MANY // 2), schema % _keys(string, _VALUES // 2)]
        case _:
            return [b"{%s}" % _keys(b"1", count) for count in (None, _MANY, _VALUES)]


@dataclass(slots=True)
class Figures:
    """The longest holds in ms, by surface and kind, and by path or tool."""

    by_kind: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    by_tool: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)

    def add(self, surface: surfaces.Surface, tool: str, kind: str, ms: float) -> None:
        for table, key, what in ((self.by_kind, kind, tool), (self.by_tool, tool, kind)):
            known = table.get((surface.name, key), (0.0, ""))
            table[surface.name, key] = max(known, (ms, what))


def bodies(tool: surfaces.Tool, kind: str, most: int | None) -> Iterator[bytes]:
    """Bodies of a call with hostile JSON in the place of each argument, or as further arguments."""
    least = {name: json.dumps(value).encode() for name, value in tool.least.items()}
    for part in parts(kind)[:most]:
        if kind == "unknown":
            yield _object({**least, "x": b"1"})[:-1] + b"," + part[1:]
        for name in tool.arguments[:most]:
            yield _object({**least, name: part})
            for wrap in tool.wraps.get(name, ()):
                yield _object({**least, name: wrap % part})


def _object(fields: Mapping[str, bytes]) -> bytes:
    return b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields.items())


async def measure(surface: surfaces.Surface, figures: Figures, *, quick: bool) -> None:
    """Measure all tools of a surface."""
    for tool in surface.tools[: 2 if quick else None]:
        await held(surface.send(tool, _object({})))  # the setup in a first call
        for kind in KINDS:
            for body in bodies(tool, kind, 2 if quick else None):
                gc.collect()
                figures.add(surface, tool.name, kind, await held(surface.send(tool, body)))


async def measure_query(web: surfaces.Surface, figures: Figures) -> None:
    """Measure queries of many parameters, as many as the web app reads, and more."""
    for count in (MAX_QUERY // 3, MAX_QUERY):
        tool = surfaces.Tool(name="me", arguments=(), least={}, method="GET", path="/me?" + "a=&" * count)
        figures.add(web, tool.name, "query", await held(web.send(tool, b"")))


async def measure_repeated(web: surfaces.Surface, figures: Figures, rounds: int) -> None:
    """Measure turns with answers of wide schemas on one thread: each reads the messages before it."""
    tool = surfaces.on_thread(next(each for each in web.tools if each.name == "converse"), "repeated")
    schema = b'{"type":"object","properties":{%s}}' % _keys(b'{"allOf":[{"type":"string"}]}', 900)
    for at in range(rounds):
        body = _object({"text": b'"hm"', "output": schema.replace(b'"k0"', b'"a%d"' % at)})
        figures.add(web, tool.name, "repeated", await held(web.send(tool, body)))


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    figures = Figures()
    logging.getLogger("worldagent").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as home:
        async with surfaces.opened(Path(home)) as found:
            gc.freeze()  # the collector would scan all imported objects
            report.say("", "The longest holds of the event loop by path and tool")
            await measure_query(found[0], figures)
            await measure_repeated(found[0], figures, 3 if report.quick else 60)
            for surface in found:
                await measure(surface, figures, quick=report.quick)
                for tool in surface.tools:
                    ms, kind = figures.by_tool.get((surface.name, tool.name), (0.0, "not measured"))
                    report.say(f"  {surface.name:<10}{tool.name:<44}{ms:>8.1f} ms  {kind}")
    rows = [
        Row(key=f"{name}_{kind}_held_ms", value=ms, unit="ms", aim=_AIM, note=tool)
        for (name, kind), (ms, tool) in figures.by_kind.items()
    ]
    report.section("The longest time that a body holds the event loop", rows)


if __name__ == "__main__":
    main("hostile_requests", "How long hostile bodies hold the event loop.", run)
