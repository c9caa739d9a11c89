"""Many readers, slow readers, proxies that hold streams back, readers that return, servers that stop."""

import asyncio
import resource
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from support.agents import Thinking, answering, scripted_agent
from support.processes import eventually
from support.web import BOUND, STREAM, client_of, events_in, say, served, web
from support.web_process import web_process
from worldagent.hosts.service.pool import Limits
from worldagent.hosts.web import WebApp
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("T4", "T10")

LONG, FILLER = 1000, "\N{TOP HAT}"  # a long word has so many of the character, each of four bytes
HELD_BACK = 64 * 1024  # bytes that a proxy collects


class Paced:
    """A model that says one word each time it is allowed to.

    Args:
        words: How many words it says.
        filler: How many further characters each word has.
    """

    def __init__(self, words: int, filler: int = 0) -> None:
        self.lm = ScriptedLM(lambda call: self._said(words, filler))
        self._allowed = asyncio.Semaphore(0)

    def allow(self, words: int = 1) -> None:
        """Allow some more words."""
        for _ in range(words):
            self._allowed.release()

    async def _said(self, words: int, filler: int) -> AsyncGenerator[str]:
        yield "[[ ## reply ## ]]\n"
        for number in range(words):
            await self._allowed.acquire()
            yield f"{number:05}{FILLER * filler} "
        yield "\n\n[[ ## completed ## ]]"


class Reading:
    """A reader of a stream.

    Attributes:
        text: What has arrived.
    """

    def __init__(self, client: httpx2.AsyncClient, turn_id: str, after: int = 0) -> None:
        self.text = ""
        headers = {**STREAM, "Last-Event-ID": str(after)}
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(client.stream("GET", f"/turns/{turn_id}/events", headers=headers)))

    async def until(self, there: Callable[[str], bool]) -> None:
        """Wait for a text."""
        async with asyncio.timeout(BOUND), self._news:
            await self._news.wait_for(lambda: there(self.text) or self._task.done())
        assert there(self.text), self.text

    async def events(self) -> list[dict[str, Any]]:
        """The events, once the stream has ended, in whichever way."""
        await asyncio.wait_for(asyncio.wait([self._task]), BOUND)
        return events_in(self.text)

    async def _read(self, stream: Any) -> None:
        try:
            async with stream as response:
                assert response.status_code == 200
                async for text in response.aiter_text():
                    async with self._news:
                        self.text += text
                        self._news.notify_all()
        except httpx2.RemoteProtocolError:
            pass  # the server has ended the stream before its end
        finally:
            async with self._news:
                self._news.notify_all()


def has(word: str) -> Callable[[str], bool]:
    """A condition for `until`."""
    return lambda text: word in text


def check_whole(events: list[dict[str, Any]], *, after: int = 0, status: str = "done") -> None:
    """Check that each event came once and in order, and then the turn."""
    *numbered, last = events
    assert [int(each["id"]) for each in numbered] == list(range(after + 1, after + 1 + len(numbered)))
    assert [last["type"], last["turn"]["status"]] == ["turn", status]


@asynccontextmanager
async def begun(client: httpx2.AsyncClient, text: str = "Hello.", **more: Any) -> AsyncGenerator[str]:
    """Begin a turn; its first client disconnects at the end of the block. Gives the id of the turn."""
    body = {"text": text, **more}
    async with client.stream("POST", "/threads/main/messages", json=body, headers=STREAM) as response:
        async for part in response.aiter_text():
            yield events_in(part)[0]["turn_id"]
            return


async def test_a_stream_asks_proxies_not_to_hold_it_back(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        response = await client.post("/threads/main/messages", json={"text": "Hello."}, headers=STREAM)
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-cache, no-transform"
        assert not {"content-length", "content-encoding"} & set(response.headers)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.soak)])
async def test_many_readers_of_a_turn_get_each_event_once_and_in_order(tmp_path: Path, count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    model, unlimited = Paced(20), httpx2.Limits(max_connections=None)
    limits = Limits(account_readers=2 * count)
    async with web(tmp_path, model.lm, limits=limits) as client, begun(client) as turn_id:
        async with httpx2.AsyncClient(
            base_url=client.base_url, timeout=BOUND, headers={"x-user": "ana"}, limits=unlimited
        ) as many:
            readers = [Reading(many, turn_id) for _ in range(count)]
            for each in readers:
                await each.until(lambda text: "turn_started" in text)
            model.allow(20)
            found = [await each.events() for each in readers]
        check_whole(found[0])
        assert all(each == found[0] for each in found)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.soak)])
