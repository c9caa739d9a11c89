"""An agent whose code notes for whom it runs, at every depth, and the process that is killed in a member's turn."""

from pathlib import Path
from typing import Any

import dspy

from support.agents import calls, scripted_agent, shape
from support.processes import add, lines, wait_for_kill
from support.skill_turns import name_of, package
from worldagent import Shape, Worker, WorldAgent
from worldagent.graphs import TaskContext
from worldagent.harness import Function, ToolContext, WorkerContext, flow, tool
from worldagent.scheduling import Queue
from worldagent.testing import ScriptedCall, ScriptedLM

_CRITIC = Worker("critic", "You judge.", "judges", tools=("look",))

_ADA = Worker("ada", "You help.", "helps", tools=("*",), offered=False)

DEPTHS = ("flow", "below flow", "handler", "module", "nested", "worker", "skill", "conversation")
"""Where code runs in a turn of the conversation before the model's last answer."""


def seen(home: Path) -> dict[str, str]:
    """For whom the code at each place has run; the last one counts."""
    return dict(line.split("=") for line in lines(home / "seen"))


def functions(home: Path) -> list[Function]:
    def note(where: str, ctx: ToolContext) -> None:
        add(home / "seen", f"{where}={ctx.on_behalf_of}")

    @tool(risk="read_only")
    async def look(ctx: ToolContext, where: str) -> str:
        note(where, ctx)
        return where

    @tool(risk="read_only", approval=True)
    async def stop(ctx: ToolContext) -> str:
        note("after the pause", ctx)
        return "on"

    @flow
    async def through(ctx: WorkerContext) -> str:
        note("flow", ctx)
        return str(await ctx.call("look", {"where": "below flow"}))

    @tool
    async def write(text: str) -> str:
        add(home / "written", text)
        return text

    return [look, stop, through, write]


def looking(ctx: TaskContext) -> dspy.Module:
    """A module that calls a function."""

    class Looking(dspy.Module):
        async def aforward(self) -> dspy.Prediction:
            return dspy.Prediction(answer=await ctx.call("look", {"where": "module"}))

    return Looking()


def shapes(home: Path) -> list[Shape[Any, Any]]:
    async def outer(ctx: TaskContext) -> str:
        add(home / "seen", f"handler={ctx.on_behalf_of}")
        await ctx.call("through", {})
        await ctx.run_module(looking(ctx))
        return str((await ctx.task("inner", {})).text)

    async def inner(ctx: TaskContext) -> str:
        return str(await ctx.call("look", {"where": "nested"}))

    async def waits(ctx: TaskContext) -> str:
        return str(await ctx.call("stop", {}))

    async def writes(ctx: TaskContext) -> str:
        return str(await ctx.call("write", {"text": "done"}))

    return [
        shape(outer, "outer", description="goes deeper"),
        shape(inner, "inner", offered=False),
        shape(waits, "waits"),
        shape(writes, "writes"),
    ]


def members_agent(home: Path, *, hang: bool = False, **more: Any) -> WorldAgent:
    """An agent whose conversation calls code of every kind, then `look`, then answers.

    Args:
        home: Its home; the file `seen` in it has the notes.
        hang: Whether the model's second step never ends.
        more: Further arguments of the agent.
    """

    async def answer(call: ScriptedCall) -> dict[str, Any]:
        name = name_of(call)
        if name != "Converse":
            done: dict[str, Any] = {"reply": "Served."} if name == "RunSkill" else {"result": "Judged."}
            where = "skill" if name == "RunSkill" else "worker"
            return done if call.steps else {"reply": "", **calls(("look", {"where": where}))}
        if not call.steps:
            tea = ("skill", {"name": "tea", "request": "Two."})
            return {"reply": "", **calls(("critic", {"request": "Judge."}), tea, ("outer", {}))}
        if hang:
            await wait_for_kill()
        asked = any("conversation" in str(step) for step in call.steps)
        return {"reply": "Done."} if asked else {"reply": "", **calls(("look", {"where": "conversation"}))}

    given: dict[str, Any] = {
        "lm": ScriptedLM(answer),
        "tools": functions(home),
        "shapes": shapes(home),
        "workers": [_CRITIC, _ADA],
        **more,
    }
    return scripted_agent(home, given.pop("lm"), skills=[package(home).parent], queue=Queue(), **given)


async def die(home: Path, member: str) -> None:
    """Run a turn of a member in this process up to its model's second step, which never ends."""
    from worldagent.agent.thread import as_member

    async with members_agent(home, hang=True) as agent:
        await as_member(agent.thread("desk"), member, sender="bob").converse("Go.", key="m1")
