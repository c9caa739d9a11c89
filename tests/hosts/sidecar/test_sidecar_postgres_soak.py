"""Two sidecars on one Postgres database that are killed, cut off and lose the server, again and again (T4, T5, T10)."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.agents import standing
from support.postgres import OwnServer, cut
from support.sidecar_calls import Refused
from support.sidecar_clients import Broken
from support.sidecars import THREAD, Sidecar, bought, over_http, ready, shared, until
from worldagent.core.events import parse_event

pytestmark = [pytest.mark.soak, pytest.mark.requirement("T4", "T5", "T10"), pytest.mark.timeout(600)]

ROUNDS = 20
CLIENTS = 6
TURNS = 3
BLOWS = 6
TURN_BOUND = 180.0  # seconds
MOVED_ON = ("already_answered", "nothing_to_resume", "unknown_pause", "unknown_turn")
"""What somebody is told whose answer counted, or came to nothing, and who was not there to hear it."""


class Town:
    """Two sidecars on one database, which somebody does everything to that can happen to them."""

    def __init__(self, folder: Path, server: OwnServer, source: random.Random) -> None:
        self.homes = (folder / "here", folder / "there")
        self.sidecars: list[Sidecar] = []
        self.met: Counter[str] = Counter()
        self._server, self._source = server, source
        self._opened = AsyncExitStack()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._opened:
            self.sidecars = [await self._start(home) for home in self.homes]
            yield

    async def _start(self, home: Path) -> Sidecar:
        return await self._opened.enter_async_context(over_http(home, **shared(self._server.url)))

    async def blow(self) -> None:
        """Do something to them, after a while."""
        await asyncio.sleep(self._source.uniform(0.1, 1.5))
        blow = self._source.choice(("kill", "kill", "cut", "restart"))
        self.met[blow] += 1
        match blow:
            case "kill":
                place = self._source.randrange(len(self.sidecars))
                await self.sidecars[place].killed()
                self.sidecars[place] = await self._start(self.homes[place])
            case "cut":
                await asyncio.to_thread(cut, self._server.url)
            case _:
                await asyncio.to_thread(self._server.stop)
                await asyncio.to_thread(self._server.start)

    @property
    def bought(self) -> list[str]:
        return [what for home in self.homes for what in bought(home)]


class Shopper:
    """A client that goes by the contract, at whichever sidecar, and answers what it is asked truthfully."""

    def __init__(self, town: Town, number: int, source: random.Random) -> None:
        self._town, self._source = town, source
        self._thread = f"t{number}"
        self.wanted = [f"hat{number}.{turn}" for turn in range(TURNS)]
        self.heard: list[dict[str, Any]] = []

    async def run(self) -> None:
        for what in self.wanted:
            self.heard = []
            async with asyncio.timeout(TURN_BOUND):
                turn = await self._turn(f"do=buy what={what} words=10 pace=0.02", key=what)
            assert (turn["status"], {event["turn_id"] for event in self.heard}) == ("done", {turn["id"]})
            assert (self.heard[-1]["type"], self.heard[-1]["status"]) == ("turn_ended", "done")
            assert standing([parse_event(json.dumps(event)) for event in self.heard]) == turn["text"]

    async def _turn(self, text: str, key: str) -> dict[str, Any]:
        start: dict[str, Any] = {"thread": self._thread, "text": text, "key": key, "detach": True}
        step = ("converse", start)
        while True:
            answer = await self._called(*step)
            turn: dict[str, Any] = answer.get("turn") or {}
            if turn and not answer["next"]:
                return turn
            step = ("converse", start)
            for given in answer.get("next") or []:
                step = (given["tool"], given["arguments"])
            if turn.get("status") == "paused" and turn["pauses"]:
                self._town.met["paused"] += 1
                step[1]["answers"] = {pause["id"]: await self._said(pause) for pause in turn["pauses"]}

    async def _called(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; gives the error where something went wrong that passes, nothing where the connection broke."""
        seq = self.heard[-1]["seq"] if self.heard else 0
        sidecar = self._source.choice(self._town.sidecars)
        try:
            async with sidecar.client() as client, client.call(tool, arguments | {"after": seq}) as call:
                async for event in call:
                    seq += 1
                    assert event["seq"] == seq, f"{self._thread}: {event['seq']} after {seq - 1}"
                    self.heard.append(event)
                return await call.answer()
        except (Broken, OSError):
            self._town.met["broken"] += 1
            await asyncio.sleep(0.1)
            return {}
        except Refused as refused:
            error: dict[str, Any] = refused.told["structuredContent"]["error"]
            assert error["retryable"] or error.get("next") or error["code"] in MOVED_ON, error
            self._town.met[error["code"]] += 1
            await asyncio.sleep(0.1)
            return error

    async def _said(self, pause: dict[str, Any]) -> dict[str, Any]:
        if pause["kind"] == "approval":
            return {"approve": pause["answers"]["approve"]}
        assert pause["kind"] == "uncertain"
        self._town.met["uncertain"] += 1
        what = pause["arguments"]["what"]

        async def happened() -> bool:
            return what in self._town.bought

        with suppress(TimeoutError):  # whoever was cut off, and not killed, may be about to
            await until(happened, 2)
        return {"happened": {"result": f"paid for the {what}"}} if await happened() else {"run_again": {}}


async def idle(sidecar: Sidecar) -> bool:
    """Whether it takes turns, and none is left."""
    status, told = await sidecar.get("/ready")
    return bool(status == 200 and told["turns"] == 0)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_faults_end_no_turn_twice_and_buy_no_hat_twice(tmp_path: Path, server: OwnServer, number: int) -> None:
    source = random.Random(f"round {number}")
    town = Town(tmp_path, server, source)
    async with town.running():
        shoppers = [Shopper(town, place, random.Random(f"{number} {place}")) for place in range(CLIENTS)]
        async with asyncio.TaskGroup() as group:
            for shopper in shoppers:
                group.create_task(shopper.run())
            for _ in range(BLOWS):
                await town.blow()
        for sidecar in town.sidecars:
            await until(lambda sidecar=sidecar: idle(sidecar))  # type: ignore[misc]  # bound
    print(f"{number}: {dict(town.met)}")  # noqa: T201 -- the figures of a soak
    assert sorted(town.bought) == sorted(what for shopper in shoppers for what in shopper.wanted)


async def test_a_database_that_hangs_makes_the_sidecar_unready_after_a_while(tmp_path: Path, server: OwnServer) -> None:
    async with over_http(tmp_path / "home", **shared(server.url)) as sidecar, sidecar.client() as client:
        assert (await client.ask("converse", thread=THREAD, text="Hi"))["turn"]["status"] == "done"
        server.hang()
        try:
            began = time.monotonic()

            async def asked() -> bool:
                before = time.monotonic()
                async with asyncio.timeout(5):
                    status, _ = await sidecar.get("/ready")
                waited.append(time.monotonic() - before)
                return status == 503

            waited: list[float] = []
            await until(asked)
            assert time.monotonic() - began > 5, "much to do is not a reason to send clients elsewhere"
            assert sorted(waited)[len(waited) // 2] < 1, waited
            assert (await sidecar.get("/health"))[0] == 200
        finally:
            server.go_on()
        await ready(sidecar, True)
        assert (await client.ask("converse", thread=THREAD, text="Hi"))["turn"]["status"] == "done"
