"""The messages that wait in the inboxes of threads, and the turns that they begin (T15, T16).

A message that begins a turn is a start with its own key, so it begins one turn whatever processes try.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from ...core import Emitter, Scope, Tier, canonical_json, digest, new_id
from ...core.errors import (
    AgentClosed,
    HostError,
    InvalidArgument,
    NothingToSteer,
    NotSteerable,
    RoleRequired,
    ThreadBusy,
    ThreadPaused,
    UnknownMessage,
    WorldAgentError,
)
from ...core.events import BackgroundReported, TurnEvent
from ...memory import TurnRecord, thread_key
from ...memory.inbox import MOST, STEERABLE, Inbox, InboxKind, InboxRow
from ...role_resolution import Role
from ...role_resolution.role import check_role
from ..settings import Unset
from .keys import key_reused, may_succeed_later
from .speaking import admitted
from .work import NotFirst

if TYPE_CHECKING:
    from .runner import TurnRunner, TurnStream
    from .work import RunnerParts

_LOG: Final = logging.getLogger("worldagent.inbox")
_SWEEP: Final = ""  # in place of a thread's key
WATCH_SECONDS: Final = 1.0
"""How often a worker looks for messages that wait on idle threads."""

INBOX_KEY: Final = "inbox:"
"""The beginning of the keys of turns that messages of an inbox begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMessage:
    """A message that came beside a turn of a thread.

    Attributes:
        id: Its id.
        kind: `steer` is read by the running turn, `queue` begins a turn of its own, `report` says how work in the
            background stands.
        text: Its text; empty if it starts a task or a skill.
        author: Who says it: an account, a member, or what reports.
        account: The account that it is for; None is one without an account.
        name: The display name of the person who says it; None if none was given.
        at: When it was put in.
        turn_id: The turn that read it or that it began; None if it waits.
        waits_for: What it waits for: `turn` is the end or the next step of another turn, `role` the role that it was
            queued under and that this process does not have, `error` is a message that could not begin a turn; None if
            it does not wait.
        role_tiers: The tiers of the role that it was queued under: `call`, `thread`.
        code: The code of the error with which it could not begin a turn.
    """

    id: str
    kind: InboxKind
    text: str = field(repr=False)
    author: str
    account: str | None = None
    name: str | None = None
    at: datetime
    turn_id: str | None = None
    waits_for: Literal["turn", "role", "error"] | None = None
    role_tiers: tuple[Tier, ...] = ()
    code: str | None = None


