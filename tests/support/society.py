"""A society at work: its tables, members that a script moves, and a gateway that delivers until nothing is left."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.agents import calls, scripted_agent
from support.role_specs import spec_of, template_of, workspace_of
from worldagent import Policy, Rule, WorldAgent, tool
from worldagent.members import SEND_RULES, AuthorityConfig, AutonomousRole, Contact, Gateway, RoleSpec
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database, PostgresAddress
from worldagent.testing import ScriptedCall, ScriptedLM

Call = tuple[str, dict[str, Any]]
APPROVED = Policy(rules=(*SEND_RULES, Rule(decision="approve", function="spawn_agent")))
DEVELOPER = template_of(
    "developer",
    "root",
    "cro",
    name_pattern="Developer {name}",
    soul_template="You build pages. Your name is {name}. For contracts, write to legal.",
    domains=("web",),
    operator_ids=("deploy",),
)


@asynccontextmanager
async def tables(place: Path | PostgresAddress) -> AsyncGenerator[Database]:
    """A database with the tables of societies and no others."""
    database = await Database.open(place, schemas=[SOCIETY])
    try:
        yield database
    finally:
        await database.aclose()


# --- members that a script moves --------------------------------------------------------------------------------------


def who_of(call: ScriptedCall, *members: str) -> str:
    """Which of some members is asked; else it is the World Agent."""
    return next((each for each in members if f"You are {each}." in call.text), "root")


def doing(call: ScriptedCall, *made: Call, text: str = "Done.") -> dict[str, Any]:
    """Make calls side by side, and answer once they are made."""
    output = "result" if "task" in call.fields else "reply"
    return {output: text} if call.steps or not made else {output: "", **calls(*made)}


def acting(**members: Call) -> ScriptedLM:
    """A model of members each of which makes one call a message, and of others, which do nothing."""

    def act(call: ScriptedCall) -> dict[str, Any]:
        who = who_of(call, *members)
        return doing(call, *([members[who]] if who in members else []))

    return ScriptedLM(act)


def one_by_one(*made: Call, result: str = "Fine.") -> ScriptedLM:
    """A model that makes calls, one after the other, and answers."""

    def act(call: ScriptedCall) -> dict[str, Any]:
        at = len(call.steps)
        return {"result": result} if at >= len(made) else {"result": "", **calls(made[at])}

    return ScriptedLM(act)


def ended(lm: ScriptedLM) -> list[str]:
    """What members had read when they had made their calls."""
    return [call.text for call in lm.calls if call.steps]


def send(to: str, content: str, reason: str = "A test.", **more: Any) -> Call:
    return "send_message", {"to": to, "content": content, "reason": reason, **more}


def request(to: str, content: str = "How many?", reason: str = "A report.", **more: Any) -> Call:
    return "request_role", {"to": to, "content": content, "reason": reason, **more}


# --- an agent with members --------------------------------------------------------------------------------------------


@tool(risk="destructive")
def deploy(where: str) -> str:
    """Deploy the page."""
    return where


def able(role_id: str, *operators: str) -> RoleSpec:
    """A member that can run some functions without asking."""
    return spec_of(role_id, operator_ids=operators, authority=AuthorityConfig(autonomous=operators))


def office(home: Path, lm: Any, **more: Any) -> WorldAgent:
    """An agent of a society whose members can write to each other and make developers, and deploy if they may."""
    given: dict[str, Any] = {"society": workspace_of(DEVELOPER), "policy": APPROVED, "tools": []} | more
    given["tools"] = [deploy, *given["tools"]]
    return scripted_agent(home, lm if isinstance(lm, ScriptedLM) else ScriptedLM(lm), **given)


async def enlisted(agent: WorldAgent, *members: str, operators: tuple[str, ...] = ("deploy",)) -> None:
    """Add members, each of which knows the next."""
    for role_id in members:
        await agent.society.join(able(role_id, *operators), name=role_id.upper())
    for one, other in itertools.pairwise(members):
        await agent.society.contacts.add(one, Contact(id=other, role=other.upper()))


async def delivered(agent: WorldAgent, *roles: AutonomousRole, most: int = 20) -> None:
    """Deliver until nothing moves on."""
    gateway = Gateway(agent, roles=roles)
    for _ in range(most):
        if not await gateway.deliver():
            return
    raise AssertionError("messages or events go on")


def asking() -> WorldAgent:
    """Make an agent for commands, with `--app support.society:asking`; its member asks before it deploys."""
    lm = ScriptedLM(lambda call: doing(call, ("deploy", {"where": "everywhere"})))
    society = workspace_of(DEVELOPER, roles=(able("cro", "deploy"),))
    return WorldAgent("novel", lm=lm, society=society, tools=[deploy])
