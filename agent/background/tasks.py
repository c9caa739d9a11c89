"""Dispatches work in the background: a turn on a thread of its own that reports to its conversation (T17).

It is one queued message in the inbox of that thread. `runtime.pending` begins it, here or in another process, and
`memory.reports` writes what its conversation is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from ...core import ROOT, ModelUsage, Scope, check_id, digest, new_id
from ...core.errors import InvalidArgument, LimitReached, NothingToSteer, NotSteerable, RoleNotStorable
from ...harness.inside import Inside
from ...memory import TurnRecord, TurnStatus, thread_key
from ...memory.inbox import InboxRow
from ...memory.reports import TASK_ID_LENGTH, ReportMode, ReportTo, background_thread
from ...role_resolution import Role
from ...storage import Transaction
from ..requests import Say, Skill, Task
from ..runtime.keys import key_reused, outcome_of, so_far
from ..settings import UNSET, Unset
from ..thread import Thread
from ..turns import Turn

if TYPE_CHECKING:
    from ..runtime import TurnRunner
    from ..stores import Stores

MODES: Final[tuple[ReportMode, ...]] = ("turn", "next", "event")
FIRST_POLL_SECONDS: Final = 0.02
MAX_POLL_SECONDS: Final = 0.5
_GOING: Final = ("queued", "running", "paused", "stopped")

BackgroundStatus = Literal["queued"] | TurnStatus
"""`queued` until its turn begins, then the status of that turn."""


class Cancellable(Protocol):
    """A thread of an agent or of a home."""

    async def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundState:
    """How a background task stands.

    Attributes:
        status: `queued` until its turn begins, then the status of that turn; `cancelled` if it was before that.
        turn_id: Its turn; None until that begins.
        began: When its turn began.
        since: When the status was written.
        code: The code of the error with which it failed, or could not begin.
        usage: What its models used so far, as far as its events are kept.
        doing: The call that its turn makes, with its progress, or made last; None if it does not run, or is not known.
        pauses: How many questions to a person wait for an answer, on its own thread.
    """

    status: BackgroundStatus
    turn_id: str | None = None
    began: datetime | None = None
    since: datetime | None = None
    code: str | None = None
    usage: ModelUsage = field(default_factory=ModelUsage)
    doing: str | None = None
    pauses: int = 0

    @property
    def going(self) -> bool:
        """Whether it is not over: it is queued, runs, or waits."""
        return self.status in _GOING


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTask:
    """A background task of a conversation, in whatever process it runs.

    Attributes:
        id: Its id, which models use for it.
        name: What was dispatched: a worker, a shape, a skill, or `conversation`.
        thread: Its own thread, where its pauses are answered.
        report: What its reports do.
        at: When it was dispatched.
        account: The account that it is for, which alone can steer it; None is one without an account.
    """

    _runner: TurnRunner = field(repr=False)
    id: str
    name: str
    thread: Thread
    report: ReportMode
    at: datetime
    account: str | None
    _row: str = field(repr=False)

    async def state(self) -> BackgroundState:
        """Return how it stands."""
        stores = self._runner.parts.stores
        return await state_of(stores, await stores.inbox.get(self._row))

    async def wait(self) -> Turn:
        """Wait until it is over or waits for a person, and return its turn.

        Raises:
            WorldAgentError: It failed. The error's text is not stored.
        """
        pause = FIRST_POLL_SECONDS
        while True:
            parts = self._runner.parts
            row = await parts.stores.inbox.get(self._row)
            record = await self._record(row)
            if record is not None and record.status not in ("running", "stopped"):
                return await outcome_of(parts, record)
            if record is None and (row is None or row.code is not None):
                return Turn(id="", thread=self.thread.scope.thread or "", status="cancelled")
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_POLL_SECONDS)

    async def steer(self, text: str, *, key: str | None = None) -> None:
        """Say something that it reads before its next thought; if it has not begun, before its first one.

        Raises:
            NothingToSteer: It is over; `wait()` returns its result.
            NotSteerable: It runs for another account or member, or runs code without a model's loop.
            KeyReused: The key was used for another message to it.
            InvalidArgument: The text or the key is invalid.
        """
        start = self.thread._start(Say(text))
        await self.say(start, None if key is None else check_id("key", key))

    async def say(self, start: Mapping[str, Any], key: str | None) -> None:
        """Put in a message for its turn; see `steer`."""
        scope, pending = self.thread.scope, self._runner.pending
        row, state = await self._runner.parts.stores.inbox.get(self._row), await self.state()
        mine = (scope.account, start["on_behalf_of"])
        if row is not None and (row.scope.account, row.start["on_behalf_of"]) != mine:
            raise NotSteerable(
                f"the background task {self.id!r} runs for another account or member",
                remedy="steer it as its own account, or say it in the conversation",
            )
        kept = {**start, "report": "next"}  # on the thread of a background task it begins no turn of its own
        try:
            await pending.steer(scope, kept, key=key, begin=state.status == "queued")
        except NothingToSteer:
            status = (await self.state()).status
            problem = f"the background task {self.id!r} is {status}"
            raise NothingToSteer(problem, remedy="use its result, or dispatch more") from None
        except NotSteerable:
            problem = f"the background task {self.id!r} runs code that reads no messages"
            raise NotSteerable(problem, remedy="let it end") from None

    async def cancel(self) -> bool:
        """Cancel it, whether it is queued, runs or waits; its conversation is told without a turn for that.

        Returns:
            False if it was over.
        """
        return await cancel_task(self._runner.parts.stores, self._row, self.thread)

    async def _record(self, row: InboxRow | None) -> TurnRecord | None:
        if row is None or row.turn is None:
            return None
        return await self._runner.parts.stores.turns.get(row.turn)


async def state_of(stores: Stores, row: InboxRow | None) -> BackgroundState:
    """How the task stands that a message begins, or began; None is one that was cancelled before its turn."""
    record = None if row is None or row.turn is None else await stores.turns.get(row.turn)
    if record is None:
        if row is None:
            return BackgroundState(status="cancelled")
        return BackgroundState(status="queued" if row.code is None else "failed", code=row.code)
    usage, doing = await so_far(stores.events, record.id)
    waits, _ = (await stores.journal.asked([record.id])).get(record.id, (0, 0))
    return BackgroundState(
        status=record.status,
        turn_id=record.id,
        began=record.began,
        since=record.changed,
        code=record.code,
        usage=sum(usage.models.values(), ModelUsage()),
        doing=doing if record.status == "running" else None,
        pauses=waits,
    )


async def cancel_task(stores: Stores, row_id: str, thread: Cancellable) -> bool:
    """Cancel a task; see `BackgroundTask.cancel`.

    Args:
        stores: The stores of its database.
        row_id: The id of the message that begins it.
        thread: Its own thread.
    """
    row = await stores.inbox.get(row_id)
    if row is not None and row.turn is None and await stores.background.drop(row, stores.clock.now()):
        return True
    return await thread.cancel()


def check_report(report: object) -> ReportMode:
    """Return what a report does, if it is one of the three.

    Raises:
        InvalidArgument: It is something else.
    """
    for mode in MODES:
        if report == mode:
            return mode
    raise InvalidArgument(f"`report` cannot be {str(report)[:40]!r}", remedy="use 'turn', 'next' or 'event'")


async def dispatch(
    runner: TurnRunner,
    request: Say | Task | Skill,
    thread: Thread,
    *,
    report: ReportMode,
    key: str | None,
    role: Role | Unset | None = UNSET,
    left: Mapping[str, float] | None = None,
) -> BackgroundTask:
    """Dispatch a background task; see `WorldAgent.background`.

    Args:
        runner: Runs the turns of the agent.
        request: What to do.
        thread: The conversation that is told.
        report: What its reports do.
        key: Makes a repeat the same task.
        role: None does without the role of the thread; a role is refused.
        left: What is left of the limits of the turn that dispatches it.
    """
    parts, inside = runner.parts, Inside.now()
    if not isinstance(thread, Thread) or thread._runner is not runner:
        raise InvalidArgument("`thread` must be a thread of this agent", remedy="pass agent.thread(ID)")
    if not isinstance(request, Say | Task | Skill):
        raise InvalidArgument(
            f"`request` must be a Say, Task or Skill, got a {type(request).__name__}",
            remedy="import them from worldagent.agent",
        )
    _refuse_role(runner, thread, request.role or role, begun=inside is not None)
    key = key or request.key or new_id("work")
    own, latest = thread_key(thread.scope), await parts.stores.turns.latest(thread_key(thread.scope))
    task, by = digest([own, key], length=TASK_ID_LENGTH), latest if inside is not None else None
    scope = replace(thread.scope, thread=background_thread(thread.scope.thread or "", task))
    # Work that a turn began resolves no tier, in whatever process it begins.
    child = replace(thread, scope=scope, tiers=thread.tiers if inside is None else ())
    start = child._start(replace(request, role=None, key=None))
    to = await _reports_to(runner, thread, by, task, _name(request), report, left)
    start |= {"reports": to.to_json(), "model": start["model"] or ([] if by is None else [*by.model])}
    start["guard"] = True if to.guard else start["guard"]
    row = InboxRow(
        id=f"inbox-{digest([thread_key(scope), 'work'], length=24)}",
        thread=thread_key(scope),
        scope=scope,
        kind="queue",
        start=start,
        at=parts.stores.clock.now(),
    )
    made, _ = await parts.stores.inbox.put(row, check=lambda tx: _check_room(runner, tx, thread.scope))
    if (made.scope.account, made.start["start"]) != (scope.account, start["start"]):
        raise key_reused(key)
    runner.pending.wake(scope)
    return _shown(runner, thread, made)


async def tasks_of(runner: TurnRunner, thread: Thread, *, own: bool = False) -> tuple[BackgroundTask, ...]:
    """The background tasks of a conversation, oldest first; with `own`, those of the account of this handle alone."""
    rows, account = await runner.parts.stores.background.of(thread.scope), thread.scope.account
    return tuple(_shown(runner, thread, row) for row in rows if not own or row.scope.account == account)


def _shown(runner: TurnRunner, thread: Thread, row: InboxRow) -> BackgroundTask:
    to = row.start["reports"]
    child = Thread(runner, replace(row.scope, account=thread.scope.account), thread.name)
    return BackgroundTask(
        _runner=runner,
        id=to["task"],
        name=to["of"],
        thread=child,
        report=to.get("mode", "turn"),
        at=row.at,
        account=row.scope.account,
        _row=row.id,
    )


async def _reports_to(
    runner: TurnRunner,
    thread: Thread,
    by: TurnRecord | None,
    task: str,
    of: str,
    mode: ReportMode,
    left: Mapping[str, float] | None,
) -> ReportTo:
    """Whom the task reports to: the conversation of the turn that dispatches it, or that host code names."""
    chain, tiers, guard, inside = 0, thread.tiers, None, Inside.now()
    member = thread._on_behalf_of
    if by is not None and inside is not None:
        before, only = ReportTo.read(by.reports), by.role.get("only")
        chain, tiers = 0 if before is None else before.chain, only
        member = inside.on_behalf_of if member == ROOT else member
        if inside.origin.handed:  # the conversation is that of the person, whoever speaks in it
            member = ROOT
        message, _ = await runner.parts.engine.load_opening_message(by.asked, by.kind)
        guard = True if message.body.get("guard") is True else None
    return ReportTo(
        key=thread_key(thread.scope),
        name=thread.scope.thread or "",
        channel=thread.scope.channel,
        task=task,
        of=of,
        mode=mode,
        chain=chain + 1,
        last=chain >= runner.parts.settings.report_chain,
        on_behalf_of=member,
        tiers=None if tiers is None else [str(tier) for tier in tiers],
        guard=guard,
        limits=left or None,
    )


def _name(request: Say | Task | Skill) -> str:
    match request:
        case Task(shape="subagent", params={"worker": str(worker)}):
            return worker
        case Task(shape=shape):
            return shape
        case Skill(skill=skill):
            return str(skill)
        case _:
            return "conversation"


def _check_room(runner: TurnRunner, transaction: Transaction, scope: Scope) -> None:
    settings = runner.parts.settings
    of_thread, of_account = runner.parts.stores.background.running(transaction, scope)
    for whose, count, most, name in (
        ("this conversation", of_thread, settings.background_of_thread, "background_of_thread"),
        ("this account", of_account, settings.background_of_account, "background_of_account"),
    ):
        if count >= most:
            raise LimitReached(
                f"{whose} has {count} background tasks, which is the limit",
                remedy=f"wait for one to end, cancel one, or raise the setting {name}",
            )


def _refuse_role(runner: TurnRunner, thread: Thread, role: object, *, begun: bool) -> None:
    remedy = "store the role for the workspace or the account, or leave it out"
    if isinstance(role, Role):
        raise RoleNotStorable("a background task cannot have a call role, which is never stored", remedy=remedy)
    if role is UNSET and not begun and runner.parts.resolver.threads.get(thread.scope) is not None:
        raise RoleNotStorable(
            f"the thread {thread.scope.thread!r} has a role that only this process knows",
            remedy="pass role=None to dispatch the task without it",
        )


__all__ = ["BackgroundState", "BackgroundStatus", "BackgroundTask", "check_report", "dispatch", "tasks_of"]
