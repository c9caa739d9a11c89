"""A home or a database in use, with turns of every kind, and all that was said there: what copies are tested with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.agents import CRITIC, Writing, scripted_agent, shape
from support.postgres import new_database
from worldagent import Role, Storage, WorldAgent
from worldagent.agent import ThreadState
from worldagent.graphs import TaskContext
from worldagent.memory import Message
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("critic", "Be as strict as the keeper of the ninth lighthouse.")
THREADS = 5
Talks = dict[str, tuple[ThreadState, tuple[Message, ...]]]
"""Where each thread stands, and what was said on it."""


def storage(engine: str, folder: Path) -> Storage:
    return Storage(home=folder, url=new_database() if engine == "postgres" else None)


def agent_of(where: Storage) -> WorldAgent:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Weak \N{SNOWMAN} \\u0000 'quoted'."}
        if any("Weak" in str(message) for message in call.messages):
            return {"reply": "Done."}
        return {"reply": "I ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge."}}]}

    async def job(ctx: TaskContext) -> str:
        first = await ctx.call("write", {"what": "first"})
        colour = await ctx.calls.ask_person("Which colour?", ["red", "blue"])
        return f"{first} {await ctx.call('write', {'what': colour})}"

    settings = {"database_url": where.url} if where.url else {}
    settings["role_key"] = "the same key everywhere"
    return scripted_agent(
        where.resolve(),
        ScriptedLM(reply),
        workers=[CRITIC],
        tools=Writing().functions,
        shapes=[shape(job)],
        settings=settings,
    )


async def used(where: Storage) -> None:
    """Have turns of every kind there: ended, failed, and one that waits under a role."""
    async with agent_of(where) as agent:
        for number in range(THREADS):
            assert (await agent.thread(f"t{number}").converse("Is it good?")).text == "Done."
        assert (await agent.thread("t0").converse("And now?")).text == "Done."
        paused = await agent.thread("waits").task("job", {}, role=ROLE)
        assert paused.status == "paused"


async def said(agent: WorldAgent) -> Talks:
    states = await agent.threads()
    return {state.thread: (state, await agent.thread(state.thread).history()) for state in states}


async def all_of(where: Storage) -> Talks:
    async with agent_of(where) as agent:
        return await said(agent)
