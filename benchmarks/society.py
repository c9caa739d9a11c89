"""What members, contacts, messages and introductions cost, each against a society of twice the size, and how soon a
message starts the turn of its receiver.

Run `python benchmarks/society.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import SecretStr

from worldagent import Settings, Storage, WorldAgent
from worldagent.benchmarks._measure import Report, Row, at_once, interleaved, main
from worldagent.benchmarks._postgres import new_database, server
from worldagent.core.errors import UnknownContact
from worldagent.members import (
    AuthorityConfig,
    Contact,
    Gateway,
    InterfaceSpec,
    RoleSpec,
    Society,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.members.data.roles import RoleStatus
from worldagent.members.life.members import new_member
from worldagent.members.mail.contacts import add_contact
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database, PostgresAddress, Transaction
from worldagent.testing import ScriptedCall, ScriptedLM

_POLICY = WorkspacePolicy(max_roles=1_000_000)
_MEMBERS, _CONTACTS = 10_000, 10  # members, and contacts of each
_REFERRALS = 1000
_AIM = 1.3  # of twice the size over the size: what is logarithmic or constant stays below
_WORDS = ("law", "sales", "web", "press", "tax", "search", "travel", "design", "print", "stock")


def spec(number: int) -> RoleSpec:
    return RoleSpec(
        role_id=f"m{number}",
        workspace="w",
        soul="You are a member.",
        domains=(_WORDS[number % len(_WORDS)],),
        reports_to="",
        operator_ids=(),
        authority=AuthorityConfig(),
    )


class Crowd:
    """A society with some members, each with ten contacts, two of which offer what is looked for.

    Args:
        database: Its database.
        members: How many members it has.
    """

    def __init__(self, database: Database, members: int) -> None:
        self.society = Society(WorkspaceConfig(id="w", owner="o", policy=_POLICY), database)
        self._database = database
        self._count = members
        self._random = random.Random(5)
        self._next = members

    async def fill(self) -> None:
        interface = InterfaceSpec(services="Checks contracts.", input_format="A contract.", output_format="A list.")
        for start in range(0, self._count, 500):

            def work(tx: Transaction, start: int = start) -> None:
                now = datetime.now(UTC)
                for number in range(start, min(start + 500, self._count)):
                    member = new_member(spec(number), f"Member {number}", interface, RoleStatus.ACTIVE, now, _POLICY)
                    self.society.members.admit(tx, member)
                    for step in range(1, _CONTACTS + 1):  # m0 knows m1 ... m10
                        other = (number + step) % self._count
                        services = interface if step == 1 else None
                        known = Contact(id=f"m{other}", role=f"Member {other}", interface=services, note="known")
                        add_contact(tx, "w", f"m{number}", known, now)

            await self._database.transact(work)

    async def join(self) -> None:
        self._next += 1
        await self.society.join(spec(self._next))

    async def send(self) -> None:
        number = self._random.randrange(self._count)
        await self.society.mail.send(f"m{number}", f"m{(number + 1) % self._count}", "Hello.")

    async def stranger(self) -> None:
        with suppress(UnknownContact):
            await self.society.mail.send(f"m{self._random.randrange(self._count)}", "ghost", "Hello.")

    async def deliver(self) -> None:
        [letter, *_] = await self.society.mail.waiting(1)
        await self.society.mail.answer(letter.message.id)
        await self.society.mail.ended(letter.message.id)

    async def look_up(self) -> None:
        await self.society.members.get("w", f"m{self._random.randrange(self._count)}")
        await self.society.contacts.list(f"m{self._random.randrange(self._count)}")

    async def refer(self, number: int) -> None:
        """A request for an introduction that is settled without a model: asked, answered, and the contact made."""
        asker, asked = f"m{number * 7 % self._count}", f"m{(number * 7 + 2) % self._count}"
        ask = {
            "message_type": "introduction_request",
            "reason": "A contract.",
            "required_capability": "checks contracts",
        }
        letter = await self.society.mail.send(asker, asked, payload=ask)
        await self.society.mail.answer(letter.message.id)


async def measure(small: Crowd, large: Crowd, *, quick: bool, prefix: str) -> list[Row]:
    await small.fill()
    await large.fill()
    crowds, rows = {"small": small, "large": large}, list[Row]()
    for what in ("send", "stranger", "look_up", "join", "deliver"):
        cases: dict[str, Callable[[], Awaitable[object]]] = {
            name: getattr(crowd, what) for name, crowd in crowds.items()
        }
        costs = await interleaved(cases, rounds=1 if quick else 5, calls=2 if quick else 20)
        rows.append(Row(key=f"{prefix}_{what}_ms", value=costs.wall("small") * 1000, unit="ms"))
        rows.append(Row(key=f"{prefix}_{what}_doubled", value=costs.cpu_ratio("large", "small"), aim=_AIM))
    referrals = 20 if quick else _REFERRALS
    taken = {name: await at_once(crowd.refer, referrals) for name, crowd in crowds.items()}
    each, note = taken["small"].wall / referrals * 1000, f"each of {referrals:,} at once"
    rows.append(Row(key=f"{prefix}_referral_ms", value=each, unit="ms", note=note))
    ratio = taken["large"].cpu / taken["small"].cpu
    rows.append(Row(key=f"{prefix}_referral_doubled", value=ratio, aim=_AIM))
    return rows


@contextmanager
def broker(folder: Path) -> Generator[str | None]:
    """Start a NATS server, from the development extra; yields its address, or None without it."""
    program = Path(sys.executable).with_name("nats-server")
    if not program.exists():
        yield None
        return
    where = [
        "-a",
        "127.0.0.1",
        "-p",
        "-1",
        "--ports_file_dir",
        str(folder),
        "-sd",
        str(folder),
        "-l",
        str(folder / "log"),
    ]
    process = subprocess.Popen([str(program), "-js", *where])
    try:
        ports, deadline = folder / f"nats-server_{process.pid}.ports", time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(OSError, ValueError):  # it is not written, or not to its end
                yield str(json.loads(ports.read_text())["nats"][0])
                return
            time.sleep(0.01)
        raise TimeoutError("the NATS server did not start")
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def waking(storage: Storage, nats_url: str | None) -> AsyncGenerator[Callable[[], Awaitable[float]]]:
    """Two agents as in two processes, one with a gateway; yields a call that measures from send to the turn's model."""
    asked = asyncio.Event()

    def reply(call: ScriptedCall) -> dict[str, Any]:
        asked.set()
        return {"result": "Done."}

    def agent() -> WorldAgent:
        settings = Settings(trace=False, nats_url=None if nats_url is None else SecretStr(nats_url))
        society = WorkspaceConfig(id="w", owner="o")
        return WorldAgent("w", lm=ScriptedLM(reply), society=society, storage=storage, settings=settings)

    async with agent() as sender, agent() as receiver, Gateway(receiver):
        await sender.society.join(spec(0))

        async def once() -> float:
            asked.clear()
            began = time.perf_counter()
            await sender.society.mail.send("root", "m0", "Hello.")
            await asyncio.wait_for(asked.wait(), 30)
            took = time.perf_counter() - began
            while await sender.society.mail.waiting():  # noqa: ASYNC110 -- each message finds an idle gateway
                await asyncio.sleep(0.01)
            await asyncio.sleep(random.uniform(0, 0.5))  # another part of the gateway's wait
            return took

        yield once


