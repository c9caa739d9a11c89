"""Paths of the web app that pass on tools of the sidecar, with arguments in the path, the query and the body."""

from pathlib import Path

import pytest

from support.agents import answering
from support.skill_turns import package
from support.web import client_of, say, web
from worldagent import tool

pytestmark = pytest.mark.requirement("T10")


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


async def test_stored_roles_are_listed_set_and_cleared(tmp_path: Path) -> None:
    role = {"role": {"content": "Be terse.", "name": "terse"}}
    async with web(tmp_path, answering()) as ana, client_of(str(ana.base_url), "bob") as bob:
        kept = (await ana.put("/roles/account", json=role)).json()["role"]
        assert kept == {"tier": "account", "scope_id": "ana", "name": "terse", "length": 9}
        assert (await ana.get("/roles", params={"channel": "support"})).json()["roles"] == [kept]
        assert (await bob.get("/roles")).json()["roles"] == []
        refused = await ana.request("DELETE", "/roles/channel", params={"channel": "support"})
        assert [refused.status_code, refused.json()["error"]["code"]] == [403, "forbidden"]
        assert (await ana.delete("/roles/account")).json()["cleared"] is True


async def test_skills_are_listed_and_shown(tmp_path: Path) -> None:
    package(tmp_path)
    async with web(tmp_path / "home", answering(), agent={"skills": [tmp_path / "skills"]}) as client:
        [tea] = (await client.get("/skills")).json()["skills"]
        shown = (await client.get("/skills/tea")).json()["skill"]
        assert {name: shown[name] for name in tea} == tea == {**tea, "name": "tea", "level": "given"}
        missing = await client.get("/skills/milk")
        assert [missing.status_code, missing.json()["error"]["code"]] == [404, "unknown_skill"]


async def test_functions_are_listed(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), agent={"tools": [buy]}) as client:
        found = {each["name"]: each for each in (await client.get("/functions")).json()["functions"]}
        assert [found["buy"]["risk"], found["buy"]["decision"]] == [["write"], "ask"]


async def test_a_turn_is_rated(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as ana, client_of(str(ana.base_url), "bob") as bob:
        path = f"/turns/{(await say(ana, 'Well?'))[-1]['turn']['id']}/feedback"
        assert (await ana.put(path, json={"feedback": "bad", "note": "Too long."})).json()["rated"] is True
        refused = await bob.put(path, json={"feedback": "good"})
        assert [refused.status_code, refused.json()["error"]["code"]] == [404, "unknown_turn"]
