"""Whatever clients do with the web app, over each of its protocols: a role that they gave it is only in the call."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.leaks import awkward_canary, canary, on_the_server, planted
from support.processes import eventually
from support.sidecar_app import HASTY, MEMORY, WORKSPACE, digest
from support.sidecar_clients import BOUND
from support.sidecars import TOKEN, Sidecar, over_http
from support.web import STREAM, events_in
from worldagent.hosts.serving import PATH
from worldagent.testing import scan_for_roles

LENGTH = 400  # of which any 40 characters count
JSON = {"Accept": "application/json"}


@dataclass
class Visit:
    """One way of using the web app, with a role of its own.

    Attributes:
        client: Its client.
        name: What it is.
        home: The home of the server.
        received: All that any client had: lines of status, headers and bodies.
        planted: The texts and names of all roles so far.
    """

    client: httpx2.AsyncClient
    name: str
    home: Path
    received: list[str]
    planted: list[str]

    def __post_init__(self) -> None:
        self.content, self.label = planted(LENGTH, seed=self.name), canary(12, seed=f"label of {self.name}")
        self.role = {"content": self.content, "name": self.label}
        self.ids = {"workspace": WORKSPACE, "account": "_".join(self.name.split())}
        self.thread = f"threads/t-{self.ids['account']}"
        self.planted += [self.content, self.label]

    def note(self, response: httpx2.Response, text: str | None = None) -> None:
        """Keep what a client got."""
        self.received.append(f"{response.status_code} {response.headers} {response.text if text is None else text}")

    async def send(self, method: str, path: str, given: Any = None, **headers: str) -> httpx2.Response:
        """Send a request with the workspace and the account."""
        if method in ("GET", "DELETE"):
            response = await self.client.request(method, path, params={**self.ids, **(given or {})}, headers=headers)
        else:
            body = {**self.ids, **given} if isinstance(given, dict) else given
            response = await self.client.request(method, path, json=body, headers=headers)
        self.note(response)
        return response

    async def say(self, text: str, *, how: dict[str, str] = STREAM, **more: Any) -> httpx2.Response:
        """Send a message under the role."""
        return await self.send("POST", f"{self.thread}/messages", {"text": text, "role": self.role, **more}, **how)

    async def say_to_openai(self, text: str, *, model: str = WORKSPACE, **more: Any) -> httpx2.Response:
        """Send a message with the role as the system message."""
        messages = [{"role": "system", "content": self.content}, {"role": "user", "content": text}]
        headers = {"X-Worldagent-Account": self.ids["account"], "X-Worldagent-Thread": self.thread[8:]}
        body = {"model": model, "messages": messages, **more}
        response = await self.client.post("v1/chat/completions", json=body, headers=headers)
        self.note(response)
        return response

    async def run(self, run_id: str, text: str | None, **more: Any) -> list[dict[str, Any]]:
        """Run over AG-UI with the role."""
        messages = [] if text is None else [{"id": run_id, "role": "user", "content": text}]
        props = {**self.ids, "role": self.role}
        base = {"threadId": self.thread[8:], "runId": run_id, "tools": [], "context": [], "forwardedProps": props}
        response = await self.client.post("ag-ui", json={**base, "messages": messages, **more})
        self.note(response)
        return events_in(response.text) if response.is_success else []

    async def reached(self) -> None:
        """Wait until the model has the role."""
        seen = self.home.with_name(f"{self.home.name}.seen")
        wanted = digest(self.content)
        assert await eventually(lambda: seen.exists() and wanted in seen.read_text(encoding="ascii").split(), BOUND)

    @asynccontextmanager
    async def left(self, text: str, **more: Any) -> AsyncGenerator[str]:
        """Begin a turn and leave at the end of the block; gives the id of the turn once the model has the role."""
        body = {**self.ids, "text": text, "role": self.role, **more}
        async with self.client.stream("POST", f"{self.thread}/messages", json=body, headers=STREAM) as response:
            async for part in response.aiter_text():
                self.note(response, part)
                await self.reached()
                yield events_in(part)[0]["turn_id"]
                return


Way = Callable[[Visit], Awaitable[None]]
WAYS: dict[str, Way] = {}


def way(work: Way) -> Way:
    WAYS[work.__name__.replace("_", " ")] = work
    return work


@way
async def answers(visit: Visit) -> None:
    stream = await visit.say("Is it good? words=5", key="k1")
    turn = events_in(stream.text)[-1]["turn"]
    assert turn["status"] == "done"
    assert (await visit.say("Is it good? words=5", how=JSON, key="k1")).json()["turn"]["id"] == turn["id"]
    assert (await visit.say("Something else", how=JSON, key="k1")).status_code == 409
    await visit.reached()
    for path in ("events", "trace"):
        assert (await visit.send("GET", f"turns/{turn['id']}/{path}")).status_code == 200
    for path in (f"{visit.thread}/messages", f"{visit.thread}/pauses", "threads", "me", "roles", "memory", "functions"):
        assert (await visit.send("GET", path)).status_code == 200, path
    assert (await visit.send("PUT", f"turns/{turn['id']}/feedback", {"feedback": "good"})).status_code == 200
    assert (await visit.send("POST", f"{visit.thread}/fork", {})).status_code == 200


@way
async def tasks_and_skills(visit: Visit) -> None:
    task = {"worker": "critic", "request": "Judge it."}
    for path, more in (
        ("tasks", {"shape": "subagent", "params": task}),
        ("skills", {"skill": {"prompt": "Count syllables.", "params": task}}),
    ):
        done = await visit.send("POST", f"{visit.thread}/{path}", {**more, "role": visit.role})
        assert done.json()["turn"]["status"] == "done", done.text
    await visit.reached()


@way
async def models_that_fail_or_repeat(visit: Visit) -> None:
    for how in (STREAM, JSON):
        assert "model_" in (await visit.say("Is it good? fail=1", how=how)).text
        assert "role withheld" in (await visit.say("Is it good? repeat=1", how=how)).text
    assert "model_" in (await visit.say("Is it good? slow=1", workspace=HASTY)).text


@way
async def stored_roles(visit: Visit) -> None:
    assert (await visit.send("PUT", f"{visit.thread}/role", {"role": visit.role, "ttl": 600.0})).status_code == 200
    assert (await visit.send("POST", f"{visit.thread}/messages", {"text": "Is it good?"})).status_code == 200
    await visit.reached()
    explained = await visit.send("POST", f"{visit.thread}/role/explain", {})
    assert any(tier["length"] == len(visit.content) for tier in explained.json()["tiers"])
    kept = visit.received.pop()  # an explanation has the names of roles, and no content
    assert visit.label in kept
    assert not scan_for_roles({"explanation": kept}, [visit.content]).findings
    assert (await visit.send("DELETE", f"{visit.thread}/role")).status_code == 200


@way
async def pauses(visit: Visit) -> None:
    paused = events_in((await visit.say("do=buy what=hat")).text)[-1]["turn"]
    answers: dict[str, Any] = {each["id"]: {"approve": {}} for each in paused["pauses"]}
    assert (await visit.send("POST", f"{visit.thread}/resume", {"answers": answers})).status_code == 409
    other: dict[str, Any] = {"answers": answers, "role": {"content": awkward_canary(LENGTH, seed="other")}}
    visit.planted.append(other["role"]["content"])
    assert (await visit.send("POST", f"{visit.thread}/resume", other)).status_code == 409
    done = await visit.send("POST", f"{visit.thread}/resume", {"answers": answers, "role": visit.role}, **JSON)
    assert done.json()["turn"]["status"] == "done", done.text


@way
async def clients_that_leave(visit: Visit) -> None:
    async with visit.left(f"hold={visit.ids['account']} words=3", detach=True, key="k1") as turn_id:
        pass
    (visit.home / visit.ids["account"]).touch()
    rest = await visit.send("GET", f"turns/{turn_id}/events", **STREAM, **{"Last-Event-ID": "1"})
    assert events_in(rest.text)[-1]["turn"]["status"] == "done"


@way
async def ag_ui(visit: Visit) -> None:
    events = await visit.run("r1", "do=buy what=hat")
    interrupts = events[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts]
    assert (await visit.run("r2", None, resume=resume))[-1]["type"] == "RUN_FINISHED"
    assert (await visit.run("r3", "fail=1"))[-1]["type"] == "RUN_ERROR"
    await visit.run("r4", "repeat=1")
    await visit.run("r5", None)
    await visit.run("r6", "Hi", forwardedProps=visit.content)
    await visit.run("r7", "Hi", forwardedProps={**visit.ids, "role": visit.content})
    await visit.run("r8", "Hi", messages=[{"role": visit.content}])
    await visit.reached()


@way
async def openai(visit: Visit) -> None:
    for stream in (False, True):
        assert (await visit.say_to_openai("Is it good?", stream=stream)).status_code == 200
        await visit.say_to_openai("fail=1", stream=stream)
        await visit.say_to_openai("repeat=1", stream=stream)
    assert "approval_required" in (await visit.say_to_openai("do=buy")).text
    await visit.say_to_openai("Hi", model=visit.content)
    await visit.say_to_openai("Hi", tools=[visit.content])
    await visit.say_to_openai("Hi", response_format={"type": visit.content})
    await visit.reached()


@way
async def bad_input(visit: Visit) -> None:
    role = visit.role
    for wrong in (
        visit.content,
        [role],
        {"content": [visit.content]},
        {"content": visit.content, visit.label: 1},
        {"content": visit.content, "applies_to": visit.label},
        {"content": f"{visit.content} " * 100},
    ):
        for method, path in (("POST", "messages"), ("POST", "resume"), ("PUT", "role"), ("POST", "role/explain")):
            more = {"text": "Hi"} if path == "messages" else {}
            response = await visit.send(method, f"{visit.thread}/{path}", {**more, "role": wrong})
            assert response.status_code in (400, 409), response.text  # 409 for a thread without a turn
        assert (await visit.send("PUT", "roles/account", {"role": wrong})).status_code == 400
    await visit.send("POST", f"{visit.thread}/messages", {"text": "Hi", "Role": role, visit.label: visit.content})
    await visit.send("PUT", f"{visit.thread}/messages", role)
    await visit.send("POST", f"turns/{visit.label}/events", role)
    for path in (f"{visit.thread}/messages", "ag-ui", "v1/chat/completions", "login"):
        for body in (json.dumps({"role": role})[:-1], visit.content, json.dumps([role])):
            headers = {"Content-Type": "application/json", "X-Role": "x"}
            visit.note(await visit.client.post(path, content=body.encode(), headers=headers))


@dataclass
class Seen:
    """All that was seen of the servers of a home."""

    home: Path
    received: list[str] = field(default_factory=list)
    planted: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[tuple[Sidecar, httpx2.AsyncClient]]:
        """Run `serve --web`; gives the server and a client of the web app."""
        options = ("--web", "--log-level", "debug")
        more: dict[str, Any] = {"WORLDAGENT_TESTS_LOGS": "1", MEMORY: "1"}
        async with over_http(self.home, *options, workspaces=(WORKSPACE, HASTY), **more) as server:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            base = server.url.removesuffix(PATH) + "/"
            async with httpx2.AsyncClient(base_url=base, timeout=BOUND, headers=headers) as client:
                yield server, client

    def visit(self, client: httpx2.AsyncClient, name: str) -> Visit:
        """A new way with its role."""
        return Visit(client, name, self.home, self.received, self.planted)

    async def listen(self, client: httpx2.AsyncClient) -> None:
        """Keep the notices of changes until the server ends."""
        with suppress(httpx2.TransportError):
            async with client.stream("GET", "live", params={"workspace": WORKSPACE}) as live:
                async for part in live.aiter_text():
                    self.received.append(part)

    def look(self, log: Path) -> None:
        """Fail with every place that has a role: files and tables, the log, what clients got."""
        received = [*self.received, json.dumps(self.received, ensure_ascii=False)]
        places: dict[str, object] = {"responses": received, "log": log.read_bytes(), "server": on_the_server()}
        wanted = [*self.planted, TOKEN]
        found = scan_for_roles([self.home, places], wanted).findings
        assert not found, "\n".join(["a role is in", *map(str, found)])


@pytest.mark.requirement("R7", "R9", "R10", "T10")
@pytest.mark.on_every_database
async def test_a_role_that_a_client_of_the_web_app_gave_is_nowhere_afterwards(tmp_path: Path) -> None:
    seen = Seen(tmp_path / "home")
    async with seen.running() as (server, client):
        listening = asyncio.create_task(seen.listen(client))
        for name, work in WAYS.items():
            visit = seen.visit(client, name)
            await work(visit)
            seen.look(server.errors)
        visit = seen.visit(client, "killed")
        async with visit.left("hold=later", detach=True, key="k1"):
            await server.killed()
        await asyncio.wait_for(listening, BOUND)
    seen.look(server.errors)
    assert server.errors.read_text().count("POST") > 20, "the log has few requests, so it shows little"
    (seen.home / "later").touch()
    async with seen.running() as (server, client):
        visit.client = client
        resumed = await visit.send("POST", f"{visit.thread}/resume", {"role": visit.role}, **STREAM)
        assert events_in(resumed.text)[-1]["turn"]["status"] == "done"
        for page in ("console/", "console/main.js", "openapi.json"):
            visit.note(await client.get(page))
        seen.look(server.errors)
    seen.look(server.errors)
    assert len(seen.received) > 100, "few responses were seen, so this shows little"
