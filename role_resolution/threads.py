"""Roles of threads. They are set during a conversation, kept only in memory, expire and are limited in number (R10)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ..core import Clock, Scope, Tier, new_id
from ..core.errors import InvalidArgument
from .role import Role, check_length

MAX_THREADS: Final = 1000


@dataclass(frozen=True, slots=True)
class ThreadRoleChange:
    """A record that the role of a thread changed. It never has the role.

    Attributes:
        id: The id of the change.
        at: The time of the change.
    """

    id: str
    at: datetime


@dataclass(slots=True)
class _ThreadRole:
    """The role of one thread, and its changes.

    Attributes:
        role: The role; None once it is cleared.
        end: When it expires.
        changes: Changes that no turn has recorded yet.
        turn: The turn in which it was set.
        before: The role that is in effect until the end of that turn, and when it expires.
    """

    role: Role | None
    end: float
    changes: list[ThreadRoleChange] = field(default_factory=list)
    turn: str | None = None
    before: tuple[Role | None, float] = (None, 0.0)


class ThreadRoles:
    """The roles that were set for threads of one workspace.

    Args:
        limit: The most bytes of UTF-8 in one role's content.
        clock: The source of time.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._held: OrderedDict[str, _ThreadRole] = OrderedDict()

    def set(self, thread: str, role: Role, ttl: float, *, turn: str | None = None) -> None:
        """Set or replace the role of a thread for `ttl` seconds. With too many threads, the oldest role is dropped.

        Args:
            thread: The thread.
            role: The role.
            ttl: Seconds after which it expires.
            turn: The turn in which it is set. That turn keeps the role it began with, however often it pauses.

        Raises:
            RoleTooLong: The role is over the limit.
            InvalidArgument: `ttl` is not a positive, finite number.
        """
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < float("inf"):
            raise InvalidArgument(
                f"`ttl` must be a number of seconds above 0, got {ttl!r}", remedy="call clear() to end a role now"
            )
        self.check(role)
        self._change(thread, role, self._clock.monotonic() + ttl, turn)

    def check(self, role: Role) -> None:
        """Refuse a role that is over the limit.

        Raises:
            RoleTooLong: The role is over the limit.
        """
        check_length(role, Tier.THREAD, self._limit)

    def clear(self, thread: str) -> bool:
        """Clear the role of a thread; True if there was one."""
        if self._current(thread) is None:
            return False
        self._change(thread, None, self._clock.monotonic())
        return True

    def forget(self, thread: str) -> None:
        """Drop everything about a removed thread, including changes that no turn has recorded."""
        self._held.pop(thread, None)

    def get(self, scope: Scope, turn: str | None = None) -> Role | None:
        """The role of a thread, or None.

        Args:
            scope: The scope of the thread.
            turn: The turn that is resumed; None for a new one.
        """
        return None if scope.thread is None else self._current(scope.thread, turn)

    def changes(self, thread: str) -> tuple[ThreadRoleChange, ...]:
        """The changes that no turn has recorded yet."""
        held = self._held.get(thread)
        return () if held is None else tuple(held.changes)

    def written(self, thread: str, changes: tuple[ThreadRoleChange, ...]) -> None:
        """Forget changes that a new turn has recorded, and the role that only the previous turn used."""
        held = self._held.get(thread)
        if held is not None:
            held.turn, held.before = None, (None, 0.0)
            held.changes = [change for change in held.changes if change not in changes]
            if held.role is None and not held.changes:
                del self._held[thread]

    def _current(self, thread: str, turn: str | None = None) -> Role | None:
        held = self._held.get(thread)
        if held is None:
            return None
        now = self._clock.monotonic()
        if turn is not None and held.turn == turn:
            role, end = held.before
            return role if now < end else None
        if held.end <= now:
            held.role = None
        return held.role

    def _change(self, thread: str, role: Role | None, end: float, turn: str | None = None) -> None:
        held = self._held.setdefault(thread, _ThreadRole(None, 0.0))
        self._held.move_to_end(thread)
        if turn is None:
            held.turn, held.before = None, (None, 0.0)
        elif turn != held.turn:
            held.turn, held.before = turn, (held.role, held.end)
        held.role, held.end = role, end
        held.changes.append(ThreadRoleChange(new_id("role"), self._clock.now()))
        while len(self._held) > MAX_THREADS:
            self._held.popitem(last=False)
