"""Whatever is sent to a sidecar, over HTTP or a line: no answer fails or is missing, and nothing grows."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.types.methods import MONOLITH_NOTIFICATIONS, MONOLITH_REQUESTS
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS

from support.sidecar_calls import Revision
from support.sidecar_probes import INTERNAL, NUMBER, TOKEN, Probed, posted, probed, request, sound
from support.sidecars import REVISIONS

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "post")
PATHS = (
    "/mcp",
    "/",
    "/health",
    "/ready",
    "/mcp/",
    "//mcp",
    "/mcp?x=1",
    "/%00",
    "/mcp%2f",
    "/../mcp",
    "*",
    "/" + "x" * 9000,
)
CALLS = (*MONOLITH_REQUESTS, *MONOLITH_NOTIFICATIONS, "tasks/get")
NAMED_REVISIONS = (*KNOWN_PROTOCOL_VERSIONS, "1999-01-01", "2031-01-01", "", "x")

# Numbers that no program of ours should choke on, and texts of which some are no UTF-8 or mean something to a library.
NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1e308, -0.0]),
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", " ", "\x00", "\u2028", "$ref", "__proto__", "[[ ## role ## ]]", "x" * 5000, "{}", "../..", "%s%n"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def deep(depth: int, key: bool) -> str:
    """JSON of so many levels."""
    return '{"a":' * depth + "1" + "}" * depth if key else "[" * depth + "]" * depth


RAW_VALUES = st.one_of(
    VALUES.map(json.dumps),
    st.builds(deep, st.sampled_from([10, 100, 2000, 100_000]), st.booleans()),
    st.sampled_from(
        ["NaN", "Infinity", "1e999999", "-" + "9" * 5000, "0x10", '"\\ud800"', "'x'", "", "[1,]", "01", '"\\u0000"']
    ),
)
"""JSON texts, and texts that are none."""


@st.composite
def messages(draw: st.DrawFn, ids: st.SearchStrategy[str] | None = None) -> bytes:
    """A message of JSON-RPC in which nearly everything may be wrong, now and then with a key twice.

    Args:
        ids: What JSON its id is, where it is not anything; small numbers where there is none.
    """
    parts = {
        "jsonrpc": draw(st.one_of(st.just('"2.0"'), RAW_VALUES)),
        "id": draw(st.one_of(st.integers(1, 9).map(str) if ids is None else ids, RAW_VALUES)),
        "method": draw(st.one_of(st.sampled_from(CALLS).map(json.dumps), RAW_VALUES)),
        "params": draw(st.one_of(st.builds(_params, st.sampled_from(_KEYS), RAW_VALUES, RAW_VALUES), RAW_VALUES)),
    }
    kept = draw(st.lists(st.sampled_from([*parts, "method", "id", "result", "error", "x"]), min_size=1, max_size=6))
    if draw(st.booleans()):
        kept = [*parts, *kept[:1]]
    text = ",".join(f'"{name}":{parts.get(name, "{}")}' for name in kept)
    whole = "{" + text + "}"
    return draw(st.sampled_from([whole, f"[{whole}]", f"[{whole},{whole}]", whole + whole, whole[:-1]])).encode(
        "utf-8", "surrogatepass"
    )


_KEYS = ("name", "arguments", "_meta", "uri", "protocolVersion", "capabilities", "requestId", "level", "cursor")


def _params(key: str, value: str, meta: str) -> str:
    return (
        f'{{"name":"converse","{key}":{value},"_meta":{{"progressToken":{meta},"io.modelcontextprotocol/x":{meta}}}}}'
    )


@st.composite
def spoiled(draw: st.DrawFn, sound: bytes) -> bytes:
    """Sound bytes of which some are gone, others, or there twice."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                del data[at : at + draw(st.integers(1, 30))]
            case 1:
                data[at:at] = draw(st.binary(min_size=1, max_size=30))
            case 2:
                data[at:at] = data[at : at + draw(st.integers(1, 60))]
            case _ if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case _:
                pass
    return bytes(data)


HEADER_VALUES = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
    st.sampled_from(["x" * 7000, "=?base64?!!?=", "application/json", "text/event-stream", "*/*", "gzip", "chunked"]),
)


