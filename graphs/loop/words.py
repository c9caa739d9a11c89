"""The messages that a turn reads while it runs: steering, and reports of its work in the background (T15, D29).

They are read before a thought. The row of the inbox and the message in the log are written in one commit before the
model gets them, and the row keeps the step, so that a turn that resumes reads the same at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...core.events import MessageTaken
from ...memory import Draft, Message
from ...memory.inbox import Inbox, InboxRow
from ...storage import Transaction
from ..context import TurnContext


@dataclass(slots=True)
class Reading:
    """What the loop of one run of a turn reads of the inbox.

    Attributes:
        inbox: The inboxes.
        unread: Has an item if it looks before its first thought as well: there was something as the turn began.
        again: What earlier runs read, by the step before which they did.
        loop: The path id of the task whose loop reads; empty for a conversation, None for a handler that is code.
        head: The last message of the thread, for a task, whose loop has no head of its own.
    """

    inbox: Inbox
    unread: list[bool]
    again: dict[int, list[InboxRow]] = field(default_factory=dict)
    loop: str | None = ""
    head: str = ""

    async def recall(self, turn_id: str) -> None:
        """Find what earlier runs of the turn read."""
        rows = await self.inbox.taken(turn_id)
        self.again = {step: [*some] for step, some in groupby(rows, key=lambda row: row.step or 0)}

    def before(self, step: int) -> list[InboxRow]:
        """Take out what earlier runs read before a step, in order."""
        return [row for each in sorted(self.again) if each < step for row in self.again.pop(each)]

    async def read(self, turn: TurnContext, head: str, *, round: int, step: int, thought: bool) -> tuple[Message, ...]:
        """Append to the log what the loop reads before a thought, and return it.

        Args:
            turn: The turn.
            head: The last message of the thread.
            round: How many steps of the loop have ended in calls.
            step: The step.
            thought: Whether the thought is recorded, so that nothing can be added to what it read.
        """
        again = self.again.pop(step, [])
        fresh: Sequence[InboxRow] = ()
        if not thought and (self.unread or step):
            fresh = [row for row in await self.inbox.unread(turn.thread_key) if _is_for(row, turn)]
        self.unread = []
        if not again and not fresh:
            return ()
        taken: list[InboxRow] = []

        def take(transaction: Transaction) -> Sequence[Draft]:
            new = [row for row in fresh if Inbox.take(transaction, row.id, turn=turn.turn_id, round=round, step=step)]
            taken[:] = [*again, *new]
            return [Draft(row.author, "word", row.body) for row in taken]

        assert turn.lease is not None, "only a turn that is stored has an inbox"
        made = await turn.services.log.append_made(
            head, take, thread=turn.thread_key, turn_id=turn.turn_id, lease=turn.lease
        )
        for row, message in zip(taken, made, strict=True):
            if row.kind == "steer" and not row.marks and row.start["sender"] is None:
                turn.gate.say(row.text)
            turn.emit(
                MessageTaken,
                id=row.id,
                message_id=message.id,
                kind=row.kind,
                author=message.author,
                name=message.name,
                text=row.text,
                step=step,
            )
        return made


def _is_for(row: InboxRow, turn: TurnContext) -> bool:
    """Whether a turn reads a message: it steers or reports, for the same account and member."""
    same = (row.scope.account, row.start["on_behalf_of"]) == (turn.scope.account, turn.drive.on_behalf_of)
    return row.kind != "queue" and row.code is None and same