async def test_many_turns_at_once_each_stream_their_own_events(tmp_path: Path, count: int) -> None:
    limits = Limits(account_turns=count, account_readers=count)
    async with web(tmp_path, answering("One two three."), limits=limits) as client:
        turns = await asyncio.gather(*(say(client, "Hello.", thread=f"t{number}") for number in range(count)))
    for number, events in enumerate(turns):
        check_whole(events)
        assert events[-1]["turn"]["thread"] == f"ana:t{number}"
        assert len({each["turn_id"] for each in events[:-1]}) == 1


def stopped_reader(url: str, turn_id: str) -> socket.socket:
    """A connection that follows a turn and reads nothing. The system buffers little for it, on both sides."""
    where, still = urlsplit(url), socket.socket()
    still.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    still.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    still.settimeout(BOUND)
    still.connect((where.hostname, where.port))
    head = [
        f"GET /turns/{turn_id}/events HTTP/1.1",
        f"Host: {where.netloc}",
        "Accept: text/event-stream",
        "X-User: ana",
    ]
    still.sendall("\r\n".join([*head, "", ""]).encode())
    return still


async def test_a_reader_that_stops_reading_delays_no_other(tmp_path: Path) -> None:
    words = 100
    model = Paced(words, LONG)
    async with web(tmp_path, model.lm, limits=Limits(reader_stall=600)) as client, begun(client) as turn_id:
        with stopped_reader(str(client.base_url), turn_id):
            reader = Reading(client, turn_id)
            for number in range(words):  # a word is said once this reader has the one before it
                model.allow()
                await reader.until(has(f"{number:05}{FILLER}"))
            check_whole(await reader.events())


async def test_a_reader_that_stops_reading_is_disconnected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "worldagent.web")
    model = Paced(100, LONG)
    async with web(tmp_path, model.lm, limits=Limits(reader_stall=0.2)) as client, begun(client) as turn_id:
        with stopped_reader(str(client.base_url), turn_id) as still:
            reader = Reading(client, turn_id)
            model.allow(100)
            check_whole(await reader.events())
            assert await eventually(lambda: "has read nothing" in caplog.text, BOUND)
            received = await asyncio.to_thread(lambda: b"".join(iter(lambda: still.recv(65536), b"")))
    assert b'"type":"turn_started"' in received
    assert b'"type":"turn_ended"' not in received
    assert "Traceback" not in caplog.text


async def test_comments_keep_an_idle_stream_alive(tmp_path: Path) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm, limits=Limits(heartbeat=0.05)) as client, begun(client) as turn_id:
        reader = Reading(client, turn_id)
        await reader.until(lambda text: text.count("\n: ping") >= 3)
        model.may.set()
        check_whole(await reader.events())


