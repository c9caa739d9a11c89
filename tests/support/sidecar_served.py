"""A sidecar in the process of the test, over real HTTP or in memory, and clients of both revisions for it.

One client keeps roles itself. One answers what a shop asks people.
"""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types
from mcp.client.context import ClientRequestContext
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, Field

from support.agents import scripted_agent
from support.role_host_stub import StubHost
from support.role_hosts import BOUND, Mode, http_client_of
from support.shop import Order, Receipt, ask, both, buy
from support.sidecar_calls import LEGACY, check_answer
from support.sidecar_clients import Piped
from worldagent import Settings, Storage, WorldAgent
from worldagent.core.events import TurnEvent, parse_event
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Policy, tool
from worldagent.harness.gate import Rule
from worldagent.hosts.serving import Address as Where
from worldagent.hosts.serving import HttpOptions, Tokens, serve_http
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

TOKEN = "a-token-that-reaches-everything"

_OPTIONS = HttpOptions(drain=0.2)


def codes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """How calls were answered, as the request log has it."""
    fields = [vars(line).get("worldagent_fields", {}) for line in caplog.records]
    return [line["code"] for line in fields if "code" in line]


@asynccontextmanager
async def served(sidecar: Sidecar, *, options: HttpOptions = _OPTIONS) -> AsyncGenerator[str]:
    """Serve on a free port, and give the address. It ends as people end it, by a signal."""
    found: asyncio.Future[Where] = asyncio.get_running_loop().create_future()
    async with sidecar:
        serving = asyncio.create_task(serve_http(sidecar, Where("127.0.0.1", 0), options, ready=found.set_result))
        try:
            waited: set[asyncio.Future[Any]] = {serving, found}
            await asyncio.wait(waited, timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield found.result().url
        finally:
            if not serving.done():
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(serving, BOUND)


class Caller:
    """A client that takes answers apart.

    Attributes:
        client: The client itself.
        events: What came as progress, over all calls.
        progress: The numbers that it came with.
        heartbeats: What came between events, each with its number.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.events: list[TurnEvent] = []
        self.progress: list[float] = []
        self.heartbeats: list[tuple[float, dict[str, Any]]] = []
        self.come = asyncio.Event()

    async def __call__(self, tool: str, *, follow: bool = True, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers, and give the answer."""
        result = await self.raw(tool, follow=follow, **arguments)
        assert not result.is_error, result.structured_content
        content: dict[str, Any] = result.structured_content
        assert content["contract"] == 1
        return content

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that answers with an error, and give that."""
        result = await self.raw(tool, **arguments)
        assert result.is_error, result.structured_content
        error: dict[str, Any] = result.structured_content["error"]
        sentence, _, told = result.content[0].text.partition("\n")
        assert sentence == f"{error['code']}: {error['problem']}; {error['remedy']}"
        assert json.loads(told) == result.structured_content
        return error

    async def raw(self, tool: str, *, follow: bool = True, **arguments: Any) -> Any:
        """Call a tool."""
        called = self.client.call_tool(tool, arguments, progress_callback=self._come if follow else None)
        result = await asyncio.wait_for(called, BOUND)
        check_answer(tool, result.structured_content, failed=bool(result.is_error))
        return result

    async def _come(self, progress: float, total: float | None, message: str | None) -> None:
        event = parse_event(message or "")
        if event is None:
            assert json.loads(message or "")["type"] == "heartbeat"
            self.heartbeats.append((progress, json.loads(message or "")))
            return
        self.events.append(event)
        self.progress.append(progress)
        self.come.set()

    @property
    def text(self) -> str:
        """What the deltas come to."""
        told = ""
        for event in self.events:
            if event.type == "text_delta":
                told += event.text
            elif event.type == "text_replaced":
                told = event.text
        return told


@asynccontextmanager
async def caller_of(url: str, mode: Mode = "auto", token: str | None = None) -> AsyncGenerator[Caller]:
    """A client of one revision."""
    async with http_client_of(url, mode, token) as client:
        yield Caller(client)


class Held:
    """A model whose first word comes at once and whose second one waits.

    Attributes:
        begun: Is released by each call.
        go: Lets all of them go on.
        left: Is set by one that is left.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.go, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, call: ScriptedCall) -> AsyncGenerator[str]:
        return self._words()

    async def _words(self) -> AsyncGenerator[str]:
        yield "[[ ## reply ## ]]\nfirst"
        self.begun.release()
        try:
            await self.go.wait()
        except BaseException:
            self.left.set()
            raise
        yield " second\n\n[[ ## completed ## ]]"


