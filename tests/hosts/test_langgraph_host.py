"""The graph that LangGraph's server asks for at each request, without that server."""

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore
from langgraph_sdk import runtime

from support.langgraph_server import EXAMPLE
from support.pages import DOCS, blocks, text_of
from worldagent.core.errors import InvalidArgument, RoleInvalid
from worldagent.hosts import langgraph as host

pytestmark = pytest.mark.requirement("T19")

HI: Any = {"messages": [{"role": "user", "content": "Is this text good?"}]}


@pytest.fixture(autouse=True)
def _app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WORLDAGENT_APP", "support.langgraph_shop:agent")


def reading() -> Any:
    return runtime._ReadRuntime(access_context="assistants.read", store=InMemoryStore())


def running(context: Any) -> Any:
    return runtime._ExecutionRuntime(access_context="threads.create_run", store=InMemoryStore(), context=context)


async def test_all_requests_of_a_process_share_one_open_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_ACCOUNT", "ana")
    first, *_ = await asyncio.gather(*(host.graph(reading()) for _ in range(3)))
    second = await host.graph(running({"channel": "web"}))
    config: Any = {"configurable": {"thread_id": "t"}}
    assert len((await first.ainvoke(HI, config))["messages"]) == 2
    agent = await host._Held.here().agent()
    [thread] = await agent.threads()
    assert (thread.thread, thread.account) == ("t", "ana")
    await host._Held.drain()
    assert not agent.is_open
    assert await host.graph(reading())  # it opens again
    await host._Held.drain()
    assert second.name == "shop"


def test_the_agent_closes_with_the_loop_of_a_server_that_does_not_drain_it() -> None:
    async def opened() -> Any:
        await host.graph(reading())
        return await host._Held.here().agent()

    assert not asyncio.run(opened()).is_open


async def test_what_a_client_sent_is_refused_before_the_agent_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLDAGENT_APP")
    with pytest.raises(RoleInvalid, match="as that of the account, the channel or the workspace") as raised:
        await host.graph(running({"role": {"name": "r", "content": "Be the night ferryman."}}))
    assert "ferryman" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="the user that the server has authenticated"):
        await host.graph(running({"account": "bo"}))


async def test_an_app_that_cannot_be_opened_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLDAGENT_APP")
    with pytest.raises(InvalidArgument, match=r"WORLDAGENT_APP does not name an agent; add .* to langgraph\.json"):
        await host.graph(reading())
    monkeypatch.setenv("WORLDAGENT_APP", "support.langgraph_shop:agents")
    with pytest.raises(InvalidArgument, match=r"WORLDAGENT_APP: the module .* has no 'agents'; name a WorldAgent"):
        await host.graph(reading())
    monkeypatch.setenv("WORLDAGENT_APP", "support.langgraph_shop:agent")
    assert await host.graph(reading())
    await host._Held.drain()


async def test_the_example_is_that_of_the_page_and_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = text_of(EXAMPLE / "langgraph.json")
    page = DOCS / "guides" / "langgraph-server.md"
    assert config in [block.code for block in blocks("json") if block.page == page]
    module, _, name = json.loads(config)["env"]["WORLDAGENT_APP"].partition(":")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLDAGENT_LM", "openai/gpt-4o")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with runpy.run_path(str(EXAMPLE / f"{module}.py"))[name]() as agent:
        assert {"converse:act", "converse:subagent:think"} <= set(agent.graph().get_graph(xray=True).nodes)
