"""Turns with tools at the stub of `services`, and what its requests hold in any format; benchmarks use them, too."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from worldagent import Approve, Role, Settings, Storage, WorldAgent, tool

from .services import FORMATS, Format, Said, Service, in_words, service

HOW = "Answer as a harbour pilot of forty years would, in short and salty sentences."
ROLE = Role("pilot", HOW)
TWO = Said("Let me look.", (("price", {"item": "rope"}), ("stock", {"item": "rope"})), "I need both of them.")
END = Said("12.50, and three are left.")
BUYING = Said("", (("buy", {"item": "rope"}),), "They want one.")
THINKS = {"model_options": {"reasoning_effort": "low", "reasoning_summary": "auto"}}
CALL_IN_WORDS = in_words("", '[{"tool": "price", "arguments": {"item": "rope"}}]')
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(risk="read_only")
def price(item: str) -> float:
    """Price of an item, in euros."""
    return 12.5


@tool(risk="read_only")
def stock(item: str) -> int:
    """How many of an item are left."""
    return 3


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item}"


# --- turns ----------------------------------------------------------------------------------------------------------


def agent_at(home: Path, stub: Service, wanted: Format, **more: Any) -> AbstractAsyncContextManager[WorldAgent]:
    """An agent of a shop whose model is the stub; `more` replaces arguments of it, and adds settings."""
    chosen = {"model_attempts": 1, "model_takes": "images", **more.pop("settings", {})}
    settings = Settings(api_base=stub.url(wanted), **chosen)
    given: dict[str, Any] = {"lm": FORMATS[wanted], "tools": [price, stock, buy], **more}
    return WorldAgent("shop", storage=Storage(home=home), settings=settings, **given)


async def two_calls(
    home: Path, wanted: Format, *, role: Role = ROLE, stream: bool = False, orderly: bool = False, **more: Any
) -> Service:
    """A step that ends in two calls, and the answer; gives the stub, for what it was sent.

    Args:
        home: Where the agent is.
        wanted: The format.
        role: The role of the turn.
        stream: Whether the turn is streamed.
        orderly: Whether the service refuses a user message after a result, as Mistral's does.
        more: See `agent_at`.
    """
    settings = {**THINKS, **more.pop("settings", {})}
    with service(TWO, END) as stub:
        stub.user_after_tool = not orderly
        async with agent_at(home, stub, wanted, settings=settings, **more) as agent:
            question = "What is the rope, and how many are there?"
            if stream:
                async with agent.thread("t").stream(question, role=role) as events:
                    turn = await events.wait()
            else:
                turn = await agent.thread("t").converse(question, role=role)
    assert turn.text == END.text
    return stub


async def refused_tools(home: Path, wanted: Format) -> Service:
    """A turn with one call at a service that refuses requests with tools."""
    with service(CALL_IN_WORDS, in_words("12.50.")) as stub:
        stub.refuses_tools = True
        # What was refused is remembered for the process, so this model is another one than that of other turns.
        async with agent_at(home, stub, wanted, lm=f"{FORMATS[wanted]}-plain", settings=THINKS) as agent:
            turn = await agent.thread("t").converse("What is the rope?", role=ROLE)
    assert turn.text == "12.50."
    return stub


async def with_an_image(home: Path, wanted: Format) -> Service:
    """A turn whose message has an image."""
    with service(Said("A dot.")) as stub:
        async with agent_at(home, stub, wanted, settings=THINKS) as agent:
            dot = await agent.attachments.add(PIXEL, name="dot.png")
            await agent.thread("t").converse("What is this?", attachments=[dot], role=ROLE)
    return stub


async def over_a_pause(home: Path, wanted: Format) -> Service:
    """A turn that waits for a person, and goes on in another agent."""
    with service(BUYING, Said("Bought.")) as stub:
        async with agent_at(home, stub, wanted, settings=THINKS) as agent:
            turn = await agent.thread("t").converse("Buy a rope.", role=ROLE)
        async with agent_at(home, stub, wanted, settings=THINKS) as agent:
            turn = await agent.thread("t").resume({pause.id: Approve() for pause in turn.pauses}, role=ROLE)
    assert turn.text == "Bought."
    return stub


# --- requests -------------------------------------------------------------------------------------------------------


def told(body: Mapping[str, Any]) -> list[Any]:
    """The messages of a request, in any format."""
    return list(body.get("messages") or body.get("input") or body.get("contents") or ())


def named(body: Mapping[str, Any]) -> list[str]:
    """The names of the tools of a request, in any format."""
    found = body.get("tools") or []
    if found and "functionDeclarations" in found[0]:
        found = found[0]["functionDeclarations"]
    return [each.get("name") or each["function"]["name"] for each in found]


def speakers(body: Mapping[str, Any]) -> list[str]:
    """Who says each message of a request; an item without a speaker is told by its type."""
    return [message.get("role") or message["type"] for message in told(body)]


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """All JSON objects in a value, the outer ones first."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from mappings(each)


def results(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results of calls that a request gives the service in the way of its own."""
    kinds = ("function_call_output", "tool_result")
    return [
        each
        for each in mappings(told(body))
        if each.get("role") == "tool" or each.get("type") in kinds or "functionResponse" in each
    ]


def calls(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls that a request gives back in the service's own way."""
    kinds = ("function", "function_call", "tool_use")
    return [each for each in mappings(told(body)) if each.get("type") in kinds or "functionCall" in each]


def image_kind(body: Mapping[str, Any]) -> str:
    """As what a request has the image, of what is before its last message; empty where it has none there."""
    data = base64.b64encode(PIXEL).decode()
    holding = [each for each in mappings(told(body)[:-1]) if data in json.dumps(each) and "content" not in each]
    parts = [each for each in holding if "parts" not in each]
    return str(parts[0].get("type") or next(iter(parts[0]))) if parts else ""
