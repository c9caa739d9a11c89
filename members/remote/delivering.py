"""Delivers messages to members that are remote agents, and their answers to those that wrote (A22).

What is about to be sent is stored first, and the id of the task before anything else is done with the answer. A message
that a kill leaves in between is looked for among the tasks of the agent, else sent again with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...agent.runtime.inside import inside
from ...core import canonical_json
from ...core.errors import (
    CallRefused,
    MailboxFull,
    MissingExtra,
    RemoteAgentFailed,
    RemoteAgentUnavailable,
    WorldAgentError,
)
from ...memory import thread_key
from ...storage import Transaction
from ..capability import Members
from ..data.accounts import scope_of
from ..data.remote import RemoteAgent
from ..data.roles import ROOT, RoleStatus
from ..life.members import LIVE, Member, members_of
from ..mail.failures import is_failure
from ..mail.letters import Letter, is_question
from ..mail.messages import MESSAGE_TYPE, RoleMessage
from .tasks import RemoteTask, begin, describe, left, put, question_id, task_of, waited_in

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ..society import Society
    from .client import RemoteAnswer, RemoteClient

T = TypeVar("T")

HOLD_SECONDS: Final = 20.0
"""How long one delivery looks for the answer. After it the gateway looks again at its next poll."""

CARD_SECONDS: Final = 3600.0
"""How many seconds pass between two looks at a card."""

_FIRST_PAUSE: Final = 0.1
_MOST_PAUSE: Final = 5.0
_MOST_TRIES: Final = 60.0  # seconds between two tries of an agent that cannot be reached
_SWEEP_SECONDS: Final = 5.0
_NO_TEXT: Final = "The agent answered without a text."
_ASKS: Final = "The agent asks something and waits. Your next message to it is the answer.\n"
_FOREIGN: Final = ("introduction_request", "introduction_response")

_LOG: Final = logging.getLogger("worldagent.gateway")


class RemoteMembers:
    """The remote members of an agent's workspace, as a gateway reaches them.

    Args:
        agent: An open agent with a society.
    """

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self._workspace = agent.workspace
        self._clients: dict[RemoteAgent, RemoteClient] = {}
        self._tries: dict[str, tuple[float, float]] = {}  # when a message is tried again, and the pause after that
        self._read: dict[str, float] = {}  # when a card is read again
        self._swept = 0.0
        roles = agent.get(Members).config.roles
        self._known = {each.role_id for each in roles if each.remote is not None}

    @property
    def some(self) -> bool:
        """Whether the workspace has remote members, as far as this process knows."""
        return bool(self._known)

    async def tend(self) -> bool:
        """Read the cards that are due, and cancel the tasks that nobody waits for; returns False."""
        now = self._clock.monotonic()
        if not self._known or now < self._swept:
            return False
        self._swept = now + _SWEEP_SECONDS
        for member in await self._members(sorted(self._known)):
            if member.life.status in LIVE and now >= self._read.get(member.id, 0.0):
                await self._read_card(member)
        for task in await self._read_from(lambda tx: left(tx, self._workspace)):
            with suppress(RemoteAgentUnavailable):  # it is tried again at a later look
                await self._cancel(task)
        return False

    async def delivered(self, letter: Letter, member: Member) -> bool:
        """Take a message to a remote member as far as it goes now; returns whether it is over.

        Args:
            letter: The message, which its gateway handles.
            member: The member.
        """
        mail, message = self._society.mail, letter.message
        self._known.add(member.id)
        if message.message_type in _FOREIGN or is_question(letter) or is_failure(letter):
            await mail.ended(message.id)  # it introduces nobody, and what failed here is none of its business
            return True
        when, pause = self._tries.get(message.id, (0.0, _FIRST_PAUSE))
        if self._clock.monotonic() < when:
            return False
        failure: WorldAgentError | None = None
        try:
            if member.life.status is RoleStatus.TESTING:
                raise CallRefused(f"{member.id!r} is in testing, and sends nothing", remedy="activate it first")
            over = await self._advanced(letter, member)
        except (RemoteAgentUnavailable, MailboxFull) as error:
            _LOG.warning("the message %s is delivered again later: %s", message.id, error.code)
            self._tries[message.id] = (self._clock.monotonic() + pause, min(2 * pause, _MOST_TRIES))
            return False
        except WorldAgentError as error:
            failure, over = error, True
        self._tries.pop(message.id, None)
        if failure is not None:
            if not await mail.receives(member.id):  # it was suspended meanwhile, so the message waits
                return True
            _LOG.warning("the message %s to %r failed: %s", message.id, member.id, failure.code)
            await mail.ended(message.id, failure)
            await self._stored(message.id, "over")
        return over

    async def _advanced(self, letter: Letter, member: Member) -> bool:
        """Send a message if it was not sent, and look for the answer for a while."""
        text = await self._text(letter)
        task, known = await self._transact(lambda tx: begin(tx, self._workspace, letter, text))
        client, began, pause = self._client(member), self._clock.monotonic(), _FIRST_PAUSE
        if task.stage in ("asking", "over"):  # only that the message is over was not written
            await self._society.mail.ended(letter.message.id)
            return True
        answer: RemoteAnswer | None = None
        while True:
            if task.stage == "cancelling" or await self._is_cancelled(letter):
                task = await self._put(replace(task, stage="cancelling"))
                await self._cancel(task)
                await self._society.mail.ended(letter.message.id)
                return True
            if task.stage == "sending":
                answer = await self._send(client, task, known=known)
                task = await self._put(replace(task, task=answer.task, context=answer.context, stage="working"))
            elif answer is None:
                answer = await client.get(task.task)
            if await self._settled(letter, member, task, answer):
                return True
            if self._clock.monotonic() - began >= HOLD_SECONDS:
                return False
            await self._clock.sleep(pause)
            answer, pause = None, min(2 * pause, _MOST_PAUSE)

    async def _send(self, client: RemoteClient, task: RemoteTask, *, known: bool) -> RemoteAnswer:
        """Send a message. One that can have been sent before a kill is looked for first."""
        found: RemoteAnswer | None = None
        if known and task.task:
            found = await client.get(task.task)
            found = None if found.said and found.said == task.asked else found  # it still waits for this message
        elif known:
            found = await client.find(task.letter, task.context)
        return found or await client.send(task.letter, task.text, context=task.context, task=task.task)

    async def _settled(self, letter: Letter, member: Member, task: RemoteTask, answer: RemoteAnswer) -> bool:
        """Tell those whom an answer concerns; returns whether the message is over."""
        mail, message = self._society.mail, letter.message
        if answer.state == "working" or (answer.said and answer.said == task.asked):  # it has not read the answer yet
            return False
        if answer.state == "authorising":
            error = RemoteAgentFailed(
                f"the remote agent {_host(member)!r} waits for somebody to log in to it",
                remedy="log in where the agent says so; its task then continues",
            )
            await mail.notify_owner(f"{message.id}.login", f"{member.id} waits for a login.", error, case=letter.case)
            return False
        if answer.state == "failed":
            raise RemoteAgentFailed(
                f"the remote agent {_host(member)!r} {answer.problem}",
                remedy="do without it, or ask for something else",
            )
        if not await mail.receives(member.id):  # it was suspended meanwhile, so the message waits
            return True
        asks = answer.state == "asking"
        text = answer.text or _NO_TEXT
        reply = RoleMessage(
            id=question_id(message.id) if asks else f"{message.id}.answer",
            type="response",
            from_id=member.id,
            to_id=message.from_id,
            content=_ASKS + text if asks else text,
            correlation_id=message.id,
        )
        assert member.spec.remote is not None
        await mail.send(member.id, message.from_id, reply, marks=[*letter.marks, member.spec.remote.mark])
        # The reply is there before this is written, and this before the message is over: each can be done twice.
        await self._put(replace(task, stage="asking" if asks else "over", asked=answer.said))
        await mail.ended(message.id)
        return True

    async def _text(self, letter: Letter) -> str:
        """What the agent reads of a message: its text, its task brief, and what else comes with it."""
        message = letter.message
        if message.message_type == "task_assignment":
            return await self._society.mail.brief_in(letter)
        given = message.to_json()["payload"]
        more = {name: value for name, value in given.items() if name not in (MESSAGE_TYPE, "reason")}
        return "\n".join(filter(None, (message.content, canonical_json(more) if more else "")))

    # --- cancelling ---------------------------------------------------------------------------------------------------

    async def _is_cancelled(self, letter: Letter) -> bool:
        """Whether the turn was cancelled that sent a request and waits for its reply."""
        sender, stores = letter.message.from_id, inside(self._agent).stores
        if letter.message.type != "request":
            return False
        during = await self._read_from(lambda tx: waited_in(tx, self._workspace, letter.message.id))
        turn = letter.case  # of a conversation it is the id of the turn
        if during:
            found = await stores.events.find(thread_key(scope_of(self._workspace, sender)), during)
            turn = "" if found is None else found.turn
        elif sender != ROOT:
            return False
        record = await stores.turns.get(turn) if turn else None
        return record is not None and record.status == "cancelled"

    async def _cancel(self, task: RemoteTask) -> None:
        """Cancel a task at its agent. One that cannot be reached is tried again later."""
        found = await self._members([task.member])
        if found:
            client = self._client(found[0])
            try:
                begun = task.task or (
                    "" if (sent := await client.find(task.letter, task.context)) is None else sent.task
                )
                if begun:
                    await client.cancel(begun)
            except RemoteAgentUnavailable as error:
                _LOG.warning("the task of the message %s is cancelled later: %s", task.letter, error.code)
                raise
            except WorldAgentError as error:
                _LOG.warning("the task of the message %s was not cancelled: %s", task.letter, error.code)
        await self._put(replace(task, stage="over"))

    async def _read_card(self, member: Member) -> None:
        self._read[member.id] = self._clock.monotonic() + CARD_SECONDS
        try:
            interface = await self._client(member).interface()
        except WorldAgentError as error:
            _LOG.warning("the card of %r could not be read: %s", member.id, error.code)
            self._read[member.id] = self._clock.monotonic() + _MOST_TRIES
            return
        if interface != member.interface:
            mark = "" if member.spec.remote is None else member.spec.remote.mark
            await self._transact(lambda tx: describe(tx, self._workspace, member.id, interface, mark))

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _members(self, ids: list[str]) -> list[Member]:
        """Those of some ids that are remote members."""
        found = await self._read_from(lambda tx: members_of(tx, self._workspace, ids))
        return [each for each in found.values() if each.spec.remote is not None]

    def _client(self, member: Member) -> RemoteClient:
        remote = member.spec.remote
        assert remote is not None
        if remote not in self._clients:
            try:
                from .client import RemoteClient  # few workspaces have remote members
            except ImportError:
                raise MissingExtra(
                    f"{member.id!r} is a remote agent, and the extra 'a2a' is not installed",
                    remedy="pip install 'worldagent[a2a]'",
                ) from None
            self._clients[remote] = RemoteClient(remote)
        return self._clients[remote]

    async def _put(self, task: RemoteTask) -> RemoteTask:
        await self._transact(lambda tx: put(tx, self._workspace, task))
        return task

    async def _stored(self, letter: str, stage: Any) -> None:
        def work(tx: Transaction) -> None:
            found = task_of(tx, self._workspace, letter)
            if found is not None:
                put(tx, self._workspace, replace(found, stage=stage))

        await self._transact(work)

    def _transact(self, work: Callable[[Transaction], T]) -> Awaitable[T]:
        return inside(self._agent).stores.database.transact(work)

    def _read_from(self, work: Callable[[Transaction], T]) -> Awaitable[T]:
        return inside(self._agent).stores.database.read(work)

    @property
    def _clock(self) -> Any:
        return inside(self._agent).clock

    @property
    def _society(self) -> Society:
        return self._agent.get(Members)


def _host(member: Member) -> str:
    return "" if member.spec.remote is None else member.spec.remote.host