class Pending:
    """The inboxes of one agent.

    Args:
        runner: Runs the turns.
        begin: Returns the stream that begins the turn of a message, with its key and its call role.

    Attributes:
        begins: Whether it begins turns; a process that is about to end leaves them to another one.
        room: Counts a turn of an account, under a key, inside its block; None if there is room for none, and the
            message waits.
    """

    def __init__(self, runner: TurnRunner, begin: Callable[[InboxRow, str, Role | None], TurnStream]) -> None:
        self._runner, self._begin = runner, begin
        self.begins = True
        self.room: Callable[[str | None, object], AbstractContextManager[None] | None] = lambda *_: nullcontext()
        self._call_roles: dict[tuple[str, str], Role] = {}  # by thread and message; in memory alone (R9)
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()  # threads to look at once more
        self._roleless: set[str] = set()  # threads whose first message waits for a role

    def open(self, workspace: str) -> None:
        """Begin what waits in the workspace of an agent that opens, unless it leaves that to other processes."""
        self.begins = self.begins and self._parts.settings.begin_queued
        self.sweep(workspace)

    def sweep(self, workspace: str) -> None:
        """Begin, in the background, what waits on all threads of a workspace."""
        if self.begins and _SWEEP not in self._draining:
            self._track(_SWEEP, partial(self._swept, workspace))

    async def watch(self, workspace: str) -> None:
        """Sweep until this is cancelled: other processes can put messages in that they do not begin."""
        while True:
            self.sweep(workspace)
            await asyncio.sleep(WATCH_SECONDS)

    @property
    def busy(self) -> bool:
        """Whether it begins turns now, or waits for the end of one that it began."""
        return bool(self._draining)

    @property
    def _parts(self) -> RunnerParts:
        return self._runner.parts

    def reported(self, record: TurnRecord, report: InboxRow) -> None:
        """Tell the account of a report of work in the background, and let its conversation read it."""
        parts, start = self._parts, report.start

        def publish(event: TurnEvent) -> None:
            parts.account_events.publish(report.scope, event)

        Emitter(record.id, parts.stores.clock, publish)(
            BackgroundReported,
            thread=report.scope.thread or "",
            account=report.scope.account,
            task=start["task"],
            name=start["of"],
            status=start["status"],
            last=start["last"],
        )
        if start["report"] != "event":
            self.wake(report.scope)

    # --- putting in -------------------------------------------------------------------------------------------------

    async def steer(self, scope: Scope, start: Mapping[str, Any], *, key: str | None, begin: bool) -> PendingMessage:
        """Put in a message for the running turn; see `Thread.steer`."""
        inbox, own = self._parts.stores.inbox, self._parts.resolver.threads.get(scope)
        row = self.row(scope, "steer", start, key, own)
        kept = None if key is None else await inbox.get(row.id)
        if kept is None:
            await self._count(row, key=None)
        while kept is None:
            checked = await self._checked_turn(scope, start, begin=begin)
            with contextlib.suppress(_Changed):
                kept, open_turn = await inbox.put(row, allowed=partial(_check_turn, row, checked))
                if open_turn is None:
                    self.wake(scope)
        _check_repeat(kept, row, key)
        return self._shown(kept)

    async def _checked_turn(self, scope: Scope, start: Mapping[str, Any], *, begin: bool) -> str:
        """The id of the turn that can be steered now; empty if there is none and the message begins one.

        Raises:
            NothingToSteer, NotSteerable: See `Thread.steer`.
        """
        latest = await self._parts.stores.turns.latest(thread_key(scope))
        if latest is None or latest.status not in STEERABLE:
            if begin and (latest is None or begins_turn(start)):
                return ""
            raise _nothing_to_steer(thread_key(scope))
        await self._check_steerable(latest, scope, start)
        return latest.id

    async def _check_steerable(self, record: TurnRecord, scope: Scope, start: Mapping[str, Any]) -> None:
        remedy = "queue the message with queue(), so that it begins a turn of its own"
        if (record.scope.account, record.spoken_for) != (scope.account, start["on_behalf_of"]):
            raise NotSteerable(
                f"the turn {record.id!r} of thread {record.thread!r} runs for another account or member", remedy=remedy
            )
        if record.kind in ("task", "skill") and not await self._parts.engine.has_loop(record.asked, record.kind):
            raise NotSteerable(f"the turn {record.id!r} runs code that reads no messages", remedy=remedy)

    async def queue(
        self,
        scope: Scope,
        start: Mapping[str, Any],
        *,
        key: str | None,
        role: Role | Unset | None,
        first: bool = False,
    ) -> PendingMessage:
        """Put in a message that begins a turn; see `Thread.queue`."""
        call = check_role(role) if isinstance(role, Role) else None
        own = None if role is None else self._parts.resolver.threads.get(scope)
        row = self.row(scope, "queue", start, key, own, call)
        await self._count(row, key=key)
        made, open_turn = await self._parts.stores.inbox.put(
            row, first=first, allowed=lambda turn, status, unread: _check_room(row.thread, unread)
        )
        _check_repeat(made, row, key)
        if call is not None and made.role == row.role:  # a repeat with another role does not change the message
            self._call_roles[made.thread, made.id] = call
        self.wake(scope)
        # A repeat does not end the turn that the message has begun.
        if first and made.turn is None and open_turn is not None:
            await self._runner.interrupt(scope, open_turn)
        return self._shown(made)

    def row(
        self,
        scope: Scope,
        kind: InboxKind,
        start: Mapping[str, Any],
        key: str | None,
        thread_role: Role | None = None,
        call: Role | None = None,
    ) -> InboxRow:
        """A message that is not put in yet."""
        parts, thread = self._parts, thread_key(scope)
        # A repeat with the same key is the same message, whatever process sends it.
        id = new_id("inbox") if key is None else f"inbox-{digest([thread, kind, key], length=24)}"
        noted = None
        if call is not None or thread_role is not None:
            noted = parts.resolver.key.digest_of(_texts(call, thread_role))
        tiers = [tier.value for tier, one in ((Tier.CALL, call), (Tier.THREAD, thread_role)) if one is not None]
        role = None if noted is None else {"tiers": tiers, "digest": noted}
        return InboxRow(
            id=id, thread=thread, scope=scope, kind=kind, start=start, role=role, at=parts.stores.clock.now()
        )

    async def _count(self, row: InboxRow, *, key: str | None) -> None:
        """Count a message for the limits of what its account and the workspace can store today, unless it is there.

        Raises:
            LimitReached: It is more than that.
        """
        usage, inbox = self._parts.usage, self._parts.stores.inbox
        if usage.limits_stored and (key is None or await inbox.get(row.id) is None):
            await usage.store(row.scope, size=len(canonical_json(row.start["start"]).encode("utf-8")))

    # --- looking, and changing --------------------------------------------------------------------------------------

    async def queued(self, scope: Scope) -> tuple[PendingMessage, ...]:
        """The messages that wait, in the order in which they are read."""
        return tuple(self._shown(row) for row in in_order(await self._parts.stores.inbox.unread(thread_key(scope))))

    async def find(self, scope: Scope, id: str) -> PendingMessage:
        """A message, read or not.

        Raises:
            UnknownMessage: The thread has no such message.
        """
        return self._shown(await row_of(self._parts.stores.inbox, scope, id))

    async def withdraw(self, scope: Scope, id: str) -> bool:
        """Delete a message that waits; False if it does not."""
        gone = await self._parts.stores.inbox.withdraw(id, thread_key(scope))
        if gone:
            self._call_roles.pop((thread_key(scope), id), None)
            self.wake(scope)
        return gone

    async def reorder(self, scope: Scope, ids: Sequence[str]) -> None:
        """Put the queued messages in this order; those that are not named come after them."""
        await self._parts.stores.inbox.reorder(thread_key(scope), new_order(ids))

    async def release(self, scope: Scope, id: str, role: Role | None) -> PendingMessage:
        """Let a message begin that waits for its role, or could not begin."""
        shown = await self.find(scope, id)
        call = None if role is None else check_role(role)
        if shown.turn_id is None:
            if call is not None:
                self._call_roles[thread_key(scope), id] = call
            row = self.row(scope, "queue", {}, None, call=call)
            await self._parts.stores.inbox.set_role(id, row.role)
            self.wake(scope)
        return await self.find(scope, id)

    def _shown(self, row: InboxRow) -> PendingMessage:
        return shown(row, has_role=self._has_role(row))

    def _has_role(self, row: InboxRow) -> bool:
        """Whether this process has the role that a message was queued under."""
        if row.role is None:
            return True
        key, tiers = self._parts.resolver.key, row.role["tiers"]
        call = self._call_roles.get((row.thread, row.id)) if Tier.CALL in tiers else None
        thread = self._parts.resolver.threads.get(row.scope) if Tier.THREAD in tiers else None
        if (call is None and Tier.CALL in tiers) or (thread is None and Tier.THREAD in tiers):
            return False
        noted = row.role["digest"]
        return key.made(noted) and key.digest_of(_texts(call, thread)) == noted

    # --- beginning turns --------------------------------------------------------------------------------------------

    def wake(self, scope: Scope) -> None:
        """Begin what waits on a thread, if it can begin now, after what this process begins there already."""
        self._look(thread_key(scope))

    def role_set(self, scope: Scope) -> None:
        """Begin what waits on a thread for the role that it now has."""
        if thread_key(scope) in self._roleless:
            self.wake(scope)

    def _look(self, key: str) -> None:
        if key in self._draining:
            self._again.add(key)
            return
        if self.begins and self._runner.is_open:  # else the next process begins it
            self._track(key, partial(self._drained, key))

    def _track(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def over(done: asyncio.Task[None] | None = None) -> None:
            if done is None or self._draining.get(key) is done:
                del self._draining[key]
                self._again.discard(key)

        async def tracked() -> None:
            try:
                await work()
            finally:  # at once: a callback of the task runs later, and who looks until then would not be heard
                over()

        task = self._draining[key] = self._runner.background(tracked())
        task.add_done_callback(over)  # of one that was cancelled before it began

    async def _swept(self, workspace: str) -> None:
        try:
            for key in await self._parts.stores.inbox.waiting(workspace):
                self._look(key)
        except WorldAgentError as error:  # the next process begins it
            _LOG.warning("the inboxes of workspace %r could not be read: %s", workspace, error.code)

    async def settled(self) -> None:
        """Wait until nothing more can begin now, and the turns that began here are over or wait."""
        while self._draining:
            await asyncio.wait(self._draining.values())

    async def _drained(self, key: str) -> None:
        """Begin one turn after the other."""
        while self._runner.is_open:
            self._again.discard(key)
            try:
                row = await self._next(key)
                if row is not None and not await self._begun(row):
                    row = None
            except WorldAgentError as error:  # the next look begins it
                _LOG.warning("the inbox of thread %r could not be read: %s", key, error.code)
                return
            if row is None and key not in self._again:
                return

    async def _next(self, key: str) -> InboxRow | None:
        """The message that can begin a turn now; one whose turn was interrupted or stopped comes first."""
        stores = self._parts.stores
        held = {each for each in self._call_roles if each[0] == key}  # each of a message that is stored by now
        while (latest := await stores.turns.latest(key)) is not None and latest.status in ("running", "stopped"):
            if await stores.leases.owned([key]):
                if await stores.inbox.mark(key):
                    return None  # its end finds the message
            elif latest.gentle:  # its process died before it could end it for a message
                await self._parts.threads.end_waiting(latest.scope, latest.id)
            else:
                return await stores.inbox.beginner(latest.id)
        unread = await stores.inbox.unread(key)
        for over in held - {(key, row.id) for row in unread}:
            del self._call_roles[over]
        if latest is not None and (latest.status == "paused" or (may_succeed_later(latest) and not latest.given_up)):
            return None
        row = first_of(await admitted(self._parts, unread, None if latest is None else latest.handed))
        self._roleless.discard(key)
        if row is None or self._has_role(row):
            return row
        self._roleless.add(key)
        return None

    async def _begun(self, row: InboxRow) -> bool:
        """Begin, or resume, the turn of a message and wait for it; False if it cannot go on now."""
        counted = self.room(row.scope.account, row.id)
        if counted is None:  # the next look begins it
            return False
        with counted:
            return await self._run(row)

    async def _run(self, row: InboxRow) -> bool:
        stores, code, later = self._parts.stores, "internal", False
        try:
            call = self._call_roles.get((row.thread, row.id)) if row.role is not None else None
            async with self._begin(row, f"{INBOX_KEY}{row.id}", call) as stream:
                del call
                return (await stream.wait()).status != "stopped"
        except NotFirst:
            return True
        except (ThreadBusy, ThreadPaused, RoleRequired, AgentClosed):
            return False
        except WorldAgentError as error:
            code, later = error.code, error.retryable and isinstance(error, HostError)
        except Exception as error:  # tools can raise anything, and the messages after it begin their turns
            _LOG.warning("the turn of message %s of thread %r raised %s", row.id, row.thread, type(error).__name__)
        now = await stores.inbox.get(row.id)
        if now is not None and now.turn is not None:  # its turn began, and failed, which its events say
            record = await stores.turns.get(now.turn)
            if record is None or record.status not in ("running", "stopped"):
                return True
            _LOG.warning("the turn %s of thread %r cannot resume: %s", record.id, row.thread, code)
            return False
        if now is None or later:
            return now is None
        _LOG.warning("the message %s of thread %r cannot begin a turn: %s", row.id, row.thread, code)
        await stores.inbox.fail(row.id, code)
        return True


async def row_of(inbox: Inbox, scope: Scope, id: str) -> InboxRow:
    """Find a message of a thread, read or not.

    Raises:
        UnknownMessage: The thread has no such message.
    """
    row = await inbox.get(id)
    if row is None or row.thread != thread_key(scope):
        raise _unknown(id)
    return row


def shown(row: InboxRow, *, has_role: bool) -> PendingMessage:
    """A message as callers see it.

    Args:
        row: The message.
        has_role: Whether this process has the role that it was queued under.
    """
    waits: Literal["turn", "role", "error"] | None = "turn"
    if row.turn is not None:
        waits = None
    elif row.code is not None:
        waits = "error"
    elif not has_role:
        waits = "role"
    return PendingMessage(
        id=row.id,
        kind=row.kind,
        text=row.text,
        author=row.author,
        account=row.scope.account,
        name=row.start["name"],
        at=row.at,
        turn_id=row.turn,
        waits_for=waits,
        role_tiers=() if row.role is None else tuple(map(Tier, row.role["tiers"])),
        code=row.code,
    )


def new_order(ids: Sequence[str]) -> Callable[[Sequence[InboxRow]], Sequence[str]]:
    """What puts queued messages into an order; those that are not named come after the others.

    Raises:
        InvalidArgument: An id is there twice. What is returned raises `UnknownMessage` for one that is not queued.
    """
    wanted = [*ids]
    if len(set(wanted)) != len(wanted) or not all(isinstance(each, str) for each in wanted):
        raise InvalidArgument("`ids` must be different ids", remedy="use ids from queued()")

    def order(rows: Sequence[InboxRow]) -> Sequence[str]:
        queued = [row.id for row in rows if row.kind == "queue"]
        for each in wanted:
            if each not in queued:
                raise _unknown(each)
        return [*wanted, *(each for each in queued if each not in wanted)]

    return order


def in_order(rows: Sequence[InboxRow]) -> list[InboxRow]:
    """Messages in the order in which they are read: what a turn that ended has not read comes first."""
    return sorted(rows, key=lambda row: row.kind == "queue")


def first_of(rows: Sequence[InboxRow]) -> InboxRow | None:
    """The message that begins the next turn of a thread, of those that are unread."""
    begins = (row for row in in_order(rows) if row.code is None and begins_turn(row.start))
    return next(begins, None)


def begins_turn(start: Mapping[str, Any]) -> bool:
    """Whether a message begins a turn where none runs; one that does not is read by a turn that begins anyway."""
    return start.get("report") != "next"


def _check_repeat(kept: InboxRow, row: InboxRow, key: str | None) -> None:
    """Refuse a key that another message has."""
    if kept.asked != row.asked:
        raise key_reused(key)


class _Changed(Exception):
    """Another turn runs than the one that was checked."""


def _check_turn(row: InboxRow, checked: str, turn: str | None, status: str, unread: int) -> None:
    """Check, as a message is put in, that it steers the turn that was checked; an empty id is any or none."""
    _check_room(row.thread, unread)
    if turn != checked if checked else turn is not None and not begins_turn(row.start):
        raise _Changed
    if checked and status not in STEERABLE:
        raise _nothing_to_steer(row.thread)


def _nothing_to_steer(thread: str) -> NothingToSteer:
    return NothingToSteer(
        f"no turn of thread {thread!r} runs or waits",
        remedy="send the message with converse(), or pass begin=True, which begins a turn with it",
    )


def _check_room(thread: str, unread: int) -> None:
    if unread >= MOST:
        raise InvalidArgument(
            f"{MOST} messages wait on thread {thread!r}, which is the limit", remedy="withdraw some of them first"
        )


def _texts(call: Role | None, thread: Role | None) -> str:
    """The texts of roles, for the keyed digest alone."""
    given = ((each.content, [*each.applies_to], each.exclusive, each.echo) if each else None for each in (call, thread))
    return canonical_json([*given])


def _unknown(id: object) -> UnknownMessage:
    shown = repr(id) if isinstance(id, str) and len(id) <= 100 else "of that id"
    return UnknownMessage(f"no message {shown} waits on this thread", remedy="use an id from queued()")


__all__ = ["INBOX_KEY", "Pending", "PendingMessage", "in_order", "new_order", "row_of", "shown"]
