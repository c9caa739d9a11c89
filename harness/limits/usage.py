"""Usage in the agent's database: per day for accounts and workspaces, and per turn while the turn is open.

Days are in UTC. Processes add to the same rows and never write back a value that they read. The journal counts the
calls of a turn; this module keeps how many of them were added to the turn's day. A past day counts for no limit, so the
process that adds the first rows of a new day removes old rows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import timedelta
from typing import Annotated, Any, Final, Literal
from weakref import WeakValueDictionary

from pydantic import ConfigDict, Field

from ...core import Clock, ModelUsage, Purse, Scope
from ...core.errors import HostError, LimitReached
from ...core.scope import MEMBER_ACCOUNT
from ...storage import Database, Row, Schema, Transaction, read_row
from .budget import (
    DEFAULT_CHOSEN_CALLS,
    DEFAULT_CONCURRENCY,
    DEFAULT_DEPTH,
    Budget,
    Kind,
    LimitCounter,
    Limits,
    Spent,
    Stored,
)

USAGE: Final = Schema(
    "usage",
    (
        (
            """CREATE TABLE wa_usage(
                 day TEXT NOT NULL,
                 workspace TEXT NOT NULL,
                 account TEXT NOT NULL,
                 calls BIGINT NOT NULL,
                 tokens BIGINT NOT NULL,
                 cost DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(day, workspace, account))""",
            """CREATE TABLE wa_spent(
                 turn TEXT NOT NULL,
                 path TEXT NOT NULL,
                 calls BIGINT NOT NULL,
                 tokens BIGINT NOT NULL,
                 cost DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(turn, path))""",
        ),
        (
            """CREATE TABLE wa_bill(
                 turn TEXT NOT NULL,
                 model TEXT NOT NULL,
                 calls BIGINT NOT NULL,
                 input_tokens BIGINT,
                 output_tokens BIGINT,
                 cached_tokens BIGINT NOT NULL,
                 reasoning_tokens BIGINT NOT NULL,
                 cost DOUBLE PRECISION,
                 PRIMARY KEY(turn, model))""",
        ),
        (
            "ALTER TABLE wa_usage ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE wa_usage ADD COLUMN threads BIGINT NOT NULL DEFAULT 0",
        ),
        ("ALTER TABLE wa_bill ADD COLUMN service_calls BIGINT NOT NULL DEFAULT 0",),
    ),
)
KeptKind = Literal["schedules", "entries"]
_FLUSH_CALLS: Final = 100  # calls without a turn that are collected for one write
_ALL = ""  # the account of rows for a workspace, and the path of rows for a turn
_MODELS = "models"  # the path of the row for calls that models chose; other paths begin with the id of the turn
_MAX_COUNT: Final = 1 << 53  # more than one day can use; a sum with a smaller number fits its column
# The condition leaves a row that we did not write unchanged: adding to a text would make it a number.
_ADD = f"""INSERT INTO wa_usage(day, workspace, account, calls, tokens, cost) VALUES(?, ?, ?, ?, ?, ?)
           ON CONFLICT(day, workspace, account) DO UPDATE SET calls=wa_usage.calls+excluded.calls,
             tokens=wa_usage.tokens+excluded.tokens, cost=wa_usage.cost+excluded.cost
           WHERE wa_usage.calls BETWEEN -{_MAX_COUNT} AND {_MAX_COUNT} AND wa_usage.tokens BETWEEN 0 AND {_MAX_COUNT}
             AND wa_usage.cost BETWEEN 0 AND {_MAX_COUNT}
           RETURNING calls, tokens, cost"""
_STORE = """INSERT INTO wa_usage(day, workspace, account, calls, tokens, cost, bytes, threads)
            VALUES(?, ?, ?, 0, 0, 0, ?, ?) ON CONFLICT(day, workspace, account) DO UPDATE
            SET bytes=wa_usage.bytes+excluded.bytes, threads=wa_usage.threads+excluded.threads
            RETURNING bytes, threads"""
_OVER = """DELETE FROM wa_usage WHERE (day, workspace, account) IN
             (SELECT day, workspace, account FROM wa_usage WHERE day < ? ORDER BY day, workspace, account LIMIT ?)"""
_KEPT_DAYS: Final = 1  # for a process whose clock is slow
_MIN_REMOVED_ROWS: Final = 100  # the least number of old rows that are removed with the first rows of a new day
_USED = "SELECT calls, tokens, cost FROM wa_usage WHERE day=? AND workspace=? AND account=?"
_KEEP = """INSERT INTO wa_spent(turn, path, calls, tokens, cost) VALUES(?, ?, ?, ?, ?)
           ON CONFLICT(turn, path) DO UPDATE SET calls=excluded.calls, tokens=excluded.tokens, cost=excluded.cost"""
_KEPT = "SELECT calls, tokens, cost, path FROM wa_spent WHERE turn=?"
_DROP = "DELETE FROM wa_spent WHERE turn=?"
_BILL: Final[tuple[str, ...]] = tuple(column.name for column in fields(ModelUsage))
_KEEP_BILL = f"""INSERT INTO wa_bill(turn, model, {", ".join(_BILL)}) VALUES({", ".join("?" * (2 + len(_BILL)))})
                 ON CONFLICT(turn, model) DO UPDATE SET {", ".join(f"{name}=excluded.{name}" for name in _BILL)}"""
_KEPT_BILL = f"SELECT model, {', '.join(_BILL)} FROM wa_bill WHERE turn=?"
_DROP_BILL = "DELETE FROM wa_bill WHERE turn=?"


class _StoredSpent(Row):
    model_config = ConfigDict(strict=True)

    # Negative for a while if an interrupted call is made again on the next day.
    calls: Annotated[int, Field(ge=-_MAX_COUNT, le=_MAX_COUNT)]
    tokens: Annotated[int, Field(ge=0, le=_MAX_COUNT)]
    cost: Annotated[float, Field(ge=0, le=_MAX_COUNT, allow_inf_nan=False)]
    path: str | None  # of the row of an open turn


_Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]


class _StoredBill(Row):
    model_config = ConfigDict(strict=True)

    model: str
    calls: _Count
    input_tokens: _Count | None
    output_tokens: _Count | None
    cached_tokens: _Count
    reasoning_tokens: _Count
    cost: Annotated[float, Field(ge=0, le=_MAX_COUNT, allow_inf_nan=False)] | None
    service_calls: _Count


@dataclass(slots=True, eq=False, weakref_slot=True)
class _DayCounter(LimitCounter):
    """What an account or a workspace has used today: what the database has, and what is not yet written."""

    today: Callable[[], str] = lambda: ""
    day: str = ""
    pending: Spent = field(default_factory=Spent)

    def check(self, kinds: Iterable[Kind]) -> None:
        self._begin_day()
        LimitCounter.check(self, kinds)

    def add(self, spent: Spent) -> None:
        self._begin_day()
        self.pending.add(spent)
        self.spent.add(spent)

    def learn(self, day: str, total: Spent, written: Spent) -> None:
        """Take over the total of the database after a write."""
        self.pending = self.pending.minus(written)
        if day == self.today():
            self.day = day
            self.spent = replace(total)
            self.spent.add(self.pending)

    def _begin_day(self) -> None:
        today = self.today()
        if today != self.day:
            self.day, self.spent = today, replace(self.pending)


@dataclass(slots=True, eq=False)
class Use:
    """The usage of one run of a turn.

    Attributes:
        budget: What the run can still use.
    """

    _usage: Usage
    _turn: str
    _scope: Scope
    _total: LimitCounter
    _days: Sequence[tuple[str, _DayCounter]]
    _written: Spent
    _rows: bool
    _began: Spent = field(default_factory=Spent)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget((self._total, *(counter for _, counter in self._days)), clock=self._usage.clock)

    def recall(self, call_ids: Iterable[str]) -> None:
        """Count the calls of earlier runs that the journal has."""
        found = self.budget.ledger.counted
        found |= set(call_ids)
        self._total.spent.calls = len(found)
        more = Spent(calls=len(found) - self._written.calls)
        for _, counter in self._days:
            counter.add(more)

    def writing(self) -> Writing:
        """Return a snapshot of the usage, to be written in a transaction."""
        spent = replace(self._total.spent)
        counters = {path: replace(counter.spent) for path, counter in self.budget.ledger.counters.items()}
        return Writing(self, spent, spent.minus(self._written), counters, dict(self.budget.ledger.bill))

    async def settle(self) -> None:
        """Write the usage in the middle of the run."""
        await self._usage.write(self.writing(), still=True)

    async def close(self) -> None:
        """Write the usage of a call without a turn, now or with later ones."""
        if self.budget.ledger.always or self._rows:
            await self._usage.write(self.writing(), still=False)
        else:
            await self._usage.add_later(self._scope, self._total.spent)


@dataclass(slots=True)
class Writing:
    """A snapshot of a `Use` to write. It can be written twice, if a transaction is run again.

    Attributes:
        use: The `Use` that it belongs to.
        spent: What the turn has used.
        more: What was not yet added to the day.
        counters: What the calls with limits have used, by path id.
        bill: What model calls used, by the model's name.
    """

    use: Use
    spent: Spent
    more: Spent
    counters: dict[str, Spent]
    bill: dict[str, ModelUsage]
    _totals: dict[str, Spent] = field(default_factory=dict)
    _day: str = ""
    _still: bool = False

    def __call__(self, transaction: Transaction, still: bool) -> None:
        """Write it; `still` says whether the turn can be resumed."""
        use, self._still = self.use, still
        self._day, scope = use._usage.today(), use._scope
        self._totals = use._usage._add(transaction, self._day, {(scope.workspace, scope.account): self.more})
        if still:
            for path, spent in {_ALL: self.spent, **self.counters}.items():
                transaction.execute(_KEEP, (use._turn, path, spent.calls, spent.tokens, spent.cost))
            for model, used in self.bill.items():
                transaction.execute(_KEEP_BILL, (use._turn, model, *astuple(used)))
        elif use._rows:
            transaction.execute(_DROP, (use._turn,))
            transaction.execute(_DROP_BILL, (use._turn,))

    def done(self) -> None:
        """Take note that it is written."""
        self.use._written, self.use._rows = self.spent, self._still
        if not self._still:  # the turn has ended
            self.use.budget.ledger.settle = None  # it holds the use: a cycle that only the garbage collector would free
        for account, counter in self.use._days:
            if account in self._totals:
                counter.learn(self._day, self._totals[account], self.more)


class Usage:
    """What turns have used, in a database that was opened with the schema `USAGE`. One exists per process.

    Args:
        database: The database.
        clock: The clock for the day.
        turn: What one turn can use.
        account: What each account can use in a day.
        workspace: What each workspace can use in a day.
        depth: How deep the calls of one turn can nest.
        chosen: How many calls models can choose in one turn; None sets no limit other than `turn`.
        at_once: How many model calls, and leaves that models chose, can run concurrently in one turn.
        stored: What each account, and each workspace, can store.

    Attributes:
        purse: Returns what pays for the model calls of a run besides these limits, if anything does.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        turn: Limits | None = None,
        account: Limits | None = None,
        workspace: Limits | None = None,
        depth: int = DEFAULT_DEPTH,
        chosen: int | None = DEFAULT_CHOSEN_CALLS,
        at_once: int = DEFAULT_CONCURRENCY,
        stored: Mapping[str, Stored] | None = None,
    ) -> None:
        self._stored = {"account": Stored(), "workspace": Stored(), **(stored or {})}
        self.clock = clock
        self._database = database
        self._limits = turn or Limits()
        self._depth = depth
        self._chosen = chosen
        self._at_once = at_once
        self._by_day = {"account": account or Limits(), "workspace": workspace or Limits()}
        self.purse: Callable[[Scope], Purse | None] | None = None
        self._counters: WeakValueDictionary[tuple[str, str], _DayCounter] = WeakValueDictionary()
        self._pending_calls: dict[tuple[str, str | None], Spent] = {}

    def today(self) -> str:
        """The day, in UTC."""
        return self.clock.now().date().isoformat()

    async def open(
        self, turn: str, scope: Scope, *, again: bool = False, most: Mapping[str, float] | None = None
    ) -> Use:
        """Begin a run of a turn.

        Args:
            turn: The turn's id.
            scope: The workspace and the account that the usage counts for.
            again: Whether earlier runs may have used something.
            most: What was left of the turn that began it: calls, tokens, cost, and calls that models choose (`chosen`).

        Raises:
            StorageInvalid: A stored row is not valid.
        """
        days = self._days(scope)

        def read(transaction: Transaction) -> tuple[dict[str, Spent], dict[str, ModelUsage], dict[str, Spent]]:
            kept, bill = (self._kept(transaction, turn), self._bill(transaction, turn)) if again else ({}, {})
            return kept, bill, {account: self._used(transaction, scope.workspace, account) for account, _ in days}

        kept, bill, used = await self._database.read(read) if again or days else ({}, {}, {})
        today = self.today()
        for account, counter in days:
            counter.learn(today, used[account], Spent())
        written = kept.get(_ALL, Spent())
        limits, most = (_least(self._limits, most), most) if most else (self._limits, {})
        total = LimitCounter("the turn", limits, _TURN, replace(written), ends_turn=True)
        use = Use(self, turn, scope, total, days, replace(written), bool(kept))
        ledger = use.budget.ledger
        ledger.kept = kept
        ledger.bill = bill
        ledger.always = bool(days)
        ledger.depth = self._depth
        ledger.settle = use.settle
        ledger.slots = asyncio.Semaphore(self._at_once)
        ledger.purse = None if self.purse is None else self.purse(scope)
        chosen = _fewer(self._chosen, most.get("chosen"))
        if chosen is not None:
            limits, spent = Limits(calls=int(chosen)), kept.get(_MODELS, Spent())
            ledger.chosen = LimitCounter("the turn", limits, _CALLS, spent, ends_turn=True, per=" that models choose")
            ledger.counters[_MODELS] = ledger.chosen
        return use

    async def write(self, writing: Writing, *, still: bool) -> None:
        """Write a snapshot in its own transaction."""
        await self._database.transact(lambda tx: writing(tx, still))
        writing.done()

    async def used(self, workspace: str, account: str | None = None) -> Spent:
        """Return what a workspace, or one of its accounts, has used today.

        Raises:
            StorageInvalid: A stored row is not valid.
        """
        await self.flush()
        return await self._database.read(lambda tx: self._used(tx, workspace, account or _ALL))

    async def store(self, scope: Scope, *, size: int, threads: int = 0) -> None:
        """Count what an account is about to store today, or refuse it. Without limits nothing is counted.

        Args:
            scope: The workspace and the account.
            size: How many bytes.
            threads: How many threads it begins.

        Raises:
            LimitReached: It is more than the account or the workspace can store in a day. Nothing is counted.
        """
        if not self.limits_stored:
            return
        whose = {"account": scope.account, "workspace": scope.workspace}
        limits = [(kind, name, self._stored[kind]) for kind, name in whose.items() if name is not None]

        def work(transaction: Transaction) -> None:
            for kind, name, limit in limits:  # accounts first, as in `_add`
                key = (self.today(), scope.workspace, name if kind == "account" else _ALL)
                [(total, begun)] = transaction.execute(_STORE, (*key, size, threads))
                begun = begun if threads else 0
                for unit, most, used in (("bytes", limit.bytes, total), ("threads", limit.threads, begun)):
                    if most is not None and used > most:
                        raise LimitReached(
                            f"the {kind} {name!r} reached its limit of {most} {unit} a day",
                            remedy=_DAY.format(kind=kind),
                        )

        await self._database.transact(work)

    @property
    def limits_stored(self) -> bool:
        """Whether what is stored in a day has a limit."""
        return any((each.bytes, each.threads) != (None, None) for each in self._stored.values())

    def check_kept(self, kind: KeptKind, scope: Scope, count: Callable[[str | None], int]) -> None:
        """Refuse what was just written, in its transaction, if there are too many now. Members have no such limit.

        Args:
            kind: What was written.
            scope: The workspace and the account.
            count: Counts those of an account, or with None those of the workspace.

        Raises:
            LimitReached: The account or the workspace has more than it can.
        """
        account = None if (scope.account or "").startswith(MEMBER_ACCOUNT) else scope.account
        for whose, name, counted in (("account", account, account), ("workspace", scope.workspace, None)):
            most: int | None = getattr(self._stored[whose], kind)
            if name is not None and most is not None and count(counted) > most:
                raise LimitReached(
                    f"the {whose} {name!r} reached its limit of {most} {kind}",
                    remedy=f"remove some, or raise `{kind}` in the setting {whose}_limits",
                )

    async def add_later(self, scope: Scope, spent: Spent) -> None:
        """Collect the usage of a call without a turn, which is too little for its own write."""
        self._pending_calls.setdefault((scope.workspace, scope.account), Spent()).add(spent)
        if sum(each.calls for each in self._pending_calls.values()) >= _FLUSH_CALLS:
            await self.flush()

    async def flush(self) -> None:
        """Write the collected usage."""
        later, self._pending_calls, day = self._pending_calls, {}, self.today()
        if later:
            await self._database.transact(lambda tx: self._add(tx, day, later))

    async def aclose(self) -> None:
        """Write the collected usage, if the database can still be written."""
        with contextlib.suppress(HostError):
            await self.flush()

    def _days(self, scope: Scope) -> list[tuple[str, _DayCounter]]:
        whose = [("account", scope.account), ("workspace", scope.workspace)]
        return [
            (name if kind == "account" else _ALL, self._counter_of(kind, name, scope))
            for kind, name in whose
            if name is not None and self._by_day[kind].counted
        ]

    def _counter_of(self, kind: str, name: str, scope: Scope) -> _DayCounter:
        key = (scope.workspace, name if kind == "account" else _ALL)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = _DayCounter(
                f"the {kind} {name!r}",
                self._by_day[kind],
                _DAY.format(kind=kind),
                ends_turn=True,
                per=" a day",
                today=self.today,
            )
        return found

    def _kept(self, transaction: Transaction, turn: str) -> dict[str, Spent]:
        """Read what an open turn has used, by path id."""
        kept: dict[str, Spent] = {}
        for row in transaction.execute(_KEPT, (turn,)):
            kept[row[3]] = self._spent(row, row[3] if isinstance(row[3], str) and row[3] else turn)
        return kept

    def _bill(self, transaction: Transaction, turn: str) -> dict[str, ModelUsage]:
        """Read what the model calls of an open turn used, by the model's name."""
        bill: dict[str, ModelUsage] = {}
        for row in transaction.execute(_KEPT_BILL, (turn,)):
            columns = self._row(_StoredBill, row, turn)
            model = columns.pop("model")
            bill[model] = ModelUsage(**columns)
        return bill

    def _used(self, transaction: Transaction, workspace: str, account: str, day: str = "") -> Spent:
        rows = transaction.execute(_USED, (day or self.today(), workspace, account))
        return self._spent(rows[0], f"{workspace}/{account}") if rows else Spent()

    def _spent(self, row: Sequence[Any], whose: str) -> Spent:
        found = self._row(_StoredSpent, row, whose)
        return Spent(calls=found["calls"], tokens=found["tokens"], cost=found["cost"])

    def _row(self, model: type[Row], row: Sequence[Any], whose: str) -> dict[str, Any]:
        return read_row(model, row, what=f"the usage of {whose!r}", database=self._database.name)

    def _add(
        self, transaction: Transaction, day: str, more: Mapping[tuple[str, str | None], Spent]
    ) -> dict[str, Spent]:
        """Add usage to a day, by workspace and account; return the totals after that, by account."""
        sums: dict[tuple[str, str], Spent] = {}
        for (workspace, account), spent in more.items():
            for whose in (account, _ALL):
                if whose is not None and spent != Spent():
                    sums.setdefault((workspace, whose), Spent()).add(spent)
        totals: dict[str, Spent] = {}
        begun = 0
        # Accounts first, and both in order, so that two concurrent transactions cannot deadlock.
        for workspace, whose in sorted(sums, key=lambda key: (key[1] == _ALL, key)):
            spent = sums[workspace, whose]
            rows = transaction.execute(_ADD, (day, workspace, whose, spent.calls, spent.tokens, spent.cost))
            totals[whose] = (
                self._spent(rows[0], f"{workspace}/{whose}") if rows else self._used(transaction, workspace, whose, day)
            )
            begun += totals[whose] == spent
        if begun:  # remove more rows than were added, so that the table keeps only its last days
            last = self.clock.now().date() - timedelta(days=_KEPT_DAYS)
            transaction.execute(_OVER, (last.isoformat(), max(_MIN_REMOVED_ROWS, 2 * begun)))
        return totals


def _fewer(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _least(limits: Limits, most: Mapping[str, float]) -> Limits:
    """The limits of a turn that can also use no more than this."""
    calls, tokens = (_fewer(getattr(limits, kind), most.get(kind)) for kind in ("calls", "tokens"))
    return replace(
        limits,
        calls=None if calls is None else int(calls),
        tokens=None if tokens is None else int(tokens),
        cost=_fewer(limits.cost, most.get("cost")),
    )


_TURN: Final = "raise the setting turn_{kind}, and resume the turn to continue"
_CALLS: Final = "set turn_calls to the most calls that the turn can make, and resume the turn to continue"
_DAY: Final = "wait for the next day (UTC), or raise the setting {kind}_limits"
