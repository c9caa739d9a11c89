"""Attaching to turns with `events`: numbers that no turn has come to, many readers of one turn, how turns ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support.role_hosts import BOUND
from support.sidecar_calls import Call, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import Caller, agents, caller_of, served
from support.sidecars import REVISIONS, let, over_http, status, until
from support.sidecars import Sidecar as Process
from worldagent.hosts.sidecar import Sidecar
from worldagent.memory.turn_log import TurnLog
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10")
READERS = 5


class Words:
    """A model that says one word whenever it may."""

    def __init__(self) -> None:
        self.more = asyncio.Semaphore(0)
        self.ending = False

    async def __call__(self, call: ScriptedCall) -> AsyncGenerator[str]:
        return self._words()

    async def _words(self) -> AsyncGenerator[str]:
        yield "[[ ## reply ## ]]\nfirst"
        while not self.ending:
            await self.more.acquire()
            yield " and another word"
        yield "\n\n[[ ## completed ## ]]"

    def end(self) -> None:
        self.ending = True
        self.more.release()


# --- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("known", ["the first event", "not said"])
async def test_who_goes_on_gets_what_was_told_while_they_were_away(
    revision: Revision, known: str, tmp_path: Path
) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client(revision) as away:
        start = {"thread": "t1", "text": "do=buy what=hat", "key": "k1", "detach": True}
        async with sidecar.client(revision) as leaving, leaving.call("converse", start) as call:
            first = await anext(aiter(call))
        await until(lambda: _stands(away, "paused"), BOUND)
        waiting = await away.ask("pauses", thread="t1")
        [pause] = waiting["pauses"]
        given: dict[str, Any] = {"thread": "t1", "answers": {pause["id"]: {"approve": pause["answers"]["approve"]}}}
        after = {"the first event": {"after": 1}, "not said": {}}[known]
        async with away.call("resume", given | after) as again:
            rest = [event async for event in again]
            assert (await again.answer())["turn"]["status"] == "done"
        every = (await away.ask("events", turn_id=first["turn_id"], wait=0))["events"]
    numbers = [event["seq"] for event in every]
    assert numbers == [*range(1, len(every) + 1)]
    if known == "not said":
        assert rest == every[-len(rest) :]
        assert (rest[0]["type"], rest[0]["resumed"]) == ("turn_started", True)
    else:
        assert rest == every[after["after"] :]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_who_goes_on_with_a_turn_that_runs_gets_what_it_tells_to_its_end(
    revision: Revision, tmp_path: Path
) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client(revision) as again:
        start = {"thread": "t1", "text": "Tell me. hold=later", "key": "k1", "detach": True}
        async with sidecar.client(revision) as leaving, leaving.call("converse", start) as call:
            first = await anext(aiter(call))
        async with again.call("resume", {"thread": "t1", "after": 1}) as going:
            reading = asyncio.create_task(_all(going))
            for _ in range(10):  # what is sent after it is answered: by then the sidecar waits for the turn
                await again.ask("events", turn_id=first["turn_id"], wait=0)
            let([sidecar.home], "later")
            rest, answer = await reading
        every = (await again.ask("events", turn_id=first["turn_id"], wait=0))["events"]
    assert rest == every[1:]
    assert (answer["turn"]["status"], answer["seq"]) == ("done", every[-1]["seq"])


async def _all(call: Call) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [event async for event in call], await call.answer()


async def _stands(client: HttpClient, expected: str) -> bool:
    return await status(client) == expected


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [True, False])
async def test_a_number_that_the_turn_has_not_come_to_is_refused_with_the_last_one(
    follow: bool, tmp_path: Path
) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM([{"reply": "Yes."}])))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        done = await ask("converse", workspace="novel", thread="t1", text="Well?", key="k")
        turn: dict[str, Any] = {"workspace": "novel", "turn_id": done["turn"]["id"], "follow": follow}
        end = await ask("events", **turn, after=done["seq"])
        assert (end["seq"], end["events"], end["turn"]["status"]) == (done["seq"], [], "done")
        for after in (done["seq"] + 1, 1000, 2**53):
            error = await ask.refused("events", **turn, after=after)
            assert (error["code"], error["retryable"]) == ("invalid_argument", False)
            assert error["problem"].endswith(f"last event, {done['seq']}")
            assert error["remedy"].startswith(f"read on after {done['seq']}, or from 0 if")
        for none in (-1, True, 2**53 + 1):
            error = await ask.refused("events", **turn, after=none)
            assert (error["code"], error["problem"][:28]) == ("invalid_argument", "the arguments are invalid: a")


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_one_look_into_the_log_serves_all_readers_of_a_turn_that_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[asyncio.Task[Any] | None] = []
    page = TurnLog.page

    async def counted(log: TurnLog, turn: str, after: int) -> Any:
        looked.append(asyncio.current_task())
        return await page(log, turn, after)

    monkeypatch.setattr(TurnLog, "page", counted)
    words = Words()
    one, two = (Sidecar(agents(tmp_path, lm=ScriptedLM(words))) for _ in range(2))
    async with AsyncExitStack() as stack:
        url, there = [await stack.enter_async_context(served(each)) for each in (one, two)]
        ask = await stack.enter_async_context(caller_of(url, "auto"))
        readers = [await stack.enter_async_context(caller_of(there, "auto")) for _ in range(READERS)]
        begun = asyncio.create_task(ask("converse", workspace="novel", thread="t1", text="Well?", detach=True))
        await asyncio.wait_for(ask.come.wait(), BOUND)
        turn: dict[str, Any] = {"workspace": "novel", "turn_id": ask.events[0].turn_id}
        reading = [asyncio.create_task(reader("events", **turn)) for reader in readers]
        await asyncio.gather(*(asyncio.wait_for(reader.come.wait(), BOUND) for reader in readers))

        fewest = READERS
        for _ in range(10):  # at the first ones some readers still read what was there before
            looked.clear()
            await _heard(words, readers)
            fewest = min(fewest, len(set(looked)) or READERS)  # none, where the word was read with the one before
        assert fewest == 1
        words.end()
        answers = await asyncio.gather(*reading)
        await begun
    assert {answer["turn"]["status"] for answer in answers} == {"done"}
    for reader in readers:
        assert [event.seq for event in reader.events] == list(range(1, len(ask.events) + 1))


async def _heard(words: Words, readers: list[Caller]) -> None:
    """Say one word more, and wait until all readers have heard of it."""
    for reader in readers:
        reader.come.clear()
    words.more.release()
    await asyncio.gather(*(asyncio.wait_for(reader.come.wait(), BOUND) for reader in readers))


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_what_was_let_go_of_is_abandoned_and_what_was_ended_is_cancelled_whoever_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    start = {"text": "hold=never", "key": "k", "detach": True, "account": "ana"}
    turns: dict[str, str] = {}
    async with over_http(home) as sidecar:
        for thread in ("passed", "ended"):
            turns[thread] = await _begun(sidecar, {"thread": thread, **start})
        await sidecar.killed()
    async with over_http(home) as sidecar, sidecar.client() as client:
        for thread in turns:
            assert (await client.ask("pauses", thread=thread, account="ana"))["status"] == "cut_off"
        newer = await client.ask("converse", thread="passed", text="Never mind.", account="ana")
        assert newer["turn"]["status"] == "done"
        assert (await client.ask("cancel", thread="ended", account="ana"))["cancelled"] is True
        for thread, status in (("passed", "abandoned"), ("ended", "cancelled")):
            repeated = await client.ask("converse", thread=thread, **start)
            assert (repeated["turn"]["id"], repeated["turn"]["status"]) == (turns[thread], status)
            read = await client.ask("events", turn_id=turns[thread], account="ana")
            assert (read["turn"]["status"], read["next"], repeated["next"]) == (status, [], [])
        assert (await client.ask("pauses", thread="ended", account="ana"))["status"] == "cancelled"


async def _begun(sidecar: Process, arguments: dict[str, Any]) -> str:
    """Begin a turn and go away; gives its id."""
    async with sidecar.client() as client, client.call("converse", arguments) as call:
        return str((await anext(aiter(call)))["turn_id"])
