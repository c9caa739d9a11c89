"""An app for `--app support.approvals_desk:agent`: shapes whose calls a model had a say in, so that they need leave.

What functions did is in the file `effects.txt` of its home.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import Muse
from support.hat_shop import _do, effects
from worldagent import WorldAgent
from worldagent.core.errors import CallRefused
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, Policy, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedLM

WORKSPACE = "desk"
MANY = 10


class Nothing(BaseModel):
    """No params."""


class Sent(BaseModel):
    """What every shape gives."""

    text: str


async def send(to: str, copies: int = 1) -> str:
    """Send something."""
    _do(f"sent {to} {copies}")
    return f"sent {to}"


async def keep(path: str) -> str:
    """Keep something."""
    _do(f"kept {path}")
    return f"kept {path}"


async def erase(path: str) -> str:
    """Erase something."""
    _do(f"erased {path}")
    return f"erased {path}"


async def _try(ctx: TaskContext, name: str, arguments: dict[str, Any]) -> str:
    try:
        return str(await ctx.call(name, arguments))
    except CallRefused as error:
        return error.problem


async def _many(_: Nothing, ctx: TaskContext) -> Sent:
    await ctx.predict(Muse, about="it")
    sent = [_try(ctx, "send", {"to": f"p{number}"}) for number in range(MANY)]
    return Sent(text=", ".join(await asyncio.gather(*sent)))


async def _pair(_: Nothing, ctx: TaskContext) -> Sent:
    await ctx.predict(Muse, about="it")
    both = _try(ctx, "send", {"to": "ana"}), _try(ctx, "keep", {"path": "a.md"})
    return Sent(text=", ".join(await asyncio.gather(*both)))


async def _series(_: Nothing, ctx: TaskContext) -> Sent:
    await ctx.predict(Muse, about="it")
    return Sent(text=", ".join([await _try(ctx, "send", {"to": to}) for to in ("ana", "bob")]))


async def _erase(_: Nothing, ctx: TaskContext) -> Sent:
    await ctx.predict(Muse, about="it")
    return Sent(text=await _try(ctx, "erase", {"path": "a.md"}))


async def _ask(_: Nothing, ctx: TaskContext) -> Sent:
    return Sent(text=await ctx.calls.ask_person("Well?"))


def parts() -> dict[str, Any]:
    """The arguments of the agent, but workspace and storage."""
    functions: list[Function] = [
        tool(risk="network")(send),
        tool(risk="write")(keep),
        tool(risk="destructive")(erase),
    ]
    handlers: dict[str, Any] = {"many": _many, "pair": _pair, "series": _series, "wipe": _erase, "question": _ask}
    return {
        "lm": ScriptedLM(lambda call: {"thought": "Hm."} if "about" in call.fields else {"reply": "Welcome."}),
        "tools": functions,
        "shapes": [Shape(key, Nothing, Sent, handler, entry=Muse) for key, handler in handlers.items()],
    }


def agent() -> WorldAgent:
    """Make the agent."""
    return WorldAgent(WORKSPACE, **parts())


def strict() -> WorldAgent:
    """Make one that brings a policy."""
    return WorldAgent(WORKSPACE, policy=Policy(rules=(Rule(decision="refuse", function="send"),)), **parts())


def done(home: Path) -> list[str]:
    """What functions did, oldest first."""
    return effects(home)