def agents(home: Path, **given: Any) -> Callable[[str], WorldAgent]:
    """What makes agents that share a home."""
    settings = given.pop("settings", None) or Settings(model_attempts=1, model_backoff=0)
    return lambda workspace: WorldAgent(workspace, storage=Storage(home=home), settings=settings, **given)


def tokens(**grants: Grant) -> Tokens[Grant]:
    """Tokens by name; `_` stands for `-`."""
    return Tokens([(name.replace("_", "-"), grant) for name, grant in grants.items()])


def as_json(event: TurnEvent) -> dict[str, Any]:
    """An event as it goes over the wire."""
    told: dict[str, Any] = json.loads(event.model_dump_json())
    return told


OFFER: Mapping[str, Any] = {"experimental": {"worldagent/roles": {"contract": 1}}}

Answer = Callable[[str, Mapping[str, Any]], Any]
"""What a client answers to a call of a tool; an exception is no answer at all."""


class Silence(Exception):
    """No answer."""


class RoleClient(Piped):
    """A client over the messages themselves, as one in another language is.

    Attributes:
        roles: What it keeps: name and content by tier and scope.
        asked: The tools that it was asked for, with their arguments.
        answer: Answers in the place of what it keeps.
    """

    def __init__(self, read: Any, write: Any, capabilities: Mapping[str, Any]) -> None:
        host = StubHost()
        super().__init__(LEGACY, None, host.content)
        self._from, self._to, self._capabilities = read, write, capabilities
        self.roles, self.asked = host.kept, list[tuple[str, Any]]()
        self.answer: Answer | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        return dict(self._capabilities)

    async def given(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool of the sidecar gives, an error too."""
        result = await self.request("tools/call", name=tool, arguments={"workspace": "novel", **arguments})
        return dict(result["structuredContent"])

    async def say(self, text: str = "Hello.", **arguments: Any) -> dict[str, Any]:
        """Say something on a thread."""
        return await self.given("converse", **{"thread": "t1", "account": "ana", "text": text, **arguments})

    def answer_of(self, message: Mapping[str, Any]) -> dict[str, Any]:
        tool, arguments = message["params"]["name"], message["params"].get("arguments", {})
        self.asked.append((tool, arguments))
        if self.answer is None:
            return super().answer_of(message)
        result = self.answer(tool, arguments)
        return {"error": result["error"]} if "error" in result else {"result": {"content": [], **result}}

    async def respond(self, message: Mapping[str, Any]) -> None:
        with suppress(Silence):
            await super().respond(message)

    async def come(self) -> AsyncGenerator[dict[str, Any]]:
        async for item in self._from:
            yield item.message.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def send(self, message: Mapping[str, Any]) -> None:
        parsed: types.JSONRPCMessage = types.jsonrpc_message_adapter.validate_python(message)
        await self._to.send(SessionMessage(parsed))


@asynccontextmanager
async def role_client(sidecar: Sidecar, *, capabilities: Mapping[str, Any] = OFFER) -> AsyncGenerator[RoleClient]:
    """A client that is connected to a sidecar over a connection of its own."""
    async with create_client_server_memory_streams() as (ours, theirs), asyncio.TaskGroup() as tasks:
        server = sidecar.server
        serving = tasks.create_task(server.run(*theirs, server.create_initialization_options()))
        try:
            async with RoleClient(*ours, capabilities) as client:
                yield client
        finally:
            await ours[1].aclose()
            serving.cancel()


MODES: Sequence[Mode] = ("legacy", "auto")

Reply = types.ElicitResult | types.ErrorData
Person = Callable[[types.ElicitRequestFormParams], Reply]


class Address(BaseModel):
    street: str = Field(min_length=3, description="where to")
    number: int = Field(ge=1)
    gift: bool = False
    floor: int | None = None


class Parcel(BaseModel):
    sizes: list[int]


@dataclass(slots=True)
class Shop:
    """What the shop did, and what its effects wait for."""

    done: list[str] = field(default_factory=list)

    def shapes(self) -> list[Shape[Any, Any]]:
        async def fit(order: Order, ctx: TaskContext) -> Receipt:
            address = await ctx.calls.ask_person("Where to?", form=Address)
            return Receipt(text=f"{address.street} {address.number} {address.gift} {address.floor}")

        async def pack(order: Order, ctx: TaskContext) -> Receipt:
            parcel = await ctx.calls.ask_person("Which sizes?", form=Parcel)
            return Receipt(text=f"{parcel.sizes}")

        handlers: dict[str, Any] = {"buy": buy, "side": both, "fit": fit, "pack": pack, "say": ask}
        return [Shape(key, Order, Receipt, handler, description=key) for key, handler in handlers.items()]

    async def pay(self, what: str) -> str:
        """Pay for something."""
        self.done.append(what)
        return f"paid for the {what}"

    def agent(
        self, home: Path, *, approvers: Sequence[str] = (), lm: ScriptedLM | None = None, **more: Any
    ) -> WorldAgent:
        """The shop's agent, of the workspace `novel`."""
        policy = None
        if approvers:
            policy = Policy(rules=(Rule(decision="ask", function="pay", approvers=tuple(approvers), name="money"),))
        return scripted_agent(
            home,
            lm or ScriptedLM(lambda call: {"reply": "Fine."}),
            tools=[tool(approval=True)(self.pay)],
            shapes=self.shapes(),
            policy=policy,
            **more,
        )


@dataclass(slots=True)
class Said:
    """What a client is asked, and what its person says: one reply after another, the last one again and again.

    Attributes:
        shop: The shop of the sidecar that asks.
    """

    replies: list[Reply | Person] = field(default_factory=list)
    asked: list[types.ElicitRequestFormParams] = field(default_factory=list)
    shop: Shop = field(default_factory=Shop)

    async def __call__(self, context: ClientRequestContext, params: Any) -> Reply:
        self.asked.append(params)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(params) if callable(reply) else reply


def accept(**content: Any) -> types.ElicitResult:
    """A person fills in a form."""
    return types.ElicitResult(action="accept", content=content)


DECLINE, CANCEL = types.ElicitResult(action="decline"), types.ElicitResult(action="cancel")


@asynccontextmanager
async def asked(home: Path, mode: Mode, *replies: Reply | Person) -> AsyncGenerator[tuple[Client, Said]]:
    """A client of a sidecar of its own; without replies it says that it cannot ask anybody."""
    said = Said(list(replies))
    async with (
        Sidecar(lambda workspace: said.shop.agent(home)) as sidecar,
        Client(sidecar.server, mode=mode, elicitation_callback=said if replies else None) as client,
    ):
        yield client, said


async def call(client: Client, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool gives, an error too."""
    result = await client.call_tool(tool_name, {"workspace": "novel", **arguments})
    assert isinstance(result, types.CallToolResult)
    check_answer(tool_name, result.structured_content, failed=bool(result.is_error))
    assert result.structured_content is not None, result
    return dict(result.structured_content)


async def task(client: Client, shape: str, /, **arguments: Any) -> dict[str, Any]:
    """What a task of the shop gives."""
    return await call(client, "task", **{"thread": "t1", "shape": shape, "params": {"what": "hat"}, **arguments})
