"""A whole sidecar and what does not fit: each is refused in a way that a client can read, and the rest is served on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.sidecar_calls import LEGACY, MODERN, Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_wire import BOUND, Wire
from support.sidecars import REVISIONS, Sidecar, over_http, over_stdio

HUGE = 10 << 20
revisions = pytest.mark.parametrize("revision", REVISIONS)


@asynccontextmanager
async def serving(home: Path) -> AsyncGenerator[Sidecar]:
    """A sidecar that still has a conversation with each kind of client when the block is over."""
    async with over_http(home) as sidecar:
        yield sidecar
        for revision in REVISIONS:
            async with sidecar.client(revision) as client:
                assert (await client.ask("converse", thread="after", text="Hi"))["turn"]["status"] == "done"


async def outcome(work: Awaitable[Any]) -> Any:
    """What is answered, or what it was refused with."""
    try:
        return await work
    except Refused as refused:
        return refused


async def refusal(work: Awaitable[Any]) -> Refused:
    found = await outcome(work)
    assert isinstance(found, Refused), found
    return found


async def posted(client: HttpClient, body: bytes, more: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Send a body as `client` would; gives the status and what was said."""
    wire = await Wire.open(client.url)
    try:
        headers = client.headers("tools/call", {"name": "converse"}) | dict(more or {})
        with contextlib.suppress(ConnectionError):
            await wire.send("POST", "/mcp", headers, body)
        reply = await wire.reply()
        return reply.status, await reply.read()
    finally:
        wire.close()


@pytest.mark.requirement("T10")
@revisions
async def test_each_thing_that_does_not_fit_is_refused_in_its_own_way(tmp_path: Path, revision: Revision) -> None:
    async with serving(tmp_path / "home") as sidecar, sidecar.client(revision) as client:
        for token in ("", "another", sidecar.token[:-1]):
            async with HttpClient(sidecar.url, token, MODERN) as stranger:
                assert (await refusal(stranger.ask("threads"))).code == 401
        foreign = await refusal(client.ask("converse", workspace="another", thread="t", text="Hi"))
        assert foreign.code == "forbidden"
        assert (await refusal(client.ask("converses"))).code == -32602
        for misfit in ({}, {"thread": 5, "text": "Hi"}, {"thread": "t", "text": "Hi", "secret words": 1}):
            found = await refusal(client.ask("converse", **misfit))
            assert found.code == "invalid_argument"
            assert "secret" not in str(found.told)
        call = client.message("tools/call", {"name": "converse", "arguments": {"thread": "t", "text": "Hi"}})
        broken = json.dumps(call).encode().replace(b'"Hi"', b'"\xff\xfe"')
        assert (await posted(client, broken))[0] == 400
        assert (await posted(client, b"x" * HUGE))[0] == 413
        await check_unknown_revision(sidecar)
        assert (await posted(client, json.dumps(call).encode()))[0] == 200


async def check_unknown_revision(sidecar: Sidecar) -> None:
    async with sidecar.client() as client:
        call = client.message("tools/call", {"name": "converse", "arguments": {"thread": "t", "text": "Hi"}})
        body = json.dumps(call).replace(MODERN, "2031-01-01").encode()
        status, said = await posted(client, body, {"MCP-Protocol-Version": "2031-01-01"})
        assert (status, json.loads(said)["error"]["code"]) == (400, -32022)
        assert MODERN in json.loads(said)["error"]["data"]["supported"]
    older = sidecar.client(LEGACY)
    try:
        answer = await older.request("initialize", **older.hello | {"protocolVersion": "2031-01-01"})
        assert answer["protocolVersion"] == LEGACY
    finally:
        await older.aclose()


@revisions
async def test_of_two_clients_that_answer_one_pause_one_goes_on_and_the_effect_happens_once(
    tmp_path: Path, revision: Revision
) -> None:
    async with serving(tmp_path / "home") as sidecar, sidecar.client(revision) as one, sidecar.client() as other:
        paused = await one.ask("converse", thread="t", text="do=buy what=hat")
        [pause] = paused["turn"]["pauses"]
        answers: dict[str, object] = {pause["id"]: {"approve": {}}}
        both = [outcome(client.ask("resume", thread="t", answers=answers)) for client in (one, other)]
        found = await asyncio.gather(*both)
        [lost] = [each for each in found if isinstance(each, Refused)]
        assert lost.code == "already_answered"
        [won] = [each for each in found if not isinstance(each, Refused)]
        assert won["turn"]["status"] == "done"
        assert (sidecar.home / "bought").read_text() == "hat\n"


@pytest.mark.requirement("T10")
@revisions
async def test_a_client_that_never_reads_holds_up_nobody_and_can_read_it_all_later(
    tmp_path: Path, revision: Revision
) -> None:
    words = 4000
    async with serving(tmp_path / "home") as sidecar, sidecar.client(revision) as client:
        arguments = {"thread": "t", "text": f"words={words}", "detach": True}
        message = client.message(
            "tools/call", {"name": "converse", "arguments": arguments, "_meta": {"progressToken": 1}}
        )
        wire = await Wire.open(sidecar.url)
        wire.writer.transport.get_extra_info("socket").setsockopt(1, 8, 4096)
        await wire.send(
            "POST", "/mcp", client.headers("tools/call", {"name": "converse"}), json.dumps(message).encode()
        )
        async with sidecar.client() as other:
            for number in range(3):
                assert (await other.ask("converse", thread=f"o{number}", text="Hi"))["turn"]["status"] == "done"
            async with asyncio.timeout(BOUND):
                while (state := await other.ask("pauses", thread="t"))["status"] != "done":  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # it is another process
            wire.abort()
            seen: list[int] = []
            async with other.call("events", {"turn_id": state["turn_id"]}) as call:
                seen = [event["seq"] async for event in call]
        assert seen == [*range(1, len(seen) + 1)]
        assert len(seen) > words


async def test_over_standard_streams_what_is_no_message_is_no_end(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home", LEGACY) as (_, client):
        for line in (b"\xff\xfe", b"garbage", b"[" * 100_000, b"x" * (1 << 20), b"null"):
            await client.say(line)
        assert (await client.ask("converse", thread="t", text="Hi"))["turn"]["status"] == "done"
