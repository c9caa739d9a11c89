"""Members that callers elsewhere reach over A2A: their requests are messages, and a task is what came of them (A22).

A caller is a person of the workspace, apart from all others: its id begins with `a2a`. A task is the case of its first
message, so nothing is stored of how far it is: the messages say it, after any kill. What the caller sees are the
messages of the member to it that belong to the task, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from ...core import check_id, digest
from ...core.checks import check_texts
from ...core.errors import LifecycleError, UnknownMember, UnknownTask
from ...storage import Transaction
from ..data.roles import Participant
from ..data.store import WorkspaceStore
from ..life.members import MemberRegistry, one_member
from ..mail.contacts import Contact, add_contact, contact_of
from ..mail.failures import is_failure
from ..mail.letters import Letter, letter_of, letters_of_case, set_state, waiting_for
from ..mail.mailroom import Mailroom
from ..mail.messages import RoleMessage
from ..mail.rules import MessageRules

TaskState = Literal["submitted", "working", "asking", "done", "failed", "cancelled"]
"""A task waits, is worked on, waits for an answer of its caller, or is over."""

OVER: Final[tuple[TaskState, ...]] = ("done", "failed", "cancelled")

MAX_LISTED: Final = 100
"""The most tasks of one page."""

_OFFERED: Final = "a2a-"
_CALLER: Final = "a2a"
_MAX_LETTERS: Final = 1000

_ONE: Final = "SELECT id, member, caller, context, cancelled, place FROM wa_offered WHERE workspace=? AND id=?"
_LIST: Final = """SELECT id, member, caller, context, cancelled, place FROM wa_offered
                  WHERE workspace=? AND member=? AND caller=? AND (? = '' OR context=?) AND place < ?
                  ORDER BY place DESC LIMIT ?"""
_COUNT: Final = """SELECT COUNT(*) FROM wa_offered WHERE workspace=? AND member=? AND caller=?
                   AND (? = '' OR context=?)"""
_INSERT: Final = """INSERT INTO wa_offered(workspace, id, place, member, caller, context, cancelled)
                    SELECT ?, ?, COALESCE(MAX(place), 0) + 1, ?, ?, ?, 0 FROM wa_offered WHERE workspace=?"""
_CANCEL: Final = "UPDATE wa_offered SET cancelled=1 WHERE workspace=? AND id=?"
_NEWEST: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTask:
    """What a caller sees of a task.

    Attributes:
        id: Its id.
        context: The conversation that it belongs to.
        state: How far it is.
        text: The answer, or the question to the caller; empty for neither.
        changed: When it came to this state, as far as a message tells.
        messages: The id of each message that the caller and the member exchanged, whether it is the caller's, and its
            text.
        place: Its number, by which tasks are listed.
        runs: Whether its turn has begun and its message is not over.
    """

    id: str
    context: str
    state: TaskState
    text: str
    changed: datetime | None
    messages: tuple[tuple[str, bool, str], ...]
    place: int
    runs: bool


class Offers:
    """The tasks that callers over A2A gave to members.

    Args:
        store: The database of the workspace.
        rules: Its rules.
        mail: Its messages.
        members: Its members.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules, mail: Mailroom, members: MemberRegistry) -> None:
        self._store, self._rules, self._mail, self._members = store, rules, mail, members
        self._workspace = store.id

    async def ask(
        self, member: str, account: str | None, message_id: str, text: str, *, context: str = "", task: str = ""
    ) -> OfferedTask:
        """Send a member a message of a caller. A repeat with the same id is the same message.

        Args:
            member: The member.
            account: The account of the caller; None for one without.
            message_id: The caller's id of the message.
            text: Its text.
            context: The conversation that a new task belongs to; empty begins one.
            task: The task that waits for this answer; empty begins a new task.

        Raises:
            UnknownTask: The caller has no such task with this member.
            LifecycleError: The task does not wait for an answer.
            UnknownMember: There is no such member.
            MessageInvalid, MailboxFull, RoleExists, InvalidArgument: The message cannot be sent.
        """
        check_texts(member=member, message_id=message_id, text=text, context=context, task=task)
        caller = caller_of(account)
        letter_id = _OFFERED + digest([member, caller, message_id])

        def work(tx: Transaction) -> OfferedTask:
            for each in waiting_for(tx, self._workspace, caller, _MAX_LETTERS):  # they are read from the tasks
                set_state(tx, self._workspace, each.message.id, "handled")
            if task:
                self._answer(tx, member, caller, letter_id, text, task)
                return self._task(tx, member, caller, task)
            if not tx.execute(_ONE, (self._workspace, letter_id)):
                self._begin(tx, member, caller, letter_id, text, context)
            return self._task(tx, member, caller, letter_id)

        return await self._store.transact(work)

    async def task(self, member: str, account: str | None, task: str) -> OfferedTask:
        """A task of a caller.

        Raises:
            UnknownTask: The caller has no such task with this member.
        """
        check_texts(member=member, task=task)
        return await self._store.read(lambda tx: self._task(tx, member, caller_of(account), task))

    async def list(
        self, member: str, account: str | None, *, context: str = "", before: int | None = None, limit: int = MAX_LISTED
    ) -> tuple[tuple[OfferedTask, ...], int]:
        """The newest tasks of a caller with a member, and how many there are.

        Args:
            member: The member.
            account: The account of the caller.
            context: Only those of this conversation; empty is any.
            before: Only those before this place.
            limit: The most to return.
        """
        check_texts(member=member, context=context)
        whose = (self._workspace, member, caller_of(account), context, context)

        def work(tx: Transaction) -> tuple[tuple[OfferedTask, ...], int]:
            rows = tx.execute(_LIST, (*whose, _NEWEST if before is None else before, min(limit, MAX_LISTED)))
            [(count,)] = tx.execute(_COUNT, whose)
            return tuple(self._read(tx, row) for row in rows), int(count)

        return await self._store.read(work)

    async def cancel(self, member: str, account: str | None, task: str) -> OfferedTask:
        """Cancel a task; its turn, if it runs, is to be cancelled with `cancel_turn`, or a gateway does it.

        Raises:
            UnknownTask: The caller has no such task with this member.
            LifecycleError: It is over.
        """
        check_texts(member=member, task=task)
        caller = caller_of(account)

        def work(tx: Transaction) -> OfferedTask:
            found = self._task(tx, member, caller, task)
            if found.state in ("done", "failed"):
                raise LifecycleError("the task is over", remedy="read its answer")
            tx.execute(_CANCEL, (self._workspace, task))
            if not found.runs:
                set_state(tx, self._workspace, task, "handled")
            return self._task(tx, member, caller, task)

        return await self._store.transact(work, wakes=True)

    def has(self, letter: Letter) -> bool:
        """Whether a message can be the first of a task, by its id."""
        return letter.message.id.startswith(_OFFERED)

    async def is_cancelled(self, letter: Letter) -> bool:
        """Whether a message is that of a task which its caller cancelled. Other messages cost no look."""
        if not self.has(letter):
            return False
        rows = await self._store.read(lambda tx: tx.execute(_ONE, (self._workspace, letter.message.id)))
        return bool(rows and rows[0][4])

    # --- parts --------------------------------------------------------------------------------------------------------

    def _begin(self, tx: Transaction, member: str, caller: str, letter_id: str, text: str, context: str) -> None:
        found, now = one_member(tx, self._workspace, member), self._store.clock.now()
        if found is None:
            raise UnknownMember(f"there is no member {member[:60]!r}", remedy="offer a member of the workspace")
        if self._rules.participant(tx, caller) is None:
            self._members.admit_person(tx, self._workspace, Participant(id=caller, type="human"))
        if contact_of(tx, self._workspace, caller, member, now) is None:
            add_contact(tx, self._workspace, caller, Contact(id=member, role=found.name or member), now)
        tx.execute(_INSERT, (self._workspace, letter_id, member, caller, context or letter_id, self._workspace))
        self._mail.send_within(
            tx, RoleMessage(id=letter_id, type="request", from_id=caller, to_id=member, content=text), begins=True
        )

    def _answer(self, tx: Transaction, member: str, caller: str, letter_id: str, text: str, task: str) -> None:
        found = self._task(tx, member, caller, task)
        if letter_of(tx, self._workspace, letter_id) is not None:
            return
        case = letters_of_case(tx, self._workspace, task, _MAX_LETTERS)
        question = next(iter(_questions(_between(case, member, caller), member)), None)
        if found.state != "asking" or question is None:
            raise LifecycleError(
                "the task does not wait for an answer", remedy="begin a new task, or wait for this one"
            )
        answer = RoleMessage(
            id=letter_id,
            type="response",
            from_id=caller,
            to_id=member,
            content=text,
            correlation_id=question.message.id,
        )
        self._mail.send_within(tx, answer)

    def _task(self, tx: Transaction, member: str, caller: str, task: str) -> OfferedTask:
        rows = [row for row in tx.execute(_ONE, (self._workspace, task)) if (row[1], row[2]) == (member, caller)]
        if not rows:
            raise UnknownTask("there is no such task", remedy="use the id of a task that this agent gave you")
        return self._read(tx, rows[0])

    def _read(self, tx: Transaction, row: Sequence[Any]) -> OfferedTask:
        task, member, caller, context, cancelled, place = row
        case = letters_of_case(tx, self._workspace, task, _MAX_LETTERS)
        letters = _between(case, member, caller)
        first = next((each for each in letters if each.message.id == task), None)
        if first is None:  # it was removed after its age
            raise UnknownTask("there is no such task any more", remedy="begin a new one")
        shown, state = _outcome(letters, first, member, goes_on=any(self._is_open(tx, each) for each in case))
        told = [each for each in letters if not is_failure(each)]
        return OfferedTask(
            id=task,
            context=context,
            state="cancelled" if cancelled else state,
            text="" if shown is None or cancelled else shown.message.content,
            changed=(shown or first).message.timestamp,
            messages=tuple((each.message.id, each.message.from_id == caller, each.message.content) for each in told),
            place=place,
            runs=first.state == "handling",
        )

    def _is_open(self, tx: Transaction, letter: Letter) -> bool:
        """Whether more of a case can follow from a message: a member handles it, or a person is asked something."""
        if letter.state not in ("waiting", "handling"):
            return False
        receiver = self._rules.participant(tx, letter.message.to_id)
        return receiver is not None and (receiver.type == "role" or letter.message.type == "request")


