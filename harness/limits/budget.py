"""What remains of limits: a `Budget` for each turn and for each call below it that has limits, and time limits (H4).

A budget also spends from the budgets above it, so a child cannot use more than its parents have left. `usage` keeps it
over a pause or a crash; `pipeline` and the graphs check it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeVar

from anyio.lowlevel import RunVar

from ...core import Clock, ModelUsage, Purse, SystemClock
from ...core.errors import CallTimeout, FunctionInvalid, LimitReached, TaskFailed, WorldAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a function is tried. The author of the function decides that it is safe to run it again.

    Attributes:
        attempts: The most attempts, including the first; 1 to 20.
        backoff: Seconds before the second attempt; doubles before each further one.
        longest: The most seconds between two attempts.
    """

    attempts: int = 1
    backoff: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and not isinstance(self.attempts, bool) and 1 <= self.attempts <= 20):
            raise FunctionInvalid(
                f"`attempts` must be an integer from 1 to 20, got {self.attempts!r}",
                remedy="pass an integer in this range",
            )
        numbers = all(
            isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
            for each in (self.backoff, self.longest)
        )
        if not (numbers and 0 <= self.backoff <= self.longest):
            raise FunctionInvalid(
                f"`backoff` must be a number of seconds from 0 to `longest`, got {self.backoff!r}",
                remedy="pass numbers with 0 <= backoff <= longest",
            )

    def delay(self, attempt: int) -> float:
        """Return the seconds before the attempt numbered `attempt`, counted from 1."""
        return min(self.longest, self.backoff * 2.0 ** (attempt - 2)) if attempt > 1 else 0.0


T = TypeVar("T")

LEAF_END_SECONDS: Final = 0.5
"""Seconds that a cancelled leaf can take to end; after that it is abandoned."""

_LOG = logging.getLogger("worldagent.calls")
_ABANDONED: RunVar[set[asyncio.Task[Any]]] = RunVar("worldagent_left_alone")  # asyncio keeps no task alive by itself


async def with_timeout(
    running: Coroutine[Any, Any, T],
    time: Coroutine[Any, Any, None] | None,
    *,
    what: str,
    late: Callable[[], WorldAgentError],
    patience: float | None = None,
    cut: Callable[[], None] = lambda: None,
) -> T:
    """Wait for a coroutine within a time limit, even if it swallows its cancellation.

    Args:
        running: The coroutine; it runs as its own task.
        time: Ends when the time is over, such as `clock.sleep(seconds)`; None sets no limit.
        what: What the coroutine is, for the log.
        late: Makes the error for a timeout.
        patience: Seconds that the task can take to end after its cancellation, before it is abandoned; None waits
            until it ends.
        cut: Is called before the task is cancelled.

    Raises:
        WorldAgentError: `late()`, if the time is over.
        BaseException: The exception that the coroutine raises.
    """
    over = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_signal_end(running, over))
    watch = None if time is None else asyncio.ensure_future(time)
    if watch is not None:
        watch.add_done_callback(lambda _: _set_done(over))
    try:
        await over
    except asyncio.CancelledError:
        cut()
        await _stop(task, what, patience)
        raise
    finally:
        if watch is not None:
            watch.cancel()
        if task.done():
            running.close()  # if the task never started it
    if task.done():
        return task.result()
    cut()
    if await _stop(task, what, patience):
        raise asyncio.CancelledError
    raise late()


async def _signal_end(running: Coroutine[Any, Any, T], over: asyncio.Future[None]) -> T:
    """Set `over` at the very end of the coroutine: waiting for its task would take one more round of the loop."""
    try:
        return await running
    finally:
        _set_done(over)


def _set_done(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def _stop(task: asyncio.Task[Any], what: str, patience: float | None) -> bool:
    """Cancel a task and wait for its end; return whether the waiting task was cancelled meanwhile."""
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task], timeout=patience)
        except asyncio.CancelledError:
            cancelled = True
            task.cancel()
        if patience is not None:
            break
    if not task.done():
        _abandon(task, what)
    elif not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
    return cancelled