async def measure_waking(folder: Path, started: Any, nats_url: str | None, *, quick: bool) -> list[Row]:
    """How soon a message starts a turn: by polling, and by what wakes the gateway of another process."""
    places: dict[str, tuple[Storage, str | None]] = {
        "poll": (Storage(home=folder / "poll"), None)
    }  # on SQLite other processes are not woken
    if started is not None:
        places["notify"] = (Storage(home=folder / "n", url=new_database(started, "society_notify")), None)
        if nats_url is not None:
            places["nats"] = (Storage(home=folder / "j", url=new_database(started, "society_nats")), nats_url)
    taken: dict[str, list[float]] = {name: [] for name in places}
    async with AsyncExitStack() as opened:
        cases = {name: await opened.enter_async_context(waking(*place)) for name, place in places.items()}
        for number in range(3 if quick else 21):
            for name, once in cases.items():
                took = await once()
                if number:  # the first one makes the thread, and with NATS the stream
                    taken[name].append(took)
    rows = [Row(key=f"wake_{name}_ms", value=median(each) * 1000, unit="ms") for name, each in taken.items()]
    base = median(taken["poll"])
    ratios = {name: median(each) / base for name, each in taken.items() if name != "poll"}
    return rows + [Row(key=f"wake_{name}_of_poll", value=value, aim=1.0) for name, value in ratios.items()]


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    size = 100 if report.quick else _MEMBERS
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        started, nats_url = opened.enter_context(server()), opened.enter_context(broker(folder))
        places: dict[str, list[Path | PostgresAddress]] = {"sqlite": [folder / "1" / "a.db", folder / "2" / "a.db"]}
        if started is not None:
            places["postgres"] = [PostgresAddress(new_database(started, f"society_{each}")) for each in "12"]
        for prefix, (one, two) in places.items():
            async with (
                aclosing(await Database.open(one, schemas=[SOCIETY])) as first,
                aclosing(await Database.open(two, schemas=[SOCIETY])) as second,
            ):
                rows = await measure(Crowd(first, size), Crowd(second, 2 * size), quick=report.quick, prefix=prefix)
            report.section(f"{size:,} members with {_CONTACTS} contacts each, {prefix}", rows)
        rows = await measure_waking(folder, started, nats_url, quick=report.quick)
        report.section("from the send to the model call of the receiver's turn, in another process", rows)


if __name__ == "__main__":
    main("society", "What members, contacts, messages and introductions cost.", run)
