"""Invalid arguments are named by field and rule, never by value; and what the contract publishes of itself."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.sidecar_calls import LEGACY, MODERN
from support.sidecar_clients import HttpClient
from support.sidecar_served import agents, caller_of, served
from worldagent import WorldAgent
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
DEEP: Any = json.loads('{"a":' * 80 + "1" + "}" * 80)

INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("converse", {"thread": "t", "text": 3}, "text: Input should be a valid string"),
    ("converse", {"thread": "t", "text": "   "}, "text: It is blank"),
    ("converse", {"thread": "a\nb", "text": "hm"}, "thread: It is blank or has characters that cannot be printed"),
    ("converse", {"thread": "t", "text": "hm", SECRET: 1}, "an argument that the tool does not have"),
    ("converse", {"thread": "t", "text": "hm", "on_behalf_of": "ada"}, "an argument that the tool does not have"),
    ("converse", {"thread": "t", "text": "hm", "role": SECRET}, "role: It should be an object"),
    ("converse", {"thread": "t", "text": "hm", "role": {"content": [SECRET]}}, "role.content: Input should be"),
    ("converse", {"thread": "t", "text": "hm", "role": {"content": SECRET, SECRET: 1}}, "role: Extra inputs"),
    ("converse", {"thread": "t", "text": "hm", "detach": "yes"}, "detach: Input should be a valid boolean"),
    ("converse", {"thread": "t", "text": "hm", "after": -1}, "after: Input should be greater than or equal to 0"),
    ("converse", {"thread": "t", "text": "hm", "pauses": SECRET}, "pauses: Input should be 'elicit' or 'return'"),
    ("task", {"thread": "t", "shape": "subagent", "params": DEEP}, "params: It has more than 64 levels"),
    ("converse", {"thread": "t", "text": "hm", "role": {"content": "hm", "applies_to": SECRET}}, "should be an array"),
    ("run_scheduled", {"thread": "t", "schedule": "s", "fired_at": SECRET}, "fired_at: It must be an RFC 3339 time"),
    ("resume", {"thread": "t", "answers": [SECRET]}, "answers: It should be an object"),
    ("resume", {"thread": "t", "answers": {"turn_1/a": 1, "turn_1-2Fa": 2}}, "answers: It answers a pause twice"),
    ("events", {"turn_id": "x", "wait": 1e9}, "wait: Input should be less than or equal to 300"),
    ("thread_role_set", {"thread": "t", "role": {"content": SECRET}, "ttl": 0}, "ttl: Input should be greater than 0"),
]


async def test_refusals_name_field_and_rule_without_the_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="worldagent")
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM([])))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        for tool, arguments, told in INVALID:
            error = await ask.refused(tool, workspace="novel", **arguments)
            assert error["code"] == "invalid_argument"
            assert told in error["problem"], (tool, error)
            assert SECRET not in str(error)
            assert not any(word in error["problem"] for word in ("dictionary", "instance", "Argument", " list"))
        assert sidecar.health()["workspaces"] == 0  # nothing was opened for any of them
    assert SECRET not in caplog.text


async def test_a_revision_that_it_does_not_know_is_refused_with_those_that_it_does(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM([])))
    async with served(sidecar) as url, HttpClient(url) as client, httpx2.AsyncClient() as http:
        body = json.dumps(client.message("tools/list", {})).replace(MODERN, "2031-01-01")
        headers = client.headers("tools/list", {}) | {"MCP-Protocol-Version": "2031-01-01"}
        refused = await http.post(url, content=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32022)
        assert MODERN in refused.json()["error"]["data"]["supported"]
        older = HttpClient(url, revision=LEGACY)
        hello = {"protocolVersion": "2031-01-01", "capabilities": {}, "clientInfo": {"name": "older", "version": "1"}}
        assert (await older.request("initialize", **hello))["protocolVersion"] == LEGACY
        await older.aclose()


@pytest.mark.requirement("R7")
async def test_request_log_has_a_line_of_ids_a_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="worldagent.requests")
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM([{"reply": SECRET}])))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        where: dict[str, Any] = {"workspace": "novel", "thread": "t1"}
        caplog.clear()
        done = await ask("converse", **where, text=SECRET, role={"content": SECRET, "name": SECRET})
        await ask.refused("fork", **where, at=SECRET)
        await ask.refused("fork", workspace=SECRET, thread=SECRET, to="")
    lines = [vars(record)["worldagent_fields"] for record in caplog.records if record.name == "worldagent.requests"]
    calls = [line for line in lines if line["method"] == "tools/call"]
    assert [(line["tool"], line.get("workspace"), line.get("thread"), line["code"]) for line in calls] == [
        ("converse", "novel", "t1", "ok"),
        ("fork", "novel", "t1", "unknown_message"),
        ("fork", None, None, "invalid_argument"),
    ]
    assert calls[0]["turn"] == done["turn"]["id"]
    assert SECRET not in str(lines)


async def test_unexpected_error_is_logged_by_its_type_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make = agents(tmp_path, lm=ScriptedLM([]))

    def makes(workspace: str) -> WorldAgent:
        if workspace == "broken":
            raise RuntimeError(SECRET)
        return make(workspace)

    async with served(Sidecar(makes)) as url, caller_of(url, "auto") as ask:
        errors = [await ask.refused("history", workspace="broken", thread="t1") for _ in range(2)]
        await ask("history", workspace="novel", thread="t1")
    assert [error["code"] for error in errors] == ["internal"] * 2
    assert SECRET not in str(errors)
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text
