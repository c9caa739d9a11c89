"""Stored roles that the sidecar's client keeps itself: it is asked over the connection that it made (R9)."""

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.sidecar_served import OFFER, RoleClient, Silence, role_client
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.core.errors import HostUnavailable, UnknownTier
from worldagent.hosts.sidecar import ClientRoles, Sidecar
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("R9")

CANARY = "Answer as the vermilion otter of the northern canal would."
WRONG = "the tale of a pewter heron"


def roles_agent(home: Path, lm: Any, roles: ClientRoles, **settings: Any) -> WorldAgent:
    """An agent whose stored roles the client keeps, where it does."""
    return scripted_agent(home, lm, roles=Roles(host=roles if roles.offered else None), settings=settings)


@asynccontextmanager
async def connected(
    home: Path, lm: ScriptedLM | None = None, *, capabilities: Mapping[str, Any] = OFFER, patience: float = 10.0
) -> AsyncGenerator[tuple[RoleClient, ClientRoles]]:
    """A client that keeps roles, and the store that it is."""
    roles, model = ClientRoles(timeout=patience), lm or answering()
    async with (
        Sidecar(lambda workspace: roles_agent(home, model, roles), client_roles=roles) as sidecar,
        role_client(sidecar, capabilities=capabilities) as client,
    ):
        yield client, roles


async def test_a_turn_asks_the_client_for_its_roles_over_its_own_connection(tmp_path: Path) -> None:
    lm = answering()
    async with connected(tmp_path, lm) as (client, _):
        client.roles["account", "ana"] = ("otter", CANARY)
        answer = await client.say()
        assert (answer["turn"]["status"], answer["turn"]["role_tiers"]) == ("done", ["account"])
        assert client.asked == [("role_list", {"scope_ids": {"workspace": "novel", "account": "ana"}})]
        assert CANARY in lm.calls[-1].text
        assert CANARY not in json.dumps(answer)
        explained = await client.given("explain_role", thread="t1", account="ana")
        assert "otter" in json.dumps(explained)
        assert CANARY not in json.dumps(explained)


async def test_the_store_reads_changes_and_clears_what_the_client_keeps(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, roles):
        await client.say()
        await roles.connect()
        assert roles.tiers == {Tier.WORKSPACE, Tier.ACCOUNT}
        assert await roles.get(Tier.ACCOUNT, "ana") is None
        await roles.put(Tier.ACCOUNT, "ana", Role("otter", CANARY))
        assert client.roles == {("account", "ana"): ("otter", CANARY)}
        assert await roles.get(Tier.ACCOUNT, "ana") == Role("otter", CANARY)
        assert (await roles.delete(Tier.ACCOUNT, "ana"), await roles.delete(Tier.ACCOUNT, "ana")) == (True, False)
        with pytest.raises(UnknownTier):
            await roles.get(Tier.CHANNEL, "c")


@pytest.mark.parametrize("capabilities", [{}, {"experimental": {"other": {"contract": 1}}}])
async def test_a_client_that_keeps_no_roles_is_never_asked(capabilities: Any, tmp_path: Path) -> None:
    async with connected(tmp_path, capabilities=capabilities) as (client, roles):
        client.roles["account", "ana"] = ("otter", CANARY)
        answer = await client.say()
        assert (answer["turn"]["status"], answer["turn"]["role_tiers"]) == ("done", [])
        assert (client.asked, roles.offered) == ([], False)


async def test_a_client_can_offer_channel_roles_as_well(tmp_path: Path) -> None:
    offer = {"experimental": {"worldagent/roles": {"contract": 1, "tiers": ["workspace", "account", "channel"]}}}
    async with connected(tmp_path, capabilities=offer) as (client, _):
        client.roles["channel", "c7"] = ("otter", CANARY)
        assert (await client.say(channel="c7"))["turn"]["role_tiers"] == ["channel"]


@pytest.mark.parametrize("offer", [{}, {"contract": 2}, {"contract": 1, "tiers": ["thread"]}])
async def test_an_invalid_offer_fails_the_turn(offer: Any, tmp_path: Path) -> None:
    async with connected(tmp_path, capabilities={"experimental": {"worldagent/roles": offer}}) as (client, _):
        assert (await client.say())["error"]["code"] == "role_source_invalid"
        assert client.asked == []