def _abandon(task: asyncio.Task[Any], what: str) -> None:
    _LOG.warning("%s is still running after its cancellation; its result will be dropped", what)
    try:
        left = _ABANDONED.get()
    except LookupError:
        left = set[asyncio.Task[Any]]()
        _ABANDONED.set(left)

    def over(task: asyncio.Task[Any]) -> None:
        left.discard(task)
        if not task.cancelled():
            task.exception()

    left.add(task)
    task.add_done_callback(over)


async def retry_call(
    run: Callable[[], Awaitable[T]], retry: Retry, clock: Clock, *, tell: Callable[[int, str, float], None]
) -> T:
    """Run something again after transient failures, until it succeeds or the attempts are used up.

    Args:
        run: Makes one attempt.
        retry: How often to try, and how long to wait.
        clock: The clock to wait by.
        tell: Receives the number of each further attempt, the code of the last error, and the seconds until then.

    Raises:
        WorldAgentError: The error of the last attempt.
    """
    attempt = 1
    while True:
        try:
            return await run()
        except WorldAgentError as error:
            if attempt >= retry.attempts or not (error.retryable or isinstance(error, TaskFailed | CallTimeout)):
                raise
            code = error.code
        attempt += 1
        seconds = retry.delay(attempt)
        tell(attempt, code, seconds)
        await clock.sleep(seconds)


DEFAULT_DEPTH: Final = 5
"""How deep calls can nest by default."""

DEFAULT_CHOSEN_CALLS: Final = 500
"""How many calls models can choose in one turn by default."""

DEFAULT_CONCURRENCY: Final = 32
"""How many model calls, and leaves that models chose, can run concurrently in one turn by default."""

