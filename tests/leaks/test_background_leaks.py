"""Roles of a conversation that dispatches background tasks, and of host code that does, are nowhere (R7, R9, R13)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.inbox import ended
from support.leaks import canary, watch
from worldagent import Approve, Role, Settings, Storage, Worker, WorldAgent, tool
from worldagent.agent import Say, Task
from worldagent.core.errors import RoleNotStorable
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("R7", "R9", "R13", "R16", "T17")

on_both = pytest.mark.parametrize("database_engine", ["sqlite", "postgres"], indirect=True)


class Library:
    """An agent whose conversation repeats its role to the worker that it sends off, and says something to it later.

    Attributes:
        lm: Its model, which keeps what it was sent.
        fails: Whether the worker gives nothing usable.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.lm, self.fails = home, ScriptedLM(self._reply), False

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        role = call.role or ""
        if "request" in call.fields:
            if self.fails:
                return {"result": ""}
            return {"result": "whales"} if call.steps else {"calls": [{"tool": "look", "arguments": {"book": "Moby"}}]}
        verb, _, task = str(call.fields["message"]).partition(" ")
        made = {
            "start": ("background_start", {"name": "reader", "request": f"Read it. {role}"}),
            "say": ("background_say", {"task": task, "text": f"Only the end. {role}"}),
        }
        if call.steps or verb not in made:
            return {"reply": f"Noted. {role}"}
        name, arguments = made[verb]
        return {"reply": "", "calls": [{"tool": name, "arguments": arguments}]}

    def agent(self) -> WorldAgent:
        @tool(risk="write", approval=True)
        async def look(book: str) -> str:
            """Look into a book."""
            return f"looked into {book}"

        return WorldAgent(
            "novel",
            lm=self.lm,
            tools=[look],
            workers=[Worker("reader", "You read.", "reads a book", tools=("look",), background=True)],
            background=True,
            storage=Storage(home=self.home),
            settings=Settings(model_attempts=1, model_backoff=0),
        )


@on_both
async def test_roles_of_a_turn_that_dispatches_are_nowhere(tmp_path: Path, database_engine: str) -> None:
    text, other, late = canary(400, "dispatching"), canary(300, "thread"), canary(200, "answering")
    gone = (text, other, late)
    with watch(tmp_path / "home") as seen:
        library = Library(seen.home)
        async with library.agent() as agent:
            thread = agent.thread("t", account="ana")
            thread.role.set(Role("painter", other))
            await seen.outcome(thread.run(Say("start", role=Role("critic", text))))
            [work] = await agent.background_tasks(thread)
            assert (await work.wait()).status == "paused"
            await seen.outcome(thread.run(Say(f"say {work.id}", role=Role("critic", text))))
            await ended(thread)  # the turns that the report of the pause, and that of the answer, began
            seen.assert_clean(*gone)
            answers = {pause.id: Approve() for pause in await work.thread.pauses()}
            await seen.outcome(work.thread.resume(answers, role=Role("answerer", late)))
            await seen.outcome(work.wait())
            await ended(thread)
            library.fails = True
            await seen.outcome(thread.run(Say("start", role=Role("critic", text))))
            await ended(thread)
            *_, failed = await agent.background_tasks(thread)
            assert (await failed.state()).status == "failed"
            asked = [call for call in library.lm.calls if "request" in call.fields]
            assert asked
            assert {call.role for call in asked} <= {None}
            assert {call.role for call in library.lm.calls} >= {None, f"{other}\n\n{text}"} or any(
                text in call.text for call in library.lm.calls
            )
            seen.assert_clean(*gone)
        async with library.agent() as agent:  # it has none of the roles, and reads what the last turn did not
            await seen.outcome(agent.thread("t", account="ana").converse("And?"))
        seen.assert_clean(*gone, names=["critic", "painter", "answerer"])


@on_both
async def test_roles_of_host_code_that_dispatches_are_nowhere(tmp_path: Path, database_engine: str) -> None:
    text, other = canary(400, "host"), canary(300, "of the thread")
    request = Task("subagent", {"worker": "reader", "request": "Read it."})
    with watch(tmp_path / "home") as seen:
        library = Library(seen.home)
        async with library.agent() as agent:
            thread = agent.thread("t", account="ana")
            await seen.outcome(agent.background(Say("Well?", role=Role("critic", text)), thread=thread))
            thread.role.set(Role("painter", other))
            await seen.outcome(agent.background(request, thread=thread))
            assert [type(each) for each in seen.errors] == [RoleNotStorable, RoleNotStorable]
            work = await agent.background(request, thread=thread, role=None)
            assert (await work.wait()).status == "paused"
            await asyncio.wait_for(ended(thread), 30)
            assert any(other in call.text for call in library.lm.calls)  # of the turn that the report began
            seen.assert_clean(text, other)
            assert await work.cancel()
            await ended(thread)
        seen.assert_clean(text, other, names=["critic", "painter"])
