"""The tools that the conformance scenarios of MCP's tasks call, each of which is a turn of a sidecar of its own.

The scenarios fix what the tools are called and do. Here a call of one becomes a call of the sidecar, so what is tried
is the sidecar: its turns, its tasks, and how it is served.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import require_client_extension
from pydantic import BaseModel

from support.sidecar_served import agents
from worldagent.core import new_id
from worldagent.graphs import Shape, TaskContext, TurnEngine
from worldagent.hosts.sidecar import Sidecar
from worldagent.hosts.sidecar.tasks import EXTENSION
from worldagent.testing import ScriptedLM

WORKSPACE = "fixture"
REQUIRED = ("failing_job", "protocol_error_job", "test_tool_with_task")
"""The tools that only clients with tasks can call."""
BROKEN = "the next line of the engine has a mistake"


class Given(BaseModel):
    seconds: float = 0
    label: str = ""
    filename: str = ""
    name: str = ""


class Done(BaseModel):
    text: str


class Confirmed(BaseModel):
    confirm: bool


class Named(BaseModel):
    name: str
    confirm: bool


async def slow_compute(params: Given, ctx: TaskContext) -> Done:
    """Take a while."""
    await asyncio.sleep(params.seconds)
    return Done(text=f"computed {params.label}")


async def failing_job(params: Given, ctx: TaskContext) -> Done:
    """Fail as a tool does."""
    raise ValueError("it failed")


async def protocol_error_job(params: Given, ctx: TaskContext) -> Done:
    """Fail as no tool does: what runs the turn has a mistake."""
    return Done(text=BROKEN)


async def confirm_delete(params: Given, ctx: TaskContext) -> Done:
    """Ask before the work."""
    confirmed = await ctx.calls.ask_person(f"Delete {params.filename}?", form=Confirmed)
    return Done(text=f"deleted: {confirmed.confirm}")


async def multi_input(params: Given, ctx: TaskContext) -> Done:
    """Ask two things at once."""
    asked = [ctx.calls.ask_person(f"Who is number {number}?", form=Named) for number in (1, 2)]
    return Done(text=", ".join(one.name for one in await asyncio.gather(*asked)))


async def test_tool_with_task(params: Given, ctx: TaskContext) -> Done:
    """Greet by the name that was asked for before the task began."""
    return Done(text=f"Hello, {params.name}!")


_SHAPES = (slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input, test_tool_with_task)


def sidecar(home: Path, patch: pytest.MonkeyPatch) -> Sidecar:
    """A sidecar whose tools are those of the scenarios, too."""
    run = TurnEngine.run

    async def broken(self: TurnEngine, *args: Any, **more: Any) -> Any:
        outcome = await run(self, *args, **more)
        if outcome.result == Done(text=BROKEN):
            raise RuntimeError(BROKEN)
        return outcome

    patch.setattr(TurnEngine, "run", broken)
    shapes = [Shape(each.__name__, Given, Done, each, description=each.__name__) for each in _SHAPES]
    lm = ScriptedLM(lambda call: {"reply": f"Hello, {call.fields['message']}!"})
    made = Sidecar(agents(home, lm=lm, shapes=shapes))
    made.server.middleware.append(_as_call_of_the_sidecar)
    return made


async def _as_call_of_the_sidecar(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Rewrite a call of one of the tools."""
    params: dict[str, Any] = dict(ctx.params or {})
    name, given = params.get("name"), dict(params.get("arguments") or {})
    if ctx.method != "tools/call" or name not in {"greet", *(each.__name__ for each in _SHAPES)}:
        return await call_next(ctx)
    if name in REQUIRED:
        require_client_extension(ctx, EXTENSION)
    responses = params.pop("inputResponses", None)
    params.pop("requestState", None)
    if name == "test_tool_with_task":
        if responses is None:
            return _asks_for_the_name()
        given = responses["user_name"]["content"]
    called: dict[str, Any] = {"shape": name, "params": given}
    if name == "greet":  # without `detach`, the turn is answered in the call
        called = {"text": given["name"], "detach": False}
    arguments = {"workspace": WORKSPACE, "thread": new_id("thread"), **called}
    params |= {"name": "converse" if name == "greet" else "task", "arguments": arguments}
    return await call_next(replace(ctx, params=json.loads(json.dumps(params))))


def _asks_for_the_name() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"mode": "form", "message": "What is your name?", "requestedSchema": schema}
    request = {"method": "elicitation/create", "params": form}
    return {"resultType": "input_required", "inputRequests": {"user_name": request}, "requestState": "round-1"}
