"""Every message and introduction of a workspace passes here, and is stored or refused.

Nothing here starts a turn. A gateway takes what waits, lets `answer` do what needs no model, and starts the receiver's
turn for the rest.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Any, Final

from ...core import new_id
from ...core.checks import check_number, check_texts, items
from ...core.errors import (
    ChainTooLong,
    GraphChanged,
    InvalidArgument,
    MailboxFull,
    MessageInvalid,
    UnknownContact,
    WaitInCircle,
    WorldAgentError,
)
from ...core.scope import is_id
from ...core.validation import check_integer
from ...storage import Transaction
from ..budgets import Budgets
from ..data.brief import Language, TaskBrief
from ..data.roles import ROOT, USER, Participant
from ..data.store import Refusal, WorkspaceStore, note
from ..life.lives import NOTICES, PARENT_TERMINATED, TASK_COMPLETE, below, report_done, terminated, write_lives
from ..life.members import Member, members_of, one_member
from .briefs import Briefs
from .contacts import FIRST_MESSAGE, add_contact, contact_of
from .delivery import delivered, quoted
from .failures import failed, failure_text, is_failure, not_resumed, stuck
from .groups import Groups
from .introductions import Introductions, answer_in, response_with
from .letters import (
    CONSENT,
    MAX_WAITING,
    Letter,
    close_mailbox,
    handled_by,
    heads,
    held,
    hold_mailbox,
    is_question,
    letter_of,
    letters_of,
    letters_of_case,
    mark_answered,
    post,
    prepare,
    prepared_of,
    recorded_of,
    reopen,
    set_state,
    task_of,
    waiting_for,
)
from .messages import ASSIGNMENT, MESSAGE_TYPE, Envelope, MessageType, RoleMessage, envelope_of
from .rules import ACCOUNT_MARK, MessageRules, Sending
from .transport import REPLY_SECONDS, no_reply
from .wakeups import POLL_SECONDS, Watch, first_of

_REFUSALS: Final = (ChainTooLong, InvalidArgument, MailboxFull, MessageInvalid, UnknownContact, WaitInCircle)
_NOT_AGREED: Final = "The introduction was not agreed to."


class Mailroom:
    """The messages of a workspace: sends and delivers them, and shows them.

    Args:
        store: The database of the workspace.
        rules: Its rules.
        budgets: Its budgets.

    Attributes:
        groups: What is sent to several contacts at once.
        briefs: How far each task brief is.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules, budgets: Budgets) -> None:
        self._store = store
        self._workspace = store.id
        self._rules = rules
        self._budgets = budgets
        self._introductions = Introductions(store, rules)
        self.groups = Groups(store, rules, self)
        self.briefs = Briefs(store, rules)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        from_id: str,
        to_id: str,
        content: str | RoleMessage = "",
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        kind: Envelope = "notification",
        answers: str = "",
        message_id: str | None = None,
        marks: Sequence[str] = (),
        case: str = "",
        waits: float | None = None,
    ) -> Letter:
        """Check a message and put it into the mailbox of its receiver. A gateway starts the receiver's turn.

        Args:
            from_id: Who sends it. The caller stamps this; it never comes from a model (C9).
            to_id: Who receives it.
            content: Its text, or the message itself: then neither payload, kind, answers nor an id are given, and
                its sender and receiver become those that are given here.
            payload: What comes with it; `message_type` says what it must hold.
            kind: What it is where it has no `message_type`.
            answers: The id of the message that it answers; by default the oldest open one of a response.
            message_id: Its id. A second call with the same id returns the message of the first.
            marks: The untrusted content that its sender had read. The turn that it starts has them, too.
            case: The case that it belongs to (A17). By default that of the message that it answers, else of the one
                that its sender handles; else it begins a case, whose id is its own.
            waits: For how many seconds the sender's turn on messages waits for the reply; None where it does not wait.

        Returns:
            The message as it is stored. That of a member in testing is recorded, and never delivered (A7).

        Raises:
            MessageInvalid: It does not fit its type, is to the sender itself, to one that is terminated, or it lacks
                the reason that a first message needs.
            UnknownContact: The sender does not know the receiver, or the one that it introduces.
            ChainTooLong: Too many messages led to it since the last of a person or event.
            MailboxFull: As many messages wait for the receiver as its mailbox holds.
            WaitInCircle: With `waits`: the receiver waits for the sender, directly or through others (A18).
            RoleExists: The sender is given by the id of the owner, which a member has, too.
            InvalidArgument: An id, or another argument, is invalid.
        """
        sender, receiver = self._rules.alias(from_id), self._rules.alias(to_id)
        try:
            if isinstance(content, RoleMessage):
                message = replace(content, from_id=sender, to_id=receiver)
            else:
                given = {} if payload is None else payload
                message = RoleMessage(
                    id=message_id or new_id("msg"),
                    type=envelope_of(_type_of(given), kind),
                    from_id=sender,
                    to_id=receiver,
                    content=content,
                    payload=given,
                    correlation_id=answers,
                )
            read = items("marks", marks, str)
            check_texts(case=case)
            if waits is not None:
                check_number("waits", waits, least=0)
        except _REFUSALS as error:
            await self._refused(error, sender, receiver)
            raise
        [letter] = await self.send_all(from_id, [message], read, case=case, waits=waits)
        return letter

    async def send_all(
        self,
        from_id: str,
        messages: Sequence[RoleMessage],
        marks: Sequence[str],
        *,
        case: str = "",
        waits: float | None = None,
    ) -> list[Letter]:
        """Send messages of one sender, all of them or none. Those that are stored already are returned.

        Args:
            from_id: Who sends them.
            messages: The messages.
            marks: The untrusted content that the sender had read.
            case: The case that they belong to; see `send`.
            waits: For how many seconds the sender waits for replies; see `send`.

        Raises:
            MessageInvalid, UnknownContact, ChainTooLong, MailboxFull, WaitInCircle, RoleExists, InvalidArgument: As for
                `send`, for the first message that is refused.
        """
        last = messages[:1]

        def work(tx: Transaction) -> list[Letter]:
            nonlocal last
            if waits is not None:  # before anything is held
                tx.lock(f"waits of {self._workspace}")
            self._rules.check_acting(tx, from_id)
            found = list[Letter]()
            for message in messages:
                last = [message]
                there = letter_of(tx, self._workspace, message.id)
                found.append(there or self.send_within(tx, message, marks, case=case))
                if there is None and waits is not None and found[-1].state != "recorded":
                    self._rules.begin_wait(tx, found[-1], waits)
            return found

        try:
            return await self._store.transact(work)
        except _REFUSALS as error:
            for message in last:
                await self._refused(error, message.from_id, message.to_id)
            raise

    async def _refused(self, error: WorldAgentError, *ids: object) -> None:
        """Report a refused message. An id that is not in the workspace is left out: it can be any text of a model."""

        def work(tx: Transaction) -> list[str]:
            known = [str(each) if is_id(each) else "" for each in ids]
            return [each if self._rules.participant(tx, each) else "" for each in known]

        if self._store.notify is not None:
            with suppress(WorldAgentError):  # the refusal itself is what the caller must receive
                sender, receiver = await self._store.read(work)
                self._store.notify([Refusal(code=error.code, sender=sender, receiver=receiver)])

    async def request(
        self, from_id: str, to_id: str, message: RoleMessage, /, *, seconds: float = REPLY_SECONDS
    ) -> RoleMessage:
        """Send a message and wait for the reply. No turn starts with the reply, unless a gateway was faster.

        It is for code outside of turns. In a turn, members and the World Agent have `request_role`, which pauses it.

        Args:
            from_id: Who sends it.
            to_id: Who receives it.
            message: The message.
            seconds: How long to wait.

        Raises:
            MessageInvalid, UnknownContact, ChainTooLong, MailboxFull, InvalidArgument: As for `send`.
            PauseExpired: No reply came in time. It is a message like any other once it comes.
        """
        check_number("seconds", seconds, least=0)
        clock = self._store.clock
        late = asyncio.ensure_future(clock.sleep(seconds))
        try:
            async with self._store.wakeups.listen(self._workspace, every=True) as watch:
                letter = await self.send(from_id, to_id, message)
                while (reply := await self.reply_to(letter.message.id)) is None:
                    if late.done():
                        raise no_reply(to_id, letter.message.id, seconds)
                    await first_of(watch.wait(), clock.sleep(POLL_SECONDS), asyncio.shield(late))
        finally:
            late.cancel()
        await self._claim(reply.message.id)
        return reply.message

    async def _claim(self, message_id: str) -> None:
        """Mark a reply as handled, unless a turn handles it."""

        def work(tx: Transaction) -> None:
            letter = held(tx, self._workspace, message_id)
            if letter is not None and letter.state == "waiting":
                set_state(tx, self._workspace, message_id, "handled")

        await self._store.transact(work)

    def send_within(
        self,
        tx: Transaction,
        message: RoleMessage,
        marks: Sequence[str] = (),
        *,
        after: Letter | None = None,
        begins: bool = False,
        case: str = "",
    ) -> Letter:
        """Check and store a message in a transaction; see `send`. One that is stored already is returned.

        Args:
            tx: The transaction.
            message: The message.
            marks: The untrusted content that its sender had read.
            after: The message that led to it, in place of the one that its sender handles.
            begins: Whether it begins a new chain.
            case: The case that it belongs to; see `send`.
        """
        there = letter_of(tx, self._workspace, message.id)
        if there is not None:
            return there
        rules, now = self._rules, self._store.clock.now()
        sender, receiver = (rules.participant(tx, each) for each in (message.from_id, message.to_id))
        if sender is None:
            raise InvalidArgument(f"{message.from_id!r} is not in the workspace", remedy="send as a member or a person")
        done = rules.reporting_done(tx, message)
        if receiver is None:
            raise rules.stranger(tx, message.from_id, message.to_id)
        handling = None if begins else after or handled_by(tx, self._workspace, message.from_id)
        message, again = self.briefs.assigned(tx, message)
        unmet, moved = self.briefs.unmet(tx, message, again), self.briefs.reported(tx, message, handling)
        sending, replied = Sending(message, sender, receiver, handling, now), rules.replied(tx, message, handling)
        testing = rules.check_lives(tx, message, replied)
        contact = contact_of(tx, self._workspace, message.from_id, message.to_id, now)
        if contact is None and not replied and self._store.config.policy.discovery != "open":
            raise rules.stranger(tx, message.from_id, message.to_id)
        rules.check_answers(tx, message)
        chain = rules.chain(sending)
        message, introduced = self._introductions.introduced(tx, sending, replied, marks)
        if replied and not message.correlation_id:
            message = replace(message, correlation_id=_first_question(replied))
        case = case or self._case_of(tx, message, handling)
        if introduced and not testing:
            asked = self._introductions.question(tx, message, chain, marks, now, case)
            if asked is not None:
                return asked
        questions = self._introductions.answered_questions(tx, message, replied)
        # A reply introduces no one: who asked knows whom it asked, or its contact was taken away (C5.7).
        known = replied or contact_of(tx, self._workspace, message.to_id, message.from_id, now)
        opening = None if known else rules.opening(sending, contact)
        # Without a reason of its own it tells what others said of the contact.
        noted = () if opening is None or contact is None or message.payload.get("reason") else contact.marks
        # All checks come before the first write, so that a refusal inside of a larger transaction leaves nothing.
        letter = post(
            tx,
            self._workspace,
            message,
            now=now,
            chain=chain,
            opening=opening,
            marks=[*marks, *noted],
            recorded=testing,
            held=bool(unmet),
            case=case,
        )
        if testing:
            return letter
        self.briefs.posted(tx, letter, unmet, again)
        self.briefs.report(tx, moved, letter)
        made = [] if known else [rules.as_contact(tx, sender, FIRST_MESSAGE)]
        for each in (*made, *introduced):
            add_contact(tx, self._workspace, message.to_id, each, now)
        self._close(tx, message, replied, questions, by_person=sender.type == "human")
        self._end_task(tx, done, sending)
        return letter

    def _case_of(self, tx: Transaction, message: RoleMessage, handling: Letter | None) -> str:
        """The case of a message: that of the one that it answers, else of the one that led to it; empty begins one."""
        answered = letter_of(tx, self._workspace, message.correlation_id) if message.correlation_id else None
        led = answered or handling
        return "" if led is None else led.case

    def _end_task(self, tx: Transaction, done: Member | None, sending: Sending) -> None:
        """End a member that reported its task done: at once, or after the turn in which it did so."""
        if done is not None:
            report_done(tx, done, sending.now)
            if sending.handling is None:
                self.terminate_within(tx, done.id, TASK_COMPLETE)

    def _close(
        self,
        tx: Transaction,
        message: RoleMessage,
        replied: Mapping[str, Envelope],
        questions: Sequence[Letter],
        *,
        by_person: bool,
    ) -> None:
        """Note which messages a reply answers, and continue the introductions that it agrees to.

        A request for an introduction waits for its own kind of answer until the turn of it is over. A person has none.
        A question waits for a yes or no.
        """
        answered = {each.message.id for each in questions}
        for each, kind in replied.items():
            letter = letter_of(tx, self._workspace, each) if kind == "request" else None
            asks = letter is not None and letter.message.message_type == "introduction_request"
            final = message.message_type == "introduction_response" or (by_person and asks)
            if final or not (asks or (is_question(letter) and each not in answered)):
                mark_answered(tx, self._workspace, each)
        for question in questions:
            self._agreed(tx, question, yes=message.payload[CONSENT] is True)

    def _agreed(self, tx: Transaction, asked: Letter, *, yes: bool) -> None:
        """Continue an introduction that one has agreed to, or decline it."""
        request = letter_of(tx, self._workspace, asked.message.correlation_id)
        if request is not None and not request.answered:
            declined = {MESSAGE_TYPE: "introduction_response", "declined": _NOT_AGREED}
            self._replies(tx, request, answer_in(asked) if yes else declined, asked.marks, after=asked)

    def _replies(
        self,
        tx: Transaction,
        letter: Letter,
        payload: Mapping[str, Any],
        marks: Sequence[str] = (),
        *,
        after: Letter | None = None,
    ) -> bool:
        """Reply for the member that was asked; False if the reply is refused, so that no message is tried for ever."""
        try:
            self.send_within(tx, _reply(letter, payload), marks, after=after)
        except _REFUSALS as error:  # such as to one that is terminated, or to a full mailbox
            note(tx, Refusal(code=error.code, sender=letter.message.to_id, receiver=letter.message.from_id))
            return False
        return True

    # --- the end of a member ------------------------------------------------------------------------------------------

    def terminate_within(self, tx: Transaction, role_id: str, reason: str) -> tuple[str, ...]:
        """End a member and its descendants, these first, and close their mailboxes, in a transaction.

        Returns:
            The ids of all of them, in that order.
        """
        member, now = self._rules.held(tx, role_id), self._store.clock.now()
        lives = {role_id: terminated(role_id, member.life, reason, now)}
        children = below(tx, self._workspace, role_id)
        found = {**members_of(tx, self._workspace, children), role_id: member}
        lives |= {each: terminated(each, found[each].life, PARENT_TERMINATED, now) for each in children}
        for each in (*children, role_id):
            self._close_mailbox(tx, each)
            write_lives(tx, found[each], lives[each], now)
        for each in (*children, role_id):  # once all have ended, so that nothing goes back to one of them
            self.briefs.ended(tx, each)
        return (*children, role_id)

    def _close_mailbox(self, tx: Transaction, member: str) -> None:
        """Close the mailbox of a member that ends, and answer for it what others asked of it."""
        hold_mailbox(tx, self._workspace, member)
        for letter in close_mailbox(tx, self._workspace, member):
            if is_question(letter):
                self._agreed(tx, letter, yes=False)
            elif self._rules.lives(tx, letter.message.from_id):
                # Not sent as others are: the member may be suspended, and the one that waits must get it.
                ended = _ended(letter, self._rules.language(tx, letter.message.from_id))
                self.post_after(tx, letter, ended, letter.marks)
            mark_answered(tx, self._workspace, letter.message.id)

    def post_after(self, tx: Transaction, letter: Letter, message: RoleMessage, marks: Sequence[str] = ()) -> None:
        """Post a message of the system that another one led to. A full mailbox leaves it out."""
        chain = min(letter.chain + 1, self._store.config.policy.message_chain)
        with suppress(MailboxFull):
            now, case = self._store.clock.now(), letter.case
            post(tx, self._workspace, message, now=now, chain=chain, marks=marks, case=case)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def listen(self) -> AbstractAsyncContextManager[Watch]:
        """Be woken while messages wait. A gateway uses this, with polling behind it."""
        return self._store.wakeups.listen(self._workspace)

    async def receives(self, id_: str) -> bool:
        """Whether one receives messages: a member does while it is active or in testing, and a person always."""
        check_texts(id_=id_)
        return await self._store.read(lambda tx: self._rules.receives(tx, id_))

    async def answer(self, message_id: str) -> bool:
        """Do what a message asks for that needs no model; returns whether nothing is left to do (C3).

        A request for an introduction is answered if exactly one contact of the member that is asked fits all its
        words. An answer to a referral is forwarded to the one that asked before. A message to a member that was
        suspended since it was taken stays in the mailbox.

        Args:
            message_id: The message that is about to be delivered.
        """
        check_texts(message_id=message_id)

        def work(tx: Transaction) -> bool:
            letter = held(tx, self._workspace, message_id)
            if letter is None or letter.state == "handled" or not self._rules.receives(tx, letter.message.to_id):
                return True
            set_state(tx, self._workspace, message_id, "handling")
            kind = letter.message.message_type
            if kind == ASSIGNMENT:
                self.briefs.begun(tx, letter)
            done = (
                (kind == "introduction_request" and self._introduce(tx, letter))
                or (kind == "introduction_response" and self._forward(tx, letter))
                or (letter.message.type == "response" and self._answers_question(tx, letter))
            )
            if done:
                set_state(tx, self._workspace, message_id, "handled")
            return done

        return await self._store.transact(work)

    def _introduce(self, tx: Transaction, letter: Letter) -> bool:
        found = None if letter.answered else self._introductions.found(tx, letter)
        if found is None:
            return letter.answered
        return self._replies(tx, letter, response_with(found), (*letter.marks, *found.marks))

    def _forward(self, tx: Transaction, letter: Letter) -> bool:
        """Forward the answer to a referral; False where the member asked for itself, or the answer helps no further."""
        origin = self._introductions.origin(tx, letter)
        if origin is None or origin.answered or "declined" in letter.message.payload:
            return False
        payload = letter.message.to_json()["payload"]
        if payload["target_id"] == origin.message.from_id:
            return False
        return self._replies(tx, origin, payload, letter.marks_for(origin.message.from_id))

    def _answers_question(self, tx: Transaction, letter: Letter) -> bool:
        return is_question(letter_of(tx, self._workspace, letter.message.correlation_id))

    async def prepared(
        self, message_id: str, make: Callable[[], Awaitable[tuple[str, Iterable[str]]]]
    ) -> tuple[str, tuple[str, ...]]:
        """What the turn of a message is given, and the untrusted content in that: what was stored first.

        Args:
            message_id: The message.
            make: Makes both, if nothing is stored yet.

        Raises:
            BudgetReached: A budget is used up; the message waits (A16).
        """
        check_texts(message_id=message_id)
        found = await self._store.read(lambda tx: prepared_of(tx, self._workspace, message_id))
        if found is not None:
            return found
        text, marks = await make()

        def work(tx: Transaction) -> tuple[str, tuple[str, ...]]:
            stored = prepare(tx, self._workspace, message_id, text, sorted({*marks}))
            letter = letter_of(tx, self._workspace, message_id) if self._store.limited else None
            if letter is not None:
                self._budgets.begin(tx, message_id, letter.message.to_id, letter.case, own=f"brief {message_id}")
            return stored

        return await self._store.transact(work)

    async def reply_to(self, message_id: str) -> Letter | None:
        """The first reply to a message; None if there is none yet."""
        check_texts(message_id=message_id)
        return (await self.groups.replies([message_id])).get(message_id)

    async def ended(self, message_id: str, error: WorldAgentError | None = None) -> None:
        """Note that the turn of a message is over. A request for an introduction that nothing answers is declined.

        So is one whose last referral was answered without an introduction. An answer that waits is looked at first.
        If the turn failed, its sender is notified, which a message without an answer that it waits for ends too. If it
        can never resume, the owner is, too.

        Args:
            message_id: The message.
            error: What the turn failed with; None if it did not.
        """
        check_texts(message_id=message_id)

        def work(tx: Transaction) -> None:
            letter = held(tx, self._workspace, message_id)
            if letter is None or letter.state == "handled":
                return
            if is_question(letter) and not letter.answered:
                self._agreed(tx, letter, yes=False)
            origin, rules = self._introductions.origin(tx, letter), self._rules
            again = error is not None and self.briefs.turn_failed(tx, letter, error)
            if origin is not None and not self._introductions.is_open(tx, origin, letter):
                why, marks = self._introductions.why_declined(tx, origin, letter)
                if error is not None:
                    why = failure_text(letter, error, rules.language(tx, origin.message.from_id))
                self._replies(tx, origin, {MESSAGE_TYPE: "introduction_response", "declined": why}, marks)
            elif error is not None and origin is None and not again:
                self._notify_failure(tx, letter, error)
            if isinstance(error, GraphChanged) and letter.message.from_id != USER:
                with suppress(*_REFUSALS):  # an id that leaves no room for another one
                    told = not_resumed(letter, error, rules.language(tx, USER))
                    self._notify_owner(tx, told, letter.marks, case=letter.case)
            set_state(tx, self._workspace, message_id, "handled")
            if self._store.limited:
                self._budgets.close(tx, message_id)

        await self._store.transact(work)

    def _notify_failure(self, tx: Transaction, letter: Letter, error: WorldAgentError) -> None:
        """Notify the sender of a message, unless the system sent it: then no notification leads to another."""
        sender = letter.message.from_id
        if not self._rules.lives(tx, sender) or is_failure(letter) or is_question(letter):
            return
        with suppress(*_REFUSALS):  # a mailbox that is full
            message, now = failed(letter, error, self._rules.language(tx, sender)), self._store.clock.now()
            about: dict[str, Any] = {"chain": letter.chain + 1, "marks": letter.marks, "case": letter.case}
            post(tx, self._workspace, message, now=now, **about)
            mark_answered(tx, self._workspace, letter.message.id)

    async def letters(self, message_ids: Sequence[str]) -> list[Letter]:
        """The messages with these ids, in the order in which they were sent. Ids of no message are left out."""
        read = items("message_ids", message_ids, str)
        found = await self._store.read(lambda tx: [letter_of(tx, self._workspace, each) for each in read])
        there = [each for each in found if each is not None]
        return sorted(there, key=lambda each: (str(each.message.timestamp), each.message.id))

    async def returned(self, message_id: str) -> None:
        """Let a reply wait again that was taken for a turn which can never read it. It begins a turn of its own."""
        check_texts(message_id=message_id)
        await self._store.transact(lambda tx: reopen(tx, self._workspace, message_id), wakes=True)

    async def notify_owner(self, message_id: str, text: str, error: WorldAgentError, *, case: str = "") -> None:
        """Tell the owner, once for each id, that something that nobody looks at cannot go on. A full inbox is left out.

        Args:
            message_id: The id of the message.
            text: What it is.
            error: Why.
            case: The case that it belongs to (A17).
        """
        check_texts(message_id=message_id, text=text, case=case)
        await self.tell_owner(stuck(message_id, ROOT, text, error), case=case)

    async def tell_owner(self, message: RoleMessage, *, case: str = "") -> bool:
        """Put a message of the system into the owner's inbox, once for each id; returns whether it was not there yet.

        A full inbox is left out.
        """
        return await self._store.transact(lambda tx: self._notify_owner(tx, message, case=case))

    def _notify_owner(
        self, tx: Transaction, message: RoleMessage, marks: Sequence[str] = (), *, case: str = ""
    ) -> bool:
        if letter_of(tx, self._workspace, message.id) is not None:
            return False
        with suppress(MailboxFull):
            post(tx, self._workspace, message, now=self._store.clock.now(), marks=marks, case=case)
        return True

    # --- reading ------------------------------------------------------------------------------------------------------

    async def waiting(self, most: int = 100, *, after: Letter | None = None) -> list[Letter]:
        """The oldest message of each mailbox of a member that is not handled yet, the oldest first.

        Args:
            most: The most to return.
            after: Only those that were sent after this one.

        Raises:
            InvalidArgument: `most` is not a positive integer.
        """
        check_integer("most", most, sys.maxsize, remedy="choose another number")
        return await self._store.read(lambda tx: heads(tx, self._workspace, most, after))

    async def inbox(self, person: str = USER, *, limit: int = 100) -> list[Letter]:
        """The messages that a person has not marked as read, the oldest first.

        Args:
            person: The person; by default the owner.
            limit: The most to return, 1 to 1000.

        Raises:
            InvalidArgument: `limit` is out of bounds.
        """
        check_texts(person=person)
        check_integer("limit", limit, MAX_WAITING, remedy="choose another number")
        return await self._store.read(lambda tx: waiting_for(tx, self._workspace, self._rules.alias(person), limit))

    async def of_case(self, case: str, *, most: int = 1000) -> list[Letter]:
        """The messages of a case, the oldest first (A17).

        Args:
            case: Its id.
            most: The most to return.
        """
        check_texts(case=case)
        return await self._store.read(lambda tx: letters_of_case(tx, self._workspace, case, most))

    async def recorded(self, member: str) -> list[Letter]:
        """The messages that a member sent while it was in testing, the oldest first. They were not delivered (A7).

        Args:
            member: The member.
        """
        check_texts(member=member)
        return await self._store.read(lambda tx: recorded_of(tx, self._workspace, member))

    async def of(self, member: str, *, most: int = 1000) -> list[Letter]:
        """The last messages that a member received and sent, the oldest first.

        Args:
            member: The member, or a person.
            most: The most to return.

        Raises:
            InvalidArgument: `most` is not a positive integer.
        """
        check_texts(member=member)
        check_integer("most", most, sys.maxsize, remedy="choose another number")
        return await self._store.read(lambda tx: letters_of(tx, self._workspace, self._rules.alias(member), most))

    async def read(self, message_id: str) -> None:
        """Mark a message of a person as read.

        Raises:
            InvalidArgument: It is a message to a member, which its turn handles.
        """
        check_texts(message_id=message_id)

        def work(tx: Transaction) -> None:
            letter = letter_of(tx, self._workspace, message_id)
            receiver = None if letter is None else letter.message.to_id
            if receiver == ROOT or (receiver is not None and one_member(tx, self._workspace, receiver) is not None):
                raise InvalidArgument(
                    f"the message {message_id[:60]!r} is to {receiver!r}, which is not a person",
                    remedy="mark messages of people as read; a gateway delivers the others",
                )
            set_state(tx, self._workspace, message_id, "handled")

        await self._store.transact(work)

    async def task_of(self, member: str) -> str:
        """The brief of the last task that a member was given, as it reads it; empty if it was given none."""
        task = await self.last_task(member)
        return "" if task is None else await self.brief_in(task)

    async def last_task(self, member: str) -> Letter | None:
        """The message with the last task that a member was given; None if it was given none."""
        check_texts(member=member)
        return await self._store.read(lambda tx: task_of(tx, self._workspace, member))

    async def brief_in(self, task: Letter) -> str:
        """The brief of a message with a task, as its receiver reads it."""
        language = await self._language(task.message.to_id)
        return quoted(TaskBrief.from_json(task.message.to_json()["payload"]["task_brief"]).to_text(language))

    async def earlier(self, letter: Letter, *, most: int) -> list[Letter]:
        """The last messages that the receiver of a message received and sent before it, the oldest first.

        Those that it sent are among them from the start, those that it received once its turn with them began.

        Args:
            letter: The message.
            most: The most to return.
        """
        receiver = letter.message.to_id
        rows = await self._store.read(lambda tx: letters_of(tx, self._workspace, receiver, most + 1))
        shown = [
            each
            for each in rows
            if each.message.id != letter.message.id
            and (each.state not in ("waiting", "held") or each.message.from_id == receiver)
        ]
        return shown[-most:]

    async def text_for(self, reader: str, letter: Letter) -> str:
        """An earlier message as a member reads it that received or sent it.

        Args:
            reader: The member.
            letter: The message.
        """
        message = letter.message
        if message.to_id == reader:
            return await self.text_of(letter, can_reply=False)
        return f"-> {message.to_id}: {quoted(message.content or str(message.message_type))}"

    async def text_of(self, letter: Letter, *, can_reply: bool = True) -> str:
        """A message as its receiver reads it (C10).

        Args:
            letter: The message.
            can_reply: Whether the receiver has `send_message`.
        """
        message, rules = letter.message, self._rules

        def work(tx: Transaction) -> tuple[Participant | None, Participant | None, Language]:
            to_id = message.to_id
            return rules.participant(tx, message.from_id), rules.participant(tx, to_id), rules.language(tx, to_id)

        sender, receiver, language = await self._store.read(work)
        to_person = receiver is not None and receiver.type == "human"
        return delivered(
            message,
            language=language,
            role=sender.name if sender is not None and sender.name != sender.id else "",
            from_user=message.from_id == USER,
            can_reply=can_reply and not to_person,
            introduction=letter.opening,
            asked_by=_asked_by(letter),
        )

    async def _language(self, id_: str) -> Language:
        return await self._store.read(lambda tx: self._rules.language(tx, id_))


