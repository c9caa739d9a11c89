"""Whatever is sent to a sidecar, over HTTP or a line: no answer fails or is missing, and nothing grows."""

import asyncio
import contextlib
import itertools
import json
import re
import tempfile
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.types.methods import MONOLITH_NOTIFICATIONS, MONOLITH_REQUESTS
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic_core import from_json

from support.processes import eventually
from support.sidecar_calls import LEGACY, MODERN, Revision
from support.sidecar_clients import BOUND, HttpClient, StdioClient, exchanged, request
from support.sidecars import REVISIONS, TOKEN, Sidecar, over_http, over_stdio, until

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
CALLS = (*MONOLITH_REQUESTS, *MONOLITH_NOTIFICATIONS, "tasks/get", "tasks/update", "tasks/cancel")
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


# --- sidecars, which are looked at before and after -------------------------------------------------------------------

T = TypeVar("T")

INTERNAL = -32603
"""What the protocol has instead of HTTP's 500."""
NUMBER = b"@NUMBER@"
"""Stands in a line for a number that no other line has."""
_SILENCE = 0.05  # seconds after which a request without an answer is taken for one of which more must come
_HALF = re.compile(r"\\ud800(?!\\u)")  # the one that `RAW_VALUES` has
_FIRST = 10**6  # above the ids of the clients

_LONGEST_ID = 200  # characters, under which a line that is not a message is refused
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
_MORE_TASKS, _MORE_FILES = 8, 12
# MiB. All in one process it was 3 over HTTP and 19 over standard streams; with 1,000 examples a test 8 and 18.
_MORE_MEMORY = {"http": 24, "stdio": 40}


@dataclass(frozen=True)
class Held:
    """What a process holds: tasks of its loop, files, and MiB of memory."""

    tasks: int
    files: int
    memory: float


