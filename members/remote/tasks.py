"""What was sent to remote agents and what became of it, so that a kill neither repeats nor loses a task (A22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ...core import canonical_json
from ...storage import Transaction, checked_row
from ..data.brief import InterfaceSpec
from ..mail.contacts import add_marks
from ..mail.letters import Letter

Stage = Literal["sending", "working", "asking", "cancelling", "over"]
"""A message is sent, its task is worked on, the agent asked something, the task is to be cancelled, or it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTask:
    """A message that goes to a remote agent.

    Attributes:
        letter: The id of the message.
        member: The remote member.
        peer: Who sent it.
        context: The agent's id of the conversation of both; empty before it gave one.
        task: The agent's id of the task; empty before it gave one.
        stage: How far it is.
        text: What is sent.
        asked: What tells the last question of its task from a later one; empty for none.
    """

    letter: str
    member: str
    peer: str
    context: str
    task: str
    stage: Stage
    text: str
    asked: str


_COLUMNS: Final = "letter, member, peer, context, task, stage, text, asked"
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_remote WHERE workspace=? AND letter=?"
_OF_PAIR: Final = f"""SELECT {_COLUMNS} FROM wa_remote WHERE workspace=? AND member=? AND peer=?
                      ORDER BY place DESC LIMIT 1"""
_ASKING: Final = f"""SELECT {_COLUMNS} FROM wa_remote WHERE workspace=? AND member=? AND peer=? AND stage='asking'
                     ORDER BY place DESC"""
_INSERT: Final = f"""INSERT INTO wa_remote(workspace, place, {_COLUMNS})
                     SELECT ?, COALESCE(MAX(place), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ? FROM wa_remote WHERE workspace=?"""
_UPDATE: Final = "UPDATE wa_remote SET context=?, task=?, stage=?, asked=? WHERE workspace=? AND letter=?"
_LEFT: Final = f"""SELECT {_COLUMNS} FROM wa_remote AS r WHERE workspace=? AND (
                     (stage IN ('sending', 'working', 'cancelling') AND NOT EXISTS (
                       SELECT 1 FROM wa_mail AS m WHERE m.workspace=r.workspace AND m.id=r.letter
                       AND m.state IN ('waiting', 'handling')))
                     OR (stage='asking' AND NOT EXISTS (
                       SELECT 1 FROM wa_member AS w WHERE w.workspace=r.workspace AND w.id=r.member
                       AND w.status <> 'terminated')))
                   ORDER BY place LIMIT 100"""
_DURING: Final = "SELECT waits, during FROM wa_mail WHERE workspace=? AND id=?"
_INTERFACE: Final = "UPDATE wa_member SET interface=? WHERE workspace=? AND id=?"
_KNOWN: Final = "UPDATE wa_contact SET interface=? WHERE workspace=? AND id=?"


def task_of(tx: Transaction, workspace: str, letter: str) -> RemoteTask | None:
    """The task of a message, in a transaction; None if it was not begun."""
    rows = tx.execute(_ONE, (workspace, letter))
    return _task(rows[0]) if rows else None


def begin(tx: Transaction, workspace: str, letter: Letter, text: str) -> tuple[RemoteTask, bool]:
    """Note that a message is about to be sent, in a transaction; returns it, and whether it was noted before.

    An answer to what the agent asked continues the task of that question, and so does the next message of its sender.

    Args:
        tx: The transaction.
        workspace: The workspace.
        letter: The message.
        text: What is sent.
        asked: What tells the last question of its task from a later one; empty for none.
    """
    message = letter.message
    there = task_of(tx, workspace, message.id)
    if there is not None:
        return there, True
    pair = (workspace, message.to_id, message.from_id)
    asking = [_task(row) for row in tx.execute(_ASKING, pair)]
    named = [each for each in asking if question_id(each.letter) == message.correlation_id]
    goes_on = next(iter((*named, *asking)), None)
    last = next((_task(row) for row in tx.execute(_OF_PAIR, pair)), None)
    context = goes_on.context if goes_on is not None else last.context if last is not None else ""
    task = "" if goes_on is None else goes_on.task
    if goes_on is not None:
        put(tx, workspace, replace(goes_on, stage="over"))
    asked = "" if goes_on is None else goes_on.asked
    given = (message.id, message.to_id, message.from_id, context, task, "sending", text, asked)
    tx.execute(_INSERT, (workspace, *given, workspace))
    made = task_of(tx, workspace, message.id)
    assert made is not None
    return made, False


def put(tx: Transaction, workspace: str, task: RemoteTask) -> None:
    """Store how far a task is, in a transaction."""
    tx.execute(_UPDATE, (task.context, task.task, task.stage, task.asked, workspace, task.letter))


def left(tx: Transaction, workspace: str) -> list[RemoteTask]:
    """Tasks that nobody waits for any more, such as those of a member that was terminated; in a transaction."""
    return [_task(row) for row in tx.execute(_LEFT, (workspace,))]


def waited_in(tx: Transaction, workspace: str, letter: str) -> str:
    """The id of the message on which the turn is that waits for the reply to a message; empty if none waits so."""
    rows = tx.execute(_DURING, (workspace, letter))
    return rows[0][1] or "" if rows and rows[0][0] is not None else ""


def describe(tx: Transaction, workspace: str, member: str, interface: InterfaceSpec, mark: str) -> None:
    """Store what a card says of a member, for itself and for all that know it, in a transaction."""
    body = canonical_json(interface.to_json())
    tx.execute(_INTERFACE, (body, workspace, member))
    tx.execute(_KNOWN, (body, workspace, member))
    add_marks(tx, workspace, member, (mark,))


def question_id(letter: str) -> str:
    """The id of the message with what the agent asked about a message."""
    return f"{letter}.asks"


def _task(row: Sequence[Any]) -> RemoteTask:
    return checked_row(RemoteTask, row, what="a remote task", database="the society")
