"""A conversation as a chain of messages, each pointing to its parent: types, stored forms, marks. The log is in `log`.

The head of a thread, the id of its last message, is in the turn's state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Json, TypeAdapter

from ..core import Clock, SystemClock, Tier, canonical_json, utc_text
from ..core.errors import InvalidArgument
from ..core.events import TurnKind
from ..core.pauses import UnattendedMode
from ..core.scope import is_id
from ..core.validation import is_line
from ..storage import Database, Moment, Row, Transaction

MessageKind = Literal["message", "answer", "plan", "result", "task", "skill", "schedule", "role", "summary", "word"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to append.

    Attributes:
        author: Who says it: an account, the agent or a worker.
        kind: The kind of message.
        body: The content, as JSON. It never has role text (R7).
    """

    author: str
    kind: MessageKind
    body: Mapping[str, Any]


MAY_HOLD_ROLE: Final = "may_hold_role"
"""In the body of a message: its turn had a role that answers can give back. No memory is made of it (M1)."""


INTERRUPTS: Final = "interrupts"
"""In the body of a message: the turn before it, which it ended at a safe point (T16)."""


SPEAKER: Final = "speaker"
"""In the body of a message of a turn in which a member speaks in the conversation of a person: the member (A21)."""


GIVEN_BACK: Final = "given_back_by"
"""In the body of the message that begins a turn: the member that spoke before, and is there no more."""


def output_schema(body: Mapping[str, Any]) -> str | None:
    """The schema of the answer that a message requires, as JSON; None if it requires none."""
    kept = body.get("output")
    return kept if kept is None or isinstance(kept, str) else canonical_json(kept)  # older messages have an object


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation, as stored.

    Attributes:
        id: A digest of its content and place, so that the same append gives the same message.
        parent: The message before it; None for the first.
        depth: How many messages are before it.
        turn_id: The turn that appended it.
        author: Who says it.
        kind: The kind of message.
        body: The content, as JSON.
        at: When it was first appended, in UTC.
    """

    id: str
    parent: str | None
    depth: int
    turn_id: str
    author: str
    kind: MessageKind
    body: Mapping[str, Any]
    at: datetime

    @property
    def name(self) -> str | None:
        """The name of the person who says it, if one was given. Only `author` identifies the person."""
        return self.body.get("name")

    def to_json(self) -> dict[str, Any]:
        """The message as JSON, with the fields that the sidecar uses."""
        return {
            "id": self.id,
            "parent": self.parent,
            "turn_id": self.turn_id,
            "author": self.author,
            "kind": self.kind,
            "body": dict(self.body),
            "at": utc_text(self.at),
        }


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a conversation.

    Attributes:
        messages: Its last messages, oldest first.
        summary: The newest message of kind `summary` in the conversation, if there is one.
    """

    messages: tuple[Message, ...]
    summary: Message | None


MAX_NAME_CHARACTERS: Final = 80  # the most characters of a person's name


REQUIRED_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "message": {"text": str},
    "word": {"text": str},
    "answer": {"text": str},
    "schedule": {"schedule": str, "fired_at": str, "payload": dict},
    "task": {"shape": str, "params": dict},
    "skill": {"shape": str, "params": dict},
    "result": {"to": str, "status": str},
    "summary": {"text": str, "first": str, "last": str, "messages": int, "results": list},
    "done": {"result": dict},
    "failed": {"error": dict},
}
"""The required fields by kind of message, and by status of a result, for a turn to continue from it."""


NAMED_KINDS: Final = ("message", "word", "task", "skill")
"""The kinds of messages that can have the name of the person who speaks."""

FURTHER_FIELDS: Final[Mapping[str, str]] = {"message": "inputs", "schedule": "inputs", "answer": "outputs"}
"""By kind of message, what a subclass of `Converse` adds to it."""


