"""One suite for all transports: in memory, the agent's database, and a broker that wakes gateways (A3, A12, C2)."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import SecretStr

from support.agents import scripted_agent
from support.brokers import NatsServer, nats_server
from support.databases import Engine, made, storage_of
from support.role_specs import spec_of
from worldagent import Policy, Settings, WorldAgent
from worldagent.agent.stores import SCHEMAS
from worldagent.core.errors import MailboxFull, MessageInvalid, MissingExtra, PauseExpired, SettingsInvalid
from worldagent.members import SEND_RULES, Event, Gateway, RoleMessage, Society, WorkspaceConfig, WorkspacePolicy
from worldagent.members.mail.transport import InMemoryTransport, RoleTransport
from worldagent.members.mail.wakeups import wakeups_of
from worldagent.storage import Database
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A3", "A12", "C2")

Broker = Literal["none", "nats"]
DATABASES: list[tuple[Engine, Broker]] = [
    (engine, kind) for engine in ("sqlite", "postgres") for kind in ("none", "nats")
]
BOUND = 60
HOUR = 3600.0


def config() -> WorkspaceConfig:
    return WorkspaceConfig(id="novel", owner="charles", policy=WorkspacePolicy(discovery="open"))


def message(id_: str, content: str = "Hello.", **more: Any) -> RoleMessage:
    given: dict[str, Any] = {"type": "notification", "payload": {"reason": "A test."}, **more}
    return RoleMessage(id=id_, from_id="someone", to_id="other", content=content, **given)


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with nats_server(tmp_path / "nats") as server:
        yield server


# --- what every transport does ----------------------------------------------------------------------------------------


@dataclass
class Place:
    """A transport with the members `cro`, `coo` and `qa`.

    Attributes:
        transport: The transport, whose mailboxes hold three messages.
        take: Takes the oldest message from a mailbox.
        clock: Its time.
    """

    transport: RoleTransport
    take: Callable[[str], Awaitable[RoleMessage]]
    clock: VirtualClock


async def taken(society: Society, member: str) -> RoleMessage:
    async with society.mail.listen() as watch:
        while True:
            for letter in await society.mail.waiting():
                if letter.message.to_id == member:
                    await society.mail.answer(letter.message.id)
                    await society.mail.ended(letter.message.id)
                    return letter.message
            await watch.wait()


@asynccontextmanager
async def opened(home: Path, engine: Engine, url: str | None, clock: VirtualClock) -> AsyncGenerator[Society]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            aclosing(await Database.open(storage_of(made(engine, home)).place, schemas=SCHEMAS))
        )
        wakeups = wakeups_of(database, None if url is None else SecretStr(url))
        society = await stack.enter_async_context(aclosing(Society(config(), database, clock, wakeups=wakeups)))
        for member in ("cro", "coo", "qa"):
            await society.join(spec_of(member))
        yield society


@pytest.fixture(params=["memory", *("-".join(each) for each in DATABASES)])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Place]:
    clock = VirtualClock()
    if request.param == "memory":
        transport = InMemoryTransport(3, clock)
        yield Place(transport, transport.receive, clock)
        return
    monkeypatch.setattr("worldagent.members.mail.letters.MAX_WAITING", 3)
    engine, _, kind = request.param.partition("-")
    url = request.getfixturevalue("broker").url if kind == "nats" else None
    async with opened(tmp_path / "home", engine, url, clock) as society:
        yield Place(society.mail, lambda member: taken(society, member), clock)


async def bounded(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, BOUND)


async def test_a_message_is_received_from_who_sent_it(place: Place) -> None:
    receiving = asyncio.ensure_future(bounded(place.take("coo")))
    sent = message("m1", "How are you?", type="request", payload={"reason": "A test.", "rows": [1]})
    await place.transport.send("cro", "coo", sent)
    got = await receiving
    assert (got.id, got.from_id, got.to_id, got.type, got.content) == ("m1", "cro", "coo", "request", "How are you?")
    assert dict(got.payload) == {"reason": "A test.", "rows": (1,)}
    assert got.timestamp == place.clock.now()


async def test_messages_of_each_pair_are_received_in_order(place: Place) -> None:
    async def send(sender: str) -> None:
        for number in range(10):
            while True:
                try:
                    await place.transport.send(sender, "qa", message(f"{sender} {number}"))
                    break
                except MailboxFull:
                    await asyncio.sleep(0)  # until the receiver took one

    sending = asyncio.gather(send("cro"), send("coo"))
    got = [await bounded(place.take("qa")) for _ in range(20)]
    await bounded(sending)
    for sender in ("cro", "coo"):
        assert [each.id for each in got if each.from_id == sender] == [f"{sender} {number}" for number in range(10)]


async def test_a_message_that_is_sent_twice_is_received_once(place: Place) -> None:
    for content in ("First.", "First.", "Second."):
        await place.transport.send("cro", "coo", message("m1", content))
    await place.transport.send("cro", "coo", message("m2", "Last."))
    assert [(await bounded(place.take("coo"))).content for _ in range(2)] == ["First.", "Last."]
    await place.transport.send("cro", "coo", message("m1", "Again."))
    await place.transport.send("cro", "coo", message("m3"))
    assert (await bounded(place.take("coo"))).id == "m3"


async def test_a_full_mailbox_refuses_a_message_until_one_is_taken(place: Place) -> None:
    for number in range(3):
        await place.transport.send("cro", "coo", message(f"m{number}"))
    with pytest.raises(MailboxFull, match="'coo'"):
        await place.transport.send("cro", "coo", message("m3"))
    await place.transport.send("cro", "qa", message("other"))
    await bounded(place.take("coo"))
    await place.transport.send("cro", "coo", message("m3"))
    assert [(await bounded(place.take("coo"))).id for _ in range(3)] == ["m1", "m2", "m3"]


async def test_a_message_to_oneself_is_refused(place: Place) -> None:
    with pytest.raises(MessageInvalid, match="itself"):
        await place.transport.send("cro", "cro", message("m1"))


async def test_a_request_returns_its_reply_which_is_not_received_again(place: Place) -> None:
    asked = message("q1", "How many?", type="request")
    asking = asyncio.ensure_future(place.transport.request("cro", "coo", asked, seconds=60))
    assert (await bounded(place.take("coo"))).content == "How many?"
    await place.transport.send("qa", "cro", message("other"))
    await place.transport.send("coo", "cro", message("a1", "Seven.", type="response", correlation_id="q1"))
    reply = await bounded(asking)
    assert (reply.id, reply.from_id, reply.content) == ("a1", "coo", "Seven.")
    await place.transport.send("qa", "cro", message("last"))
    assert [(await bounded(place.take("cro"))).id for _ in range(2)] == ["other", "last"]


async def test_a_request_without_a_reply_in_time_is_given_up(place: Place) -> None:
    asking = asyncio.ensure_future(place.transport.request("cro", "coo", message("q1", type="request"), seconds=60))
    assert (await bounded(place.take("coo"))).id == "q1"
    async with asyncio.timeout(BOUND):
        while not asking.done():
            await place.clock.advance(61)
    with pytest.raises(PauseExpired, match="'coo' did not reply"):
        await asking
    await place.transport.send("coo", "cro", message("a1", type="response", correlation_id="q1"))
    assert (await bounded(place.take("cro"))).id == "a1"


# --- gateways ---------------------------------------------------------------------------------------------------------


class Turns:
    """Members that note what they read.

    Attributes:
        read: What they read.
        may: Lets the member `coo` end its turns.
        down: Whether the service of the member `coo` is down.
    """

    def __init__(self) -> None:
        self.read: asyncio.Queue[str] = asyncio.Queue()
        self.may = asyncio.Event()
        self.may.set()
        self.down = False

    async def __call__(self, call: ScriptedCall) -> dict[str, Any]:
        self.read.put_nowait(str(call.fields["message"]).splitlines()[1])
        if "You are coo." in call.text:
            await self.may.wait()
            if self.down:
                raise ConnectionError
        return {"result": "Done."}


@asynccontextmanager
async def agent_in(home: Path, turns: Turns, url: str | None) -> AsyncGenerator[WorldAgent]:
    """An agent in a home; two of them are as two processes are, which share the database and nothing else."""
    given = {"nats_url": url, "database_url": storage_of(home).url}
    settings = {name: value for name, value in given.items() if value is not None}
    policy = Policy(rules=SEND_RULES)
    async with scripted_agent(home, ScriptedLM(turns), settings=settings, society=config(), policy=policy) as agent:
        for member in ("cro", "coo"):
            await agent.society.join(spec_of(member))
        yield agent


on_every_kind = pytest.mark.parametrize(("engine", "kind"), DATABASES)


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: Broker) -> str | None:
    return request.getfixturevalue("broker").url if kind == "nats" else None


@on_every_kind
async def test_a_message_wakes_a_gateway_that_does_not_poll(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home, turns = made(engine, tmp_path / "home"), Turns()
    async with agent_in(home, turns, url) as agent, agent_in(home, turns, url) as other, Gateway(agent, poll=HOUR):
        # On SQLite without a broker other processes are not woken.
        sender = agent if engine == "sqlite" and url is None else other
        for number in range(3):
            await sender.society.mail.send("root", "cro", f"Message {number}.")
            assert await bounded(turns.read.get()) == f"Message {number}."


@on_every_kind
async def test_a_member_that_is_resumed_gets_what_waited(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home, turns = made(engine, tmp_path / "home"), Turns()
    async with agent_in(home, turns, url) as agent:
        await agent.society.mail.send("root", "cro", "Waits.")
        await agent.society.suspend("cro")
        async with Gateway(agent, poll=HOUR):
            await agent.society.mail.send("root", "coo", "First.")
            assert await bounded(turns.read.get()) == "First."
            await agent.society.resume("cro")
            assert await bounded(turns.read.get()) == "Waits."


@on_every_kind
async def test_an_event_wakes_a_gateway_that_does_not_poll(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home = made(engine, tmp_path / "home")
    async with agent_in(home, Turns(), url) as agent, Gateway(agent, poll=HOUR):
        now = datetime.now(UTC)
        event = Event(id="e1", type="lead.created", source="shop", domain="sales", payload={}, timestamp=now)
        await agent.society.events.post(event)
        async with asyncio.timeout(BOUND):
            while not await agent.society.mail.inbox():  # noqa: ASYNC110 -- what another task writes sets no event
                await asyncio.sleep(0.02)


@on_every_kind
async def test_a_turn_does_not_keep_other_members_waiting(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home, turns = made(engine, tmp_path / "home"), Turns()
    turns.may.clear()
    async with agent_in(home, turns, url) as agent, Gateway(agent, poll=HOUR):
        await agent.society.mail.send("root", "coo", "Slow.")
        assert await bounded(turns.read.get()) == "Slow."
        await agent.society.mail.send("root", "coo", "Second.")
        await agent.society.mail.send("root", "cro", "Fast.")
        assert await bounded(turns.read.get()) == "Fast."
        turns.may.set()
        assert await bounded(turns.read.get()) == "Second."


async def test_a_member_whose_service_is_down_is_not_tried_again_for_each_message_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns()
    turns.down = True
    async with agent_in(made("sqlite", tmp_path / "home"), turns, None) as agent, Gateway(agent, poll=HOUR):
        await agent.society.mail.send("root", "coo", "Fails.")
        assert await bounded(turns.read.get()) == "Fails."
        for number in range(3):
            await agent.society.mail.send("root", "cro", f"Message {number}.")
            assert await bounded(turns.read.get()) == f"Message {number}."
    assert len([each for each in warnings_of(caplog) if "is delivered again later" in each]) == 1


@on_every_kind
async def test_two_gateways_run_one_turn_for_each_message(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home, turns = made(engine, tmp_path / "home"), Turns()
    async with (
        agent_in(home, turns, url) as agent,
        agent_in(home, turns, url) as other,
        Gateway(agent, poll=0.05),
        Gateway(other, poll=0.05),
    ):
        for number in range(8):
            await agent.society.mail.send("root", ("cro", "coo")[number % 2], f"Message {number}.")
        async with asyncio.timeout(BOUND):
            while await agent.society.mail.waiting():  # noqa: ASYNC110 -- what another process does sets no event
                await asyncio.sleep(0.02)
    read = [turns.read.get_nowait() for _ in range(turns.read.qsize())]
    assert sorted(read) == [f"Message {number}." for number in range(8)]
    assert [each for each in read if int(each[8]) % 2] == [f"Message {number}." for number in (1, 3, 5, 7)]


@on_every_kind
async def test_a_request_is_answered_by_a_member(tmp_path: Path, engine: Engine, url: str | None) -> None:
    home = made(engine, tmp_path / "home")

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You called" in call.text:
            return {"result": "Done."}
        sends = {"tool": "send_message", "arguments": {"to": "user", "content": "Seven."}}
        return {"result": "", "calls": [sends]}

    given = {"nats_url": url, "database_url": storage_of(home).url}
    settings = {name: value for name, value in given.items() if value is not None}
    more: dict[str, Any] = {"society": config(), "policy": Policy(rules=SEND_RULES)}
    async with scripted_agent(home, ScriptedLM(reply), settings=settings, **more) as agent, Gateway(agent, poll=HOUR):
        await agent.society.join(spec_of("cro"))
        asked = message("q1", "How many?", type="request")
        assert (await bounded(agent.society.mail.request("user", "cro", asked))).content == "Seven."
        assert await agent.society.mail.inbox() == []


# --- outages ----------------------------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.WARNING]


async def test_gateways_poll_while_the_broker_is_down_and_are_woken_once_it_is_back(
    tmp_path: Path, broker: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns()
    broker.kill()
    async with agent_in(made("sqlite", tmp_path / "home"), turns, broker.url) as agent:
        async with Gateway(agent, poll=0.05):
            await agent.society.mail.send("root", "cro", "Polled.")
            assert await bounded(turns.read.get()) == "Polled."
        assert [each for each in warnings_of(caplog) if "only poll" in each] == warnings_of(caplog)
        assert len(warnings_of(caplog)) == 1
        async with Gateway(agent, poll=HOUR):
            broker.start()
            await agent.society.mail.send("root", "cro", "Back.")
            assert await bounded(turns.read.get()) == "Back."
            broker.kill()
            broker.start()
            await agent.society.mail.send("root", "cro", "Back again.")
            assert await bounded(turns.read.get()) == "Back again."


async def test_a_gateway_listens_again_after_its_connection_to_postgres_broke(tmp_path: Path) -> None:
    from support.postgres import cut

    home, turns = made("postgres", tmp_path / "home"), Turns()
    async with agent_in(home, turns, None) as agent, agent_in(home, turns, None) as other, Gateway(agent, poll=HOUR):
        await other.society.mail.send("root", "cro", "First.")
        assert await bounded(turns.read.get()) == "First."
        assert cut(str(storage_of(home).url), like="LISTEN%") == 1
        await other.society.mail.send("root", "cro", "Second.")
        assert await bounded(turns.read.get()) == "Second."


# --- the broker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.members.mail.nats.ACK_SECONDS", 1.0)


@pytest.mark.usefixtures("quick")
async def test_a_wakeup_goes_to_one_gateway_and_to_another_one_if_that_dies(tmp_path: Path, broker: NatsServer) -> None:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            aclosing(await Database.open(tmp_path / "home" / "agent.db", schemas=SCHEMAS))
        )
        wakeups = [wakeups_of(database, SecretStr(broker.url)) for _ in range(3)]
        for each in wakeups:
            stack.push_async_callback(each.aclose)
        first, second = [await stack.enter_async_context(each.listen("novel")) for each in wakeups[:2]]
        for watch in (first, second):  # they look once they listen
            await bounded(watch.wait())
        waits = {asyncio.ensure_future(watch.wait()) for watch in (first, second)}
        wakeups[2].publish("novel", ["m1", "m1"])
        done, left = await asyncio.wait(waits, timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(left)) == (1, 1)
        # That one confirms nothing, as if it was killed.
        assert (await asyncio.wait(left, timeout=BOUND))[0] == left


async def test_a_broker_needs_its_extra_and_a_valid_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("localhost:4222", "http://localhost", "nats://", "nats://a,postgresql://b"):
        with pytest.raises(SettingsInvalid, match="nats_url"):
            Settings(nats_url=SecretStr(bad))
    monkeypatch.delitem(sys.modules, "worldagent.members.mail.nats", raising=False)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(MissingExtra, match=r"pip install 'worldagent\[nats\]'"):
        async with agent_in(made("sqlite", tmp_path / "home"), Turns(), "nats://localhost:1"):
            pass
