"""The lives of members: which state follows which, each step that one takes, and what its memory needs then (A7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from ...core import canonical_json
from ...core.checks import to_json
from ...core.errors import LifecycleError, RoleExists
from ...storage import Row, Time, Transaction
from ..data.brief import Language
from ..data.roles import MemoryPolicy, RoleLifecycle, RoleSpec, RoleStatus, TrustProfile
from ..data.rows import read, seconds
from ..data.workspace import WorkspacePolicy
from ..mail.letters import handled_by
from .members import Member, members_of, redefine_member
from .outcomes import outcomes_of, replayed, sums_of
from .spawning import narrowed

NEXT: Final[Mapping[RoleStatus, tuple[RoleStatus, ...]]] = {
    RoleStatus.DRAFT: (RoleStatus.TESTING,),
    RoleStatus.TESTING: (RoleStatus.ACTIVE,),
    RoleStatus.ACTIVE: (RoleStatus.SUSPENDED,),
    RoleStatus.SUSPENDED: (RoleStatus.ACTIVE, RoleStatus.TERMINATED),
    RoleStatus.TERMINATED: (),
}
"""The states that can follow each state."""

_ORDER: Final = tuple(RoleStatus)

NOTICES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "terminated": "From the system: {member} was terminated and does not answer.",
        "approved": "From the system: the owner approved {member}, which begins with its task.",
        "rejected": "From the system: the owner did not approve {member}. {reason}",
    },
    "zh": {
        "terminated": "系统通知：{member} 已终止，不会回答。",
        "approved": "系统通知：所有者已批准 {member}，它开始执行任务。",
        "rejected": "系统通知：所有者未批准 {member}。{reason}",
    },
}
"""What members are notified of about the life of another one."""

PARENT_TERMINATED: Final = "parent_terminated"
TASK_COMPLETE: Final = "task_complete"
HUMAN_DECISION: Final = "human_decision"
LIFETIME_OVER: Final = "lifetime_over"
NOT_APPROVED: Final = "not_approved"
"""Why a member was terminated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStep:
    """A state that a member reached.

    Attributes:
        number: Its number among the steps of all members of the workspace.
        member: The member.
        status: The state.
        at: When.
        reason: Why it was terminated; empty for other states.
    """

    number: int
    member: str
    status: RoleStatus
    at: datetime
    reason: str = ""


def moved(member: str, life: RoleLifecycle, status: RoleStatus, now: datetime) -> RoleLifecycle:
    """The life of a member after one step.

    Args:
        member: The member, for the error.
        life: Its life before.
        status: The state that it reaches.
        now: When.

    Raises:
        LifecycleError: This state cannot follow the one before.
    """
    if status not in NEXT[life.status]:
        following = ", ".join(each.value for each in NEXT[life.status])
        raise LifecycleError(
            f"{member!r} is {life.status.value} and cannot become {status.value}",
            remedy=f"the states that can follow are: {following}" if following else "make a new member",
        )
    first = status is RoleStatus.ACTIVE and life.activated_at is None
    return replace(life, status=status, activated_at=now if first else life.activated_at)


def terminated(member: str, life: RoleLifecycle, reason: str, now: datetime) -> tuple[RoleLifecycle, ...]:
    """The lives of a member at each step from its state to its end, the last of them terminated.

    Every state but the last leads there: a draft passes testing, active and suspended. It is not counted as having been
    active: `activated_at` stays as it was.

    Args:
        member: The member, for the error.
        life: Its life before.
        reason: Why it ends.
        now: When.

    Raises:
        LifecycleError: It is terminated already.
    """
    if life.status is RoleStatus.TERMINATED:
        raise LifecycleError(f"{member!r} is terminated already", remedy="make a new member")
    *passed, last = _ORDER[_ORDER.index(life.status) + 1 :]
    end = replace(life, status=last, terminated_at=now, termination_reason=reason)
    return (*(replace(life, status=each) for each in passed), end)


