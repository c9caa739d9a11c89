"""What clients of a sidecar share in both revisions of the protocol: calls of tools, and what a server may ask.

It knows the protocol and the sidecar's contract, and nothing of any library, so that both can only be wrong together
by being wrong in the same way. How messages travel is in `sidecar_clients`.
"""

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Literal, Self

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.hosts import role_host, sidecar

_known = cache(lambda: (sidecar.schemas(), role_host.schemas()))
"""The published schemas of the sidecar, and of the role host for a tool that only it has."""


@cache
def _validator(tool: str, part: str) -> Draft202012Validator:
    [published, *_] = [schemas for schemas in _known() if f"{tool}.output" in schemas]
    return Draft202012Validator(published[part])


def check_answer(tool: str, content: Any, *, failed: bool) -> None:
    """Assert that an answer matches the published schema, and that errors alone have the form of an error.

    Args:
        tool: The tool that was called.
        content: Its structured content.
        failed: Whether the result says `isError`.
    """
    _validator(tool, f"{tool}.output").validate(content)
    assert _validator(tool, "error").is_valid(content) == failed, (tool, content)


def least_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that a tool takes: those that its input schema requires, with the schema's own examples."""
    definitions = schema.get("$defs", {})
    return {name: _example(schema["properties"][name], definitions) for name in schema.get("required", ())}


