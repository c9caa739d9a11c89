"""The official TypeScript SDK of the 1.x line meets errors: it validates each against the published schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.example_hosts import node_client
from support.processes import eventually
from support.role_hosts import http_host
from support.sidecars import TOKEN, over_http


@pytest.mark.requirement("T10")
async def test_errors_of_the_sidecar_reach_the_client_with_their_code(tmp_path: Path) -> None:
    async with (
        over_http(tmp_path / "home", WORLDAGENT_THREAD_WAIT="0") as sidecar,
        node_client(sidecar.url, TOKEN) as client,
    ):
        done = await client.call("converse", thread="a", text="words=2")
        assert done["turn"]["status"] == "done"
        over = (await client.call("resume", thread="a"))["error"]
        assert (over["code"], over["retryable"]) == ("nothing_to_resume", False)

        async with sidecar.client() as other, other.call("converse", {"thread": "b", "text": "hold=held"}) as held:
            await anext(aiter(held))
            await eventually((sidecar.home / "held.held").exists)
            busy = (await client.call("converse", thread="b", text="Hi"))["error"]
            assert (busy["code"], busy["retryable"]) == ("thread_busy", True)
            (sidecar.home / "held").touch()
            await held.answer()

        role = {"content": "Be brief."}
        paused = await client.call("converse", thread="c", text="do=buy what=hat", role=role)
        [pause] = paused["turn"]["pauses"]
        without = await client.call("resume", thread="c", answers={pause["id"]: {"approve": {}}})
        assert (without["error"]["code"], without["error"]["retryable"]) == ("role_required", False)
        again = await client.call("resume", thread="c", answers={pause["id"]: {"approve": {}}}, role=role)
        assert again["turn"]["status"] == "done"


@pytest.mark.requirement("R9")
async def test_errors_of_the_role_host_reach_the_client_with_their_code(tmp_path: Path) -> None:
    with http_host(tmp_path / "roles.db") as (url, _):
        async with node_client(url) as client:
            missing = await client.call("role_get", tier="account", scope_id="ana")
            assert missing == {"contract": 1, "code": "not_found"}
            assert (await client.call("role_get", tier="call", scope_id="ana"))["code"] == "invalid"
