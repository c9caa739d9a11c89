"""An agent behind LangGraph's own server, `langgraph dev`, in a process and an environment of its own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support import langgraph_shop
from support.langgraph_server import made_app, running_server
from support.leaks import canary
from worldagent import Role, Tier
from worldagent.testing import assert_no_role_leak, scan_for_roles

pytestmark = [pytest.mark.requirement("T19"), pytest.mark.timeout(300)]

HI: Any = {"messages": [{"role": "user", "content": "Is this text good?"}]}
BUY: Any = {"messages": [{"role": "user", "content": "Please buy it."}]}


async def make_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *stored: str) -> Path:
    """The folder of a server with users, whose agent has a stored role for the workspace and one for each of them."""
    home = tmp_path / "home"
    monkeypatch.setenv("SHOP_HOME", str(home))
    async with langgraph_shop.agent() as agent:
        for name, text in zip(("workspace", "ana", "bo"), stored, strict=True):
            tier, scope_id = (Tier.WORKSPACE, None) if name == "workspace" else (Tier.ACCOUNT, name)
            await agent.roles.put(tier, Role(name, f"The role of {name}. {text}"), scope_id=scope_id)
    made_app(tmp_path / "server", home)
    return tmp_path / "server"


def without_stored_roles(home: Path) -> list[Path]:
    """The files of a home but those of the store of roles."""
    return [path for path in home.iterdir() if not path.name.startswith("roles.db")]


async def failure(client: Any, thread: str, **given: Any) -> str:
    """The error of a run, as the server reports it to its client."""
    with pytest.raises(Exception, match=r"\w") as raised:
        await client.runs.wait(thread, "shop", **given)
    return str(raised.value)


async def everything(client: Any, thread: str) -> list[Any]:
    """What the API says about a thread."""
    return [
        await client.threads.get(thread),
        await client.threads.get_state(thread, subgraphs=True),
        await client.threads.get_history(thread),
        await client.runs.list(thread),
    ]


async def test_a_server_draws_streams_interrupts_and_resumes_and_stores_no_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [canary(200, name) for name in ("workspace", "ana", "bo")]
    sent = canary(200, "sent")
    seen: list[Any] = []
    async with running_server(await make_shop(tmp_path, monkeypatch, *stored)) as server:
        ana, bo = await server.client("ana"), await server.client("bo")
        # What Studio shows.
        [assistant] = await ana.assistants.search()
        shown = assistant["assistant_id"]
        drawn = await ana.assistants.get_graph(shown, xray=True)
        nodes = {node["id"] for node in drawn["nodes"]}
        assert {"converse:think", "converse:act", "converse:subagent:think"} <= nodes
        assert set(await ana.assistants.get_subgraphs(shown, recurse=True)) == {"converse", "converse|subagent"}
        schemas = await ana.assistants.get_schemas(shown)
        assert set((schemas["context_schema"] or {})["properties"]) == {"channel", "inputs"}
        assert schemas["input_schema"]
        # A streamed run, with a worker.
        thread = (await ana.threads.create())["thread_id"]
        modes: Any = ["updates", "messages-tuple", "values", "debug", "custom", "tasks", "checkpoints"]
        events = [
            (event.event, event.data)
            async for event in ana.runs.stream(
                thread, "shop", input=HI, context={"channel": "web"}, stream_mode=modes, stream_subgraphs=True
            )
        ]
        places = {"|".join(part.split(":")[0] for part in name.split("|")) for name, _ in events}
        assert events[-1][0] != "error", events[-1]
        assert {"updates", "updates|converse", "updates|converse|subagent", "messages"} <= places
        texts: dict[str, str] = {}
        for name, data in events:
            if name == "messages":
                texts[data[0]["id"]] = texts.get(data[0]["id"], "") + data[0]["content"]
        assert list(texts.values()) == ["One moment.", "It is dull. Roles: ana, workspace."]
        # An interrupt and its answer.
        bought = (await bo.threads.create())["thread_id"]
        state: Any = await bo.runs.wait(bought, "shop", input=BUY)
        [pause] = state["__interrupt__"][0]["value"]["pauses"]
        assert (pause["function"], pause["arguments"]) == ("buy", {"item": "hat"})
        seen.append(state)
        state = await bo.runs.wait(bought, "shop", command={"resume": {pause["id"]: {"approve": {}}}})
        assert state["messages"][-1]["content"] == "one hat is on its way Roles: bo, workspace."
        # What a client sends as context is stored there, so a role is refused.
        other = (await ana.threads.create())["thread_id"]
        refused = await failure(ana, other, input=HI, context={"role": {"name": "r", "content": sent}})
        assert "RoleInvalid" in refused
        assert "InvalidArgument" in await failure(ana, other, input=HI, context={"account": "bo"})
        seen += [assistant, drawn, schemas, events, state, refused]
        for client, each in ((ana, thread), (bo, bought), (ana, other)):
            seen += await everything(client, each)
    assert scan_for_roles([server.folder], sent).findings  # as the page says
    seen = json.loads(json.dumps(seen).replace(sent, ""))
    assert_no_role_leak([server.folder, server.log, seen], stored)
    assert_no_role_leak(without_stored_roles(tmp_path / "home"), [*stored, sent])
    assert_no_role_leak(server.log, sent)
    async with langgraph_shop.agent() as agent:
        found = {(each.thread, each.account, each.channel) for each in await agent.threads()}
    assert found == {(thread, "ana", "web"), (bought, "bo", None)}


@pytest.mark.soak
@pytest.mark.on_every_database
@pytest.mark.parametrize("length", [12, 2000])
async def test_turns_of_many_threads_wait_over_a_restart_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    stored = [canary(length, name) for name in ("workspace", "ana", "bo")]
    folder, users = await make_shop(tmp_path, monkeypatch, *stored), ("ana", "bo") * 10
    paused: list[tuple[str, str, str]] = []
    async with running_server(folder) as server:
        clients = {user: await server.client(user) for user in ("ana", "bo")}

        async def begin(user: str) -> None:
            thread = (await clients[user].threads.create())["thread_id"]
            state: Any = await clients[user].runs.wait(thread, "shop", input=BUY)
            [pause] = state["__interrupt__"][0]["value"]["pauses"]
            paused.append((user, thread, pause["id"]))

        await asyncio.gather(*map(begin, users))
    seen: list[Any] = []
    async with running_server(folder) as again:
        clients = {user: await again.client(user) for user in ("ana", "bo")}

        async def resume(user: str, thread: str, pause: str) -> None:
            command: Any = {"resume": {pause: {"approve": {}}}}
            state: Any = await clients[user].runs.wait(thread, "shop", command=command)
            assert state["messages"][-1]["content"] == f"one hat is on its way Roles: {user}, workspace."
            seen.extend(await everything(clients[user], thread))

        await asyncio.gather(*(resume(*each) for each in paused))
    assert_no_role_leak([folder, server.log, again.log, seen, *without_stored_roles(tmp_path / "home")], stored)
    async with langgraph_shop.agent() as agent:
        calls = [each.status for each in await agent.threads()]
    assert calls == ["done"] * len(users)
