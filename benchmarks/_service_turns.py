"""Turns with tools at the stub of services, and what its requests hold in any format."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worldagent import Approve, Role
from worldagent.tests.support.services import (
    BUYING,
    CALL_IN_WORDS,
    END,
    FORMATS,
    PIXEL,
    ROLE,
    THINKS,
    TWO,
    Format,
    Said,
    Service,
    agent_at,
    in_words,
    named,
    service,
    told,
)


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


def speakers(body: Mapping[str, Any]) -> list[str]:
    """The role of each message of a request, or the type of an item that has none."""
    return [message.get("role") or message["type"] for message in told(body)]


def image_kind(body: Mapping[str, Any]) -> str:
    """As what a request has the image, of what is before its last message; empty where it has none there."""
    data = base64.b64encode(PIXEL).decode()
    holding = [each for each in mappings(told(body)[:-1]) if data in json.dumps(each) and "content" not in each]
    parts = [each for each in holding if "parts" not in each]
    return str(parts[0].get("type") or next(iter(parts[0]))) if parts else ""


__all__ = [
    "BUYING",
    "ROLE",
    "calls",
    "image_kind",
    "mappings",
    "named",
    "over_a_pause",
    "refused_tools",
    "results",
    "speakers",
    "told",
    "two_calls",
    "with_an_image",
]