def validation_errors(kind: str, body: Mapping[str, Any]) -> list[str]:
    """The names of the invalid fields of a body; empty if it is valid.

    Args:
        kind: The message's kind.
        body: Its body. Attachments are not checked.
    """
    kinds = [kind, str(body.get("status"))] if kind == "result" else [kind]
    needed = {name: wanted for each in kinds for name, wanted in REQUIRED_FIELDS.get(each, {}).items()}
    wrong = [name for name, wanted in needed.items() if not isinstance(body.get(name), wanted)]
    if kind in NAMED_KINDS and "name" in body and not is_line(body["name"], MAX_NAME_CHARACTERS):
        wrong.append("name")
    further = FURTHER_FIELDS.get(kind, "")
    if not isinstance(body.get(further, {}), dict):
        wrong.append(further)
    if kind == "result" and kinds[-1] not in ("done", "failed"):
        wrong.append("status")
    return wrong


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_STORED: Final = TypeAdapter[int](Annotated[int, Field(ge=0, lt=253_402_214_400_000_000)])
StoredMoment = Annotated[datetime, BeforeValidator(lambda given: moment_of(_STORED.validate_python(given)))]
"""Microseconds since 1970, up to a day before the end of the year 9999, so that it fits every time zone."""


def stored_moment(moment: datetime) -> int:
    """Convert a time to the form in rows.

    Args:
        moment: An aware time.
    """
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Convert microseconds since 1970, as a row has them, to a time in UTC."""
    return _EPOCH + stored * _MICROSECOND


TurnStatus = Literal["running", "paused", "stopped", "done", "failed", "cancelled", "abandoned"]

OPEN: Final[tuple[TurnStatus, ...]] = ("running", "paused", "stopped", "failed")
"""The statuses of a turn that runs or can be resumed."""


class _Noted(BaseModel):
    """What is stored about a turn's role."""

    tiers: list[Tier]
    digest: str | None
    key: str


class _Origin(BaseModel):
    """What is stored about the call that began a turn."""

    caller: str
    modelled: bool
    depth: Annotated[int, Field(ge=0)]
    marks: list[str]
    workers: list[str] = []
    handed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """The member that speaks in the next turns of a conversation (A21).

    Attributes:
        member: Its id.
        after: Messages up to this depth are not shown to it; -1 shows all that its clearance admits.
    """

    member: str
    after: int = -1

    def to_text(self) -> str:
        """As it is stored."""
        return canonical_json({"member": self.member, "after": self.after})


_HANDED: Final = TypeAdapter(Handed)


def handed_of(stored: object) -> Handed | None:
    """Read what `Handed.to_text` returned; None is the World Agent.

    Raises:
        ValueError: It is something else.
    """
    return stored if stored is None or isinstance(stored, Handed) else _HANDED.validate_json(stored)  # type: ignore[arg-type]


StoredHanded = Annotated[Handed | None, BeforeValidator(handed_of)]


def _scope_id(value: str) -> str:
    if not is_id(value):
        raise ValueError("must be a valid id")
    return value


_ScopeId = Annotated[str, AfterValidator(_scope_id)]


class StoredTurn(Row):
    """A row of `wa_turn`."""

    id: str
    thread: str
    workspace: _ScopeId
    name: _ScopeId
    account: _ScopeId | None
    channel: _ScopeId | None
    kind: TurnKind
    author: str
    status: TurnStatus
    asked: str
    role: Json[_Noted]
    prompt: str | None
    code: str | None
    graph: str
    began: Moment
    changed: Moment
    model: Json[list[str]] | None
    origin: Json[_Origin] | None
    unattended: UnattendedMode | None
    example: bool | None
    on_behalf_of: _ScopeId | None
    archived: bool | None
    version: str | None
    stale: Moment | None
    needs: str | None
    reports: Json[dict[str, Any]] | None
    gentle: bool | None
    handed: StoredHanded


