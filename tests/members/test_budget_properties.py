"""Random trees of members with limits, whose work runs at once, is killed and goes on: no limit is ever exceeded (A16).

The books of the test say what each model call used, or could have used where it was killed. What is counted for a
holder must be at least that of all below it, and no more than its limits.
"""

import asyncio
import random
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.databases import Engine, fresh, on_every_database
from support.role_specs import BRIEF, spec_of, workspace_of
from support.society import tables
from worldagent.core import Scope
from worldagent.core.errors import BudgetReached
from worldagent.core.scope import account_of
from worldagent.members import Event, MemberLimits, Society
from worldagent.members.data.accounts import scope_of
from worldagent.members.data.limits import Period, window
from worldagent.members.data.workspace import RoutingDecision
from worldagent.memory.reports import background_thread
from worldagent.storage import Database
from worldagent.testing import VirtualClock

pytestmark = [pytest.mark.requirement("A16"), pytest.mark.timeout(900)]

NAMES = ("a", "b", "c", "d", "e", "f")
KINDS = ("turns", "calls", "tokens", "cost")


@dataclass(frozen=True)
class Used:
    """What a member used, or could have, at a time, in which case and under which briefs."""

    member: str
    at: datetime
    amounts: tuple[int, int, int, float]


@dataclass
class Books:
    """What really happened, by the test."""

    above: dict[str, str]
    used: list[Used] = field(default_factory=list)

    def of(self, member: str, period: Period, now: datetime) -> list[float]:
        """What a member and all below it used in the window of now."""
        below = {member}
        while more := {each for each, parent in self.above.items() if parent in below} - below:
            below |= more
        rows = [
            each.amounts
            for each in self.used
            if each.member in below and window(period, each.at) == window(period, now)
        ]
        return [sum(row[kind] for row in rows) for kind in range(4)]


