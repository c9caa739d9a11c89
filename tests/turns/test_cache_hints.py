"""Prompt caching: services are told where the part of a prompt ends that comes again, which is just before the role."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.services import FORMATS, Said, Service, service
from worldagent import Role, Settings, Storage, WorldAgent, tool

HOW = "Answer as a harbour pilot of forty years would, in short and salty sentences."
OTHER = "Answer as a child of six would, who has never seen the sea."
STEP = Said("", (("depth", {"place": "quay"}),))
MARKS = ("cache_control", "prompt_cache_breakpoint")
NEW = "openai/gpt-5.6-stub"


@tool(risk="read_only")
def depth(place: str) -> int:
    """Depth of the water, in metres."""
    return 7


@tool(risk="read_only")
def berth(ship: str) -> int:
    """The berth of a ship."""
    return 3


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


def agent_at(home: Path, stub: Service, lm: str, *, hints: str = "on", workspace: str = "harbour") -> WorldAgent:
    base = stub.url("gemini" if lm.startswith("gemini") else "chat")
    settings = Settings(api_base=base, model_attempts=1, model_cache_hints=hints)
    return WorldAgent(workspace, lm=lm, storage=Storage(home=home), settings=settings, tools=[berth, depth])


async def requests_of(home: Path, lm: str, *, role: str | None = HOW, **more: Any) -> list[dict[str, Any]]:
    """What the service is sent in a turn of two steps."""
    with service(STEP, Said("Seven metres.")) as stub:
        async with agent_at(home, stub, lm, **more) as agent:
            await agent.thread("t").converse("How deep?", role=None if role is None else Role("pilot", role))
    assert len(stub.requests) == 2
    return stub.requests


def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All blocks of all messages, in order."""
    found: list[dict[str, Any]] = []
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        found += content if isinstance(content, list) else [message]
    return found


def marked(body: dict[str, Any]) -> list[int]:
    """The places of the blocks with a mark."""
    return [place for place, block in enumerate(blocks(body)) if any(mark in block for mark in MARKS)]


async def test_anthropic_gets_a_mark_at_the_block_before_the_role_or_at_the_last_one(tmp_path: Path) -> None:
    bodies = await requests_of(tmp_path / "one", FORMATS["anthropic"])
    others = await requests_of(tmp_path / "other", FORMATS["anthropic"], role=OTHER)
    for body, other in zip(bodies, others, strict=True):
        assert blocks(body)[:-1] == blocks(other)[:-1]
        assert (body["system"], body["tools"]) == (other["system"], other["tools"])
        assert HOW in json.dumps(blocks(body)[-1])
        assert marked(body) == [len(blocks(body)) - 2]
        assert json.dumps(body).count("cache_control") <= 4
    for body in await requests_of(tmp_path / "without", FORMATS["anthropic"], role=None):
        assert marked(body) == [len(blocks(body)) - 1]


@pytest.mark.parametrize("lm", [NEW, NEW.replace("/", ":", 1)], ids=["chat", "responses"])
async def test_openai_gets_a_key_and_from_gpt_5_6_on_a_mark(tmp_path: Path, lm: str) -> None:
    for body in await requests_of(tmp_path, lm):
        assert body["prompt_cache_key"]
        [place] = marked(body)
        assert all(HOW not in json.dumps(block) for block in blocks(body)[: place + 1])
        assert "How deep?" in json.dumps(blocks(body)[place])


@pytest.mark.parametrize(
    ("model", "new"),
    [
        *(("gpt-5.10-mini", True), ("ft:gpt-5.6:acme::x", True)),
        *(("gpt-5-2025-08-07", False), ("gpt-35-turbo", False), ("ft:gpt-4o-mini:gpt-6::x", False)),
    ],
)
async def test_the_mark_goes_to_every_gpt_from_5_6_on(tmp_path: Path, model: str, new: bool) -> None:
    for body in await requests_of(tmp_path, f"openai/{model}"):
        assert body["prompt_cache_key"]
        assert bool(marked(body)) is new


async def test_the_key_is_of_workspace_and_signature_and_of_nothing_else(tmp_path: Path) -> None:
    keys = {
        name: {body["prompt_cache_key"] for body in await requests_of(tmp_path / name, FORMATS["chat"], **more)}
        for name, more in {"one": {}, "again": {"role": OTHER}, "elsewhere": {"workspace": "airport"}}.items()
    }
    assert len(keys["one"]) == 1
    assert keys["one"] == keys["again"] != keys["elsewhere"]
    [key] = keys["one"]
    assert len(key) <= 64
    assert "harbour" not in key


@pytest.mark.parametrize(
    ("lm", "hints"),
    [(FORMATS["anthropic"], "auto"), (FORMATS["anthropic"], "off"), (NEW, "auto"), (FORMATS["gemini"], "on")],
)
async def test_a_server_of_ones_own_gets_no_hint_unless_the_setting_says_so_and_gemini_none(
    tmp_path: Path, lm: str, hints: str
) -> None:
    for body in await requests_of(tmp_path, lm, hints=hints):
        assert "cache" not in json.dumps(body).lower()


async def test_tools_are_sent_in_one_order_however_they_were_given(tmp_path: Path) -> None:
    sent = []
    for place, tools in enumerate(([berth, depth], [depth, berth])):
        with service(Said("Aye.")) as stub:
            settings = Settings(api_base=stub.url("chat"), model_attempts=1)
            storage = Storage(home=tmp_path / str(place))
            async with WorldAgent("w", lm=FORMATS["chat"], storage=storage, settings=settings, tools=tools) as agent:
                await agent.thread("t").converse("Ahoy.")
        sent.append(stub.requests[0]["tools"])
    assert sent[0] == sent[1]