_INTEGER_LIMITS: Final = ("calls", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a function or worker, and everything that it calls, can use in one call of it; None sets no limit.

    Attributes:
        seconds: How long one run of it can take. The time that it waits for a person does not count.
        calls: How many calls can be made below it.
        tokens: Tokens of models, sent and received.
        cost: US dollars, as far as the models' cost is known.
    """

    seconds: float | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            given: object = getattr(self, name)
            kind = int if name in _INTEGER_LIMITS else int | float
            least = "above 0" if name == "seconds" else "of 0 or more"
            fits = given is None or (isinstance(given, kind) and not isinstance(given, bool) and 0 <= given < math.inf)
            if not fits or (name == "seconds" and given == 0):
                raise FunctionInvalid(
                    f"the limit `{name}` must be {'an integer' if kind is int else 'a number'} {least}, got {given!r}",
                    remedy="pass such a number, or omit it",
                )

    @property
    def counted(self) -> bool:
        """Whether anything other than time is limited."""
        return not (self.calls is None and self.tokens is None and self.cost is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What an account or a workspace can store; None sets no limit.

    Attributes:
        bytes: Bytes a day of the messages that begin turns, and of attachments, schedules and memory entries.
        threads: Threads a day that are begun, forks included.
        schedules: Schedules at a time.
        entries: Memory entries at a time.
    """

    bytes: int | None = None
    threads: int | None = None
    schedules: int | None = None
    entries: int | None = None

    def __post_init__(self) -> None:
        for name, given in asdict(self).items():
            if given is not None and not (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
                raise FunctionInvalid(
                    f"the limit `{name}` must be an integer of 0 or more, got {given!r}",
                    remedy="pass such a number, or omit it",
                )


@dataclass(slots=True)
class Spent:
    """Usage.

    Attributes:
        calls: Calls of functions, workers and shapes.
        tokens: Tokens of models, sent and received.
        cost: US dollars, as far as the cost is known.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, other: Spent) -> None:
        """Add another usage to this one."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.cost += other.cost

    def minus(self, other: Spent) -> Spent:
        """Return this usage less another one."""
        return Spent(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


Kind = Literal["calls", "tokens", "cost"]

_CALL: Final[tuple[Kind, ...]] = ("calls", "tokens", "cost")
_MODEL: Final[tuple[Kind, ...]] = ("tokens", "cost")
_UNIT: Final[Mapping[Kind, str]] = {"calls": "calls", "tokens": "tokens", "cost": "US dollars"}


class TurnLimitReached(LimitReached):
    """A limit of the turn, its account or its workspace is reached. It ends the turn, and no model sees it."""


@dataclass(slots=True, eq=False)
class LimitCounter:
    """Counts what a turn, a call, an account or a workspace has used of its limits.

    Attributes:
        whose: The owner of the limits, for people, such as `the turn`.
        limits: The limits.
        remedy: The remedy of the error if a limit is reached.
        spent: What was used.
        ends_turn: Whether the turn ends if a limit is reached.
        per: The period of the limits, for people, such as ` a day`.
    """

    whose: str
    limits: Limits = field(default_factory=Limits)
    remedy: str = "do without it, or raise its limits"
    spent: Spent = field(default_factory=Spent)
    ends_turn: bool = False
    per: str = ""

    def check(self, kinds: Iterable[Kind]) -> None:
        """Raise if the limit of any of these kinds is reached.

        Raises:
            LimitReached: The text names the owner, the kind and the limit.
        """
        for kind in kinds:
            limit = getattr(self.limits, kind)
            if limit is not None and getattr(self.spent, kind) >= limit:
                error = TurnLimitReached if self.ends_turn else LimitReached
                raise error(
                    f"{self.whose} reached its limit of {limit} {_UNIT[kind]}{self.per}",
                    remedy=self.remedy.format(kind=kind),
                )

    def add(self, spent: Spent) -> None:
        """Count usage."""
        self.spent.add(spent)


@dataclass(slots=True, eq=False)
class TurnLedger:
    """The state that the budgets of one turn share.

    Attributes:
        counted: The path ids of the calls that count, in whichever run they were made.
        kept: What earlier runs have used, by the path ids of the calls whose limits it counts for.
        counters: The counters of the calls that have limits, by path id.
        settle: Writes what was used since the last write; None if nothing is kept.
        always: Whether usage is written after each model call, whatever the limits.
        depth: How deep calls can nest.
        chosen: Counts the calls that models choose, by default up to `CHOSEN`; None if they are not limited.
        bill: What model calls used, by the model's name, including earlier runs.
        lowered: The reports of work in the background whose usage was taken off the limits.
        slots: Held by each model call and each leaf that a model chose, to bound how many run concurrently.
        purse: Pays for each model call; None if only the limits of the turn count.
    """

    counted: set[str] = field(default_factory=set)
    kept: Mapping[str, Spent] = field(default_factory=dict)
    counters: dict[str, LimitCounter] = field(default_factory=dict)
    settle: Callable[[], Awaitable[None]] | None = None
    always: bool = False
    depth: int = DEFAULT_DEPTH
    chosen: LimitCounter | None = None
    bill: dict[str, ModelUsage] = field(default_factory=dict)
    lowered: set[str] = field(default_factory=set)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DEFAULT_CONCURRENCY))
    purse: Purse | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What a turn, or a call of it, and all calls below can still use. Usage counts in every counter.

    Attributes:
        counters: Its own counter first, then those above it.
        ledger: The state that it shares with the other budgets of the turn.
        clock: The clock for limits in seconds.
    """

    counters: tuple[LimitCounter, ...] = ()
    ledger: TurnLedger = field(default_factory=TurnLedger)
    clock: Clock = field(default_factory=SystemClock)

    def take(self, call_id: str, *, chosen: bool = False) -> None:
        """Count a call before it is made. A call is counted once, even if it is made again in a later run.

        Args:
            call_id: Its path id.
            chosen: Whether a model chose it.

        Raises:
            LimitReached: A limit is reached, and the call must not be made.
        """
        if call_id in self.ledger.counted:
            return
        bound = self.ledger.chosen if chosen else None
        for counter in self.counters if bound is None else (*self.counters, bound):
            counter.check(_CALL)
        if bound is not None:
            bound.add(Spent(calls=1))
        self.ledger.counted.add(call_id)
        if self.counters:
            self._add(Spent(calls=1))

    def can_call(self) -> bool:
        """Whether the limits allow one more call that a model chooses."""
        bound = self.ledger.chosen
        try:
            for counter in self.counters if bound is None else (*self.counters, bound):
                counter.check(("calls",))
        except LimitReached:
            return False
        return True

    def note(self, call_id: str) -> None:
        """Count a call that a model's service has made by itself, whatever the limits."""
        ledger = self.ledger
        if call_id not in ledger.counted:
            ledger.counted.add(call_id)
            if ledger.chosen is not None:
                ledger.chosen.add(Spent(calls=1))
            self._add(Spent(calls=1))

    def check(self) -> None:
        """Check the limits before a model call.

        Raises:
            LimitReached: A limit in tokens or cost is reached.
        """
        for counter in self.counters:
            counter.check(_MODEL)

    def spend(self, model: str, used: ModelUsage, tokens: int, cost: float) -> None:
        """Count what a model call has used. It can exceed the limit, because usage is known only after the call.

        Args:
            model: The model's name.
            used: The usage that the model's service reports.
            tokens: The tokens that count for limits; an estimate if the service reports none.
            cost: The cost that counts for limits, in US dollars; 0 if no price is known.
        """
        bill = self.ledger.bill
        bill[model] = bill.get(model, ModelUsage()) + used
        self._add(Spent(tokens=tokens, cost=cost))

    async def settle(self) -> None:
        """Write usage after a model call, if a crash would otherwise lose usage that a limit counts."""
        ledger = self.ledger
        limits = (counter.limits for counter in self.counters)
        counts = ledger.always or any(each.tokens is not None or each.cost is not None for each in limits)
        if ledger.settle is not None and counts:
            await ledger.settle()

    @property
    def left(self) -> dict[str, float]:
        """What is left of the limits besides those of a day, by their names; `chosen` is calls that models choose."""
        found: dict[str, float] = {}
        for counter in self.counters if self.ledger.chosen is None else (*self.counters, self.ledger.chosen):
            for kind in _CALL:
                limit = None if counter.per == " a day" else getattr(counter.limits, kind)
                if limit is not None:
                    name = "chosen" if counter is self.ledger.chosen else kind
                    rest = max(0, limit - getattr(counter.spent, kind))
                    found[name] = min(rest, found.get(name, rest))
        return found

    def lower(self, of: str, spent: Mapping[str, float]) -> None:
        """Take off the limits what work in the background used, once for each report in a run.

        Usage itself is not counted again: the work's own turn has counted it.

        Args:
            of: The id of the report.
            spent: What it used, by the names of limits.
        """
        if of in self.ledger.lowered:
            return
        self.ledger.lowered.add(of)
        for counter in self.counters if self.ledger.chosen is None else (*self.counters, self.ledger.chosen):
            limits = asdict(counter.limits)
            less = {kind: max(0, limits[kind] - spent.get(kind, 0)) for kind in _CALL if limits[kind] is not None}
            if counter.per != " a day" and less:
                counter.limits = replace(counter.limits, **less)

    def child(self, whose: str, limits: Limits, path: str) -> Budget:
        """Return the budget of a call: its own limits, and what remains of this budget.

        Args:
            whose: The owner of the limits, for people.
            limits: The limits of the call.
            path: The path id of the call.
        """
        if not limits.counted:
            return self
        counter = self.ledger.counters.get(path)
        if counter is None:
            below = f"{path}/"
            spent = replace(
                self.ledger.kept.get(path, Spent()), calls=sum(each.startswith(below) for each in self.ledger.counted)
            )
            counter = self.ledger.counters[path] = LimitCounter(whose, limits, spent=spent)
        return replace(self, counters=(counter, *self.counters))

    def _add(self, spent: Spent) -> None:
        for counter in self.counters:
            counter.add(spent)