class Probed:
    """A sidecar over HTTP and one over standard streams, with what probes need.

    Attributes:
        sidecar: The one over HTTP.
        clients: A client over HTTP in each revision.
        piped: The one over standard streams.
        child: Its client.
        tools: The input schemas of its tools.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.sidecar: Sidecar
        self.piped: Sidecar
        self.child: StdioClient
        self.clients: dict[Revision, HttpClient] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self._lines = itertools.count(1)
        self._before: list[Held] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop of the clients."""
        return self._runner.run(work)

    async def open(self, folder: Path, opened: AsyncExitStack) -> None:
        """Start both."""
        self.sidecar = await opened.enter_async_context(over_http(folder / "http"))
        self.piped, self.child = await opened.enter_async_context(over_stdio(folder / "stdio", LEGACY))
        for revision in (MODERN, LEGACY):
            client = await opened.enter_async_context(self.sidecar.client(revision))
            self.clients[revision] = client
        for each in (*self.clients.values(), self.child):
            for number in range(3):
                await each.ask("converse", thread=f"warm {each.revision} {number}", text="Hi", detach=True)
        listed = await self.clients[MODERN].request("tools/list")
        self.tools = {tool["name"]: tool["inputSchema"] for tool in listed["tools"]}
        self._before = await self._held()

    async def check(self) -> None:
        """See that it still serves, and holds no more than when it began."""
        for client in (*self.clients.values(), self.child):
            answer = await client.ask("converse", thread="after", text="Hi")
            assert answer["turn"]["status"] == "done"

        async def idle() -> bool:
            return not (await self.sidecar.get("/ready"))[1]["turns"]

        await until(idle)
        for name, before, after in zip(_MORE_MEMORY, self._before, await self._held(), strict=True):
            held = f"{name}: {before} before and {after} after"
            assert after.tasks <= before.tasks + _MORE_TASKS, held
            assert after.files <= before.files + _MORE_FILES, held
            assert after.memory <= before.memory + _MORE_MEMORY[name], held

    async def _held(self) -> list[Held]:
        return [Held(await each.tasks(), each.files, each.memory) for each in (self.sidecar, self.piped)]

    async def answers(self, line: bytes) -> list[dict[str, Any]]:
        """What is sent to a line by the time that what it waits for has come: its answer, and that to the next line.

        Args:
            line: What is said over standard streams; `NUMBER` in it becomes a number that no line had.

        Raises:
            AssertionError: No answer came under the id of the line, or none to the next line.
        """
        number = next(self._lines)
        line = line.replace(b"\n", b" ").replace(NUMBER, str(_FIRST + number).encode())
        asked, after = waits(line), f"after {number}"
        heard = self.child.heard
        del heard[:]
        await self.child.say(line)
        await self.child.send({"jsonrpc": "2.0", "id": after, "method": "tools/list"})

        def missing() -> list[str | int | None]:
            return [under for under in (*asked, after) if not _answered(heard, under)]

        came = await eventually(lambda: not missing(), BOUND)
        assert came, (line[:2000], missing(), heard, self.piped.errors.read_text()[-500:])
        return list(heard)

    async def statuses(self, sent: bytes) -> list[int]:
        """Send bytes on a connection of their own; gives the status of each answer.

        Raises:
            TimeoutError: It did not answer, or what it answered did not end.
        """
        return self.judged(await exchanged(self.sidecar.url, sent))

    async def unfinished(self, sent: bytes) -> list[int]:
        """The same where the bytes may be less than a request: after a moment of silence no more is sent."""
        where = urlsplit(self.sidecar.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        came = b""
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            with contextlib.suppress(TimeoutError):
                while part := await asyncio.wait_for(reader.read(1 << 16), _SILENCE):
                    came += part
            if writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(BOUND):
                came += await reader.read()
        writer.transport.abort()
        return self.judged(came)

    def judged(self, came: bytes) -> list[int]:
        """The statuses in what came, after a look at all of it."""
        found = [int(status) for status in _STATUS.findall(came)]
        assert not [status for status in found if status >= 500 and status != 503], came[:2000]
        assert b"Traceback" not in came
        said = came.replace(b" ", b"")
        for code in (str(INTERNAL), '"internal"'):
            assert f'"code":{code}'.encode() not in said, (came[:2000], self.sidecar.errors.read_text()[-500:])
        return found

    async def alive(self) -> None:
        """See that it answers at once."""
        status, _ = await asyncio.wait_for(self.sidecar.get("/health"), BOUND)
        assert status == 200


def posted(client: HttpClient, body: bytes) -> bytes:
    """A body as a client of its revision would send it: the headers say what it says, where it says it."""
    method, params = "tools/call", {"name": "converse"}
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        said = json.loads(body)
        method = said["method"] if _plain(said["method"]) else method
        params = {"name": said["params"]["name"]} if _plain(said["params"]["name"]) else params
    return request("POST", "/mcp", client.headers(method, params).items(), body)


def _plain(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def sound(client: HttpClient) -> bytes:
    """A whole request that begins a turn."""
    call = client.message("tools/call", {"name": "converse", "arguments": {"thread": "sound", "text": "Hi"}})
    call["id"] = 1  # the same bytes each time
    return posted(client, json.dumps(call).encode())


def waits(line: bytes) -> list[str | int | None]:
    """The ids that a line has to be answered under: none, or one, which is None where it has no usable one.

    What asks for an answer has a method and an id. What is not JSON, or nested deeper than the reader takes, is told
    under no id.
    """
    text = _HALF.sub(r"\\ufffd", line.decode("utf-8", "replace"))
    try:
        said = from_json(text)
    except ValueError:
        return [None]
    if not isinstance(said, dict):
        return [None]
    if said.get("method") is None or "id" not in said or _tells(said):
        return []
    match said["id"]:
        case bool():
            return [None]
        case int() as number:
            return [number]
        case float() as number if number.is_integer() and abs(number) < 1 << 53:
            return [int(number)]
        case str() as name if len(name) <= _LONGEST_ID or _sound(said):
            return [name]
        case _:
            return [None]


def _tells(said: dict[str, Any]) -> bool:
    return said["id"] is None and str(said["method"]).startswith("notifications/") and _sound(said)


def _sound(said: dict[str, Any]) -> bool:
    return (
        said.get("jsonrpc") == "2.0" and isinstance(said["method"], str) and isinstance(said.get("params"), dict | None)
    )


def _answered(heard: list[Any], under: str | int | None) -> bool:
    found = [message["id"] for message in heard if "method" not in message]
    return any(type(each) is type(under) and each == under for each in found)


@contextmanager
def probed() -> Generator[Probed]:
    """A sidecar to probe, in a folder that goes away; it is checked at the end."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        probes, opened = Probed(runner), AsyncExitStack()
        runner.run(_opened(probes, Path(folder), opened))
        try:
            yield probes
            runner.run(probes.check())
        finally:
            runner.run(opened.aclose())


async def _opened(probes: Probed, folder: Path, opened: AsyncExitStack) -> None:
    try:
        await probes.open(folder, opened)
    except BaseException:
        await opened.aclose()
        raise


# --- tests ------------------------------------------------------------------------------------------------------------

pytestmark = [pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def probes() -> Generator[Probed]:
    with probed() as found:
        yield found


revisions = st.sampled_from(REVISIONS)


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


@given(revision=revisions, data=st.data())
def test_spoiled_request_is_answered_or_dropped(probes: Probed, revision: Revision, data: st.DataObject) -> None:
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


@given(revision=revisions, body=messages())
@example(revision=MODERN, body=deep(100_000, True).encode())
@example(revision=LEGACY, body=b"")
@example(revision=MODERN, body=b"\xff\xfe")
@example(revision=LEGACY, body=b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}')
def test_a_message_in_which_anything_is_wrong_is_answered(probes: Probed, revision: Revision, body: bytes) -> None:
    assert probes.run(probes.statuses(posted(probes.clients[revision], body)))
    probes.run(probes.alive())


@given(revision=revisions, params=RAW_VALUES)
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


@pytest.mark.parametrize("fit", [True, False])
@given(revision=revisions, data=st.data())
def test_tools_answer_good_and_bad_calls(probes: Probed, revision: Revision, fit: bool, data: st.DataObject) -> None:
    name, arguments = data.draw(_calls(probes.tools, fit=fit))
    if name == "events" and isinstance(arguments, dict):
        arguments["wait"] = 0.1  # for events that never come
    client = probes.clients[revision]
    message = client.message("tools/call", {"name": name, "arguments": arguments})
    # JSON as it is, with half pairs and large numbers.
    body = json.dumps(message).encode()
    headers = client.headers("tools/call", {"name": name})
    assert probes.run(probes.statuses(request("POST", "/mcp", list(headers.items()), body)))
