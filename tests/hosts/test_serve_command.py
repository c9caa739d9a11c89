"""`worldagent serve`: the sidecar as a process, as people start it (T10). Other tests show what it answers."""

import asyncio
import json
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from support.command_line import BOUND, HTTP, MAKE, Done, command, serving, started
from support.openai_stub import openai_stub
from support.processes import eventually, next_line
from support.served import call, modern
from support.sidecar_calls import LEGACY, MODERN
from support.sidecar_clients import StdioClient
from support.sidecar_served import Caller, caller_of
from support.tools import certificate
from worldagent.hosts.cli.app import app
from worldagent.hosts.service.running import running_sidecars

pytestmark = pytest.mark.requirement("T10")

TOKEN = "token-of-a-test-which-nobody-may-see"
STDIO = ("serve", "--stdio", "--workspace", "w", "--app")
NOTE = "note: no token is required, so every program of this machine can use the agents"

# What an app can be like: it prints, while it is loaded and later.
_APPS = """
import sys
from worldagent import Settings, Storage, WorldAgent
from worldagent.testing import ScriptedLM

print("loading")


def make(workspace):
    print("making", workspace)
    return WorldAgent(workspace, lm=ScriptedLM(said))


def said(call):
    print("asked")
    sys.stdout.flush()
    return {"reply": "Hello from the app."}


def with_roles(workspace, roles=None):
    return WorldAgent(workspace, lm=ScriptedLM(lambda call: {"reply": str(call.role)}), roles=roles)


def alone():
    return make("alone")


def broken(workspace):
    raise RuntimeError("the secret of the app")


only = make("alone")
elsewhere = WorldAgent("alone", lm=ScriptedLM(said), storage=Storage(home="another-home"))
"""


async def listed(home: Path, **env: str) -> dict[str, Any]:
    done = await command(home, "ps", "--json", stdin=b"", **env)
    assert done.code == 0, done.told
    found: dict[str, Any] = json.loads(done.out)
    return found


async def begun(client: Caller, home: Path) -> str:
    """Begin a turn whose model waits until there is a file `go`, and leave it once the model waits; gives its id."""
    given = {"thread": "t1", "text": "Hello hold=go", "account": "ana"}
    call = asyncio.create_task(client("converse", follow=True, detach=True, **given))
    await asyncio.wait_for(client.come.wait(), BOUND)
    assert await eventually((home / "go.held").exists, BOUND)  # what waits before its first step stops at once
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    turn_id: str = client.events[0].turn_id
    return turn_id


def apps(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    (home / "apps.py").write_text(_APPS)
    return home


async def test_it_prints_its_address_and_that_no_token_is_required(home: Path) -> None:
    async with serving(home, *MAKE) as sidecar:
        assert sidecar.url.endswith("/mcp")
        [told] = (await listed(home))["sidecars"]
        where = {"pid": sidecar.process.pid, "transport": "http", "address": sidecar.url}
        assert told == told | where | {"workspaces": ["default"], "state": "ready"}
        async with httpx2.AsyncClient(timeout=BOUND) as http:
            root = sidecar.url.removesuffix("/mcp")
            assert (await http.get(f"{root}/health")).status_code == 200
            assert (await http.get(f"{root}/ready")).json()["ready"] is True
        done = await sidecar.ended()
    assert NOTE in done.told.splitlines()
    assert list((home / "sidecars").iterdir()) == []


async def test_a_draining_sidecar_is_listed_with_the_turns_it_waits_for(home: Path) -> None:
    async with serving(home, *MAKE, "--workspace", "shop", "--drain", "600") as sidecar:
        async with caller_of(sidecar.url, "auto") as client:
            turn = await begun(client, home)
        sidecar.process.terminate()
        states = partial(running_sidecars, home / "sidecars")
        assert await eventually(lambda: [each.state for each in states()] == ["draining"], BOUND)
        [found] = (await listed(home))["turns"]
        assert (found["turn"], found["account"], found["status"]) == (turn, "ana", "running")
        (home / "go").touch()
        assert await asyncio.wait_for(sidecar.process.wait(), BOUND) == 143
    assert await listed(home) == {"sidecars": [], "turns": [], "workers": []}


async def test_over_stdio_what_an_app_prints_goes_to_standard_error(home: Path) -> None:
    async with started(apps(home), *STDIO, "apps:make") as process, StdioClient(process, MODERN) as client:
        said = await client.ask("converse", thread="t1", text="Hello")
        assert said["turn"]["text"] == "Hello from the app."
        [told] = (await listed(home))["sidecars"]
        assert (told["transport"], told["address"], told["pid"]) == ("stdio", None, process.pid)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), BOUND) == 0
        assert process.stderr is not None
        printed = (await process.stderr.read()).decode().split()
    assert {"loading", "making", "asked"} <= set(printed)
    assert all(message["jsonrpc"] == "2.0" for message in client.heard)
    assert list((home / "sidecars").iterdir()) == []


