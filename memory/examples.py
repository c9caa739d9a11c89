"""Examples and feedback: the model steps of turns that were agreed to, and what a person thinks of a turn.

Nothing here depends on a role: `graphs.examples` withholds what a step has in common with the roles of its turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pydantic import Json

from ..core.checks import check_texts
from ..core.errors import InvalidArgument, UnknownTurn
from ..core.validation import check_integer, is_text
from ..storage import Database, Schema, Transaction, checked_row
from .turns import keys_of

Feedback = Literal["good", "bad"]
"""What a person thinks of a turn."""

MAX_NOTE_CHARACTERS: Final = 2000
MAX_EXAMPLES: Final = 10_000

EXAMPLES: Final = Schema(
    "examples",
    (
        (
            """CREATE TABLE wa_example(
                 turn TEXT NOT NULL,
                 path TEXT NOT NULL,
                 signature TEXT NOT NULL,
                 inputs TEXT NOT NULL,
                 outputs TEXT NOT NULL,
                 at DOUBLE PRECISION NOT NULL,
                 PRIMARY KEY(turn, path))""",
            """CREATE TABLE wa_feedback(
                 turn TEXT PRIMARY KEY,
                 feedback TEXT NOT NULL,
                 note TEXT)""",
        ),
    ),
)
_KEEP: Final = """INSERT INTO wa_example(turn, path, signature, inputs, outputs, at) VALUES(?, ?, ?, ?, ?, ?)
                  ON CONFLICT(turn, path) DO UPDATE SET inputs=excluded.inputs, outputs=excluded.outputs,
                    at=excluded.at"""
_RATE: Final = """INSERT INTO wa_feedback(turn, feedback, note) VALUES(?, ?, ?)
                  ON CONFLICT(turn) DO UPDATE SET feedback=excluded.feedback, note=excluded.note"""
_TURN: Final = "SELECT id FROM wa_turn WHERE id=? AND thread=?"
_LIST: Final = """SELECT e.turn, e.path, e.signature, e.inputs, e.outputs, f.feedback, f.note
                  FROM wa_example e JOIN wa_turn t ON t.id=e.turn LEFT JOIN wa_feedback f ON f.turn=e.turn
                  WHERE t.thread >= ? AND t.thread < ? AND t.status='done'
                    AND (CAST(? AS TEXT) IS NULL OR e.signature=?)
                    AND (CAST(? AS TEXT) IS NULL OR t.account=?)
                    AND (CAST(? AS TEXT) IS NULL OR f.feedback=?)
                  ORDER BY e.turn DESC, e.at, e.path LIMIT ?"""
# Turns that ended otherwise and that nothing can resume.
_DROP_UNFINISHED: Final = """DELETE FROM wa_example WHERE turn IN (
                               SELECT id FROM wa_turn t WHERE t.thread >= ? AND t.thread < ?
                                 AND (t.status IN ('cancelled', 'abandoned') OR (t.status='failed'
                                   AND t.id < (SELECT MAX(id) FROM wa_turn WHERE thread=t.thread))))"""
_AGREED: Final = "SELECT id FROM wa_turn WHERE id IN ({}) AND example=1"
_DROP: Final = "DELETE FROM wa_example WHERE turn IN ({})"
_DROP_FEEDBACK: Final = "DELETE FROM wa_feedback WHERE turn IN ({})"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptExample:
    """One step of a model in a turn, without a role.

    Attributes:
        turn: The turn's id.
        path: The path id of the model call.
        signature: The name of its Signature.
        inputs: The input fields, as JSON.
        outputs: The output fields, as JSON.
        feedback: What a person thinks of the turn.
        note: Why.
    """

    turn: str
    path: str
    signature: str
    inputs: Json[dict[str, Any]] = field(repr=False)
    outputs: Json[dict[str, Any]] = field(repr=False)
    feedback: Feedback | None = None
    note: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleFilters:
    """The filters of a list of examples. None lets all pass.

    Attributes:
        signature: The name of the Signature.
        account: The account of the turn.
        feedback: What a person thinks of the turn.
        limit: The most examples to return, 1 to `MAX_EXAMPLES`.

    Raises:
        InvalidArgument: A filter is invalid.
    """

    signature: str | None = None
    account: str | None = None
    feedback: Feedback | None = None
    limit: int = 1000

    def __post_init__(self) -> None:
        check_texts(**{name: each for name in ("signature", "account") if (each := getattr(self, name)) is not None})
        if self.feedback is not None:
            check_feedback(self.feedback)
        check_integer("limit", self.limit, MAX_EXAMPLES, remedy="narrow the list with signature, account or feedback")


class Examples:
    """The examples in a database that was opened with the schemas `TURNS` and `EXAMPLES`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @staticmethod
    def keep(transaction: Transaction, example: KeptExample, at: float) -> None:
        """Write an example in a transaction; a second one of the same model call replaces it."""
        inputs, outputs = (json.dumps(each, ensure_ascii=False) for each in (example.inputs, example.outputs))
        transaction.execute(_KEEP, (example.turn, example.path, example.signature, inputs, outputs, at))

    async def rate(self, thread: str, turn: str, feedback: Feedback, note: str | None) -> None:
        """Store what a person thinks of a turn, in place of what was stored before.

        Args:
            thread: The key of the turn's thread.
            turn: The turn's id.
            feedback: `good` or `bad`.
            note: Why, up to `MAX_NOTE_CHARACTERS`.

        Raises:
            InvalidArgument: An argument is invalid.
            UnknownTurn: The thread has no such turn.
        """
        check_feedback(feedback)
        if note is not None and not (is_text(note) and "\0" not in note and len(note) <= MAX_NOTE_CHARACTERS):
            raise InvalidArgument(
                f"`note` must be a text of 1 to {MAX_NOTE_CHARACTERS} characters that UTF-8 can encode",
                remedy="shorten it, or leave it out",
            )

        def work(transaction: Transaction) -> bool:
            # Held, so that a removal of the thread either waits for this or has finished before.
            found = transaction.hold(_TURN, (turn, thread))
            if found:
                transaction.execute(_RATE, (turn, feedback, note))
            return bool(found)

        if not (isinstance(turn, str) and is_text(turn) and "\0" not in turn and await self._database.transact(work)):
            raise UnknownTurn(
                f"the thread {thread!r} has no turn {str(turn)[:200]!r}",
                remedy="use the id of a Turn of this thread, or call feedback() on the thread that it ran on",
            )

    async def list(self, workspace: str, wanted: ExampleFilters) -> tuple[KeptExample, ...]:
        """The examples of turns that are done: newest turn first, and the steps of a turn in their order.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        texts = (wanted.signature, wanted.account, wanted.feedback)
        given = (*keys_of(workspace), *(text for text in texts for _ in range(2)), wanted.limit)
        rows = await self._database.read(lambda tx: tx.execute(_LIST, given))
        return await asyncio.to_thread(lambda: tuple(self._example(row) for row in rows))  # there can be thousands

    async def agreed(self, turns: Sequence[str]) -> frozenset[str]:
        """Those of the turns with these ids that are kept as examples."""
        return frozenset(turn for (turn,) in await self._database.find(_AGREED, turns))

    async def drop_unfinished(self, workspace: str) -> None:
        """Delete the examples of turns that are over and not done."""
        await self._database.transact(lambda tx: tx.execute(_DROP_UNFINISHED, keys_of(workspace)))

    @staticmethod
    def drop(transaction: Transaction, marks: str, turns: Sequence[str], *, feedback: bool = True) -> None:
        """Delete the examples of turns.

        Args:
            transaction: The transaction.
            marks: A question mark for each turn.
            turns: The turns' ids.
            feedback: Whether their feedback is deleted too.
        """
        transaction.execute(_DROP.format(marks), turns)
        if feedback:
            transaction.execute(_DROP_FEEDBACK.format(marks), turns)

    def _example(self, row: tuple[Any, ...]) -> KeptExample:
        return checked_row(KeptExample, row, what=f"an example of the turn {row[0]!r}", database=self._database.name)


def check_feedback(value: object) -> None:
    """Refuse a value that is not feedback.

    Raises:
        InvalidArgument: It is not one of the accepted values.
    """
    if value not in get_args(Feedback):
        raise InvalidArgument(f"`feedback` must be 'good' or 'bad', got {str(value)[:40]!r}", remedy="use one of them")