def _between(case: Sequence[Letter], member: str, caller: str) -> list[Letter]:
    """The messages of a case that its caller and its member exchanged, the oldest first."""
    pair = {member, caller}
    return [each for each in case if {each.message.from_id, each.message.to_id} == pair and each.state != "recorded"]


def _outcome(
    letters: Sequence[Letter], first: Letter, member: str, *, goes_on: bool
) -> tuple[Letter | None, TaskState]:
    """The message that a caller is shown of a task, and the state that it is in."""
    for each in letters:
        if each.message.type != "request" and each.message.correlation_id == first.message.id:
            return (None, "failed") if is_failure(each) else (each, "done")
    questions = _questions(letters, member)
    if questions:
        return questions[0], "asking"
    if first.state == "waiting":
        return None, "submitted"
    return None, "working" if goes_on else "failed"


def _questions(letters: Sequence[Letter], member: str) -> list[Letter]:
    """What the member asks its caller and has no answer to."""
    return [
        each
        for each in letters
        if (each.message.from_id, each.message.type, each.answered) == (member, "request", False)
    ]


def caller_of(account: str | None) -> str:
    """The id of the person that a caller is in the workspace. No account gives it the id of somebody else."""
    return _CALLER if account is None else check_id("the account of the caller", f"{_CALLER}:{account}")