MemoryWork = Literal["inherit", MemoryPolicy]
"""What is done with the memory of a member: it inherits once it is active, and ends by its memory policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDue:
    """What is still to be done with the memory of a member. It is stored with the step that causes it.

    Attributes:
        number: Its number. Lower ones are done first, so a child is merged into its parent before that one is merged.
        member: The member.
        parent: The member that made it; empty for none.
        work: What is done.
        tags: What the member is about, for `inherit`: the params of its template.
    """

    number: int
    member: str
    parent: str
    work: MemoryWork
    tags: tuple[str, ...] = ()


class _Step(Row):
    workspace: str
    number: int
    member: str
    status: RoleStatus
    at: Time
    reason: str


_COLUMNS: Final = ", ".join(_Step.model_fields)
_LAST: Final = "SELECT steps FROM wa_society WHERE workspace=?"
_NUMBERED: Final = "UPDATE wa_society SET steps=? WHERE workspace=?"
_ADD: Final = f"INSERT INTO wa_member_step({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?)"
_OF: Final = f"SELECT {_COLUMNS} FROM wa_member_step WHERE workspace=? AND member=? ORDER BY number"
_SINCE: Final = f"SELECT {_COLUMNS} FROM wa_member_step WHERE workspace=? AND number>? ORDER BY number LIMIT ?"
_LIFE: Final = "UPDATE wa_member SET status=?, life=?, expires=? WHERE workspace=? AND id=?"
_ENDED: Final = "UPDATE wa_society SET members=members - 1 WHERE workspace=?"
_EXPIRES: Final = "UPDATE wa_member SET expires=? WHERE workspace=? AND id=? AND expires IS NULL"
_EXPIRED: Final = "SELECT id FROM wa_member WHERE workspace=? AND expires <= ? ORDER BY place"
_BELOW: Final = """WITH RECURSIVE below(id) AS (
                     SELECT id FROM wa_member WHERE workspace=? AND parent=? AND status <> 'terminated' UNION
                     SELECT m.id FROM wa_member AS m JOIN below AS b ON m.parent=b.id
                     WHERE m.workspace=? AND m.status <> 'terminated')
                   SELECT id, parent FROM wa_member WHERE workspace=? AND id IN (SELECT id FROM below) ORDER BY place"""
_LEFT: Final = (
    "DELETE FROM wa_recommendation WHERE workspace=? AND member=?",
    "DELETE FROM wa_contact WHERE workspace=? AND owner=?",
    "DELETE FROM wa_contact WHERE workspace=? AND id=?",
    "DELETE FROM wa_look WHERE workspace=? AND id=?",
)
_DUE: Final = """SELECT number, member, parent, work, tags FROM wa_memory_due AS d WHERE workspace=? AND NOT EXISTS (
                   SELECT 1 FROM wa_member AS w WHERE w.workspace=d.workspace AND w.id=d.member AND w.status='draft')
                 ORDER BY number LIMIT ?"""
_LAST_DUE: Final = "SELECT COALESCE(MAX(number), 0) FROM wa_memory_due WHERE workspace=?"
_ADD_DUE: Final = "INSERT INTO wa_memory_due(workspace, number, member, parent, work, tags) VALUES(?, ?, ?, ?, ?, ?)"
_NOT_DUE: Final = "DELETE FROM wa_memory_due WHERE workspace=? AND member=?"
_DONE: Final = "DELETE FROM wa_memory_due WHERE workspace=? AND number=?"


def write_lives(tx: Transaction, member: Member, lives: Sequence[RoleLifecycle], now: datetime) -> None:
    """Store the steps that a member takes, in a transaction that holds the members of its workspace.

    A member that is terminated by them is no longer counted, is removed from all contacts, and its memory is due.

    Args:
        tx: The transaction.
        member: The member as it was before.
        lives: Its life after each step.
        now: When.
    """
    workspace, id_, last = member.spec.workspace, member.id, lives[-1]
    [(before,)] = tx.execute(_LAST, (workspace,))
    for number, life in enumerate(lives, start=before + 1):
        tx.execute(_ADD, (workspace, number, id_, life.status.value, now.timestamp(), life.termination_reason))
    tx.execute(_NUMBERED, (before + len(lives), workspace))
    expires = seconds(last.ends_at(member.spec.ttl))
    tx.execute(_LIFE, (last.status.value, canonical_json(to_json(last)), expires, workspace, id_))
    if last.status is RoleStatus.TERMINATED:
        tx.execute(_ENDED, (workspace,))
        for statement in _LEFT:
            tx.execute(statement, (workspace, id_))
        tx.execute(_NOT_DUE, (workspace, id_))  # what it was to inherit
        add_memory_due(tx, member, last.memory_policy)


def below(tx: Transaction, workspace: str, member: str) -> list[str]:
    """The descendants of a member that are not terminated, each after its own descendants."""
    rows = tx.execute(_BELOW, (workspace, member, workspace, workspace))
    found, level = list[str](), {member}
    while level := {id_ for id_, parent in rows if parent in level and id_ not in (member, *found)}:
        found += [id_ for id_, _ in rows if id_ in level]
    return found[::-1]


def report_done(tx: Transaction, member: Member, now: datetime) -> None:
    """Note that a member with the lifetime of its task has reported it done: its lifetime is over."""
    tx.execute(_EXPIRES, (now.timestamp(), member.spec.workspace, member.id))


def expired(tx: Transaction, workspace: str, now: datetime) -> list[Member]:
    """The members whose lifetime is over. One that reported its task done first ends the turn that it is in."""
    ids = [id_ for (id_,) in tx.execute(_EXPIRED, (workspace, now.timestamp()))]
    found = members_of(tx, workspace, ids)
    over = [found[each] for each in ids]
    return [each for each in over if each.spec.ttl != "task" or handled_by(tx, workspace, each.id) is None]


def steps_of(tx: Transaction, workspace: str, member: str) -> list[LifeStep]:
    """The steps of a member since it was made."""
    return [_step(row) for row in tx.execute(_OF, (workspace, member))]


def steps_since(tx: Transaction, workspace: str, number: int, most: int) -> list[LifeStep]:
    """The steps of all members after the one with a number."""
    return [_step(row) for row in tx.execute(_SINCE, (workspace, number, most))]


def add_memory_due(tx: Transaction, member: Member, work: MemoryWork, tags: Iterable[str] = ()) -> None:
    """Note what is to be done with the memory of a member, in a transaction that holds the members of its workspace."""
    workspace = member.spec.workspace
    [(last,)] = tx.execute(_LAST_DUE, (workspace,))
    tx.execute(
        _ADD_DUE, (workspace, last + 1, member.id, member.spec.parent_role_id, work, canonical_json(sorted({*tags})))
    )


def memory_due(tx: Transaction, workspace: str, most: int) -> list[MemoryDue]:
    """What is still to be done with the memory of members that are not drafts, in the order in which it is done."""
    rows = tx.execute(_DUE, (workspace, most))
    return [
        MemoryDue(number=number, member=id_, parent=parent, work=work, tags=tuple(json.loads(tags)))
        for number, id_, parent, work, tags in rows
    ]


def memory_done(tx: Transaction, workspace: str, number: int) -> None:
    """Note that it was done."""
    tx.execute(_DONE, (workspace, number))


def _step(row: Sequence[Any]) -> LifeStep:
    return LifeStep(**read(_Step, row, f"the step {row[1]!r} of {row[2]!r}").model_dump(exclude={"workspace"}))


def redefine(tx: Transaction, before: Member, spec: RoleSpec, policy: WorkspacePolicy) -> Member:
    """Replace the definition of a member. Its state, memory, messages and contacts stay, and so does what it earned.

    Its trust is computed again from its outcomes if the definition has another one. What it may not do, know or run any
    more, its descendants may not either (A9). They get nothing that is new. Another soul has the next version (A13).

    Args:
        tx: A transaction.
        before: The member as it is stored.
        spec: Its new definition.
        policy: The policy of the workspace.

    Raises:
        RoleExists: A template made the member, so no configuration defines it.
    """
    if before.spec.created_by or before.spec.parent_role_id:
        raise RoleExists(
            f"{spec.role_id!r} of the configuration is a member that {before.spec.created_by!r} made of a template",
            remedy="use another role_id in the configuration",
        )
    life = replace(before.life, memory_policy=spec.memory_policy)
    version = before.soul_version + (spec.soul != before.spec.soul)
    after = replace(before, spec=spec, life=life, soul_version=version)
    if spec.trust != before.spec.trust:
        default = TrustProfile(default=policy.default_trust) if spec.trust is None else spec.trust
        after = replace(after, trust=default)
        after = replace(after, trust=replayed(after, outcomes_of(tx, after), sums_of(tx, after)))
    redefine_member(tx, after, before)
    lines = {after.id: after}
    for id_ in reversed(below(tx, spec.workspace, after.id)):
        child = members_of(tx, spec.workspace, [id_])[id_]
        lines[id_] = replace(child, spec=narrowed(child.spec, lines[child.spec.parent_role_id].spec))
        if lines[id_] != child:
            redefine_member(tx, lines[id_], child)
    return after