class Company:
    """A tree of members whose work is done by hand, in several processes: each has a society of its own.

    Args:
        database: Its database.
        source: What chooses.
    """

    def __init__(self, database: Database, source: random.Random) -> None:
        self.clock, self.source, self.database = VirtualClock(), source, database
        self.above = {name: source.choice(("", *NAMES[:place])) for place, name in enumerate(NAMES)}
        self.books = Books(self.above)
        self.limits: dict[str, MemberLimits | None] = {name: self._limits() for name in NAMES}
        self.numbers = iter(range(10**6))
        self.free: list[str] = list(NAMES)
        self.gone: set[str] = set()

    def _limits(self) -> MemberLimits | None:
        pick = self.source.choice
        most = pick((60, 200, 600))
        if pick((0, 0, 1)):
            return None
        return MemberLimits(
            turns=pick((None, 3, 6)),
            calls=pick((None, 8)),
            tokens=pick((None, most, most)),
            cost=pick((None, 0.6)),
            period=pick(("day", "week", "month", "life")),
        )

    def society(self) -> Society:
        roles = tuple(spec_of(each, "", reports_to=self.above[each], limits=self.limits[each]) for each in NAMES)
        return Society(workspace_of(roles=roles, discovery="open"), self.database, self.clock)

    async def work(self) -> None:
        """One worker of a process: takes messages and events, calls models, and is killed in the middle of some."""
        society, pick = self.society(), self.source.choice
        for _ in range(4):
            if not self.free:
                return
            member = self.free.pop(self.source.randrange(len(self.free)))
            try:
                await pick((self._letter, self._letter, self._event))(society, member)
            finally:
                self.free += {member} - self.gone
            await self.check(society)
            if pick((0, 0, 0, 1)):
                society = self.society()  # another process goes on

    async def _letter(self, society: Society, member: str) -> None:
        number = next(self.numbers)
        given: dict[str, Any] = {"payload": {"reason": "Work."}}
        if self.source.random() < 0.4:
            limits = MemberLimits(tokens=self.source.choice((30, 90)), calls=self.source.choice((None, 2)))
            brief = {**BRIEF, "limits": limits.to_json()}
            given = {"payload": {"message_type": "task_assignment", "task_brief": brief}}
        letter = await society.mail.send("user", member, "Go.", message_id=f"m{number}", **given)
        await society.members.member("novel", member)
        if await society.mail.answer(letter.message.id) or await society.budgets.waits(letter.message.id):
            return
        try:
            await society.mail.prepared(letter.message.id, self._nothing)
        except BudgetReached:
            await society.budgets.hold(letter.message.id, member, letter.case)
            await society.mail.ended(letter.message.id)
            return
        self._note(member, (1, 0, 0, 0.0))
        await society.mail.prepared(letter.message.id, self._nothing)  # a start is repeated after a kill
        await self._calls(society, member, scope_of("novel", member))
        if self.source.random() < 0.02:
            await society.terminate(member)
            self.gone.add(member)
            return
        await society.mail.ended(letter.message.id)
        await society.mail.ended(letter.message.id)

    async def _event(self, society: Society, member: str) -> None:
        limits = MemberLimits(tokens=self.source.choice((30, 90)), calls=self.source.choice((None, 2)))
        event = Event(
            id=f"e{next(self.numbers)}",
            type="x",
            source="s",
            domain="d",
            payload={},
            timestamp=self.clock.now(),
            limits=limits if self.source.random() < 0.5 else None,
        )
        posted = await society.events.post(event, to=member)
        decision = RoutingDecision(action="delegate", reason="Test.", operator_id="run")
        try:
            routed = await society.events.route(posted, decision)
        except BudgetReached:
            await society.budgets.hold(posted.case, member, posted.case)
            if event.id not in {each.work.removeprefix("event.") for each in await society.budgets.held()}:
                await society.events.settle(event.id, "cancelled")  # others have returned something meanwhile
            else:
                await society.budgets.end(event.id)
            return
        assert routed.state == "decided"
        self._note(member, (1, 0, 0, 0.0))
        await self._calls(
            society, member, Scope(workspace="novel", account=account_of("novel", member), thread=posted.thread)
        )
        await society.events.settle(event.id, "done")

    async def _nothing(self) -> tuple[str, list[str]]:
        return "{}", []

    async def _calls(self, society: Society, member: str, scope: Scope) -> None:
        """Call models side by side, some of them in the background."""
        behind = Scope(workspace="novel", account=scope.account, thread=background_thread(scope.thread or "", "t" * 12))
        scopes = [self.source.choice((scope, scope, behind)) for _ in range(self.source.randrange(4))]
        await asyncio.gather(*(self._call(society, member, each) for each in scopes))

    async def _call(self, society: Society, member: str, scope: Scope) -> None:
        purse, bound = society.budgets.purse(scope), self.source.randrange(1, 60)
        if purse is None:
            self._note(member, (0, 1, bound, bound / 100))
            return
        at = self.clock.now()
        try:
            settle = await purse.reserve(bound, bound / 100, model="m")
        except BudgetReached:
            return
        used = self.source.randrange(bound + 1)
        for _ in range(self.source.randrange(3)):
            await asyncio.sleep(0)
        end = self.source.choice(("done", "done", "unknown", "killed"))
        self._note(member, (0, 1, used if end == "done" else bound, (used if end == "done" else bound) / 100), at)
        if end != "killed":
            await settle((used, used / 100) if end == "done" else None)
            if end == "done":
                await settle((used, used / 100))  # a second one has no effect

    def _note(self, member: str, amounts: tuple[int, int, int, float], at: datetime | None = None) -> None:
        self.books.used.append(Used(member, at or self.clock.now(), amounts))

    async def check(self, society: Society, *, over: bool = False) -> None:
        """No limit is exceeded; once all work is over, what is counted is what the books say."""
        for name in NAMES:
            limits = self.limits[name]
            state = await society.budgets.of(name)
            counted = self.books.of(name, "life" if limits is None else limits.period, self.clock.now())
            for kind, own in zip(KINDS, counted, strict=True):
                had, limit = state.used[kind], None if limits is None else getattr(limits, kind)
                if limit is not None:
                    assert had <= limit + 1e-9, (name, kind, had, limit)
                    assert own <= limit + 1e-9, (name, kind, own, limit)
                    assert not over or had == pytest.approx(own), (name, kind, had, own)
        for state in await society.budgets.list():
            for kind, used in state.used.items():
                limit = getattr(state.limits, kind)
                assert limit is None or used <= limit + 1e-9, state


async def play(database: Database, seed: int) -> None:
    source = random.Random(seed)
    company = Company(database, source)
    society = company.society()
    await society.bootstrap()
    for _ in range(3):
        await asyncio.gather(*(company.work() for _ in range(3)))
        await society.members.member("novel", "a")  # as a gateway does
        await society.budgets.sweep()
        await company.check(society, over=True)
        await company.clock.advance(source.choice((0, 3600, 86_400, 86_400 * 7)))


@settings(max_examples=max(20, settings().max_examples // 3))
@given(st.integers(0, 2**32))
def test_what_children_reserve_and_spend_never_exceeds_what_their_parents_can(seed: int) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with tables(Path(folder) / "a.db") as database:
                await play(database, seed)

    asyncio.run(run())


@on_every_database
async def test_budgets_hold_on_each_database_while_many_work_at_once(engine: Engine, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    for number in range(4):
        async with tables(fresh(engine, tmp_path / str(number))) as database:
            try:
                await play(database, seed + number)
            except AssertionError as error:
                raise AssertionError(f"with the seed {seed + number}") from error
