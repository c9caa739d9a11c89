"""The smallest shape there is, for tests of what happens around it: no params, and a text as its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import dspy
from pydantic import BaseModel

from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, tool


class Nothing(BaseModel):
    """No params."""


class Said(BaseModel):
    """What a handler gives."""

    text: str


class Muse(dspy.Signature):
    """Think aloud."""

    about: str = dspy.InputField()
    thought: str = dspy.OutputField()


def shape(handler: Callable[[TaskContext], Awaitable[str]], key: str = "job", **more: Any) -> Shape[Any, Any]:
    """A shape whose handler gives a text."""

    async def run(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=await handler(ctx))

    return Shape(key, Nothing, Said, run, **more)


class Writing:
    """A function that writes and one that waits until it may.

    Attributes:
        done: What was written.
        waits: Set once something waits.
        go: Lets it go on.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def held(self) -> None:
        """Wait until it may go on."""
        self.waits.set()
        await self.go.wait()

    @property
    def functions(self) -> list[Function]:
        """`write` and `slow`."""

        async def write(what: str) -> str:
            self.done.append(what)
            return what

        async def slow(what: str) -> str:
            await self.held()
            return await write(what)

        return [tool(write), tool(slow)]
