"""The sidecar's tools about workspace events: posted by the owner, decided by members, approved over the wire (A12)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.role_specs import spec_of
from support.sidecar_served import agents, caller_of, served, tokens
from support.sidecars import until
from worldagent import Policy, Rule, WorldAgent, tool
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.members import AuthorityConfig, Route, WorkspaceConfig
from worldagent.members.data.roles import TrustProfile

pytestmark = pytest.mark.requirement("A12")

SECRET = "The seventh keeper of the lighthouse says so"
LEAD: dict[str, Any] = {"event": "e1", "type": "lead.created", "domain": "revenue", "payload": {"lead": "Ada"}}
KNOWN = tokens(
    charles=Grant(("novel",), ("charles",)),
    operator=Grant(("novel",), ("*",), operator=True),
)


def made(place: Path) -> Callable[[str], WorldAgent]:
    """An agent with a CRO that qualifies leads, and asks before it gives a price."""

    @tool(risk="write")
    async def qualify(lead: str) -> str:
        return lead

    @tool(risk="write")
    async def price(lead: str) -> str:
        return lead

    cro = spec_of(
        "cro",
        domains=("revenue",),
        operator_ids=("qualify", "price"),
        authority=AuthorityConfig(autonomous=("qualify",), needs_approval=("price",)),
        trust=TrustProfile(default=0.9),
        routes=(
            Route(event="lead.*", operator="qualify", capability="qualify"),
            Route(event="deal.*", operator="price", capability="price"),
        ),
    )
    policy = Policy(rules=(Rule(decision="approve", function=("qualify", "price")),))
    society = WorkspaceConfig(id="novel", owner="charles", roles=(cro,))
    return agents(place, lm=answering(), society=society, policy=policy, tools=[qualify, price])


async def test_an_event_is_posted_handled_and_listed(tmp_path: Path) -> None:
    sidecar = Sidecar(made(tmp_path), tokens=KNOWN)
    async with served(sidecar) as url, caller_of(url, "auto", "charles") as owner:
        posted = (await owner("event_post", **LEAD))["event"]
        assert (posted["id"], posted["member"], posted["source"], posted["thread"]) == ("e1", "cro", "user", "event e1")

        async def over() -> bool:
            [listed] = (await owner("event_list"))["events"]
            return bool(listed["result"] == "done" and listed["decision"]["action"] == "delegate")

        await until(over)
        assert (await owner("event_post", **LEAD))["event"]["state"] == "done"
        assert (await owner.refused("event_post", **{**LEAD, "payload": {}}))["code"] == "key_reused"
        assert (await owner("event_list", state="waiting"))["events"] == []


async def test_an_operator_approves_what_waits_over_the_wire(tmp_path: Path) -> None:
    sidecar = Sidecar(made(tmp_path), tokens=KNOWN)
    async with served(sidecar) as url, caller_of(url, "auto", "operator") as operator:
        asks: dict[str, Any] = {**LEAD, "type": "deal.price"}
        thread = (await operator("event_post", **asks))["event"]["thread"]

        async def waits() -> bool:
            return bool((await operator("event_list"))["events"][0]["state"] == "paused")

        await until(waits)
        [pause] = (await operator("pauses", thread=thread))["pauses"]
        assert (pause["function"], pause["arguments"]) == ("price", {"lead": "Ada"})
        turn = (await operator("resume", thread=thread, answers={pause["id"]: {"approve": {}}}))["turn"]
        assert turn["status"] == "done"

        async def over() -> bool:
            return bool((await operator("event_list"))["events"][0]["result"] == "done")

        await until(over)


async def test_members_obey_an_event_of_the_owner_alone(tmp_path: Path) -> None:
    sidecar = Sidecar(made(tmp_path), tokens=KNOWN)
    async with (
        served(sidecar) as url,
        caller_of(url, "auto", "operator") as operator,
        caller_of(url, "auto", "charles") as owner,
    ):
        spawn: dict[str, Any] = {**LEAD, "type": "directive.spawn"}
        # Members obey the owner, and neither a source that the arguments name nor another account.
        for event, more in (("d1", {"source": "charles"}), ("d2", {"account": "ana"}), ("d3", {})):
            posted: dict[str, Any] = {**spawn, "event": event, **more}
            await operator("event_post", **posted)

        async def over() -> bool:
            return all(each["state"] == "done" for each in (await owner("event_list"))["events"])

        await until(over)
        told = {each["id"]: each["decision"]["reason"] for each in (await owner("event_list"))["events"]}
        assert told["d1"] == "it is not verified that the event is from 'charles'"
        assert "is not one that" in told["d2"]
        assert told["d3"] == "the payload has no `template_id`, or `params` is not an object"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"event": ""}, "invalid_argument"),
        ({"domain": ""}, "invalid_argument"),
        ({"domain": None}, "invalid_argument"),
        ({"metadata": {"untrusted": SECRET}}, "invalid_argument"),
        ({"to": SECRET}, "unknown_member"),
    ],
)
async def test_an_invalid_event_is_refused_without_its_values(tmp_path: Path, given: Any, code: str) -> None:
    sidecar = Sidecar(made(tmp_path), tokens=KNOWN)
    async with served(sidecar) as url, caller_of(url, "auto", "charles") as owner:
        error = await owner.refused("event_post", **{**LEAD, **given})
        assert error["code"] == code
        assert (await owner("event_list"))["events"] == []
