"""The sidecar's tool that lists what an agent can call, and whether a person is asked first."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.role_specs import spec_of
from support.sidecar_served import Caller, agents, caller_of, served, tokens
from support.sidecars import until
from worldagent import Policy, Rule, Worker, tool
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.members import SEND_RULES, Contact, WorkspaceConfig
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H9")

KNOWN = tokens(
    ana=Grant(("novel",), ("ana",)),
    charles=Grant(("novel",), ("charles",)),
    operator=Grant(("novel",), ("*",), operator=True),
)


def named(name: str, **declared: Any) -> Any:
    """A tool that takes one text."""

    def act(what: str) -> str:
        """Do something."""
        return what

    return tool(name=name, **declared)(act)


async def test_functions_are_listed_with_what_the_policy_decides_about_them(tmp_path: Path) -> None:
    functions = [
        named("look", risk="read_only", title="Look it up", capabilities=["prices"]),
        named("sign", risk="read_only", approval=True),
        named("post", risk="network"),
        named("buy", risk="write"),
        named("order", risk="write", approval=True),
        named("wipe", risk="destructive"),
        named("drop", risk="write"),
        named("hidden", risk="read_only", offered=False),
    ]
    rules = (
        Rule(decision="approve", function="post"),
        Rule(decision="approve", function=("buy", "order"), arguments={"what": "hat"}),
        Rule(decision="approve", function="wipe"),
        Rule(decision="refuse", function="drop"),
    )
    make = agents(tmp_path, lm=answering(), tools=functions, workers=[Worker("critic", "You judge.")])
    ruled = agents(tmp_path, lm=answering(), tools=functions, policy=Policy(rules=rules))
    async with served(Sidecar(make, tokens=KNOWN)) as url, caller_of(url, "auto", "ana") as ana:
        found = {each["name"]: each for each in (await ana("function_list"))["functions"]}
        assert list(found) == sorted(found)
        assert found["look"] == {
            "name": "look",
            "title": "Look it up",
            "description": "Do something.",
            "kind": "leaf",
            "risk": ["read_only"],
            "decision": "approve",
            "untrusted": False,
            "capabilities": ["prices"],
            "offered": True,
        }
        assert {found[name]["decision"] for name in ("sign", "post", "buy", "order", "wipe", "drop")} == {"ask"}
        assert found["critic"]["kind"] == "worker"
        assert "hidden" not in found
    async with served(Sidecar(ruled, tokens=KNOWN)) as url, caller_of(url, "auto", "operator") as operator:
        decided = {each["name"]: each["decision"] for each in (await operator("function_list"))["functions"]}
        wanted = {"look": "approve", "post": "approve", "buy": "depends", "order": "ask", "wipe": "ask"}
        assert {name: decided[name] for name in (*wanted, "drop", "hidden")} == {
            **wanted,
            "drop": "refuse",
            "hidden": "approve",
        }


async def test_workers_of_members_are_listed_for_the_owner_and_operators_alone(tmp_path: Path) -> None:
    config = WorkspaceConfig(id="novel", owner="charles")
    lm = ScriptedLM(lambda call: {"reply": "Good.", "result": "Good."})
    make = agents(tmp_path, lm=lm, society=config, policy=Policy(rules=SEND_RULES))
    async with make("novel") as agent:
        await agent.society.join(spec_of("cro"))
        await agent.society.contacts.add("user", Contact(id="cro", role="a member"))
    async with (
        served(Sidecar(make, tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "charles") as owner,
        caller_of(url, "auto", "operator") as operator,
    ):

        async def listed(caller: Caller) -> set[str]:
            return {each["name"] for each in (await caller("function_list"))["functions"]}

        async def at_work() -> bool:
            return "cro" in await listed(owner)

        await owner("society_send", to="cro", text="Hello.")  # a member gets its worker with its first message
        await until(at_work)
        assert "cro" in await listed(operator)
        assert "cro" not in await listed(ana)
        assert "list_contacts" in await listed(ana)
