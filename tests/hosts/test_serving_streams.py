"""Streams over HTTP: clients that go away, that do not read, or that are there when the server ends."""

import asyncio
import json
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.processes import eventually
from support.served import BOUND, Served, Wire, call, initialize, modern, request, served

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
SLOW = 4096  # bytes that the system keeps for a client that does not read
SECONDS = 3.0  # within which others are answered


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    with served(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def server(running: Served) -> Served:
    """A server that outlives the test, with nothing noted yet. A test sees to it that its calls have ended."""
    running.notes.write_text("")
    return running


@pytest.fixture
def ending(tmp_path: Path) -> Generator[Served, None, None]:
    """A server that the test ends."""
    with served(tmp_path, drain=5.0) as found:
        yield found


def ask(era: str, session: dict[str, str], tool: str, number: int = 7, **arguments: Any) -> bytes:
    """The bytes of a call that asks for progress."""
    message = call(tool, arguments, progress=True, number=number)
    body, headers = (json.dumps(message).encode(), session) if era == "legacy" else modern(message)
    return request("POST", "/mcp", body, headers)


def session_of(era: str, server: Served) -> dict[str, str]:
    with Wire(server.address) as wire:
        return initialize(wire) if era == "legacy" else {}


# --- a client that goes away ------------------------------------------------------------------------------------------


@pytest.mark.requirement("T10")
@ERAS
@pytest.mark.parametrize("tool", ["wait", "open"])
async def test_a_handler_whose_client_goes_away_is_cancelled(server: Served, era: str, tool: str) -> None:
    session = session_of(era, server)
    with Wire(server.address) as wire:
        wire.send(ask(era, session, tool))
        assert await server.notes_that(f"{tool} began")
    assert await server.notes_that(f"{tool} cancelled True")


@ERAS
async def test_a_client_that_goes_away_takes_no_other_of_its_session_with_it(server: Served, era: str) -> None:
    session = session_of(era, server)
    with Wire(server.address) as stays:
        stays.send(ask(era, session, "open", number=1))
        with Wire(server.address) as goes:
            goes.send(ask(era, session, "wait", number=2))
            assert await server.notes_that("wait began")
        assert await server.notes_that("wait cancelled True")
        with Wire(server.address) as other:
            other.send(ask(era, session, "say", number=3, text="hello"))
            assert b"hello" in other.read().body
        assert "open cancelled True" not in server.noted()
    assert await server.notes_that("open cancelled True")


# --- a client that does not read --------------------------------------------------------------------------------------


@pytest.mark.requirement("T10")
@ERAS
async def test_a_client_that_reads_nothing_slows_its_own_handler_alone(server: Served, era: str) -> None:
    session = session_of(era, server)
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with Wire(server.address, buffer=SLOW) as slow:
        slow.send(ask(era, session, "count", to=100_000, size=10_000))
        assert await server.notes_that("counted 20")
        for number in range(100, 110):
            with Wire(server.address) as other:
                other.socket.settimeout(SECONDS)
                other.send(ask(era, session, "say", number=number, text="hello"))
                assert b"hello" in other.read().body
        counted = sum(note.startswith("counted") for note in server.noted())
        assert counted < 200  # of what would be a gigabyte
        assert process.memory_info().rss - before < 20 << 20
    assert await server.notes_that("count cancelled True")


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_at_sigterm_streams_get_their_last_events_and_the_process_ends_in_order(ending: Served) -> None:
    hold = ending.notes.with_suffix(".hold")
    hold.touch()
    with Wire(ending.address) as modern, Wire(ending.address) as legacy, Wire(ending.address) as kept:
        for wire, era in ((modern, "modern"), (legacy, "legacy")):
            wire.send(ask(era, session_of(era, ending), "open"))
        assert kept.ask("GET", "/ready").status == 200
        assert await eventually(lambda: ending.noted().count("open began") == 2, BOUND)
        ending.process.terminate()
        assert await ending.notes_that("drain 5")
        told = kept.ask("GET", "/ready")
        assert (told.status, told.json) == (503, {"ready": False, "draining": True})
        assert kept.ask("GET", "/health").status == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ending.address.host, ending.address.port), BOUND)
        hold.unlink()
        for wire in (modern, legacy):
            answer = await asyncio.to_thread(wire.read)
            assert [event.get("params", {}).get("message") for event in answer.events] == ["opened", "last", None]
        assert await asyncio.to_thread(ending.process.wait, BOUND) == 143
    assert ending.noted()[-4:] == ["end", "drain 5", "streams ended", "ended in order"]
    assert "error" not in ending.told()


async def test_a_second_signal_ends_the_process_at_once(ending: Served) -> None:
    ending.notes.with_suffix(".hold").touch()
    ending.process.terminate()
    assert await ending.notes_that("drain 5")
    ending.process.terminate()
    async with asyncio.timeout(4):
        assert await asyncio.to_thread(ending.process.wait, BOUND) == -signal.SIGTERM
    assert "ended in order" not in ending.noted()


async def test_a_client_that_reads_nothing_does_not_keep_the_process(tmp_path: Path) -> None:
    with served(tmp_path, drain=0.2, CLOSE_SECONDS=1) as server, Wire(server.address, buffer=SLOW) as slow:
        slow.send(ask("modern", {}, "count", to=100_000, size=10_000))
        assert await server.notes_that("counted 20")
        server.process.terminate()
        assert await asyncio.to_thread(server.process.wait, 30) == 143