@st.composite
def headers(draw: st.DrawFn, token: str) -> list[tuple[str, str]]:
    """Headers of a request, sound ones among them."""
    sound = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", f"Bearer {token}"),
        ("MCP-Protocol-Version", draw(st.sampled_from(NAMED_REVISIONS))),
        ("Mcp-Method", draw(st.sampled_from(CALLS))),
        ("Mcp-Name", draw(st.sampled_from(["converse", "nothing", ""]))),
        ("Mcp-Session-Id", draw(HEADER_VALUES)),
    ]
    kept = draw(st.lists(st.sampled_from(sound), unique_by=lambda pair: pair[0], max_size=len(sound)))
    names = [name for name, _ in sound] + ["Origin", "Host", "Last-Event-ID", "X-Forwarded-For", "Expect", "Upgrade"]
    wrong = draw(st.lists(st.tuples(st.sampled_from(names), HEADER_VALUES), max_size=3))
    many = draw(st.sampled_from([0, 0, 0, 0, 150]))
    return [*kept, *wrong, *(("X-Many", "x") for _ in range(many))]


# --- arguments of tools ----------------------------------------------------------------------------------------------


def fitting(schema: dict[str, Any], definitions: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a published schema takes, as far as it says."""
    if "$ref" in schema:
        return st.deferred(lambda: fitting(definitions[schema["$ref"].rpartition("/")[2]], definitions))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return st.one_of([fitting(part, definitions) for part in schema[word]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return _of_type(schema, definitions)


def _of_type(schema: dict[str, Any], definitions: dict[str, Any]) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum", 0), schema.get("maximum", 1000)
    match schema.get("type"):
        case "string":
            return st.one_of(st.text(min_size=1, max_size=20), st.sampled_from(schema.get("examples") or ["t1"]))
        case "integer":
            return st.integers(low, high)
        case "number":
            return st.floats(
                schema.get("exclusiveMinimum", low), min(high, 1), exclude_min="exclusiveMinimum" in schema
            )
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(
                fitting(schema.get("items", {}), definitions), min_size=schema.get("minItems", 0), max_size=3
            )
        case "object":
            return _objects(schema, definitions)
        case _:
            return VALUES


def _objects(schema: dict[str, Any], definitions: dict[str, Any]) -> st.SearchStrategy[Any]:
    made = {name: fitting(part, definitions) for name, part in schema.get("properties", {}).items()}
    required = {name: part for name, part in made.items() if name in schema.get("required", ())}
    if made:
        return st.fixed_dictionaries(required, optional={name: made[name] for name in made.keys() - required.keys()})
    inner = schema.get("additionalProperties", True)
    return st.dictionaries(TEXTS, fitting(inner, definitions) if isinstance(inner, dict) else VALUES, max_size=3)


@st.composite
def invalid_arguments(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Arguments that fit but for one: it is of another kind, missing, or one that there is not."""
    given = dict(draw(fitting(schema, schema.get("$defs", {}))))
    names = [*schema.get("properties", {}), "x"]
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(names))
        if draw(st.booleans()):
            given[name] = draw(VALUES)
        else:
            given.pop(name, None)
    return draw(st.sampled_from([given, given, given, [given], None, "x"]))


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
def test_random_bytes_are_refused_or_dropped(probes: Probed, data: bytes) -> None:
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
    return name, draw(fitting(schema, schema.get("$defs", {})) if fit else invalid_arguments(schema))


@revisions
@pytest.mark.parametrize("fit", [True, False])
@given(data=st.data())
def test_a_tool_answers_whatever_its_schema_takes_and_whatever_it_does_not(
    probes: Probed, revision: Revision, fit: bool, data: st.DataObject
) -> None:
    name, arguments = data.draw(_calls(probes.tools, fit=fit))
    if name == "events" and isinstance(arguments, dict):
        arguments["wait"] = 0.1  # for events that never come
    client = probes.clients[revision]
    message = client.message("tools/call", {"name": name, "arguments": arguments})
    # JSON as it is, with half pairs and large numbers.
    body = json.dumps(message).encode()
    headers = client.headers("tools/call", {"name": name})
    assert probes.run(probes.statuses(request("POST", "/mcp", list(headers.items()), body)))