def _object(text: object) -> object:
    """Parse a body. Not with pydantic's JSON parser, which refuses half a surrogate pair."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except RecursionError:
        pass
    raise ValueError("nested too deep")


class StoredMessage(Row):
    """A row of `wa_message`."""

    id: str
    parent: str | None
    depth: Annotated[int, Field(ge=0)]
    turn: str
    author: str
    kind: MessageKind
    body: Annotated[dict[Any, Any], BeforeValidator(_object)]
    at: StoredMoment
    thread: str


MOST: Final = 100
"""The most messages of one thread that can be kept."""

KEPT_TABLES: Final = (
    # The newest summary before a message, so that it is found without walking the chain.
    "ALTER TABLE wa_message ADD COLUMN summary TEXT",
    """CREATE TABLE wa_kept(
         thread TEXT NOT NULL,
         message TEXT NOT NULL,
         at BIGINT NOT NULL,
         PRIMARY KEY(thread, message))""",
)
"""A migration that adds summaries and marks."""

_SEEN: Final[tuple[MessageKind, ...]] = ("message", "word", "answer", "result", "schedule")
_KEPT: Final = "SELECT message FROM wa_kept WHERE thread=? ORDER BY at, message"
_KEEP: Final = "INSERT INTO wa_kept(thread, message, at) VALUES(?, ?, ?) ON CONFLICT(thread, message) DO NOTHING"
_UNKEEP: Final = "DELETE FROM wa_kept WHERE thread=? AND message=? RETURNING message"
_COPY: Final = """INSERT INTO wa_kept(thread, message, at) SELECT CAST(? AS TEXT), message, at FROM wa_kept
                  WHERE thread=? ON CONFLICT(thread, message) DO NOTHING"""
_DROP: Final = "DELETE FROM wa_kept WHERE thread=?"


class KeptMessages:
    """The marks in a database that was opened with the schema `CONVERSATION`."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def of(self, thread: str) -> tuple[str, ...]:
        """The ids of the kept messages, in the order in which they were marked."""
        return tuple(message for (message,) in await self._database.read(lambda tx: tx.execute(_KEPT, (thread,))))

    async def keep(self, thread: str, message: str, kind: MessageKind) -> None:
        """Mark a message. A second mark changes nothing.

        Args:
            thread: The thread.
            message: The id of one of its messages.
            kind: The message's kind.

        Raises:
            InvalidArgument: No model sees messages of this kind, or the thread keeps the most messages already.
        """
        if kind not in _SEEN:
            raise InvalidArgument(
                f"the message {message!r} is of kind {kind!r}, which the model does not see",
                remedy=f"keep a message of one of the kinds {', '.join(_SEEN)}",
            )
        at = stored_moment(self._clock.now())

        def work(transaction: Transaction) -> None:
            kept = [found for (found,) in transaction.execute(_KEPT, (thread,))]
            if len(kept) >= MOST and message not in kept:
                raise InvalidArgument(
                    f"thread {thread!r} keeps {MOST} messages, which is the limit", remedy="unkeep one of them first"
                )
            transaction.execute(_KEEP, (thread, message, at))

        await self._database.transact(work)

    async def unkeep(self, thread: str, message: str) -> bool:
        """Remove a mark; False if there was none."""
        return bool(await self._database.transact(lambda tx: tx.execute(_UNKEEP, (thread, message))))

    @staticmethod
    def copy(transaction: Transaction, origin: str, thread: str) -> None:
        """Copy the marks of the origin to a new branch, in the transaction that makes it."""
        transaction.execute(_COPY, (thread, origin))

    @staticmethod
    def put_back(transaction: Transaction, thread: str, messages: Sequence[str], *, at: int) -> None:
        """Write the marks of an imported thread, in the transaction that makes it.

        Args:
            transaction: The transaction to write in.
            thread: The key of the thread.
            messages: The kept messages, in the order in which they were marked.
            at: The time of the first mark, in microseconds since 1970.
        """
        for place, message in enumerate(messages[:MOST]):
            transaction.execute(_KEEP, (thread, message, at + place))

    @staticmethod
    def drop(transaction: Transaction, thread: str) -> None:
        """Delete all marks of a thread, in the transaction that removes it."""
        transaction.execute(_DROP, (thread,))
