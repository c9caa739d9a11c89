"""What members, contacts, messages and introductions cost, each against a society of twice the size.

Run `python benchmarks/society.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path

from worldagent.benchmarks._measure import Report, Row, at_once, interleaved, main
from worldagent.benchmarks._postgres import new_database, server
from worldagent.core.errors import UnknownContact
from worldagent.society import (
    SOCIETY,
    AuthorityConfig,
    Contact,
    InterfaceSpec,
    RoleSpec,
    Society,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.society.contacts import add_contact
from worldagent.society.members import add_member, new_member
from worldagent.society.roles import RoleStatus
from worldagent.storage import Database, PostgresAddress, Transaction

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
                    add_member(tx, member, most=1_000_000)
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
        await self.society.send(f"m{number}", f"m{(number + 1) % self._count}", "Hello.")

    async def stranger(self) -> None:
        with suppress(UnknownContact):
            await self.society.send(f"m{self._random.randrange(self._count)}", "ghost", "Hello.")

    async def deliver(self) -> None:
        [letter, *_] = await self.society.waiting(1)
        await self.society.settle(letter.message.id)
        await self.society.ended(letter.message.id)

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
        letter = await self.society.send(asker, asked, payload=ask)
        await self.society.settle(letter.message.id)


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


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    size = 100 if report.quick else _MEMBERS
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        started = opened.enter_context(server())
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


if __name__ == "__main__":
    main("society", "What members, contacts, messages and introductions cost.", run)