async def test_over_stdio_an_app_gets_the_roles_that_the_client_keeps(home: Path) -> None:
    asked: list[str] = []

    def keep(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(tool)
        return {"contract": 1, "roles": [{"tier": "workspace", "name": "house", "content": "Answer as a lighthouse."}]}

    for roles, tiers in ((keep, ["workspace"]), (None, [])):
        async with (
            started(apps(home), *STDIO, "apps:with_roles") as process,
            StdioClient(process, LEGACY, roles=roles) as client,
        ):
            said = await client.ask("converse", thread=f"t{len(tiers)}", text="Hello")
            assert said["turn"]["role_tiers"] == tiers
    assert asked


async def test_an_app_with_one_agent_serves_its_workspace_from_the_home_of_the_option(home: Path) -> None:
    other = home / "other"
    words = ("--home", str(other), "--app", "apps:alone")
    async with serving(apps(home), *words) as sidecar, caller_of(sidecar.url, "auto") as client:
        assert (await client("converse", thread="t", text="Hi"))["turn"]["text"] == "Hello from the app."
        assert [each.workspaces for each in running_sidecars(other / "sidecars")] == [("alone",)]
    assert (other / "agent.db").is_file()
    assert not (home / "agent.db").exists()


async def test_the_web_app_serves_the_agents_of_the_sidecar_on_its_port(home: Path) -> None:
    token = home / "token.txt"
    words = ("--web", "--token-file", str(token), "--app", "apps:make", "--workspace", "shop")
    apps(home)
    token.write_text(TOKEN)
    async with serving(home, *words) as sidecar:
        site = sidecar.url.removesuffix("/mcp")
        assert await next_line(sidecar.process, BOUND) == f"{site}/console"
        [told] = (await listed(home))["sidecars"]
        assert told["web"] == f"{site}/"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=site, timeout=BOUND, headers=headers) as client:
            said = await client.post("/threads/t1/messages", json={"text": "Hello", "account": "ana"})
            assert said.json()["turn"]["text"] == "Hello from the app."
            assert (await client.get("/health")).json()["workspaces"] == 1
            assert (await client.get("/me", headers={"Host": "evil.example.com"})).status_code == 421
            assert (await client.get("/me", headers={"Authorization": ""})).status_code == 401
            assert (await client.get("/nothing")).json()["error"]["code"] == "not_found"
        async with caller_of(sidecar.url, "auto", token=TOKEN) as call_:
            told = await call_("history", thread="t1")
            assert [each["body"]["text"] for each in told["messages"]] == ["Hello", "Hello from the app."]


