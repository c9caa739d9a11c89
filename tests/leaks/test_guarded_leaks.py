"""A role of each tier during a guarded turn: readers never have it, and it is nowhere afterwards (R7, H11)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.agents import call, shape
from support.guarded import ANY, Office, question
from support.leak_cases import LENGTHS, SOURCES
from support.leaks import Watch, canary, planted, traces_of, watch
from worldagent import Approve, Policy, Role, Roles, Rule, Tier, Trace, Worker, WorldAgent, tool
from worldagent.agent import Thread, Turn
from worldagent.core import ECHO_RUN, Scope
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "H11"), pytest.mark.on_every_database(soak=True)]

SHORT, LONG = LENGTHS
MAIL = "Please pay INV-7 by Friday."


@tool(risk="read_only", untrusted=True, fields=("sender",))
async def search() -> list[dict[str, str]]:
    """Search the mail."""
    return [{"sender": "bob@corp.com", "body": MAIL}]


class Quoting(Office):
    """Its model says its role wherever a guarded model can write: in questions, expressions, texts and the answer.

    Args:
        said: What it says of its role.
    """

    def __init__(self, said: str) -> None:
        sender, body = "r0[0].sender", "r0[0].body"
        to = {"$run": f"(x, {said!r})[0]", "of": [sender]}
        about = {"$text": f"{{0}} {said}", "of": [body]}
        super().__init__(
            call("search"),
            call("ask", question=f"is it due? {said}", of=[body], **{"as": "bool"}),
            call("write", to=to, body=question("span", body, about=f"the invoice {said}")),
            call("write", to={"$": sender}, body=about),
            reply=f'{said} From {{"$": "{sender}"}}: {json.dumps(question("text", body, about=said))} {said}',
            answers=("yes", "INV-7", "to pay"),
        )

    def answer(self, called: ScriptedCall) -> Mapping[str, Any]:
        said = super().answer(called)
        return {"result": said["reply"]} if "request" in called.fields and "reply" in said else said


async def begun(agent: WorldAgent, thread: Thread, tier: str, role: Role) -> Turn:
    """A turn with a role from a tier, until it waits for a person."""
    if tier in ("workspace", "account"):
        await agent.roles.put(Tier(tier), role, scope_id="ana" if tier == "account" else None)
    if tier == "code":
        return await thread.task("job", {}, guard=True)
    async with thread.stream("Pay it.", guard=True, role=role if tier == "call" else None) as stream:
        return await stream.wait()


@pytest.mark.parametrize("length", [pytest.param(SHORT, marks=pytest.mark.soak), LONG])
@pytest.mark.parametrize("tier", SOURCES)
async def test_role_is_nowhere_after_a_guarded_turn(tmp_path: Path, tier: str, length: int) -> None:
    content, label = planted(length, seed=f"guarded {tier}"), canary(12, seed=f"label of guarded {tier} {length}")
    role = Role(label, content, applies_to=() if tier in ("workspace", "account") else "*")
    # A model may say what is shorter in its own words (R16), and then it is in the journal.
    office = Quoting(content if length >= ECHO_RUN else "as I am told")

    async def source(scope: Scope) -> Role | None:
        return role

    async def employ(ctx: TaskContext) -> str:
        return str((await ctx.task("subagent", {"worker": "clerk", "request": "Pay it."}, role=role)).text)

    def agent(seen: Watch) -> WorldAgent:
        first = Rule(decision="approve", function="write", times=1, arguments={"to": ANY, "body": ANY})
        return office.agent(
            tmp_path / "home",
            search,
            policy=Policy(rules=(first,), default="ask"),
            workers=[Worker("clerk", "You are the clerk.", tools=("search", "write"))],
            shapes=[shape(employ)],
            roles=Roles(sources={Tier(tier): source} if tier in ("thread", "channel") else {}),
            trace=Trace(callbacks=(seen.chain, seen.model)),
        )

    with watch(tmp_path / "home") as seen:
        async with agent(seen) as first:
            thread = first.thread("t", account="ana", channel="den")
            turn = await seen.outcome(seen.inside_a_chain(lambda: begun(first, thread, tier, role)))
            [pause] = turn.pauses
            seen.assert_clean(*traces_of(content))
        async with agent(seen) as second:
            again = second.thread("t", account="ana", channel="den")
            answer, own = {pause.id: Approve(hash=pause.hash)}, role if tier == "call" else None
            turn = await seen.outcome(again.resume(answer, role=own))
            seen.kept.append(await again.history())
            seen.assert_clean(*traces_of(content))  # while its write-ahead log is there
        assert turn.status == "done"
        assert [to for to, _ in office.written] == ["bob@corp.com"] * 2
        assert any(content in each.text for each in office.lm.calls), "the role never reached the model"
        assert [each.role for each in office.asked] == [None] * 3
        assert_no_role_leak([each.text for each in office.asked], [*traces_of(content), label])
        seen.assert_clean(*traces_of(content), names=(label,))