@asynccontextmanager
async def behind_proxy(url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client behind a proxy that holds each response back until its end, or until there are 64 KiB of it."""
    where = urlsplit(url)

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, below = await asyncio.open_connection(where.hostname, where.port)
        below.write(await reader.readuntil(b"\r\n\r\n"))
        held = b""
        while part := await above.read(HELD_BACK):
            held += part
            if len(held) >= HELD_BACK:
                writer.write(held)
                held = b""
        writer.write(held)
        below.close()
        writer.close()

    proxy = await asyncio.start_server(passed, "127.0.0.1", 0)
    async with proxy:
        port = proxy.sockets[0].getsockname()[1]
        async with client_of(f"http://127.0.0.1:{port}", Connection="close") as client:
            yield client


async def test_events_are_polled_as_json_behind_a_proxy_that_holds_streams_back(tmp_path: Path) -> None:
    model = Paced(5)
    async with web(tmp_path, model.lm) as client, behind_proxy(str(client.base_url)) as far, begun(client) as turn_id:
        seen: list[dict[str, Any]] = []
        status = "running"
        while status == "running":
            query = {"after": len(seen), "wait": BOUND / 2}
            page = (await far.get(f"/turns/{turn_id}/events", params=query)).json()
            seen += page["events"]
            status = page["turn"]["status"]
            model.allow()  # the model says the next word only after the last one has passed the proxy
        assert [each["seq"] for each in seen] == list(range(1, len(seen) + 1))
        assert "".join(each["text"] for each in seen if each["type"] == "text_delta").split()[-1] == "00004"
        assert status == "done"


async def test_a_stream_arrives_whole_behind_a_proxy_that_holds_it_back(tmp_path: Path) -> None:
    model = Paced(50, LONG)
    async with web(tmp_path, model.lm) as client, behind_proxy(str(client.base_url)) as far, begun(client) as turn_id:
        reader = Reading(far, turn_id)
        model.allow(50)
        check_whole(await reader.events())


async def test_a_reader_that_returns_gets_the_rest_until_the_events_are_gone(tmp_path: Path) -> None:
    clock = VirtualClock()
    agent = scripted_agent(tmp_path, answering("Fine."), clock=clock, settings={"event_age": 2 * 86_400})
    async with served(WebApp(agent, login=lambda _: "ana")) as url, client_of(url) as client:
        path = f"/turns/{(await say(client, 'Hello.'))[-1]['turn']['id']}/events"
        headers = {**STREAM, "Last-Event-ID": "1"}
        await clock.advance(86_400)
        await agent._runner.parts.recorder.log.prune(2 * 86_400, most=10)
        check_whole(events_in((await client.get(path, headers=headers)).text), after=1)
        await clock.advance(2 * 86_400)
        await agent._runner.parts.recorder.log.prune(2 * 86_400, most=10)
        for gone in (await client.get(path, headers=headers), await client.get(path, params={"after": 1})):
            error = gone.json()["error"]
            assert [gone.status_code, error["code"]] == [410, "events_gone"]
            assert "the messages are in the thread's history" in error["remedy"]
        messages = (await client.get("/threads/main/messages")).json()["messages"]
        assert [each["body"]["text"] for each in messages] == ["Hello.", "Fine."]


@pytest.mark.parametrize(("detach", "status"), [(True, "done"), (False, "cancelled")])
async def test_detach_decides_what_a_disconnected_client_leaves_behind(
    tmp_path: Path, detach: bool, status: str
) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm) as client:
        async with begun(client, detach=detach, key="k") as turn_id:
            await asyncio.wait_for(model.asked.wait(), BOUND)
            reader = Reading(client, turn_id)
            await reader.until(lambda text: "turn_started" in text)
        if detach:
            model.may.set()
        check_whole(await reader.events(), status=status)


@pytest.mark.parametrize(("how", "status"), [(signal.SIGTERM, "stopped"), (signal.SIGKILL, "cut_off")])
async def test_readers_take_up_the_rest_after_the_server_has_stopped(
    tmp_path: Path, how: signal.Signals, status: str
) -> None:
    with web_process(tmp_path) as server:
        async with server.client() as client, begun(client, "hold=go words=5") as turn_id:
            assert await eventually((tmp_path / "go.held").exists, BOUND)
            readers = [Reading(client, turn_id) for _ in range(5)]
            for each in readers:
                await each.until(lambda text: "turn_started" in text)
            assert await asyncio.to_thread(server.end, how) in (0, -how)
            last = [int((await each.events())[-1]["id"]) for each in readers]
    (tmp_path / "go").touch()
    with web_process(tmp_path) as server:
        async with server.client() as client:
            for after in last:  # not 204, at which a browser would stop for good
                found = (await Reading(client, turn_id, after).events())[-1]
                assert [found["turn"]["status"], found["next"][0]["tool"]] == [status, "resume"]
            resumed = await client.post("/threads/main/resume", json={}, headers=STREAM)
            assert events_in(resumed.text)[-1]["turn"]["status"] == "done"
            for after in last:
                check_whole(await Reading(client, turn_id, after).events(), after=after)


@pytest.mark.on_every_database
async def test_a_reader_at_one_process_follows_a_turn_of_another(tmp_path: Path) -> None:
    with web_process(tmp_path) as one, web_process(tmp_path) as other:
        async with one.client() as here, other.client() as there, begun(here, "hold=go words=20") as turn_id:
            reader = Reading(there, turn_id)
            await reader.until(lambda text: "turn_started" in text)
            (tmp_path / "go").touch()
            events = await reader.events()
            check_whole(events)
            assert events[-1]["turn"]["text"].split()[-1] == "word19"


@pytest.mark.on_every_database
async def test_a_pause_that_is_answered_at_two_processes_at_once_is_answered_once(tmp_path: Path) -> None:
    with web_process(tmp_path) as one, web_process(tmp_path) as other:
        async with one.client() as here, other.client() as there:
            for number in range(5):
                path, count = f"/threads/t{number}", number + 1
                await here.post(f"{path}/messages", json={"text": "do=buy"})
                [pause] = (await there.get(f"{path}/pauses")).json()["pauses"]
                answers: dict[str, Any] = {"answers": {pause["id"]: {"approve": {}}}}
                found = await asyncio.gather(*(each.post(f"{path}/resume", json=answers) for each in (here, there)))
                done, refused = sorted(found, key=lambda response: response.status_code)
                assert [done.status_code, done.json()["turn"]["status"], refused.status_code] == [200, "done", 409]
                assert len((tmp_path / "bought").read_text().splitlines()) == count
