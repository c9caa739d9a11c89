"""Delivers messages: takes the oldest of each mailbox and starts the receiver's turn with it (A12).

`executing` does the same for events.

Every start has the id of its message as its key, so it does no harm if two gateways take the same message, or if one
is killed in between: the turn begins once, and is resumed where it was.

In the background it is woken when a message is sent, and polls behind that: what is not announced is found later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, get_args

from ..agent import WorldAgent
from ..agent.runtime.inside import inside
from ..agent.runtime.stale import Stale, find_stale
from ..agent.thread import Thread, as_member
from ..agent.turns import Turn
from ..core import Emitter, Scope
from ..core.errors import (
    AlreadyAnswered,
    BudgetReached,
    CallRefused,
    GraphChanged,
    HostError,
    NothingToResume,
    ThreadPaused,
    WorldAgentError,
)
from ..core.events import StallFound
from ..core.scope import member_of
from ..harness.journal import Reply
from ..memory import thread_key
from .capability import Members
from .data.accounts import scope_of, thread_of
from .data.roles import MAX_GOALS, ROOT, USER, goals_text
from .events.executing import EventRunner
from .life.upkeep import MemberUpkeep
from .mail.contacts import as_listed
from .mail.groups import Waiting
from .mail.letters import Letter
from .mail.wakeups import POLL_SECONDS, Watch, cancelled, first_of
from .remote.delivering import RemoteMembers
from .remote.stopping import cancel_turn
from .responding import workers_of
from .society import Society
from .stalls import Stall, StallKind
from .workers import EarlierMessage, MemberRequest

if TYPE_CHECKING:
    from .role import AutonomousRole

MAX_HEADS: Final = 100
"""How many mailboxes a gateway looks at, besides those whose turns run or wait."""

MAX_EARLIER: Final = 20
"""How many earlier messages a member is shown with a new one."""

STALLS_SECONDS: Final = 60.0
"""How many seconds pass between two looks for stalls."""

_MAX_EARLIER_TEXT: Final = 2000  # characters of one of them
_MAX_EARLIER_TEXTS: Final = 16_000  # characters of all of them

_LOG: Final = logging.getLogger("worldagent.gateway")


class Gateway:
    """Delivers the messages of an agent's society. Use it as `async with Gateway(agent):`, in one or more processes.

    Args:
        agent: An open agent with a society.
        poll: How many seconds to wait between two looks at the mailboxes, if nothing is announced before. A reply
            that does not come in time, and a message that is tried again, are noticed at these looks.
        concurrency: How many turns run at once.
        roles: Classes of members, whose code decides about their events (`_match_operator`). For other members their
            definitions decide alone.

    Attributes:
        stalls: What stood still or went round when it looked last, at most a minute ago (A18).
    """

    def __init__(
        self,
        agent: WorldAgent,
        *,
        poll: float = POLL_SECONDS,
        concurrency: int = 8,
        roles: Iterable[AutonomousRole] = (),
    ) -> None:
        self._agent = agent
        self._poll = poll
        self._slots = asyncio.Semaphore(concurrency)
        self._task: asyncio.Task[None] | None = None
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._moved = asyncio.Event()
        self._held: set[str] = set()  # threads whose message cannot be over yet; the next poll tries them again
        self._polled = -poll
        self._looked = -STALLS_SECONDS
        self._told: set[str] = set()  # stalls
        self.stalls: tuple[Stall, ...] = ()
        self._upkeep = MemberUpkeep(agent)
        self._events = EventRunner(agent, self._slots, roles)
        self._remotes = RemoteMembers(agent)

    async def __aenter__(self) -> Self:
        """Begin to deliver in the background."""
        self._task = asyncio.ensure_future(self.run())
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Stop delivering. Turns that run continue until the agent closes.

        Close the agent with `agent.drain()`: the next gateway then continues them. `agent.aclose()` cancels them.
        """
        if self._task is not None:
            await cancelled(self._task)

    async def deliver(self) -> int:
        """Deliver the oldest message of each mailbox and handle the first event of each member's line.

        It waits for the turns. A turn that waits for a person is not over: its message stays the oldest of its mailbox,
        and later ones wait. Events do not wait for one another so. If nothing is over after that, but a turn has sent
        a message before it began to wait, that is delivered as well.

        Returns:
            How many messages are over, and how many events moved on. 0 means that nothing can move any more, until a
            person answers, time passes, or something is sent or posted.
        """
        tried: set[str] = set()
        while True:
            moved, fresh = await self._passed(tried)
            if moved or not fresh:
                return moved
            tried |= fresh

    async def _passed(self, tried: set[str]) -> tuple[int, set[str]]:
        """Deliver and resume what was not tried yet; returns how much moved, and what was tried now."""
        await self._upkeep.run()
        await self._look_for_stalls()
        replies = await self._replies()
        heads = {thread_of(each.message.to_id): each async for each in self._heads()}
        fresh, todo = set[str](), list[Awaitable[bool]]()
        for scope, found in replies.items():
            letter, name = heads.pop(scope.thread or "", None), f"{scope.thread}: {sorted(found)}"
            if name not in tried:
                fresh.add(name)
                todo.append(self._resumed(scope, found, letter))
        for letter in heads.values():
            if letter.message.id not in tried:
                fresh.add(letter.message.id)
                todo.append(self._delivered(letter))
        events, *done = await asyncio.gather(self._events.run(), self._remotes.tend(), *todo)
        await self._society.budgets.tell()
        return events + sum(done), fresh

    async def _replies(self) -> dict[Scope, dict[str, Reply]]:
        """The threads with a turn that waits for a reply (A4) and can be resumed, with the replies to its pauses.

        One that has expired gets none.
        """
        found = dict[Scope, dict[str, Reply]]()
        await self._let_go()
        for wait in await inside(self._agent).stores.journal.open_replies(self._agent.workspace):
            if not await self._society.mail.receives(member_of(self._agent.workspace, wait.scope.account) or ROOT):
                continue
            late = wait.expires is not None and wait.expires <= inside(self._agent).clock.now()
            replies = (
                {}
                if late and wait.quorum is None
                else await self._society.mail.groups.replies(wait.message_ids, wait.expires)
            )
            waiting = Waiting(wait, replies)
            if (late or waiting.over) and await self._is_stale(wait.scope):
                continue  # the reply is delivered as a message of its own
            value = dict[str, Any]()
            for letter in filter(None, replies.values()):
                if letter.state == "handled" and not (late or waiting.over):
                    continue  # taken at an earlier look, for a group that still waits
                # Before the turn has it: one that is over is still found, and one that is not would start its own turn.
                if late or waiting.over:
                    await self._society.mail.ended(letter.message.id)
                else:
                    await self._society.mail.groups.keep(letter, wait.turn_id)
                text = await self._society.mail.text_of(letter, can_reply=False)
                await self._pass_on(letter, wait.scope)
                marks = [*letter.marks, f"message:{letter.message.from_id}"]
                value = {"text": text, "marks": marks}
            if late:
                found.setdefault(wait.scope, {})
            elif waiting.over:
                found.setdefault(wait.scope, {})[wait.pause_id] = Reply(value if wait.quorum is None else None)
        return found

    async def _let_go(self) -> None:
        """Let replies that were kept for a group begin a turn of their own, if that of the group ended without them."""
        groups, turns = self._society.mail.groups, inside(self._agent).stores.turns
        for reply, turn in (await groups.kept()).items():
            record = await turns.get(turn)
            if record is None or record.status in ("done", "cancelled", "abandoned"):
                await groups.let_go(reply, read=record is not None and record.status == "done")

    async def _resumed(self, scope: Scope, answers: dict[str, Reply], letter: Letter | None) -> bool:
        """Resume a turn with its replies; then deliver the message that it is for, if a message started it."""
        thread = self._agent.thread(scope.thread or "", account=scope.account, channel=scope.channel)
        try:
            async with self._slots:
                with contextlib.suppress(AlreadyAnswered, NothingToResume):  # another gateway was faster
                    await asyncio.shield(thread.resume(answers))
        except WorldAgentError as error:  # its message is delivered again, and reports it
            _LOG.warning("the thread %r could not be resumed with a reply: %s", scope.thread, error.code)
        return letter is not None and await self._delivered(letter)

    async def run(self) -> None:
        """Deliver until this is cancelled. Turns that run then are interrupted, as after `async with`."""
        receiving = asyncio.ensure_future(self._society.events.receive())
        pruning = asyncio.ensure_future(self._upkeep.prune())
        try:
            async with self._society.mail.listen() as watch:
                while True:
                    try:
                        await self._begin_turns()
                    except WorldAgentError as error:  # a database that is down is looked at again
                        _LOG.warning("the mailboxes could not be read: %s", error.code)
                        await inside(self._agent).clock.sleep(self._poll)
                    else:
                        await self._woken(watch)
        finally:
            await cancelled(receiving, pruning, *self._running.values())

    async def _woken(self, watch: Watch) -> None:
        """Wait until something is announced, a turn is over, or it is time to look again."""
        await first_of(watch.wait(), self._moved.wait(), inside(self._agent).clock.sleep(self._poll))
        self._moved.clear()

    async def _begin_turns(self) -> None:
        """Begin what waits, unless it runs here or in another process. A turn does not keep others from beginning."""
        await self._upkeep.run()
        await self._look_for_stalls()
        await self._society.budgets.tell()
        most = MAX_HEADS + len(self._running) + len(self._held)
        now = inside(self._agent).clock.monotonic()
        if now - self._polled >= self._poll:
            self._polled = now
            self._held.clear()
        # Before the replies: one that a turn waits for is over then, and starts no turn of its own.
        heads = {self._key_of(each.message.to_id): each for each in await self._society.mail.waiting(most)}
        todo: dict[str, Callable[[], Awaitable[bool]]] = {}
        for scope, found in (await self._replies()).items():
            todo[thread_key(scope)] = partial(self._resumed, scope, found, heads.pop(thread_key(scope), None))
        delivered = heads.keys() - self._held
        for thread in delivered:
            todo[thread] = partial(self._delivered, heads[thread])
        for event in await self._events.waiting():
            thread = thread_key(self._events.thread(event).scope) if event.member else event.event.id
            todo[thread] = partial(self._events.move, event)
        if self._remotes.some:
            todo["remote members"] = self._remotes.tend
        owned = await inside(self._agent).stores.leases.owned(todo.keys() - self._running.keys())
        failed = delivered & self._held  # since, while this waited for the database; they are not tried again at once
        for thread in todo.keys() - self._running.keys() - owned - failed:
            self._running[thread] = task = asyncio.ensure_future(todo[thread]())
            task.add_done_callback(partial(self._over, thread))

    async def _look_for_stalls(self) -> None:
        """Tell the owner of each stall once, by a message and an event (A18), and givers that briefs are late (A19)."""
        agent, society = inside(self._agent), self._society
        if agent.clock.monotonic() - self._looked < STALLS_SECONDS:
            return
        self._looked = agent.clock.monotonic()
        await society.board.expire()
        self.stalls = await society.stalls()
        await society.budgets.sweep()
        scope = Scope(workspace=self._agent.workspace, account=society.config.owner)
        for stall in self.stalls:
            if stall.id not in self._told and await society.mail.tell_owner(stall.as_message()):
                emit = Emitter(stall.id, agent.clock, partial(agent.parts.account_events.publish, scope))
                emit(StallFound, kind=stall.kind, members=stall.members, since=stall.since, remedy=stall.remedy)
        self._told = {each.id for each in self.stalls}

    def stall_counts(self) -> dict[str, int]:
        """How many stalls of each kind `stalls` has, by the names of their gauges."""
        return {f"stalls_{kind}": sum(each.kind == kind for each in self.stalls) for kind in get_args(StallKind)}

    async def _heads(self) -> AsyncGenerator[Letter]:
        """The oldest message of each mailbox."""
        last: Letter | None = None
        while page := await self._society.mail.waiting(MAX_HEADS, after=last):
            for letter in page:
                yield letter
            last = page[-1]

    def _key_of(self, member: str) -> str:
        return thread_key(self._thread_of(member, None, ()).scope)

    def _over(self, thread: str, task: asyncio.Task[bool]) -> None:
        del self._running[thread]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _LOG.error("the thread %r could not continue: %s", thread, type(error).__name__)
        if error is None and task.result():  # what waits behind it can begin
            self._moved.set()
        else:
            self._held.add(thread)

    async def _delivered(self, letter: Letter) -> bool:
        async with self._slots:
            if await self._society.mail.answer(letter.message.id):
                return True
            receiver, remote = letter.message.to_id, None
            if await self._society.offers.is_cancelled(letter):
                await cancel_turn(self._agent, receiver, letter.message.id)
                await self._society.mail.ended(letter.message.id)
                return True
            if await self._society.budgets.waits(letter.message.id):
                return False
            try:
                if receiver != ROOT:
                    member = await workers_of(self._agent).enlist(receiver)
                    remote = None if member.spec.remote is None else member
                turn = None
                if remote is None:
                    async with self._cancelled_by_its_caller(letter):
                        turn = await asyncio.shield(self._turn(letter))
            except WorldAgentError as error:
                return await self._failed(letter, error)
            if turn is not None:
                return await self._over_in(letter, turn)
        assert remote is not None
        return await self._remotes.delivered(letter, remote)  # it needs no slot: no turn runs here

    @contextlib.asynccontextmanager
    async def _cancelled_by_its_caller(self, letter: Letter) -> AsyncGenerator[None]:
        """Cancel the turn of a message inside the block once its caller over A2A, in any process, cancels the task."""

        async def look() -> None:
            while not await self._society.offers.is_cancelled(letter):
                await inside(self._agent).clock.sleep(self._poll)
            while not await cancel_turn(self._agent, letter.message.to_id, letter.message.id):  # it begins meanwhile
                await inside(self._agent).clock.sleep(self._poll)

        looking = asyncio.ensure_future(look()) if self._society.offers.has(letter) else None
        try:
            yield
        finally:
            if looking is not None:
                await cancelled(looking)

    async def _over_in(self, letter: Letter, turn: Turn) -> bool:
        """Note what became of the turn of a message; returns whether the message is over."""
        if turn.status in ("paused", "stopped"):
            return await self._stuck(letter)
        if turn.status != "done":
            refused = CallRefused(f"the turn was {turn.status}", remedy="do without it, or ask for something else")
            return await self._given_up(letter, refused)
        await self._society.mail.ended(letter.message.id)
        return True

    async def _failed(self, letter: Letter, error: WorldAgentError) -> bool:
        match error:
            case ThreadPaused():  # an earlier turn of the member waits, and so does this message, if that can end
                return await self._is_stale(self._thread_of(letter.message.to_id, None, ()).scope)
            case GraphChanged():
                return await self._stuck(letter, error)
            case BudgetReached():  # it goes on once the budget is extended or begins again
                _LOG.warning("the message %s waits for a budget: %s", letter.message.id, error)
                await self._society.budgets.hold(letter.message.id, letter.message.to_id, letter.case)
                return False
            case HostError() if error.retryable:
                _LOG.warning("the message %s is delivered again later: %s", letter.message.id, error.code)
                return False
            case _:
                return await self._given_up(letter, error)

    async def _stuck(self, letter: Letter, error: GraphChanged | None = None) -> bool:
        """Give up a message whose turn waits, or was interrupted, if no process of this version can ever resume it."""
        scope = self._thread_of(letter.message.to_id, None, ()).scope
        found = await find_stale(inside(self._agent).parts, scope)
        if found is None:
            return False if error is None else await self._given_up(letter, error)
        if not found.may_end:
            return False
        # Noted first: its message is given up once more after a kill in between, and what comes next ends the turn.
        await self._note_stale(found)
        return await self._given_up(letter, found.error)

    async def _is_stale(self, scope: Scope) -> bool:
        """Whether the turn of a thread can never resume. It is noted, so that the next turn of the thread ends it."""
        found = await find_stale(inside(self._agent).parts, scope)
        if found is not None and found.may_end:
            await self._note_stale(found)
        return found is not None and found.may_end

    async def _note_stale(self, found: Stale) -> None:
        if found.turn.stale is not None:
            return
        for wait in await inside(self._agent).stores.journal.open_replies(self._agent.workspace):
            ids = wait.message_ids if wait.turn_id == found.turn.id else ()
            for reply in filter(None, (await self._society.mail.groups.replies(ids, wait.expires)).values()):
                await self._society.mail.returned(reply.message.id)  # taken for the turn, perhaps before a kill
        await inside(self._agent).stores.turns.note_stale(found.turn.id)

    async def _given_up(self, letter: Letter, error: WorldAgentError) -> bool:
        if not await self._society.mail.receives(
            letter.message.to_id
        ):  # it was suspended meanwhile, so the message waits
            return True
        _LOG.warning("the turn of the message %s to %r failed: %s", letter.message.id, letter.message.to_id, error.code)
        await self._society.mail.ended(letter.message.id, error)
        return True

    async def _turn(self, letter: Letter) -> Turn:
        receiver, sender = letter.message.to_id, letter.message.from_id
        # What the turn is given is stored first: a start with the same key must be equal.
        make = self._text if receiver == ROOT else self._request
        given, marks = await self._society.mail.prepared(letter.message.id, partial(make, letter))
        thread = self._thread_of(receiver, None if sender == USER else sender, marks)
        await self._pass_on(letter, thread.scope)
        if receiver == ROOT:
            turn = await thread.converse(given, key=letter.message.id, unattended="pause")
        else:
            turn = await thread.task("subagent", {"worker": receiver, "request": given}, key=letter.message.id)
        state = await thread.state() if turn.status == "paused" else None
        if state is not None and state.answers:  # a person answered, and the process that took the answer was killed
            with contextlib.suppress(NothingToResume):  # another process was faster
                return await thread.resume({})
        return turn

    async def _pass_on(self, letter: Letter, receiver: Scope) -> None:
        """Let a member or the owner read the files that a member's message names, as far as the member reaches them.

        Others could ask a member for any hash, and it would name it. What the World Agent reaches depends on its turn,
        which has passed it on.
        """
        message, account = letter.message, receiver.account
        inside = account in (None, self._society.config.owner) or member_of(self._agent.workspace, account) is not None
        if inside and message.from_id not in (ROOT, USER):
            reached = self._agent.attachments.reached_by(scope_of(self._agent.workspace, message.from_id))
            await reached.pass_on(f"{message.content}\n{message.payload}", receiver)

    async def _text(self, letter: Letter) -> tuple[str, Iterable[str]]:
        return await self._society.mail.text_of(letter), letter.marks

    async def _request(self, letter: Letter) -> tuple[str, Iterable[str]]:
        """What a member's turn is given, and the untrusted content in all that it is shown (C9)."""
        society, receiver = self._society, letter.message.to_id
        member = await society.members.member(self._agent.workspace, receiver)
        earlier = await society.mail.earlier(letter, most=MAX_EARLIER)
        task = None if letter.message.message_type == "task_assignment" else await society.mail.last_task(receiver)
        brief = "" if task is None else await society.mail.brief_in(task)
        message = await society.mail.text_of(letter)
        first = (letter.message.from_id, member.spec.parent_role_id or ROOT, member.spec.reports_to or USER)
        contacts, more = await society.contacts.nearest(receiver, f"{message}\n{brief}", first=first)
        shown = list[EarlierMessage]()
        for each in reversed(earlier):
            text = await society.mail.text_for(receiver, each)
            text = text if len(text) <= _MAX_EARLIER_TEXT else f"{text[:_MAX_EARLIER_TEXT]} [...]"
            if sum(len(other.text) for other in shown) + len(text) <= _MAX_EARLIER_TEXTS:
                shown.insert(0, EarlierMessage(id=each.message.id, text=text))
        request = MemberRequest(
            goals=goals_text(member.spec.goals, MAX_GOALS),
            task=brief,
            contacts=as_listed(contacts, more),
            earlier=shown,
            message_id=letter.message.id,
            message=message,
        )
        marks = {*letter.marks, *(mark for each in contacts for mark in each.marks)}
        for each in (*earlier, *(() if task is None else (task,))):
            marks.update(each.marks_for(receiver))
        return request.model_dump_json(), marks

    def _thread_of(self, receiver: str, sender: str | None, marks: tuple[str, ...]) -> Thread:
        # A member has an account of its own, and with it its memory, its usage and its stored role.
        scope = scope_of(self._agent.workspace, receiver)
        thread = self._agent.thread(thread_of(receiver), account=scope.account)
        return (
            thread if receiver == ROOT and sender is None else as_member(thread, receiver, sender=sender, marks=marks)
        )

    async def enlist(self, member_id: str) -> None:
        """Give a member its worker, as it is defined now; a draft and one that is terminated lose it.

        Args:
            member_id: The member.

        Raises:
            UnknownMember: There is no such member.
            NameTaken: The agent has a function or a worker of its own with this id.
        """
        await workers_of(self._agent).enlist(member_id)

    @property
    def _society(self) -> Society:
        return self._agent.get(Members)
