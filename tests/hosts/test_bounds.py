"""Bodies with too many values, levels or characters are refused before they are parsed, on every surface."""

import asyncio
import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pydantic_core
import pytest

from support.agents import answering, scripted_agent
from support.longest_step import longest_step
from support.web import by_header
from worldagent.benchmarks import _surfaces as surfaces
from worldagent.benchmarks.hostile_requests import KINDS, parts
from worldagent.core import bounds
from worldagent.core.bounds import Bounds, OutOfBounds
from worldagent.hosts.bounds import CALL, MAX_TEXT
from worldagent.hosts.serving import stdio_server
from worldagent.hosts.web import Limits, WebApp

pytestmark = pytest.mark.requirement("T10")

HELD = 100_000  # calls of functions; half of it is needed
LONG = 1 << 21  # characters


# --- the scan ---------------------------------------------------------------------------------------------------------


def _value(source: random.Random, depth: int = 0) -> Any:
    kind = source.random()
    if depth > 5 or kind < 0.5:
        return "".join(
            source.choice('ab"\\\n\x01\u4e2d\U0001f600/[],{}:u0041d83d') for _ in range(source.randrange(14))
        )
    items = [_value(source, depth + 1) for _ in range(source.randrange(1, 4))]
    return items if kind < 0.75 else {f"{place}{_value(source, 9)}": item for place, item in enumerate(items)}


def _measures(value: Any) -> tuple[int, int, int]:
    """The values, levels of brackets and characters of a JSON value."""
    if isinstance(value, str):
        return 1, 0, len(value)
    inner = [_measures(each) for each in (value.values() if isinstance(value, dict) else value)]
    keys = sum(map(len, value)) if isinstance(value, dict) else 0
    return (
        1 + sum(each[0] for each in inner),
        1 + max(each[1] for each in inner),
        keys + sum(each[2] for each in inner),
    )


async def test_the_scan_counts_what_the_parser_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_PIECE", 16)  # so that strings and escapes span pieces
    source = random.Random(1)
    for number in range(2000):
        value = [_value(source), "x"]
        data = json.dumps(value, ensure_ascii=number % 2 == 0, indent=number % 3 or None).encode()
        values, levels, characters = _measures(value)
        exact = {"values": values, "levels": levels, "characters": characters}
        await Bounds(**exact).check(data)
        for name in exact:
            with pytest.raises(OutOfBounds, match=f"more than .* {name}"):
                await Bounds(**exact | {name: exact[name] - 1}).check(data)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be"])
async def test_other_encodings_do_not_hide_values_from_the_scan(encoding: str) -> None:
    with pytest.raises(OutOfBounds, match="not UTF-8"):
        await CALL.check(json.dumps(["\u225b"] * 3).encode(encoding))


# --- the surfaces -----------------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reached a parser of JSON and is long."""
    found: list[str] = []

    def watched(name: str, parse: Callable[..., Any]) -> Callable[..., Any]:
        def watching(text: Any, *args: Any, **options: Any) -> Any:
            if len(text) > LONG:
                found.append(name)
            return parse(text, *args, **options)

        return watching

    monkeypatch.setattr(json, "loads", watched("json.loads", json.loads))
    for module in (pydantic_core, stdio_server):
        monkeypatch.setattr(module, "from_json", watched("from_json", pydantic_core.from_json))
    monkeypatch.setattr(stdio_server, "parse", watched("parse", stdio_server.parse))
    return found


@pytest.mark.timeout(300)
async def test_no_parser_sees_a_body_that_is_out_of_bounds(tmp_path: Path, parsed: list[str]) -> None:
    """On every path of the web app, and for tools over MCP and methods over ACP."""
    sent = 0
    async with surfaces.opened(tmp_path) as found:
        for surface in found:
            for tool in surface.tools[: 3 if surface.name.startswith("mcp") else None]:
                for kind in KINDS if tool is surface.tools[0] else ("values",):
                    if kind == "texts" and surface.name in ("ag_ui", "openai", "acp"):
                        continue  # texts have as many characters as the body has bytes
                    body = b'{"%s":%s}' % (tool.arguments[0].encode(), parts(kind)[0])
                    await asyncio.wait_for(surface.send(tool, body), 30)
                    sent += 1
                    assert not parsed, (surface.name, tool.name, kind)
    assert sent > 60


def _many(item: str, count: int) -> str:
    return "[" + ",".join([item] * count) + "]"


