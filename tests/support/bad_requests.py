"""Requests for property tests of the web app: valid ones by its OpenAPI document, and others with mistakes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

import httpx2
from hypothesis import strategies as st

from worldagent.hosts.web.routes import Endpoint, openapi

SECRET: Final = "Speak as the night ferryman speaks."
"""The text of a role, which must be in no response and in no line of the log."""

DEEP: Final = "@deep@"
"""Stands for 10,000 lists in one another, which `json.dumps` does not write."""

ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    0.5,
    2**53 + 1,
    2**70,
    float("inf"),
    float("nan"),
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "a\udfffb",
    "\u202e\u200b",
    "../../etc/passwd",
    "a/b%2Fc",
    "%00",
    "*",
    "x" * 201,
    "x" * 50_000,
    "2030-01-01T10:00:00",
    "9999-12-31T23:59:59-14:00",
    [],
    ["main"],
    [[None]],
    {},
    {"a": {"b": [1, "\0", "\ud800"]}},
    {"": 1},
    {"\0": 1},
    DEEP,
)
"""Values that hardly any argument takes."""

ODD_ROLES: Final[tuple[Any, ...]] = (
    SECRET,
    [SECRET],
    {"content": SECRET},
    {"content": SECRET, "name": "\0"},
    {"content": f"{SECRET}\0"},
    {"content": [SECRET]},
    {"prompt": SECRET, "shape": 1},
    {SECRET: 1},
)
"""The same for a role or a composed skill; anything else can be shown again, but not these."""

BODIES: Final[tuple[bytes, ...]] = (
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"text": "\xff"}',
    b'{"text": "a", "text": "b"}',
    b'{"role": {"content": "%s"}, "role": null, "text"' % SECRET.encode(),
    b'{"after": 1e400}',
    b'{"limit": ' + b"9" * 5000 + b"}",
    b"[" * 10_000 + b"]" * 10_000,
    b'{"text": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
    '{"text": "Hello."}'.encode("utf-16"),
    b"text=Hello.",
)
"""Bodies that are not a JSON object, or one in another form."""

HEADERS: Final[tuple[tuple[str, bytes], ...]] = (
    ("content-type", b"text/plain"),
    ("content-type", b"application/json; charset=utf-16"),
    ("content-type", b"multipart/form-data"),
    ("content-type", b"\xff"),
    ("content-encoding", b"gzip"),
    ("accept", b"text/event-stream"),
    ("accept", b"\xff"),
    ("last-event-id", b"-1"),
    ("last-event-id", b"x" * 5000),
    ("last-event-id", b"9" * 5000),
    ("last-event-id", b"\xff"),
    ("authorization", b"Bearer \xff"),
    ("cookie", b"\xff=;;="),
    ("origin", b"http://["),
    ("origin", b"\xff"),
    ("host", b"\xff:99999999"),
    ("idempotency-key", b"\xff" * 500),
    ("x-worldagent-thread", b"\xff"),
)

IDS: Final[Mapping[str, tuple[str, ...]]] = {
    "workspace": ("novel", "other"),
    "account": ("ana", "bob"),
    "of_account": ("ana",),
    "thread": ("main", "waiting", "new"),
    "turn_id": ("TURN", "WAITING", "turn_1"),
    "answers": ("PAUSE",),
    "at": ("MESSAGE",),
    "before": ("MESSAGE",),
    "schedule": ("nightly", "hourly"),
    "entry": ("ENTRY", "entry_1"),
    "tier": ("workspace", "account", "channel"),
    "member": ("cro", "root", "user", "ana"),
    "to": ("cro", "user"),
    "contact": ("cro", "user"),
    "shape": ("subagent",),
    "skill": ("none",),
    "zone": ("Europe/Berlin",),
    "cron": ("0 3 * * *",),
}
"""Values that arguments can have, by their names; the document says only that they are texts. Those in capitals stand
for ids that are known once the app runs."""


@dataclass(frozen=True)
class Sent:
    """A request.

    Attributes:
        path: Its path, percent-encoded.
        query: The parts of its query, percent-encoded.
        body: Its body as JSON, or as bytes.
    """

    method: str
    path: str
    query: tuple[str, ...] = ()
    body: Any = None
    headers: Mapping[str, bytes] = field(default_factory=dict)

    async def to(self, client: httpx2.AsyncClient, ids: Mapping[str, str]) -> httpx2.Response:
        """Send it, with `ids` in the place of their names."""
        url, body = "?".join([self.path, "&".join(self.query)]) if self.query else self.path, as_bytes(self.body)
        for name, id_ in ids.items():
            url, body = url.replace(name, quoted(id_)), body and body.replace(name.encode(), id_.encode())
        headers = {**self.headers} if body is None else {"content-type": b"application/json", **self.headers}
        made = [(name.encode(), value) for name, value in headers.items()]
        # As a whole URL: a path that begins with two slashes would name another host.
        url = f"{str(client.base_url).rstrip('/')}{url}"
        return await client.request(self.method, url, content=body, headers=made)


def as_bytes(body: Any) -> bytes | None:
    """A body as bytes; None has none."""
    if body is None or isinstance(body, bytes):
        return body
    return json.dumps(body).replace(f'"{DEEP}"', "[" * 10_000 + "]" * 10_000).encode()


def quoted(value: Any) -> str:
    """A value in a path or a query, with its dots and slashes percent-encoded, too."""
    text = value if isinstance(value, str) else json.dumps(value)
    return quote(text[:8000].encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")


# --- by the document --------------------------------------------------------------------------------------------------


def values(schema: Mapping[str, Any], name: str = "") -> st.SearchStrategy[Any]:
    """Values that fit a schema of the document, or nearly: it does not say all that is checked."""
    if "$ref" in schema:
        return st.deferred(lambda: values(openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([values(each, name) for each in schema[key]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    made: dict[str, Any] = {
        "string": _texts,
        "integer": _numbers,
        "number": _numbers,
        "array": _lists,
        "object": _objects,
        "boolean": lambda schema, name: st.booleans(),
        "null": lambda schema, name: st.none(),
    }
    return made[schema["type"]](schema, name) if "type" in schema else st.sampled_from([None, 1, "a", [1], {"a": 1}])


def _texts(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        free = st.from_regex(schema["pattern"], fullmatch=True)
    elif schema.get("format") == "date-time":
        free = st.just("2030-01-01T10:00:00Z")
    else:
        free = st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 20), 20))
    if name == "content" or name == "prompt":
        return st.just(SECRET)
    return st.one_of(st.sampled_from(IDS[name]), free) if name in IDS else free


def _numbers(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    least, most = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 1000)
    if name == "wait":
        return st.just(0)
    return st.integers(int(least) + ("exclusiveMinimum" in schema), int(most))


def _lists(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    return st.lists(values(schema["items"], name), min_size=schema.get("minItems", 0), max_size=3)


def _objects(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[Any]:
    fields, wanted = schema.get("properties", {}), schema.get("required", ())
    if not fields:
        rest = schema.get("additionalProperties")
        each = values(rest) if isinstance(rest, dict) else st.sampled_from([None, 1, "a", [1], {"a": 1}])
        keys = st.sampled_from(IDS[name]) if name in IDS else st.text(min_size=1, max_size=5)
        return st.dictionaries(keys, each, max_size=2)
    return st.fixed_dictionaries(
        {name: values(fields[name], name) for name in wanted},
        optional={name: values(each, name) for name, each in fields.items() if name not in wanted},
    )


def valid(endpoint: Endpoint) -> st.SearchStrategy[Sent]:
    """Requests that fit the document."""
    path = endpoint.path.replace(":path", "")
    operation = openapi()["paths"][path][endpoint.method.lower()]
    given: dict[str, dict[str, st.SearchStrategy[Any]]] = {"path": {}, "query": {}, "always": {}}
    for each in operation["parameters"]:
        place = "always" if each["in"] == "query" and each["required"] else each["in"]
        given[place][each["name"]] = values(each["schema"], each["name"])
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")

    def made(named: dict[str, Any], query: dict[str, Any], body: Any) -> Sent:
        asked = [
            f"{name}={quoted(one)}"
            for name, each in query.items()
            for one in (each if isinstance(each, list) else [each])
        ]
        filled = path.format_map({name: quoted(each) for name, each in named.items()})
        return Sent(endpoint.method, filled, tuple(asked), body)

    return st.builds(
        made,
        st.fixed_dictionaries(given["path"]),
        st.fixed_dictionaries(given["always"], optional=given["query"]),
        st.none() if body is None else values(body),
    )


# --- with mistakes ----------------------------------------------------------------------------------------------------

odd, odd_roles = st.sampled_from(ODD), st.sampled_from(ODD_ROLES)
_ROLES: Final = ("role", "skill", "content", "prompt")


@st.composite
def spoiled(draw: st.DrawFn, requests: st.SearchStrategy[Sent]) -> Sent:
    """Requests with one or two mistakes."""
    found = draw(requests)
    for _ in range(draw(st.integers(1, 2))):
        found = draw(st.sampled_from(_MISTAKES))(draw, found)
    return found


def _method(draw: st.DrawFn, found: Sent) -> Sent:
    return replace(found, method=draw(st.sampled_from(["HEAD", "OPTIONS", "GET", "PUT", "DELETE", "TRACE", "BREW"])))


def _in_path(draw: st.DrawFn, found: Sent) -> Sent:
    parts = found.path.split("/")
    where = draw(st.integers(1, len(parts) - 1))
    return replace(found, path="/".join([*parts[:where], quoted(draw(odd)), *parts[where + 1 :]]))


def _in_query(draw: st.DrawFn, found: Sent) -> Sent:
    name = draw(st.sampled_from(["limit", "after", "before", "workspace", "account", "text", "more", "\0", "token"]))
    return replace(found, query=(*found.query, f"{quoted(name)}={quoted(draw(odd))}"))


def _twice(draw: st.DrawFn, found: Sent) -> Sent:
    return replace(found, query=(*found.query, *found.query))


def _in_header(draw: st.DrawFn, found: Sent) -> Sent:
    name, value = draw(st.sampled_from(HEADERS))
    return replace(found, headers={**found.headers, name: value})


def _whole_body(draw: st.DrawFn, found: Sent) -> Sent:
    return replace(found, body=draw(st.sampled_from(BODIES)))


def _in_body(draw: st.DrawFn, found: Sent) -> Sent:
    if not isinstance(found.body, dict | list):
        return _whole_body(draw, found)
    return replace(found, body=_replaced(draw, found.body))


def _replaced(draw: st.DrawFn, value: Any, name: str = "") -> Any:
    """A value of JSON with an odd value somewhere in it, or without a field, or with one more."""
    if isinstance(value, dict) and value:
        name = draw(st.sampled_from(sorted(value)))
        rest = {key: each for key, each in value.items() if key != name}
        how = draw(st.sampled_from(["within", "within", "within", "without", "more"]))
        if how == "without":
            return rest
        if how == "more":
            return {**value, draw(st.sampled_from(["more", "", "\0", "\ud800", "role"])): draw(odd)}
        return {**rest, name: _replaced(draw, value[name], name)}
    if isinstance(value, list) and value and draw(st.booleans()):
        return [*value[:-1], _replaced(draw, value[-1], name)]
    return draw(st.one_of(odd, odd_roles) if name in _ROLES else odd)


_MISTAKES: Final = (_method, _in_path, _in_query, _twice, _in_header, _whole_body, _in_body, _in_body, _in_body)
