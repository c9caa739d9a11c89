"""A text that is passed as a role is refused, and is in no local variable of the traceback."""

import inspect
from pathlib import Path
from traceback import TracebackException
from typing import Any

import pytest

from support.agents import scripted_agent
from support.leaks import canary
from worldagent import Tier, WorldAgent
from worldagent.agent import Thread
from worldagent.agent.roles import StoredRoles, ThreadRole
from worldagent.core.errors import RoleInvalid
from worldagent.members import AutonomousRole
from worldagent.testing import ScriptedLM

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "task": ("subagent", {}),
    "stream_task": ("subagent", {}),
    "put": (Tier.WORKSPACE,),
    "set": (),
    "resume": (),
    "stream_resume": (),
    "replay": (),
    "stream_replay": (),
}


def taking_roles(owner: type) -> list[str]:
    return [
        name
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and "role" in inspect.signature(method).parameters
    ]


@pytest.mark.requirement("R7")
async def test_no_local_variable_of_a_misuse_has_the_text(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([])) as agent:
        thread = agent.thread("t")
        tried = []
        for owner, receiver in (
            (Thread, thread),
            (WorldAgent, agent),
            (StoredRoles, agent.roles),
            (ThreadRole, thread.role),
            (AutonomousRole, AutonomousRole.__new__(AutonomousRole)),
        ):
            for name in taking_roles(owner):
                method, given = getattr(receiver, name), ARGUMENTS.get(name, ("Hello",))
                with pytest.raises(RoleInvalid, match="got a str") as caught:
                    await method(*given, role=canary(20))
                shown = "".join(TracebackException.from_exception(caught.value, capture_locals=True).format())
                assert canary(20) not in shown, name
                tried.append(name)
    assert {"converse", "stream", "task", "run_skill", "replay", "edit", "put", "set", "explain_role"} < set(tried)
