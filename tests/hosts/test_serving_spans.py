"""The spans of served requests, as the embedder's tracer provider gets them: nothing of theirs comes from a caller."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ErrorData
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support import sidecar_app
from support.agents import answering, scripted_agent
from support.broken_hosts import MemoryStore
from support.leaks import canary, spans
from support.served import SECRET, Plain
from support.sidecar_calls import Calling, Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import TOKEN, Shop, served, task
from support.sidecars import REVISIONS
from worldagent.hosts.role_host import RoleHost
from worldagent.hosts.serving import Address, Tokens, application
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import scan_for_roles

__all__ = ["spans"]  # fixture

pytestmark = pytest.mark.requirement("R7")
TRACE = "0af7651916cd43dd8448eb211c80319c"
YES = {"action": "accept", "content": {"decision": "approve"}}
ROLE, NAME = canary(400, "role of a span"), canary(12, "name of a span")


def served_spans(exporter: InMemorySpanExporter) -> list[Any]:
    return [span for span in exporter.get_finished_spans() if span.kind.name == "SERVER"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_span_has_nothing_that_a_caller_made_up(tmp_path: Path, spans: InMemorySpanExporter, mode: Any) -> None:
    service = Plain(tmp_path / "notes", None)
    application(service, Address("127.0.0.1", 0))
    server: Server[Any] = service.server
    meta: Any = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": f"a={SECRET}", "note": SECRET}
    async with Client(server, mode=mode) as client:
        with suppress(MCPError):
            await client.session.call_tool(SECRET, {"text": SECRET}, meta=meta)
        params = CallToolRequestParams(name=SECRET)
        made_up: Any = CallToolRequest(params=params).model_copy(update={"method": SECRET})
        with suppress(MCPError):
            await client.session.send_request(made_up, CallToolResult)
    assert served_spans(spans)
    for span in served_spans(spans):
        assert SECRET not in span.to_json()
        assert not span.context.trace_state
    names = [span.name for span in served_spans(spans)]
    assert "tools/call" in names
    assert "?" in names


@pytest.mark.parametrize("tool", ["role_list", "threads"])
async def test_a_span_names_the_tool_and_is_part_of_the_callers_trace(
    tmp_path: Path, spans: InMemorySpanExporter, tool: str
) -> None:
    sidecar = Sidecar(lambda workspace: scripted_agent(tmp_path, answering()))
    service: Any = RoleHost(MemoryStore()) if tool == "role_list" else sidecar
    application(service, Address("127.0.0.1", 0))
    meta: Any = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    async with Client(service.server) as client:
        await client.session.call_tool(tool, {}, meta=meta)
    [span] = [span for span in served_spans(spans) if span.name == f"tools/call {tool}"]
    assert span.attributes is not None
    assert span.attributes["gen_ai.tool.name"] == tool
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE


async def test_the_text_of_an_error_that_a_client_answers_over_http_is_in_no_span(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    shop = Shop()

    async def failing(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-32000, message=SECRET, data=SECRET)

    async with (
        served(Sidecar(lambda workspace: shop.agent(tmp_path))) as url,
        Client(url, mode="legacy", elicitation_callback=failing) as client,
    ):
        assert (await task(client, "buy"))["turn"]["status"] == "paused"
    [asked] = [span for span in spans.get_finished_spans() if span.name == "MCP send elicitation/create"]
    assert asked.attributes is not None
    assert asked.attributes["error.type"] == "-32000"
    assert [span.name for span in spans.get_finished_spans() if SECRET in span.to_json()] == []


# --- roles ------------------------------------------------------------------------------------------------------------


async def refusal(client: Calling, tool: str, **arguments: Any) -> str | int:
    with pytest.raises(Refused) as caught:
        await client.ask(tool, **arguments)
    return caught.value.code


async def give_roles(client: Calling) -> Counter[str]:
    """Give a role to everything that takes one, also where it is no argument; gives the names that the spans have."""
    role: dict[str, Any] = {"content": ROLE, "name": NAME}
    params = {"request": "Judge it.", "worker": "critic"}
    await client.ask("thread_role_set", thread="kept", role=role)
    assert NAME in str(await client.ask("explain_role", thread="kept", role=role))
    calls = (
        await client.ask("converse", thread="kept", text="Hi"),
        await client.ask("converse", thread="t1", text="Hi", role=role),
        await client.ask("task", thread="t1", shape="subagent", params=params, role=role),
        await client.ask("run_skill", thread="t1", skill={"prompt": ROLE, "name": NAME}, params=params, role=role),
        await client.ask("task", thread="t1", shape="buy", role=role),  # a person is asked meanwhile
    )
    assert [call["turn"]["status"] for call in calls] == ["done"] * 5
    paused = (await client.ask("converse", thread="t2", text="do=buy", role=role, pauses="return"))["turn"]
    answers: dict[str, Any] = {pause["id"]: {"approve": {}} for pause in paused["pauses"]}
    resumed = await client.ask("resume", thread="t2", answers=answers, role=role)
    assert (paused["status"], resumed["turn"]["status"]) == ("paused", "done")
    failing = {"thread": "t3", "text": "fail=1"}  # with an exception that quotes all that the model was sent
    assert await refusal(client, "converse", **failing, role=role) == "model_unavailable"
    assert await refusal(client, "converse", thread="t4", text=5, role=role | {ROLE: NAME}) == "invalid_argument"
    assert await refusal(client, "resume", thread="t4", role=ROLE) == "invalid_argument"
    for made_up in (NAME, ROLE):
        assert await refusal(client, made_up, thread="t4", role=role) == -32602
    with pytest.raises(Refused):
        await client.request("tools/call", name="converse", arguments=ROLE)
    asked = ["thread_role_set", "explain_role", *["converse"] * 6, "task", "task", "run_skill", *["resume"] * 2]
    return Counter(f"tools/call {tool}" for tool in asked) + Counter({"tools/call": 2})


def check_spans(told: list[str], expected: Counter[str], seen: Path) -> None:
    """Look through spans as they were exported, whole."""
    found = scan_for_roles(told, [ROLE, NAME, TOKEN]).findings
    assert not found, "\n".join(["a role is in", *map(str, found)])
    names = Counter(json.loads(span)["name"] for span in told)
    assert expected <= names, "there are fewer spans than calls, so this shows little"
    assert sidecar_app.digest(ROLE) in seen.read_text().split(), "no model had the role, so this shows nothing"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_no_span_has_a_role_that_a_call_over_http_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter, revision: Revision
) -> None:
    monkeypatch.setenv(sidecar_app.HOME, str(tmp_path))
    monkeypatch.setenv(sidecar_app.SEEN, str(tmp_path / "seen"))
    tokens = Tokens([(TOKEN, Grant({sidecar_app.WORKSPACE}, {"ana"}))])
    async with (
        served(Sidecar(sidecar_app.make, tokens=tokens)) as url,
        HttpClient(url, TOKEN, revision, elicit=lambda _: YES) as client,
    ):
        expected = await give_roles(client)
    told = [str(span.to_json(indent=None)) for span in spans.get_finished_spans()]
    check_spans(told, expected, tmp_path / "seen")