HOSTILE = [
    ("ag_ui", f'{{"threadId":"t","runId":"r","messages":{_many("{}", 320_000)}}}'),
    ("task", f'{{"shape":"subagent","params":{{"a":{_many("[[[[]]]]", 460_000)}}}}}'),
    ("resume", '{"answers":{' + ",".join(f'"p{number}":{{"approve":{{}}}}' for number in range(120_000)) + "}}"),
    ("converse", f'{{"text":"hm","inputs":{{"a":{_many("1", 1_900_000)}}}}}'),
    ("converse", json.dumps({"text": "word and " * 440_000})),
    ("converse", json.dumps({"text": "word and " * (MAX_TEXT // 9)})),
    ("converse", json.dumps({"text": "[[ ## reply ## ]]" * (MAX_TEXT // 17)})),
    (
        "converse",
        '{"text":"hm","output":{"type":"object","properties":{'
        + ",".join(f'"k{number}":{{"type":"string"}}' for number in range(60_000))
        + "}}}",
    ),
    ("converse", "{" + ",".join(f'"k{number}":1' for number in range(4900)) + "}"),
    ("chat_completions", '{"model":"bench","messages":' + _many('{"role":"user","content":"x"}', 130_000) + "}"),
    ("chat_completions", '{"model":"bench","messages":' + _many('{"role":"user","content":"x"}', 5000) + "}"),
    ("chat_completions", '{"model":"bench","messages":[],"temperature":' + _many("9" * 4290, 900) + "}"),
    ("converse", json.dumps({"text": "a" + "\u0301\u0316" * (MAX_TEXT // 2 - 1)}, ensure_ascii=False)),
]


async def test_hostile_bodies_do_not_hold_the_event_loop(tmp_path: Path) -> None:
    """Those with which one client stopped all others for seconds, and some that are within the bounds."""
    async with surfaces.opened(tmp_path) as found:
        for name, body in HOSTILE:
            surface, tool = next((each, tool) for each in found for tool in each.tools if tool.name == name)
            await surface.send(tool, b"{}")  # the setup in a first call
            most, _ = await longest_step(surface.send(tool, body.encode()))
            assert most < HELD, (name, body[:100], most)


# --- what is wide enough, and what counts -----------------------------------------------------------------------------


def _client(app: WebApp, user: str = "ana") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://test", headers={"x-user": user}, timeout=60
    )


async def test_a_thousand_messages_and_a_large_image_are_within_the_bounds(tmp_path: Path) -> None:
    app = WebApp(scripted_agent(tmp_path, answering()), login=by_header)
    said = [{"role": ("user", "assistant")[place % 2], "content": "Who rules Vell? " * 40} for place in range(1001)]
    runs = [
        {"id": f"m{place}", **one, "content": [{"type": "text", "text": one["content"]}]}
        for place, one in enumerate(said)
    ]
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(2_900_000)).decode()
    parts_ = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}]
    run = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    runs = [each if each["role"] == "user" else {**each, "content": "Ada."} for each in runs]
    async with app.lifespan(), _client(app) as client:
        for path, body in (
            ("/v1/chat/completions", {"model": "novel", "messages": said}),
            ("/v1/chat/completions", {"model": "novel", "messages": [{"role": "user", "content": parts_}]}),
            ("/ag-ui", {**run, "messages": runs}),
            # A last message that fits, with hardly any room for what was said before.
            (
                "/v1/chat/completions",
                {"model": "novel", "messages": [*said[:2], {"role": "user", "content": "x" * (MAX_TEXT - 9)}]},
            ),
        ):
            response = await client.post(path, json=body)
            assert response.status_code == 200, response.text


async def test_refused_requests_count_towards_the_limit_of_their_account(tmp_path: Path) -> None:
    app = WebApp(scripted_agent(tmp_path, answering()), login=by_header, limits=Limits(account_refused=3))
    bodies = [b'{"text":%s}' % parts("values")[0], b'{"no":1}', b"{"]
    async with app.lifespan(), _client(app) as client, _client(app, "bob") as other:
        statuses = [await _status(client, body) for body in bodies]
        assert statuses == [413, 400, 400]
        response = await client.post("/threads/t/messages", json={"text": "Hello."})
        assert (response.status_code, response.json()["error"]["code"]) == (429, "too_many_turns")
        assert response.json()["error"]["retryable"]
        assert (await client.get("/threads")).status_code == 200  # what has no body is not refused
        assert await _status(other, b'{"text":"Hello."}') == 200


async def _status(client: httpx2.AsyncClient, body: bytes) -> int:
    response = await client.post("/threads/t/messages", content=body, headers={"content-type": "application/json"})
    return response.status_code
