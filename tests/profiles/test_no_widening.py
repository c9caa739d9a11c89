"""A profile cannot widen what the embedder allowed: whatever it names, the policy and `BuiltinTools` hold (P2, H9)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.agents import scripted_agent
from support.shoppers import calls
from worldagent.core.errors import ProfileInvalid
from worldagent.core.pauses import Pause, Reject
from worldagent.harness import Function, Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedLM
from worldagent.tools import BuiltinTools

RISKS: dict[str, Any] = {"look": "read_only", "put": "write", "send": "network", "wipe": "destructive"}
SHIPPED: dict[str, Any] = {"manage_todo_list": "read_only", "write_file": "write"}
ARGUMENTS: dict[str, Any] = {"manage_todo_list": {"items": []}, "write_file": {"path": "made.txt", "content": "x"}}
GLOBS = st.sampled_from([*RISKS, *SHIPPED, "*", "w*", "*e*", "manage_*", "nothing*"])


@dataclass(frozen=True)
class Line:
    """A rule of the policy, as the reference reads it."""

    decision: Any
    function: str


def heard(lines: list[Line]) -> list[Line]:
    """The lines up to one that matches all: a policy takes none after that."""
    ends = [place for place, line in enumerate(lines) if line.function == "*"]
    return lines[: ends[0] + 1] if ends else lines


LINES = st.lists(st.builds(Line, st.sampled_from(["approve", "ask", "refuse"]), GLOBS), max_size=4).map(heard)


def permitted(name: str, lines: list[Line]) -> bool:
    """Whether a model may call it, where a person rejects whatever is asked: the reference, without the gate's code."""
    risk = {**RISKS, **SHIPPED}[name]
    first = next((line.decision for line in lines if fnmatchcase(name, line.function)), None)
    if first is None:
        return bool(risk == "read_only")
    return bool(first == "approve" and risk != "destructive")


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
@given(
    lines=LINES,
    allow=st.lists(GLOBS, max_size=3),
    named=st.none() | st.lists(GLOBS, max_size=4, unique=True),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
async def test_what_a_profile_lets_through_the_policy_and_the_agent_let_through(
    tmp_path: Path, lines: list[Line], allow: list[str], named: list[str] | None
) -> None:
    fresh = next(folder for n in itertools.count() if not (folder := tmp_path / str(n)).exists())
    (root := fresh / "root").mkdir(parents=True)
    wanted = [*RISKS, *SHIPPED]

    def reply(call: Any) -> Any:
        at = len(asked)
        if at == len(wanted):
            return {"result": "done"}
        asked.append(wanted[at])
        return calls((wanted[at], ARGUMENTS.get(wanted[at], {})))

    asked: list[str] = []
    done: list[str] = []
    rules = (
        Rule(decision="approve", function="greedy", name="worker"),  # who calls is not the question
        *(
            Rule(decision=each.decision, function=each.function, name=f"r{n}", optional=True)
            for n, each in enumerate(lines)
        ),
    )
    profile = Profile(
        "any",
        tools=None if named is None else ("greedy", *named),
        verification=Verification(enabled=False),
    )
    allowed = [name for name in SHIPPED if any(fnmatchcase(name, glob) for glob in allow)]
    beyond = [name for name in named or () if name in SHIPPED and name not in allowed]
    event(f"{'all' if named is None else len(named)} named, {len(beyond)} beyond, {len(lines)} rules")

    def agent() -> Any:
        return scripted_agent(
            fresh / "home",
            ScriptedLM(reply),
            tools=effects(done),
            workers=[Worker("greedy", "You call.", tools=("*",), retries=10)],
            policy=Policy(rules=rules),
            approver=rejecting,
            profile=profile,
            builtin_tools=BuiltinTools(roots=(root,), allow=tuple(allow)),
        )

    if beyond:
        with pytest.raises(ProfileInvalid, match="does not let its profiles use"):
            agent()
        return
    async with agent() as opened:
        turn = await opened.thread("t").task("subagent", {"worker": "greedy", "request": "Call all."})
        there = {function.name for function in opened.functions}
    assert turn.status == "done"
    assert asked == wanted
    own = [name for name in RISKS if named is None or any(fnmatchcase(name, glob) for glob in named)]
    usable = BuiltinTools(roots=(root,), allow=tuple(allow)).usable
    shipped = usable if named is None else [name for name in SHIPPED if name in named]
    assert there == {*own, *shipped, "greedy", "subagent"}
    assert done == [name for name in own if permitted(name, lines)]
    assert (root / "made.txt").exists() == ("write_file" in shipped and permitted("write_file", lines))
