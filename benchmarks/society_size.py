"""What listings, one event and one message cost in a large society over a tenth of it, and how its home grows.

Run `python benchmarks/society_size.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains
both.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from worldagent import Policy, Rule, Settings, Storage, WorldAgent, tool
from worldagent.agent.runtime.inside import inside
from worldagent.benchmarks._measure import Report, Row, interleaved, main
from worldagent.benchmarks._stubs import answering, constant_lm
from worldagent.core import canonical_json
from worldagent.core.checks import to_json
from worldagent.members import (
    AuthorityConfig,
    Contact,
    Event,
    Gateway,
    RoleSpec,
    Route,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.members.cases import case_of
from worldagent.members.data.roles import RoleStatus, TrustProfile
from worldagent.members.data.workspace import RoutingDecision
from worldagent.members.life.members import new_member
from worldagent.members.mail.contacts import add_contact, as_listed
from worldagent.storage import Transaction
from worldagent.testing import VirtualClock

_POLICY = WorkspacePolicy(max_roles=1_000_000)
_DOMAINS = 10
_AIM = 1.5  # of ten times the size over the size
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_EVENTS = """INSERT INTO wa_occurrence(workspace, id, place, member, named, state, trail, event, decision, result, code,
               posted, ended) VALUES('w', ?, ?, ?, 0, ?, '[]', ?, NULL, ?, '', 1, ?)"""
_OF_CASE = 5  # messages
_MESSAGES = """INSERT INTO wa_mail(workspace, id, place, sender, receiver, kind, content, payload, answers, chain,
                 opening, marks, sent, state, answered, prepared, case_id)
               VALUES('w', ?, ?, ?, ?, 'notification', 'Hello.', '{}', '', 1, NULL, '[]', 1, 'handled', 0, NULL, ?)"""
_COUNT = "INSERT INTO wa_occurrence_count(workspace, waiting, last) VALUES('w', ?, ?)"
_IGNORED = RoutingDecision(action="ignore", reason="nothing to do")


def spec(number: int) -> RoleSpec:
    return RoleSpec(
        role_id=f"m{number}",
        workspace="w",
        soul="You are a member.",
        domains=(f"domain-{number % _DOMAINS}",),
        reports_to="",
        operator_ids=(),
        authority=AuthorityConfig(),
    )


def event(number: int) -> Event:
    domain = f"domain-{number % _DOMAINS}"
    return Event(id=f"e{number}", type="lead.created", source="web", domain=domain, payload={}, timestamp=_NOW)


class Crowd:
    """A society with members, events that are over and events that wait, at random in the lines of the members.

    Args:
        agent: Its agent.
        members: How many members it has.
        done: How many events are over.
        waiting: How many events wait.
        cases: How many cases of a few messages there are.
    """

    def __init__(self, agent: WorldAgent, members: int, done: int, waiting: int, cases: int) -> None:
        self.society, self._agent = agent.society, agent
        self._database = inside(agent).stores.database
        self._members, self._done, self._waiting, self._cases = members, done, waiting, cases
        self._random = random.Random(7)
        self._numbers = itertools.count(done + waiting)

    async def fill(self) -> None:
        def members(tx: Transaction) -> None:
            for number in range(self._members):
                made = new_member(spec(number), f"Member {number}", None, RoleStatus.ACTIVE, _NOW, _POLICY)
                self.society.members.admit(tx, made)
                other = (number + 1) % self._members
                add_contact(tx, "w", f"m{number}", Contact(id=f"m{other}", role=f"Member {other}", note="known"), _NOW)

        def events(tx: Transaction) -> None:
            for number in range(self._done + self._waiting):
                over = number < self._done
                member = f"m{self._random.randrange(self._members)}"
                given = (f"e{number}", number, member, "done" if over else "waiting")
                body = canonical_json(to_json(event(number)))
                tx.execute(_EVENTS, (*given, body, "done" if over else None, 1 if over else None))
            tx.execute(_COUNT, (self._waiting, self._done + self._waiting))

        def cases(tx: Transaction) -> None:
            for number in range(self._cases * _OF_CASE):
                case, one = f"c{number // _OF_CASE}", number % self._members
                given = (f"s{number}", number, f"m{one}", f"m{(one + 1) % self._members}", case)
                tx.execute(_MESSAGES, given)

        await self._database.transact(members)
        await self._database.transact(events)
        await self._database.transact(cases)

    async def next(self) -> None:
        await self.society.events.next()

    async def list_roles(self) -> None:
        await self.society.members.list_roles("w", limit=100)

    async def find_by_domain(self) -> None:
        await self.society.members.find_by_domain("w", f"domain-{self._random.randrange(_DOMAINS)}", limit=10)

    async def one_case(self) -> None:
        await case_of(self._agent, f"s{self._random.randrange(self._cases * _OF_CASE)}")

    async def stalls(self) -> None:
        await self.society.stalls()

    async def one_event(self) -> None:
        posted = await self.society.events.post(event(next(self._numbers)))
        await self.society.members.around("w", posted.member, posted.event.domain)
        await self.society.events.route(posted, _IGNORED)

    async def one_message(self) -> None:
        number = self._random.randrange(self._members)
        letter = await self.society.mail.send(f"m{number}", f"m{(number + 1) % self._members}", "Hello.")
        await self.society.mail.waiting(1)
        await self.society.mail.answer(letter.message.id)
        await self.society.mail.ended(letter.message.id)


async def measure(folder: Path, *, quick: bool) -> list[Row]:
    """Each call in the large society and in one of a tenth of its size, in turns."""
    tenth = (10, 20, 20, 5) if quick else (100, 10_000, 990, 100)  # one event more can be open than are
    sizes = {"small": tenth, "large": tuple(10 * each for each in tenth)}
    async with contextlib.AsyncExitStack() as opened:
        crowds: dict[str, Crowd] = {}
        for name, size in sizes.items():
            config = WorkspaceConfig(id="w", owner="o", policy=_POLICY)
            storage = Storage(home=folder / name)
            agent = WorldAgent("w", lm=constant_lm(answering), society=config, storage=storage)
            crowds[name] = Crowd(await opened.enter_async_context(agent), *size)
            await crowds[name].fill()
        rows = list[Row]()
        for what in ("next", "list_roles", "find_by_domain", "one_event", "one_message", "one_case", "stalls"):
            cases: dict[str, Callable[[], Awaitable[object]]] = {
                name: getattr(crowd, what) for name, crowd in crowds.items()
            }
            costs = await interleaved(cases, rounds=1 if quick else 9, calls=2 if quick else 20)
            rows.append(Row(key=f"{what}_ms", value=costs.cpu("large") * 1000, unit="ms"))
            rows.append(Row(key=f"{what}_x10", value=costs.cpu_ratio("large", "small"), aim=_AIM))
        shown = [
            len(await contacts_shown(crowds["small"], f"a{count}", count)) for count in (20, 200 if quick else 1000)
        ]
        return [*rows, Row(key="contacts_x50", value=shown[1] / shown[0], aim=1.1)]


async def contacts_shown(crowd: Crowd, owner: str, count: int) -> str:
    """What a member with some contacts reads of them with a message."""

    def work(tx: Transaction) -> None:
        for number in range(count):
            known = Contact(id=f"c{number:04}", role=f"Clerk {number:04}", note="Files letters and answers them.")
            add_contact(tx, "w", owner, known, _NOW)

    await crowd.society.contacts._store.transact(work)
    found, more = await crowd.society.contacts.nearest(owner, "Have the letters filed.")
    return canonical_json(as_listed(found, more))


@tool(risk="write")
def qualify(lead: str) -> str:
    """Qualify a lead."""
    return f"{lead} is good."


def working() -> RoleSpec:
    return RoleSpec(
        role_id="cro",
        workspace="w",
        soul="You are a member.",
        domains=("revenue",),
        reports_to="",
        operator_ids=("qualify",),
        authority=AuthorityConfig(autonomous=("qualify",)),
        routes=(Route(event="lead.*", operator="qualify", capability="qualify"),),
        trust=TrustProfile(default=1.0),  # no run is reported to the owner, who reads nothing here
    )


async def grown(folder: Path, *, months: int, events: int) -> list[int]:
    """The bytes of a home after each month of a virtual clock, with the default retention."""
    clock, sizes, storage = VirtualClock(), list[int](), Storage(home=folder)
    policy = Policy(rules=(Rule(decision="approve", function="qualify"),))
    society, numbers = WorkspaceConfig(id="w", owner="o"), itertools.count()
    settings = Settings()
    async with WorldAgent(
        "w",
        lm=constant_lm(answering),
        tools=[qualify],
        policy=policy,
        society=society,
        clock=clock,
        storage=storage,
        settings=settings,
    ) as agent:
        await agent.society.join(working())
        gateway = Gateway(agent)
        for _ in range(months):
            for _ in range(events):
                given = {"lead": f"Lead {next(numbers)}"}
                posted = Event(
                    id=given["lead"].replace(" ", "-"),
                    type="lead.created",
                    source="web",
                    domain="revenue",
                    payload=given,
                    timestamp=clock.now(),
                )
                await agent.society.events.post(posted)
                await gateway.deliver()
            await clock.advance(30 * 86_400)
            # What a gateway that runs in the background and the agent do by themselves.
            await agent.upkeep.prune_by_age(society=settings.society_age, traces=settings.trace_age)
            await inside(agent).stores.events.prune(settings.event_age, most=1_000_000)
            sizes.append(_bytes_of(storage))
    return sizes


def _bytes_of(storage: Storage) -> int:
    for database in (storage.database, storage.traces):
        if database.exists():
            with contextlib.closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    home = storage.resolve()
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    with tempfile.TemporaryDirectory() as folder:
        rows = await measure(Path(folder), quick=report.quick)
        report.section(
            "1,000 members, 100,000 events that are over, 9,900 that wait, 1,000 cases, against a tenth", rows
        )
    with tempfile.TemporaryDirectory() as folder:
        events = 3 if report.quick else 200
        sizes = await grown(Path(folder), months=9, events=events)
        more = [(after - before) / events / 1000 for before, after in itertools.pairwise(sizes)]
        rows = [
            Row(key="home_before_kb", value=sum(more[:2]) / 2, unit="kB", note="an event, in months 2 and 3"),
            Row(key="home_after_kb", value=sum(more[-4:]) / 4, unit="kB", note="an event, in months 6 to 9"),
            Row(key="home_after_over_before", value=sum(more[-4:]) / 2 / max(sum(more[:2]), 1e-9), aim=0.05),
        ]
        report.section("A home with the default retention of 90 days, as events come month by month", rows)


if __name__ == "__main__":
    main("society_size", "What a large society costs, and how its home grows.", run)
