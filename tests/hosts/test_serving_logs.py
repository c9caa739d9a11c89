"""Logs and spans of a serving process: requests as data, and no text of a caller or a library."""

import json
import logging
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ErrorData
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support import sidecar_app, sidecar_served
from support.agents import answering, scripted_agent
from support.broken_hosts import MemoryStore
from support.leaks import canary, spans
from support.served import SECRET, Plain, Wire, call, initialize, modern, served
from support.sidecar_calls import Calling, Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import Shop, task
from support.sidecars import REVISIONS
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.role_host import RoleHost
from worldagent.hosts.serving import Address, RequestLog, Tokens, application, quiet_logs
from worldagent.hosts.serving.logs import LogForm, LogLevel
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import scan_for_roles

__all__ = ["spans"]  # fixture

pytestmark = pytest.mark.requirement("R7")

TOKEN = "t0ken-of-the-novel"
FORMS = pytest.mark.parametrize("form", get_args(LogForm))


def raised() -> ValueError:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        return error


@FORMS
@pytest.mark.parametrize("level", get_args(LogLevel))
def test_libraries_are_named_and_not_heard(capsys: pytest.CaptureFixture[str], level: LogLevel, form: LogForm) -> None:
    with quiet_logs(level=level, form=form):
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("some.library").log(number, "took %s", SECRET, exc_info=raised())
            logging.getLogger("some.library").log(number, SECRET, extra={"worldagent_fields": {"a": SECRET}})
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(SECRET, UserWarning, stacklevel=1)
        logging.getLogger("some.library").error(SECRET, "one argument too many")
    told = capsys.readouterr().err
    assert SECRET not in told
    assert "some.library" in told
    assert "ValueError" in told
    assert "py.warnings" in told
    assert ("debug" in told) == (level == "debug")


@pytest.mark.parametrize("given", [{"level": "loud"}, {"form": "xml"}])
def test_an_unknown_level_or_form_of_the_log_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="level debug, info or warning and form text or"), quiet_logs(**given):
        pass


@FORMS
def test_a_request_is_one_line_of_data(capsys: pytest.CaptureFixture[str], form: LogForm) -> None:
    requests = RequestLog({"converse"})
    fields: dict[str, Any] = {"method": "tools/call", "tool": "converse", "workspace": "the novel\n"}
    fields |= {"thread": "t1", "turn": "u1", "code": "ok"}
    with quiet_logs(level="info", form=form):
        for _ in range(3):
            requests.record(**fields, ms=1.26)
        requests.record(method=SECRET, tool=SECRET, code="invalid", ms=0.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert len(set(lines[:3])) <= 3
    if form == "text":
        named = r'workspace="the novel\n" thread=t1 turn=u1 code=ok ms=1.3'
        assert lines[0] == f"info: request method=tools/call tool=converse {named}"
        assert lines[3] == 'info: request method="?" tool="?" code=invalid ms=0.0'
        return
    read: list[dict[str, Any]] = [json.loads(line) for line in lines]
    told = {"level": "info", "logger": "worldagent.requests", "message": "request", **fields, "ms": 1.3}
    assert {name: read[0][name] for name in read[0] if name != "time"} == told
    assert (read[3]["method"], read[3]["tool"]) == ("?", "?")


@FORMS
def test_a_line_that_comes_again_and_again_is_counted(capsys: pytest.CaptureFixture[str], form: LogForm) -> None:
    with quiet_logs(form=form):
        for _ in range(1000):
            logging.getLogger("worldagent.serving").warning("the same")
        for number in range(3000):
            logging.getLogger("worldagent.serving").warning("another %d", number)
    lines = capsys.readouterr().err.splitlines()
    same = [line for line in lines if "the same" in line]
    assert len(same) < 10
    if form == "json":
        assert sum(json.loads(line).get("more", 0) for line in same) + len({"first"}) >= 999
    assert len(lines) < 3020


def test_at_debug_no_request_leaves_text_or_token_in_the_log(tmp_path: Path) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with served(tmp_path, level="debug", form="json", tokens={TOKEN: ""}) as found, Wire(found.address) as wire:
        session = initialize(wire, **bearer)
        for tool in ("say", "fail", SECRET):
            message = call(tool, {"text": SECRET, SECRET: SECRET})
            body, headers = modern(message)
            for headers_given, sent in (({**headers, **bearer}, body), (session, json.dumps(message).encode())):
                wire.ask("POST", "/mcp", sent, **headers_given)
        wire.ask("GET", f"/{SECRET.replace(' ', '-')}", b"", **bearer)
        wire.ask("POST", "/mcp", SECRET.encode(), **{**session, "Mcp-Session-Id": SECRET})
        wire.ask("POST", "/mcp", body, **{**headers, **bearer, "Host": SECRET})
        wire.ask("POST", "/mcp", body, **{**headers, **bearer, "Origin": SECRET})
        told = found.told()
    assert SECRET not in told
    assert SECRET.replace(" ", "-") not in told
    assert TOKEN not in told
    assert "mcp.server" in told
    assert all(json.loads(line)["level"] for line in told.splitlines())


# --- spans ------------------------------------------------------------------------------------------------------------


TRACE = "0af7651916cd43dd8448eb211c80319c"
YES = {"action": "accept", "content": {"decision": "approve"}}
ROLE, NAME = canary(400, "role of a span"), canary(12, "name of a span")
ENTRY = canary(100, "memory entry")


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
async def test_span_names_its_tool_in_the_callers_trace(tmp_path: Path, spans: InMemorySpanExporter, tool: str) -> None:
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


async def test_text_of_a_clients_error_over_http_is_in_no_span(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    shop = Shop()

    async def failing(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-32000, message=SECRET, data=SECRET)

    async with (
        sidecar_served.served(Sidecar(lambda workspace: shop.agent(tmp_path))) as url,
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
    """Give a role to everything that takes one, also where it is not an argument; gives the names of spans."""
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


@pytest.mark.parametrize("revision", REVISIONS)
async def test_no_span_has_a_role_that_a_call_over_http_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter, revision: Revision
) -> None:
    monkeypatch.setenv(sidecar_app.HOME, str(tmp_path))
    monkeypatch.setenv(sidecar_app.MEMORY, "1")
    monkeypatch.setenv(sidecar_app.SEEN, str(tmp_path / "seen"))
    tokens = Tokens([(sidecar_served.TOKEN, Grant({sidecar_app.WORKSPACE}, {"ana"}))])
    async with (
        sidecar_served.served(Sidecar(sidecar_app.make, tokens=tokens)) as url,
        HttpClient(url, sidecar_served.TOKEN, revision, elicit=lambda _: YES) as client,
    ):
        expected = await give_roles(client)
        await client.ask("memory_add", text=ENTRY)
        assert (await client.ask("memory_search", text=ENTRY))["entries"]
    told = [str(span.to_json(indent=None)) for span in spans.get_finished_spans()]
    found = scan_for_roles(told, [ROLE, NAME, ENTRY, sidecar_served.TOKEN]).findings
    assert not found, "\n".join(["a role is in", *map(str, found)])
    assert expected <= Counter(json.loads(span)["name"] for span in told), "fewer spans than calls show little"
    seen = (tmp_path / "seen").read_text().split()
    assert sidecar_app.digest(ROLE) in seen, "no model had the role, so this shows nothing"