def _asked_by(letter: Letter) -> list[str]:
    """The accounts for which the World Agent sent a message, without the owner."""
    marks = letter.marks if letter.message.from_id == ROOT else ()
    return [each.removeprefix(ACCOUNT_MARK) for each in marks if each.startswith(ACCOUNT_MARK)]


def _type_of(payload: object) -> MessageType | None:
    kind = payload.get(MESSAGE_TYPE) if isinstance(payload, Mapping) else None
    return kind if isinstance(kind, str) else None  # type: ignore[return-value] # `RoleMessage` refuses the others


def _first_question(replied: Mapping[str, Envelope]) -> str:
    """Which of several messages a reply is to: the oldest that wants an answer, or else the oldest."""
    return next((each for each, kind in replied.items() if kind == "request"), next(iter(replied)))


def _reply(letter: Letter, payload: Mapping[str, Any], text: str = "") -> RoleMessage:
    """A reply of the member that was asked, made by the system. Its id makes it one, however often it is made."""
    return RoleMessage(
        id=f"{letter.message.id}.reply",
        type="response",
        from_id=letter.message.to_id,
        to_id=letter.message.from_id,
        content=text,
        payload=payload,
        correlation_id=letter.message.id,
    )


def _ended(letter: Letter, language: Language) -> RoleMessage:
    """The answer to a request to a member that is terminated, made by the system."""
    text = NOTICES[language]["terminated"].format(member=letter.message.to_id)
    if letter.message.message_type == "introduction_request":
        return _reply(letter, {MESSAGE_TYPE: "introduction_response", "declined": text})
    if letter.message.message_type == "collaboration_request":
        return _reply(letter, {MESSAGE_TYPE: "collaboration_response"}, text)
    return _reply(letter, {}, text)
