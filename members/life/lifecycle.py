"""Which state of a member's life follows which, and when its lifetime is over (000 4.7, A7). Pure data, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ...core.errors import LifecycleError
from ..data.brief import Language
from ..data.roles import RoleLifecycle, RoleStatus

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


def ends_at(ttl: str | None, life: RoleLifecycle) -> datetime | None:
    """When the lifetime of a member is over: its days, counted from when it first became active; None if that is open.

    Args:
        ttl: Its lifetime.
        life: Its life.
    """
    if ttl in (None, "task") or life.activated_at is None or life.status is RoleStatus.TERMINATED:
        return None
    return life.activated_at + timedelta(days=int(ttl[:-1]))
