"""The sidecar's tools about stored roles: who sets which, and that no answer, log or file but the store has a text."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.sidecar_app import WORKSPACE
from support.sidecar_calls import Refused
from support.sidecar_served import agents, caller_of, served, tokens
from support.sidecars import over_stdio
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import scan_for_roles

pytestmark = pytest.mark.requirement("R9")

ROLE = "You speak as the seventh keeper of the lighthouse."
HOUSE = {"content": "Be kind.", "name": "house"}
KNOWN = tokens(
    ana=Grant(("novel",), ("ana",)),
    ben=Grant(("novel",), ("ben",)),
    operator=Grant(("novel",), ("*",), operator=True),
)


async def test_an_account_sets_its_own_role_and_an_operator_those_of_all(tmp_path: Path) -> None:
    lm = answering("Aye.")
    async with (
        served(Sidecar(agents(tmp_path, lm=lm), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
        caller_of(url, "auto", "operator") as operator,
    ):
        mine = {"tier": "account", "scope_id": "ana", "name": "keeper", "length": len(ROLE)}
        house = {"tier": "workspace", "scope_id": "novel", "name": "house", "length": 8}
        support = {"tier": "channel", "scope_id": "support", "name": "house", "length": 8}
        role = {"content": ROLE, "name": "keeper"}
        assert (await ana("stored_role_set", tier="account", role=role))["role"] == mine
        assert (await operator("stored_role_set", tier="workspace", role=HOUSE))["role"] == house
        assert (await operator("stored_role_set", tier="channel", channel="support", role=HOUSE))["role"] == support
        assert (await ana("stored_role_list", channel="support"))["roles"] == [house, mine, support]
        assert (await ben("stored_role_list"))["roles"] == [house]
        for tool, more in (("stored_role_set", {"role": HOUSE}), ("stored_role_clear", {})):
            for tier in ("workspace", "channel"):
                given: dict[str, Any] = {"tier": tier, "channel": "support", **more}
                assert (await ana.refused(tool, **given))["code"] == "forbidden"
            assert (await ana.refused(tool, tier="account", account="ben", **more))["code"] == "forbidden"
        turn = (await ana("converse", thread="t1", text="Well?", channel="support"))["turn"]
        assert turn["role_tiers"] == ["account", "workspace", "channel"]
        assert (await operator("stored_role_clear", tier="account", account="ana"))["cleared"] is True
        assert (await ana("stored_role_clear", tier="account"))["cleared"] is False
        assert (await ana("stored_role_list"))["roles"] == [house]
    assert ROLE in lm.calls[0].text


async def test_a_stored_role_needs_whose_it_is_and_takes_nothing_else(tmp_path: Path) -> None:
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "operator") as operator,
    ):
        for tier in ("account", "channel"):
            error = await operator.refused("stored_role_set", tier=tier, role=HOUSE)
            assert (error["code"], error["problem"]) == (
                "invalid_argument",
                f"the {tier} role needs the id of its {tier}",
            )
        more = await operator.refused("stored_role_set", tier="workspace", role={**HOUSE, "exclusive": True})
        assert more["code"] == "invalid_argument"
        long = await operator.refused("stored_role_set", tier="workspace", role={"content": "x" * (33 << 10)})
        assert long["code"] == "role_too_long"
        assert (await operator("stored_role_list"))["roles"] == []


async def test_no_answer_log_or_file_but_the_store_has_the_text(tmp_path: Path) -> None:
    home, answers = tmp_path / "home", []
    logged: dict[str, Any] = {"WORLDAGENT_TESTS_LOGS": "1"}
    async with over_stdio(home, "2026-07-28", "--log-level", "debug", **logged) as (sidecar, client):
        role = {"content": ROLE, "name": "keeper"}
        ana: dict[str, Any] = {"workspace": WORKSPACE, "account": "ana"}
        answers.append(await client.ask("stored_role_set", tier="account", role=role, **ana))
        answers.append(await client.ask("stored_role_list", **ana))
        with pytest.raises(Refused) as refused:
            await client.ask("stored_role_set", tier=ROLE, role=role, **ana)
        answers.append(refused.value.told)
        answers.append(await client.ask("stored_role_clear", tier="account", **ana))
    log = sidecar.errors.read_text()
    assert log.count("tool=stored_role_") == 4
    assert not scan_for_roles(log, [ROLE]).findings
    assert not scan_for_roles([str(each) for each in answers], [ROLE]).findings
    places = {Path(found.place).name for found in scan_for_roles(home, [ROLE]).findings}
    assert places <= {"roles.db", "roles.db-wal"}  # the store itself, which sqlite cleans later