def structured(**content: Any) -> dict[str, Any]:
    return {"structuredContent": {"contract": 1, **content}}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({}, "role_source_invalid"),
        (structured(roles=[{"tier": "channel", "name": "n", "content": WRONG}]), "role_source_invalid"),
        ({"isError": True, **structured(code="unavailable")}, "role_source_unavailable"),
        ({"isError": True, **structured(code="forbidden")}, "host_forbidden"),
        ({"isError": True, **structured(code=WRONG)}, "role_source_invalid"),
        ({"error": {"code": -32601, "message": WRONG, "data": WRONG}}, "role_source_unavailable"),
    ],
)
async def test_bad_answers_fail_turns(answer: Any, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="worldagent")
    lm = answering()
    async with connected(tmp_path, lm) as (client, _):
        client.answer = lambda tool, arguments: answer
        given = await client.say()
        assert (given.get("error", {}).get("code"), lm.calls) == (code, []), given
        assert WRONG not in json.dumps(given)
        client.answer = None  # it is mended, and so is the next turn
        assert (await client.say())["turn"]["status"] == "done"
    assert WRONG not in caplog.text


async def test_a_client_that_does_not_answer_in_time_fails_one_turn(tmp_path: Path) -> None:
    def silent(tool: str, arguments: Mapping[str, Any]) -> Any:
        raise Silence

    async with connected(tmp_path, patience=0.05) as (client, roles):
        client.answer = silent
        given = await client.say()
        assert (given["error"]["code"], given["error"]["retryable"]) == ("role_source_unavailable", True)
        assert "0.05 s" in given["error"]["problem"]
        client.answer = None
        assert (await client.say())["turn"]["status"] == "done"
        assert (await roles.list({Tier.ACCOUNT: "ana"})) == {}


async def test_a_client_that_is_gone_is_a_host_that_is_down(tmp_path: Path) -> None:
    roles = ClientRoles()
    with pytest.raises(HostUnavailable):
        await roles.list({Tier.ACCOUNT: "ana"})  # nobody has come
    async with Sidecar(lambda workspace: roles_agent(tmp_path, answering(), roles), client_roles=roles) as sidecar:
        async with role_client(sidecar) as client:
            await client.say()
            assert await roles.list({Tier.ACCOUNT: "ana"}) == {}
        with pytest.raises(HostUnavailable, match="not connected"):
            await roles.list({Tier.ACCOUNT: "ana"})


@pytest.mark.parametrize("capabilities", [OFFER, {}])
async def test_the_roles_of_one_client_never_serve_another(capabilities: Any, tmp_path: Path) -> None:
    roles, lm = ClientRoles(), answering()
    async with (
        Sidecar(lambda workspace: roles_agent(tmp_path, lm, roles), client_roles=roles) as sidecar,
        role_client(sidecar) as one,
        role_client(sidecar, capabilities=capabilities) as other,
    ):
        one.roles["account", "ana"] = ("otter", CANARY)
        assert (await one.say())["turn"]["role_tiers"] == ["account"]
        calls, asked = len(lm.calls), len(one.asked)
        assert (await other.say())["error"]["code"] == "forbidden"
        assert (len(lm.calls), len(one.asked), other.asked) == (calls, asked, [])
        assert (await one.say())["turn"]["role_tiers"] == ["account"]


@pytest.mark.requirement("R7")
async def test_home_and_debug_logs_have_no_client_role(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    home = tmp_path / "home"
    async with connected(home) as (client, roles):
        client.roles["account", "ana"] = ("otter", CANARY)
        await client.say()
        await roles.put(Tier.WORKSPACE, "novel", Role("heron", WRONG))
        await client.say("Once more.", thread="t2", detach=True)
    assert not [record for record in caplog.records if CANARY in record.getMessage() or WRONG in record.getMessage()]
    for canary in (CANARY, WRONG):
        assert_no_role_leak(home, canary)
