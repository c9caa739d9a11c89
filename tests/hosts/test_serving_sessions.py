"""Sessions of clients before revision 2026-07-28: which one makes room where all are taken, and which end."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.processes import eventually
from support.served import Served, served
from support.served_wire import JSON, Wire, call, initialize, request

Headers = dict[str, str]


def opened(server: Served, token: str = "") -> Headers:
    """A new session, whose client goes away without a word."""
    with Wire(server.address) as wire:
        return initialize(wire, **_bearer(token))


def refused(server: Served, token: str = "") -> bool:
    """Whether nobody new gets in."""
    try:
        opened(server, token)
    except AssertionError as error:
        return "status=503" in str(error)
    return False


def status(server: Served, session: Headers) -> int:
    """How a call in a session is answered."""
    with Wire(server.address) as wire:
        return wire.ask("POST", "/mcp", json.dumps(call("say", {"text": "hello"})).encode(), **session).status


def listening(server: Served, session: Headers, stack: ExitStack) -> Wire:
    """A stream that a session listens on, as long as the stack is open."""
    wire = stack.enter_context(Wire(server.address))
    wire.send(request("GET", "/mcp", b"", session))
    assert wire.head()[0] == 200
    return wire


def _bearer(token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"} if token else {}


@pytest.mark.requirement("T10")
def test_a_new_session_pushes_out_the_one_that_is_idle_the_longest(tmp_path: Path) -> None:
    with served(tmp_path, sessions=3) as found:
        first, second, third = opened(found), opened(found), opened(found)
        assert status(found, first) == 200
        fourth = opened(found)
        assert [status(found, each) for each in (first, second, third, fourth)] == [200, 404, 200, 200]
        later = [opened(found) for _ in range(20)]
        assert [status(found, each) for each in (first, later[-1])] == [404, 200]
        assert "error" not in found.told()


@pytest.mark.requirement("T10")
async def test_a_session_that_a_client_uses_is_not_pushed_out(tmp_path: Path) -> None:
    with served(tmp_path, sessions=2) as found, ExitStack() as stack:
        listens, asks = opened(found), opened(found)
        stream = listening(found, listens, stack)
        asking = stack.enter_context(Wire(found.address))
        asking.send(request("POST", "/mcp", json.dumps(call("wait", {})).encode(), asks))
        assert await found.notes_that("wait began")
        assert refused(found)
        stream.socket.close()
        assert await eventually(lambda: not refused(found), 20)
        assert status(found, listens) == 404
        assert "wait cancelled True" not in found.noted()
        assert status(found, asks) == 200


@pytest.mark.requirement("T10")
def test_a_token_that_holds_more_than_half_loses_its_own_sessions_first(tmp_path: Path) -> None:
    with served(tmp_path, sessions=4, tokens={"one": "novel:", "two": "diary:"}) as found, ExitStack() as stack:
        quiet = opened(found, "two")
        mine = [opened(found, "one") for _ in range(5)]
        assert [status(found, each) for each in mine] == [404, 404, 200, 200, 200]
        other = opened(found, "two")  # by now `quiet` has been idle for longer than any
        assert [status(found, each) for each in (quiet, other, *mine[2:])] == [200, 200, 404, 200, 200]
        mine = [*mine[3:], opened(found, "one")]  # of two halves, it is the longest of all
        assert status(found, quiet) == 404
        for each in mine:
            listening(found, each, stack)
        assert refused(found, "one")
        assert status(found, other) == 200


def test_a_session_that_is_idle_ends(tmp_path: Path) -> None:
    with served(tmp_path, session_idle=0.5) as found:
        session = opened(found)

        async def ended() -> bool:
            async with asyncio.timeout(20):
                while status(found, session) != 404:  # noqa: ASYNC110 -- a session that ends tells nobody
                    await asyncio.sleep(1)  # each look is a request of it
            return True

        assert asyncio.run(ended())


def test_a_request_that_opens_no_session_pushes_out_no_more_than_one(tmp_path: Path) -> None:
    with served(tmp_path, sessions=2) as found, Wire(found.address) as wire:
        older, newer = opened(found), opened(found)
        for _ in range(5):
            assert wire.ask("POST", "/mcp", json.dumps(call("say", {})).encode(), **JSON).status == 400
        assert [status(found, each) for each in (older, newer)] == [404, 200]