def _example(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    if "$ref" in part:
        part = definitions[part["$ref"].removeprefix("#/$defs/")] | part
    if "const" in part:
        return part["const"]
    if "examples" in part:
        return part["examples"][0]
    if "enum" in part:
        return part["enum"][0]
    if part.get("type") == "object":
        return least_arguments({"$defs": definitions, "properties": {}, **part})
    return "x"


Revision = Literal["2026-07-28", "2025-11-25"]
MODERN: Revision = "2026-07-28"
LEGACY: Revision = "2025-11-25"
Asked = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers an `elicitation/create`: its params, and what a person says."""
Served = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Answers a call of a tool of a role host: its name and arguments, and the structured content."""

_META = "io.modelcontextprotocol/"


class Refused(Exception):
    """The sidecar refused a call: an answer of the tool, of the protocol or of HTTP.

    Attributes:
        code: The contract's word, or the number of JSON-RPC or HTTP.
        told: All that was said.
    """

    def __init__(self, code: str | int, told: Any) -> None:
        super().__init__(f"{code}: {told}")
        self.code, self.told = code, told


class Call:
    """A call of a tool: `async for` gives its events as they come; `answer` its end.

    Attributes:
        events: Those that came.
        result: The result of the protocol, once it came.
        asked: What the server asked of a person.
    """

    def __init__(self, client: "Calling", tool: str, arguments: Mapping[str, Any], *, progress: bool) -> None:
        self._client, self._progress = client, progress
        self._params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
        self.events: list[dict[str, Any]] = []
        self.result: dict[str, Any] | None = None
        self._coming = self._come()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._coming.aclose()

    def __aiter__(self) -> AsyncGenerator[dict[str, Any]]:
        return self._coming

    async def answer(self) -> dict[str, Any]:
        """Wait for the end; gives the structured content.

        Raises:
            Refused: It was refused.
            Broken: The connection ended before.
        """
        async for _ in self._coming:
            pass
        assert self.result is not None
        content: dict[str, Any] = self.result.get("structuredContent") or {}
        if self.result.get("isError"):
            raise Refused(content.get("error", {}).get("code", "?"), self.result)
        return content

    async def _come(self) -> AsyncGenerator[dict[str, Any]]:
        more: dict[str, Any] = {}
        while self.result is None:
            params = self._params | more
            if self._progress:
                params["_meta"] = {"progressToken": "mine"}
            async with aclosing(self._client.exchange("tools/call", params)) as messages:
                async for message in messages:
                    if "method" not in message:
                        more = self._next(message)
                    elif message["method"] == "notifications/progress":
                        if '"type": "heartbeat"' not in message["params"]["message"]:
                            yield self._event(message["params"])
                    elif "id" in message:
                        await self._client.respond(message)

    def _event(self, params: Mapping[str, Any]) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(params["message"])
        assert int(params["progress"]) == event["seq"]  # what has no number of its own is a little behind the last one
        self.events.append(event)
        return event

    def _next(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Take the answer; gives what to say in the next round where the server asks for more."""
        if "error" in answer:
            raise Refused(answer["error"]["code"], answer["error"])
        result: dict[str, Any] = answer["result"]
        if result.get("resultType") != "input_required":
            self.result = result
            check_answer(self._params["name"], result.get("structuredContent"), failed=bool(result.get("isError")))
            return {}
        asked = result.get("inputRequests") or {}
        said = {key: self._client.answer_of(request)["result"] for key, request in asked.items()}
        return {"inputResponses": said, "requestState": result.get("requestState")}


class Calling(ABC):
    """A client of a sidecar, whatever the transport, which a subclass adds.

    Attributes:
        heard: Every message that came.
        tasks: Whether it declares that it supports tasks.
    """

    def __init__(self, revision: Revision, elicit: Asked | None, roles: Served | None) -> None:
        self.revision: Revision = revision
        self.tasks = False
        self.heard: list[Any] = []
        self._elicit, self._roles = elicit, roles
        self._ids = itertools.count(1)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What it declares."""
        found: dict[str, Any] = {} if self._elicit is None else {"elicitation": {}}
        if self._roles is not None:
            found["experimental"] = {"worldagent/roles": {"contract": 1}}
        if self.tasks:
            found["extensions"] = {"io.modelcontextprotocol/tasks": {}}
        return found

    def answer_of(self, message: Mapping[str, Any]) -> dict[str, Any]:
        params: dict[str, Any] = message.get("params") or {}
        match message["method"]:
            case "elicitation/create" if self._elicit is not None:
                return {"result": self._elicit(params)}
            case "tools/call" if self._roles is not None:
                content = self._roles(params["name"], params.get("arguments") or {})
                return {"result": {"content": [], "structuredContent": content, "isError": "code" in content}}
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}

    def message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A request with an id of its own, and what its revision wants in it."""
        number = next(self._ids)
        given: dict[str, Any] = dict(params)
        meta: dict[str, Any] = dict(given.get("_meta") or {})
        if "progressToken" in meta:
            meta["progressToken"] = number
        if self.revision == MODERN:
            meta[f"{_META}protocolVersion"] = MODERN
            meta[f"{_META}clientCapabilities"] = self.capabilities
            meta[f"{_META}clientInfo"] = {"name": "tests", "version": "1"}
        if meta:
            given["_meta"] = meta
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": given}

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, progress: bool = True) -> Call:
        """A call of a tool: `async with client.call(...) as call`."""
        return Call(self, tool, arguments or {}, progress=progress)

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool without hearing its events; gives the structured content."""
        async with self.call(tool, arguments, progress=False) as call:
            return await call.answer()

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Any other request; gives its result."""
        last: dict[str, Any] = {}
        async with aclosing(self.exchange(method, params)) as messages:
            async for message in messages:
                last = message
        if "error" in last:
            raise Refused(last["error"]["code"], last["error"])
        result: dict[str, Any] = last["result"]
        return result

    @abstractmethod
    def exchange(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Send a request; gives what comes for it, the answer last. Left before, it breaks off."""

    @abstractmethod
    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message that gets no answer of its own."""

    async def respond(self, message: Mapping[str, Any]) -> None:
        """Answer a request of the server's."""
        await self.send({"jsonrpc": "2.0", "id": message["id"], **self.answer_of(message)})

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def begin(self) -> Self:
        """Shake hands, where the revision wants that."""
        if self.revision == LEGACY:
            info = {"name": "tests", "version": "1"}
            hello = {"protocolVersion": LEGACY, "capabilities": self.capabilities, "clientInfo": info}
            await self.request("initialize", **hello)
            await self.notify("notifications/initialized")
        return self
