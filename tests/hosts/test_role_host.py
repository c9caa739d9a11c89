"""The reference role host over both transports and both protocol revisions, as a process of its own."""

import asyncio
import json
from collections.abc import Generator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated

from support.role_hosts import BOUND, http_client_of, http_host, stdio_client_of
from support.served import INITIALIZE, JSON
from support.sidecar_calls import check_answer
from worldagent.core import Tier
from worldagent.core.errors import StorageUnavailable
from worldagent.hosts.role_host import RoleHost
from worldagent.role_resolution import Role, SqliteRoleStore

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
TOKEN, OTHER = "t0ken-of-the-novel", "t0ken-of-another"
LIMIT = 32 * 1024

SCOPED = f"""
[[token]]
token = "{TOKEN}"
workspace = ["novel"]
account = ["*"]

[[token]]
token = "{OTHER}"
account = ["ben"]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """The address of a host without tokens; each test has scopes of its own."""
    with http_host(tmp_path_factory.mktemp("shared") / "roles.db") as (url, _):
        yield url


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """The address of a host with two tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens.toml").write_text(SCOPED, encoding="utf-8")
    with http_host(folder / "roles.db", "--token-file", str(folder / "tokens.toml")) as (url, _):
        yield url


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and give its structured content, which is as its schema says, and is in no text block."""
    result = await client.call_tool(tool, arguments)
    content = result.structured_content
    check_answer(tool, content, failed=bool(result.is_error))
    assert SECRET not in "".join(block.model_dump_json() for block in result.content)
    assert isinstance(content, dict)
    return content


@pytest.mark.requirement("R15")
async def test_a_role_is_too_long_above_32_kib_of_utf_8(shared: str) -> None:
    async with http_client_of(shared, "auto") as client:
        for letter in ("x", "ä", "𝄞"):
            fits = letter * (LIMIT // len(letter.encode()))
            place = {"tier": "workspace", "scope_id": f"long {letter}", "name": "n"}
            assert (await call(client, "role_put", **place, content=fits))["role"]["content"] == fits
            for content in (fits + "x", letter * 33 * 1024):
                assert await call(client, "role_put", **place, content=content) == {"contract": 1, "code": "too_long"}
            got = await call(client, "role_get", tier="workspace", scope_id=f"long {letter}")
            assert got["role"]["content"] == fits


# --- tokens and scopes ----------------------------------------------------------------------------------------------


def handshake(token: str) -> dict[str, str]:
    return JSON | {"Authorization": f"Bearer {token}"}


@pytest.mark.requirement("R9")
async def test_the_scope_is_checked_against_the_token(guarded: str) -> None:
    forbidden = {"contract": 1, "code": "forbidden"}
    async with http_client_of(guarded, "auto", TOKEN) as one, http_client_of(guarded, "auto", OTHER) as other:
        for tier, scope_id in (("workspace", "novel"), ("account", "ana"), ("account", "ben")):
            place = {"tier": tier, "scope_id": scope_id}
            assert "role" in await call(one, "role_put", **place, name="n", content=SECRET)
            if scope_id != "ben":
                assert await call(other, "role_get", **place) == forbidden
                assert await call(other, "role_put", **place, name="n", content="Mine.") == forbidden
                assert await call(other, "role_delete", **place) == forbidden
        for tier, scope_id in (("workspace", "diary"), ("channel", "c1"), ("channel", "*"), ("workspace", "*")):
            assert await call(one, "role_get", tier=tier, scope_id=scope_id) == forbidden
        assert len((await call(one, "role_list", scope_ids={"workspace": "novel", "account": "ben"}))["roles"]) == 2
        assert await call(other, "role_list", scope_ids={"account": "ben", "workspace": "novel"}) == forbidden
        assert len((await call(other, "role_list", scope_ids={"account": "ben"}))["roles"]) == 1


async def test_a_session_belongs_to_the_token_that_began_it(guarded: str) -> None:
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    async with httpx2.AsyncClient(timeout=BOUND) as http:
        began = await http.post(guarded, json=INITIALIZE, headers=handshake(TOKEN))
        session = {"Mcp-Session-Id": began.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        stolen = await http.post(guarded, json=listing, headers=handshake(OTHER) | session)
        assert stolen.status_code in (401, 403, 404)
        assert (await http.post(guarded, json=listing, headers=handshake(TOKEN) | session)).status_code == 200


# --- change notices -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_change_reaches_the_clients_that_listen(shared: str, tmp_path: Path, transport: str) -> None:
    file = tmp_path / "roles.db"
    opened = stdio_client_of(file, "auto") if transport == "stdio" else http_client_of(shared, "auto")
    place = {"tier": "account", "scope_id": "told/ä"}
    uri = "role://account/told%2F%C3%A4"
    async with opened as client, asyncio.timeout(BOUND):
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.subscribe
        async with client.listen(resource_subscriptions=[uri]) as stream:
            told = aiter(stream)
            await call(client, "role_put", tier="account", scope_id="not told", name="n", content="Else.")
            await call(client, "role_put", **place, name="n", content=SECRET)
            assert await anext(told) == ResourceUpdated(uri=uri)
            await call(client, "role_delete", **place)
            assert await anext(told) == ResourceUpdated(uri=uri)


async def test_addresses_of_no_role_or_of_one_out_of_scope_are_refused(guarded: str) -> None:
    bad = (
        *("role://account/%61", "role://account/", "role://call/x"),
        *("http://account/x", "role://account/a/b", "role://account/%FF"),
    )
    far = ("role://workspace/novel", "role://account/ben%20the%20other")
    async with http_client_of(guarded, "auto", OTHER) as client:
        for uri, code in (*((uri, "invalid") for uri in bad), *((uri, "forbidden") for uri in far)):
            for attempt in (client.read_resource, lambda uri: client.listen(resource_subscriptions=[uri]).__aenter__()):
                with pytest.raises(MCPError) as caught:
                    await attempt(uri)
                assert caught.value.error.data == {"contract": 1, "code": code}, uri
    async with http_client_of(guarded, "auto", TOKEN) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("role://account/without%20one")
        assert caught.value.error.data == {"contract": 1, "code": "not_found"}


# --- a store that fails, or keeps less ------------------------------------------------------------------------------


class FailingStore(SqliteRoleStore):
    """A store whose file has gone, or whose code is wrong; its errors quote what they were given."""

    problem: type[Exception] = StorageUnavailable

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        raise self._failure()

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        raise self._failure()

    def _failure(self) -> Exception:
        return StorageUnavailable(SECRET, remedy=SECRET) if self.problem is StorageUnavailable else self.problem(SECRET)


@pytest.mark.requirement("R7", "R14")
@pytest.mark.parametrize("problem", [StorageUnavailable, RuntimeError])
async def test_hides_store_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture, problem: type[Exception]) -> None:
    store = await FailingStore.open(tmp_path / "roles.db")
    store.problem = problem
    place = {"tier": "workspace", "scope_id": "novel"}
    async with aclosing(store), Client(RoleHost(store).server, read_timeout_seconds=BOUND) as client:
        for tool, arguments in (
            ("role_list", {"scope_ids": {"workspace": "novel"}}),
            ("role_get", place),
            ("role_put", {**place, "name": "n", "content": SECRET}),
            ("role_delete", place),
        ):
            assert await call(client, tool, **arguments) == {"contract": 1, "code": "unavailable"}
    assert problem.__name__ in caplog.text
    assert SECRET not in caplog.text


async def test_role_deleted_by_another_process_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteRoleStore.open(tmp_path / "roles.db")
    monkeypatch.setattr(store, "get", AsyncMock(return_value=Role("n", SECRET)))
    async with aclosing(store), Client(RoleHost(store).server, read_timeout_seconds=BOUND) as client:
        answer = await call(client, "role_delete", tier="account", scope_id="ana")
    assert answer == {"contract": 1, "code": "not_found"}


async def test_a_host_names_the_tiers_that_its_store_keeps_and_takes_no_other(tmp_path: Path) -> None:
    store = await SqliteRoleStore.open(tmp_path / "roles.db", tiers=frozenset({Tier.WORKSPACE, Tier.ACCOUNT}))
    async with aclosing(store), Client(RoleHost(store).server, read_timeout_seconds=BOUND) as client:
        for tool in (await client.list_tools()).tools:
            assert '"channel"' not in json.dumps([tool.input_schema, tool.output_schema])
            assert '"workspace"' in json.dumps(tool.input_schema)
        assert (await call(client, "role_get", tier="channel", scope_id="c"))["code"] == "invalid"
        assert (await call(client, "role_list", scope_ids={"channel": "c"}))["code"] == "invalid"


# --- the process ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7")
async def test_no_role_and_no_token_reaches_the_log(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with http_host(tmp_path / "roles.db", errors=errors, WORLDAGENT_ROLE_HOST_TOKEN=TOKEN) as (url, process):
        async with httpx2.AsyncClient(timeout=BOUND) as http:
            for body in (SECRET, json.dumps(SECRET), json.dumps({"jsonrpc": "2.0", "id": SECRET, "method": SECRET})):
                for token in (TOKEN, SECRET):
                    told = await http.post(url, content=body.encode(), headers=handshake(token))
                    assert told.status_code >= 400
            wrong = INITIALIZE | {"params": {"protocolVersion": SECRET, "capabilities": SECRET}}
            await http.post(url, json=wrong, headers=handshake(TOKEN))
        for mode in ("auto", "legacy"):
            async with http_client_of(url, mode, TOKEN) as client:
                await call(client, "role_put", tier="account", scope_id="ana", name="n", content=SECRET)
                await call(client, "role_put", tier=SECRET, scope_id="ana", name="n", content=SECRET)
                with pytest.raises(MCPError):
                    await client.call_tool(SECRET, {})
        process.terminate()
        assert await asyncio.to_thread(process.wait, BOUND) == 0
    log = errors.read_text(encoding="utf-8")
    assert SECRET not in log
    assert TOKEN not in log
    assert "Traceback" not in log