async def test_agents_are_made_of_options_for_each_workspace(home: Path) -> None:
    async with openai_stub() as stub:
        words = ("--lm", "openai/answer", "--identity", "You are a lighthouse.")
        env = {"WORLDAGENT_API_BASE": stub.url, "WORLDAGENT_MODEL_ATTEMPTS": "1"}
        async with (
            serving(home, *words, "--workspace", "a", "--workspace", "b", **env) as sidecar,
            caller_of(sidecar.url, "auto") as client,
        ):
            for workspace in ("a", "b"):
                said = await client("converse", workspace=workspace, thread="t", text="Hello")
                assert said["turn"]["text"] == "Paris."
        assert len(stub.requests) == 2
        assert all("You are a lighthouse." in json.dumps(request) for request in stub.requests)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stdio", "--http", "127.0.0.1:0"], "serve takes exactly one of --stdio and --http"),
        (["--stdio", "--web"], "--stdio and --web exclude each other"),
        (["--stdio", "--worker", "critic=-"], "--worker must not read standard input"),
        (["--http", "0.0.0.0:0"], "'0.0.0.0' can be reached from other machines"),
        (["--http", "127.0.0.1:0", "--token-file", "bad.toml"], "the token file 'bad.toml' is invalid"),
        (["--http", "127.0.0.1:0", "--turns", "0"], "turns must be above 0 and finite, got 0"),
    ],
)
def test_bad_options_serve_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.chdir(apps(home))
    (home / "bad.toml").write_text(f"[[token]]\ntoken = '{TOKEN}'\nmore = 1\n")
    done = CliRunner().invoke(
        app, ["serve", *words, *MAKE], env={"WORLDAGENT_HOME": str(home), "WORLDAGENT_LM": "openai/none"}
    )
    refused(home, Done(done.exit_code, done.stdout, done.stderr), told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--app", "apps:broken"], "fails with RuntimeError in 'apps.py', line "),
        (["--app", "apps:only", "--workspace", "b"], "--workspace must be 'alone'"),
        (["--app", "apps:elsewhere", "--home", "other"], "the agent of --app uses another home"),
    ],
)
async def test_an_invalid_app_is_refused_before_anything_is_served(home: Path, words: list[str], told: str) -> None:
    refused(home, await command(apps(home), *HTTP, *words), told)


def refused(home: Path, done: Done, told: str, *, code: int = 2) -> None:
    assert (done.code, done.out) == (code, ""), done.told
    assert told in done.told
    assert "remedy: " in done.told
    assert "Traceback" not in done.told
    assert TOKEN not in done.told
    assert "secret of the app" not in done.told
    assert not (home / "sidecars").exists()


async def test_a_model_that_cannot_be_used_is_refused_before_anything_is_served(home: Path) -> None:
    done = await command(home, *HTTP, "--lm", "openai/gpt-4o", stdin=b"", OPENAI_API_KEY="")
    refused(home, done, "the model 'openai/gpt-4o' has no API key", code=1)  # as by `ask`


async def test_other_machines_converse_over_tls_under_the_given_names(home: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "sidecar")
    (tokens := tmp_path / "tokens.toml").write_text(f'[[token]]\ntoken = "{TOKEN}"\nworkspaces = ["*"]\n')
    tokens.chmod(0o600)
    files = ("--token-file", str(tokens), "--tls-cert", str(cert), "--tls-key", str(key))
    words = (*MAKE, *files, "--workspace", "shop")
    async with serving(home, *words, "--server-name", "ship.example", http="0.0.0.0:0") as sidecar:
        assert sidecar.url.startswith("https://0.0.0.0:")
        at = f"localhost:{urlsplit(sidecar.url).port}"
        trusting = ssl.create_default_context(cafile=str(cert))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, verify=trusting, timeout=BOUND, trust_env=False) as http,
            Client(streamable_http_client(f"https://{at}/mcp", http_client=http)) as client,
        ):
            caller = Caller(client)
            assert (await caller("converse", thread="t1", text="Hi words=2"))["turn"]["text"] == "word0 word1"
            assert (await caller.refused("threads", workspace="novel"))["code"] == "forbidden"  # it is not served
            body, routed = modern(call("threads", {}))
            for name, status in (("ship.example", 200), ("evil.example", 421)):
                told = await http.post(f"https://{at}/mcp", content=body, headers=routed | {"Host": name})
                assert told.status_code == status
        async with httpx2.AsyncClient(timeout=BOUND, trust_env=False) as http:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await http.get(f"https://{at}/health")
            with pytest.raises(httpx2.TransportError):  # no answer, not one that says no
                await http.get(f"http://{at}/health")
        done = await sidecar.ended()
    assert done.code == 143
    for hidden in ("Traceback", TOKEN, "Hi words", NOTE):
        assert hidden not in done.out + done.told
