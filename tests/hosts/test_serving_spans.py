"""The spans of served requests, as the embedder's tracer provider gets them: nothing of theirs comes from a caller."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ErrorData
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.agents import answering, scripted_agent
from support.asked_people import Shop, task
from support.broken_hosts import MemoryStore
from support.served import SECRET, Plain
from support.sidecar_served import served
from worldagent.hosts.role_host import RoleHost
from worldagent.hosts.serving import Address, application
from worldagent.hosts.sidecar import Sidecar

pytestmark = pytest.mark.requirement("R7")
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[InMemorySpanExporter, None, None]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("mcp-python-sdk"))
    yield exporter
    provider.shutdown()


def hosts(folder: Path) -> dict[str, Any]:
    return {
        "role host": RoleHost(MemoryStore()),
        "sidecar": Sidecar(lambda workspace: scripted_agent(folder, answering())),
        "another": Plain(folder / "notes", None),
    }


def served_spans(exporter: InMemorySpanExporter) -> list[Any]:
    return [span for span in exporter.get_finished_spans() if span.kind.name == "SERVER"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("which", ["role host", "sidecar", "another"])
async def test_a_span_has_nothing_that_a_caller_made_up(
    tmp_path: Path, spans: InMemorySpanExporter, which: str, mode: Any
) -> None:
    service = hosts(tmp_path)[which]
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


@pytest.mark.parametrize(("which", "tool"), [("role host", "role_list"), ("sidecar", "threads")])
async def test_a_span_names_the_tool_and_stands_in_the_callers_trace(
    tmp_path: Path, spans: InMemorySpanExporter, which: str, tool: str
) -> None:
    service = hosts(tmp_path)[which]
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
