"""A profile cannot widen what the embedder allowed: whatever it names, the policy and `BuiltinTools` hold (P2, H9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from worldagent import WorldAgent
from worldagent.core.errors import ProfileInvalid
from worldagent.core.pauses import Pause, Reject
from worldagent.harness import Function, Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedLM
from worldagent.tools import BuiltinTools

RISKS: dict[str, Any] = {
    "look": "read_only",
    "see": "read_only",
    "put": "write",
    "send": "network",
    "wipe": "destructive",
}
SHIPPED: dict[str, Any] = {"manage_todo_list": {"items": []}, "write_file": {"path": "made.txt", "content": "x"}}
RULES = (
    Rule(decision="approve", function="greedy", name="worker"),  # who calls is not the question
    Rule(decision="refuse", function="look", name="none"),
    Rule(decision="approve", function=("send", "wipe"), name="some"),
)


def effects(done: list[str]) -> list[Function]:
    """Functions that note their calls."""

    def made(name: str) -> Function:
        @tool(name=name, risk=RISKS[name])
        async def body() -> str:
            done.append(name)
            return name

        function: Function = body
        return function

    return [made(name) for name in RISKS]


async def rejecting(pause: Pause) -> Reject:
    return Reject("no")


@pytest.mark.requirement("P2", "H9")
@pytest.mark.parametrize(
    ("named", "done"),
    [(None, ["see", "send"]), (("*", *SHIPPED), ["see", "send"]), (("l*", "put", "wipe", "write_file"), [])],
)
async def test_what_a_profile_lets_through_the_policy_and_the_agent_let_through(
    tmp_path: Path, named: tuple[str, ...] | None, done: list[str]
) -> None:
    left, found = [*RISKS, *SHIPPED], list[str]()
    (root := tmp_path / "root").mkdir()

    def reply(call: Any) -> Any:
        if not left:
            return {"result": "done"}
        name = left.pop(0)
        return calls((name, SHIPPED.get(name, {})))

    def agent(*allow: str) -> WorldAgent:
        return scripted_agent(
            tmp_path / "home",
            ScriptedLM(reply),
            tools=effects(found),
            workers=[Worker("greedy", "You call.", tools=("*",), retries=10)],
            policy=Policy(rules=RULES),
            approver=rejecting,
            profile=Profile(
                "any", tools=None if named is None else ("greedy", *named), verification=Verification(enabled=False)
            ),
            builtin_tools=BuiltinTools(roots=(root,), allow=allow),
        )

    if named is not None:
        with pytest.raises(ProfileInvalid, match="does not let its profiles use"):
            agent("manage_*")
    async with agent(*SHIPPED) as opened:
        turn = await opened.thread("t").task("subagent", {"worker": "greedy", "request": "Call all."})
    assert (turn.status, left, found) == ("done", [], done)
    assert not (root / "made.txt").exists()
