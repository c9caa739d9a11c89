"""The task briefs of a workspace in the database: how far each is, and the pages of them (A19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

from pydantic import Json

from ...core import canonical_json, utc_text
from ...core.errors import UnknownBrief
from ...storage import Row, Time, Transaction, portions
from ..data.brief import TaskBrief
from ..data.roles import USER
from ..data.rows import read, seconds
from .rules import MESSAGE_MARK

BriefState = Literal["open", "accepted", "blocked", "done", "failed", "late"]
"""How far a brief is. It is open until the turn of its member begins, and blocked while it depends on others, or as
its member reports. One whose deadline is over is late, and can still be done."""

STATES: Final = get_args(BriefState)
OPEN: Final[tuple[BriefState, ...]] = ("open", "accepted", "blocked", "late")
OVER: Final[tuple[BriefState, ...]] = ("done", "failed")

EDGES: Final[Mapping[BriefState, tuple[BriefState, ...]]] = {
    "open": ("accepted", "blocked", "done", "failed", "late"),
    "accepted": ("open", "blocked", "done", "failed", "late"),
    "blocked": ("open", "accepted", "done", "failed", "late"),
    "late": ("open", "blocked", "done", "failed"),
    "failed": ("open", "blocked"),
    "done": (),
}
"""The states that can follow each state."""


_MAX_SHOWN: Final = 200  # characters of a text


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedBrief:
    """A task brief on the board.

    Attributes:
        id: Its id: that of the message with which it was given first.
        member: The member or person that has it.
        giver: Who gave it.
        state: How far it is.
        message: The message with which its member has it; empty once it went back to its giver.
        brief: The brief.
        marks: The untrusted content that its giver had read.
        note: What was said of it last: by its member's report, an error, or whoever closed it.
        note_marks: The untrusted content that this was made of.
        attempt: How often it was delivered, with this time.
        most: Up to which attempt it is delivered again if its turn fails.
        unmet: How many of the briefs that it depends on are not done.
        due: When its giver is told that it is late; None once that was done, or without a deadline.
        case: The case that it belongs to (A17).
        given: When it was given first.
        changed: When it changed last.
    """

    id: str
    member: str
    giver: str
    state: BriefState
    message: str
    brief: TaskBrief
    marks: tuple[str, ...]
    note: str = ""
    note_marks: tuple[str, ...] = ()
    attempt: int = 1
    most: int = 1
    unmet: int = 0
    due: datetime | None = None
    case: str = ""
    given: datetime
    changed: datetime

    @property
    def is_over(self) -> bool:
        """Whether it is done or failed."""
        return self.state in OVER

    def marks_for(self, reader: str) -> tuple[str, ...]:
        """What marks a turn that is shown it: what its texts were made of, and whose texts they are.

        Args:
            reader: The member.
        """
        by = {self.giver, *([self.member] if self.note_marks else [])} - {reader, USER}
        return tuple(sorted({*self.marks, *self.note_marks, *(f"{MESSAGE_MARK}{each}" for each in by)}))

    def as_listed(self) -> dict[str, Any]:
        """The brief as a board shows it to a model."""
        due = self.brief.deadline
        found = {
            "id": self.id,
            "state": self.state,
            "member": self.member,
            "giver": self.giver,
            "objective": self.brief.objective[:_MAX_SHOWN],
            "priority": self.brief.priority,
            "deadline": utc_text(due) if isinstance(due, datetime) else "",
            "after": [*self.brief.after],
            "note": self.note[:_MAX_SHOWN],
        }
        return {name: value for name, value in found.items() if value}


class _Stored(Row):
    workspace: str
    id: str
    member: str
    giver: str
    state: BriefState
    message: str
    body: Json[dict[str, Any]]
    marks: Json[tuple[str, ...]]
    note: str
    note_marks: Json[tuple[str, ...]]
    attempt: int
    most: int
    unmet: int
    due: Time | None
    case_id: str
    given: Time
    changed: Time


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_brief WHERE workspace=? AND id=?"
_INSERT: Final = f"INSERT INTO wa_brief({_COLUMNS}) VALUES({', '.join('?' * len(_Stored.model_fields))})"
_UPDATE: Final = """UPDATE wa_brief SET member=?, giver=?, state=?, message=?, note=?, note_marks=?, attempt=?, most=?,
                    unmet=?, due=?, changed=? WHERE workspace=? AND id=?"""
_NEEDS: Final = "INSERT INTO wa_brief_after(workspace, brief, needs) VALUES(?, ?, ?)"
_WAITING: Final = f"""SELECT {", ".join(f"b.{each}" for each in _Stored.model_fields)} FROM wa_brief_after AS a
                      JOIN wa_brief AS b ON b.workspace=a.workspace AND b.id=a.brief
                      WHERE a.workspace=? AND a.needs=? AND b.state <> 'done' ORDER BY b.given, b.id"""
_OF_MEMBER: Final = f"""SELECT {_COLUMNS} FROM wa_brief WHERE workspace=? AND member=?
                        AND state IN ('open', 'accepted', 'blocked', 'late') ORDER BY given, id"""
_DUE: Final = f"SELECT {_COLUMNS} FROM wa_brief WHERE workspace=? AND due <= ? ORDER BY due, id LIMIT ?"
_PAGE: Final = f"""SELECT * FROM (SELECT {_COLUMNS} FROM wa_brief WHERE workspace=? {{}} AND state=?
                   AND (given, id) < (?, ?) ORDER BY given DESC, id DESC LIMIT ?) AS {{}}"""
_ANY: Final = """SELECT 1 FROM wa_brief WHERE workspace=? AND member=? UNION ALL
                  SELECT 1 FROM wa_brief WHERE workspace=? AND giver=? LIMIT 1"""
OLD_BRIEFS: Final = """wa_brief AS b WHERE b.workspace=? AND b.changed < ? AND b.state IN ('done', 'failed')
                       AND NOT EXISTS (SELECT 1 FROM wa_brief_after AS a JOIN wa_brief AS w
                                       ON w.workspace=a.workspace AND w.id=a.brief
                                       WHERE a.workspace=b.workspace AND a.needs=b.id AND w.state <> 'done')"""
"""Briefs that are over since before a time, and that none waits for."""

_FIND_OLD: Final = f"SELECT b.id FROM {OLD_BRIEFS} ORDER BY b.changed, b.id LIMIT 500"
_DROP: Final = "DELETE FROM wa_brief WHERE workspace=? AND id IN ({})"
_DROP_NEEDS: Final = "DELETE FROM wa_brief_after WHERE workspace=? AND brief IN ({})"
_NEWEST: Final = (1e300, "")


def brief_of(tx: Transaction, workspace: str, brief_id: str) -> PostedBrief | None:
    """A brief, in a transaction; None if there is none."""
    rows = tx.execute(_ONE, (workspace, brief_id))
    return _brief(rows[0]) if rows else None


def one_brief(tx: Transaction, workspace: str, brief_id: str) -> PostedBrief:
    """A brief, in a transaction.

    Raises:
        UnknownBrief: There is none.
    """
    found = brief_of(tx, workspace, brief_id)
    if found is None:
        raise UnknownBrief(
            f"there is no task brief {brief_id[:60]!r} in the workspace {workspace!r}",
            remedy="look at the board for the ids of briefs",
        )
    return found


def page_of(
    tx: Transaction,
    workspace: str,
    states: Sequence[BriefState],
    *,
    most: int,
    after: str = "",
    **who: str,
) -> list[PostedBrief]:
    """The newest briefs in some states, or those that were given before one of them.

    Args:
        tx: The transaction.
        workspace: The workspace.
        states: The states.
        most: The most to return.
        after: The brief before the page; empty for the first page.
        who: Whose: `member` or `giver`; without either, all.

    Raises:
        UnknownBrief: There is no brief `after`.
    """
    place = _NEWEST
    if after:
        last = one_brief(tx, workspace, after)
        place = (last.given.timestamp(), last.id)
    chosen = "".join(f"AND {column}=?" for column in who)
    parts = " UNION ALL ".join(_PAGE.format(chosen, each) for each in states)
    params = [each for state in states for each in (workspace, *who.values(), state, *place, most)]
    rows = tx.execute(f"{parts} ORDER BY given DESC, id DESC LIMIT ?", (*params, most))
    return [_brief(row) for row in rows]


def has_briefs(tx: Transaction, workspace: str, member: str) -> bool:
    """Whether a member was given a brief, or gave one."""
    return bool(tx.execute(_ANY, (workspace, member, workspace, member)))


def briefs_waiting_for(tx: Transaction, workspace: str, brief_id: str) -> list[PostedBrief]:
    """The briefs that depend on one and are not done, the oldest first."""
    return [_brief(row) for row in tx.execute(_WAITING, (workspace, brief_id))]


def open_briefs_of(tx: Transaction, workspace: str, member: str) -> list[PostedBrief]:
    """The briefs that a member has and that are not over, the oldest first."""
    return [_brief(row) for row in tx.execute(_OF_MEMBER, (workspace, member))]


def due_briefs(tx: Transaction, workspace: str, now: datetime, most: int) -> list[PostedBrief]:
    """The briefs whose deadline is over and whose givers were not told, the longest over first."""
    return [_brief(row) for row in tx.execute(_DUE, (workspace, now.timestamp(), most))]


def drop_briefs(tx: Transaction, workspace: str, before: float) -> int:
    """Delete some briefs that are over since before a time, and that none waits for; returns how many."""
    found = [id_ for (id_,) in tx.execute(_FIND_OLD, (workspace, before))]
    for marks, some in portions(found):
        for statement in (_DROP, _DROP_NEEDS):
            tx.execute(statement.format(marks), (workspace, *some))
    return len(found)


def add_brief(tx: Transaction, workspace: str, brief: PostedBrief) -> None:
    """Store a brief that is given for the first time, with the briefs that it depends on."""
    tx.execute(
        _INSERT,
        (
            *(workspace, brief.id, brief.member, brief.giver, brief.state, brief.message),
            *(canonical_json(brief.brief.to_json()), canonical_json(brief.marks), brief.note),
            *(canonical_json(brief.note_marks), brief.attempt, brief.most, brief.unmet, seconds(brief.due), brief.case),
            *(brief.given.timestamp(), brief.changed.timestamp()),
        ),
    )
    for each in brief.brief.after:
        tx.execute(_NEEDS, (workspace, brief.id, each))


def write_brief(tx: Transaction, workspace: str, brief: PostedBrief, now: datetime) -> None:
    """Store how far a brief is."""
    tx.execute(
        _UPDATE,
        (
            *(brief.member, brief.giver, brief.state, brief.message, brief.note, canonical_json(brief.note_marks)),
            *(brief.attempt, brief.most, brief.unmet, seconds(brief.due), now.timestamp(), workspace, brief.id),
        ),
    )


def _brief(row: Sequence[Any]) -> PostedBrief:
    kept = read(_Stored, row, f"the brief {row[1]!r}")
    same = kept.model_dump(exclude={"workspace", "body", "case_id"})
    return PostedBrief(brief=TaskBrief.from_json(kept.body), case=kept.case_id, **same)
