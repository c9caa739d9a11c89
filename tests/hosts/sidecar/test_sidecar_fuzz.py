"""Whatever is sent to a sidecar, over HTTP or a line: no answer fails or is missing, and nothing grows."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.sidecar_calls import Revision
from support.sidecar_probes import INTERNAL, NUMBER, TOKEN, Probed, posted, probed, request, sound
from support.sidecar_strategies import METHODS, PATHS, RAW_VALUES, deep, fitting, headers, messages, misfits, spoiled
from support.sidecars import REVISIONS

pytestmark = [pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def probes() -> Generator[Probed]:
    with probed() as found:
        yield found


revisions = pytest.mark.parametrize("revision", REVISIONS)


@pytest.mark.requirement("T10")
@given(data=st.binary(max_size=400))
@example(data=b"")
@example(data=b"\r\n\r\n")
@example(data=b"GET / HTTP/9.9\r\n\r\n")
@example(data=b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n")
@example(data=b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
@example(data=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
def test_bytes_that_are_no_request_are_refused_or_dropped(probes: Probed, data: bytes) -> None:
    assert [status for status in probes.run(probes.unfinished(data)) if status < 400] == []
    probes.run(probes.alive())


@revisions
@given(data=st.data())
def test_a_request_with_wrong_bytes_in_it_is_answered_or_dropped(
    probes: Probed, revision: Revision, data: st.DataObject
) -> None:
    probes.run(probes.unfinished(data.draw(spoiled(sound(probes.clients[revision])))))
    probes.run(probes.alive())


@given(
    method=st.sampled_from(METHODS),
    path=st.sampled_from(PATHS),
    given_headers=headers(TOKEN),
    body=st.one_of(messages(), st.binary(max_size=60)),
)
def test_a_request_of_any_method_path_and_headers_is_answered(
    probes: Probed, method: str, path: str, given_headers: list[tuple[str, str]], body: bytes
) -> None:
    assert probes.run(probes.statuses(request(method, path, given_headers, body)))
    probes.run(probes.alive())


@revisions
@given(body=messages())
@example(body=deep(100_000, True).encode())
@example(body=b"")
@example(body=b"\xff\xfe")
@example(body=b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}')
def test_a_message_in_which_anything_is_wrong_is_answered(probes: Probed, revision: Revision, body: bytes) -> None:
    assert probes.run(probes.statuses(posted(probes.clients[revision], body)))
    probes.run(probes.alive())


@revisions
@given(params=RAW_VALUES)
def test_any_params_of_a_call_are_answered(probes: Probed, revision: Revision, params: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode("utf-8", "surrogatepass")
    assert probes.run(probes.statuses(posted(probes.clients[revision], body)))


_N = NUMBER.decode()
_IDS = st.sampled_from([_N, f"-{_N}", f"{_N}.0", f"{_N}e0", f"{_N}.5", f'"{_N}"', f'"{"x" * 300}{_N}"', f"[{_N}]"])


@given(line=st.one_of(messages(_IDS), st.binary(max_size=200)))
@example(line=b'{"jsonrpc":"2.0","id":null,"method":"ping"}')
@example(line=b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}')
@example(line=b'{"jsonrpc":"2.0","id":@NUMBER@.0,"method":"tools/list"}')
@example(line=b'{"jsonrpc":"2.0","id":@NUMBER@,"method":"tools/list","params":5}')
@example(line=b'{"jsonrpc":"2.0","id":@NUMBER@,"method":"tools/list","params":5,"result":{}}')
@example(line=b'{"jsonrpc":"2.0","id":"a","id":@NUMBER@,"method":"ping","method":"tools/list"}')
def test_a_line_that_asks_is_answered_under_its_id_and_the_next_one_as_well(probes: Probed, line: bytes) -> None:
    for message in probes.run(probes.answers(line)):
        assert message.get("error", {}).get("code") != INTERNAL, message


@st.composite
def _calls(draw: st.DrawFn, tools: dict[str, dict[str, Any]], *, fit: bool) -> tuple[str, Any]:
    name = draw(st.sampled_from(sorted(tools)))
    schema = tools[name]
    return name, draw(fitting(schema, schema.get("$defs", {})) if fit else misfits(schema))


@revisions
@pytest.mark.parametrize("fit", [True, False])
@given(data=st.data())
def test_a_tool_answers_whatever_its_schema_takes_and_whatever_it_does_not(
    probes: Probed, revision: Revision, fit: bool, data: st.DataObject
) -> None:
    name, arguments = data.draw(_calls(probes.tools, fit=fit))
    _quick(name, arguments)
    client = probes.clients[revision]
    message = client.message("tools/call", {"name": name, "arguments": arguments})
    # JSON as it is, with half pairs and large numbers.
    body = json.dumps(message).encode()
    headers = client.headers("tools/call", {"name": name})
    assert probes.run(probes.statuses(request("POST", "/mcp", list(headers.items()), body)))


def _quick(name: str, arguments: Any) -> None:
    """Let `events` not wait long for what may never come."""
    if name == "events" and isinstance(arguments, dict):
        arguments["wait"] = 0.1
