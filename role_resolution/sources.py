"""Sources of roles: the protocols that an embedder can implement. This module imports no implementation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

from ..core import STORED_TIERS, Clock, Scope, Tier, check_id, new_id
from ..core.clock import Expiring
from ..core.errors import InvalidArgument, RoleNotStorable, UnknownTier
from ..storage import Database, Schema, Transaction
from .role import ROLE_LIMIT, Role, check_length

_ALL: Final = frozenset(STORED_TIERS)

ROLE_SCHEMA = Schema(
    name="role",
    migrations=(
        (
            """CREATE TABLE wa_role (
                tier TEXT NOT NULL, scope_id TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL,
                PRIMARY KEY (tier, scope_id)) WITHOUT ROWID""",
        ),
    ),
)


class SqliteRoleStore:
    """`RoleStore` over one SQLite file.

    Args:
        database: The opened file; `open` makes one from a path.
        limit: The most bytes of UTF-8 in a role's content.
        tiers: The tiers that it offers.
    """

    def __init__(self, database: Database, *, limit: int = ROLE_LIMIT, tiers: frozenset[Tier] = _ALL) -> None:
        self._database = database
        self._limit = limit
        self._tiers = tiers

    @classmethod
    async def open(cls, path: Path, *, limit: int = ROLE_LIMIT, tiers: frozenset[Tier] = _ALL) -> Self:
        """Open the store at `path`. The file is made and migrated as needed.

        Raises:
            StorageUnavailable, StorageInvalid, SchemaTooNew: The file cannot be used; nothing was changed.
        """
        return cls(await Database.open(path, schemas=(ROLE_SCHEMA,)), limit=limit, tiers=tiers)

    @property
    def tiers(self) -> frozenset[Tier]:
        return self._tiers

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        wanted = [(tier.value, scope_id) for tier, scope_id in scope_ids.items()]
        if not wanted:
            return {}
        places = ",".join("(?,?)" for _ in wanted)
        query = f"SELECT tier, name, content FROM wa_role WHERE (tier, scope_id) IN (VALUES {places})"

        def read(tx: Transaction) -> list[tuple[Any, ...]]:
            return tx.execute(query, [value for pair in wanted for value in pair])

        return {Tier(tier): _read(name, content) for tier, name, content in await self._database.read(read)}

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        check_storable_tier(tier)
        return (await self.list({tier: check_id(f"{tier} scope", scope_id)})).get(tier)

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        check_storable(tier, role, self._limit)
        values = (tier.value, check_id(f"{tier} scope", scope_id), role.name, role.content)
        await self._database.transact(
            lambda tx: tx.execute(
                "INSERT INTO wa_role (tier, scope_id, name, content) VALUES (?,?,?,?)"
                " ON CONFLICT (tier, scope_id) DO UPDATE SET name = excluded.name, content = excluded.content",
                values,
            )
        )

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        check_storable_tier(tier)
        values = (tier.value, check_id(f"{tier} scope", scope_id))
        gone = await self._database.transact(
            lambda tx: tx.execute("DELETE FROM wa_role WHERE tier = ? AND scope_id = ? RETURNING tier", values)
        )
        return bool(gone)

    async def aclose(self) -> None:
        """Close the file. Calling it again does nothing."""
        await self._database.aclose()


def check_storable_tier(tier: Tier) -> None:
    """Refuse the tiers that are never stored.

    Raises:
        UnknownTier: The tier is `call` or `thread`.
    """
    if tier not in STORED_TIERS:
        known = ", ".join(sorted(STORED_TIERS))
        raise UnknownTier(
            f"the {tier} role cannot be stored", remedy=f"use one of {known}, or pass the role with the call"
        )


def check_storable(tier: Tier, role: Role, limit: int) -> None:
    """Refuse a role that the stored record cannot represent (R9).

    Raises:
        UnknownTier: The tier is `call` or `thread`.
        RoleNotStorable: The role has `applies_to`, `exclusive` or `echo`.
        RoleTooLong: Its content is over the limit.
    """
    check_storable_tier(tier)
    check_fields(tier, role)
    check_length(role, tier, limit)


def check_fields(tier: Tier, role: Role) -> None:
    """Refuse a role with fields that the stored record does not have (R9).

    Raises:
        RoleNotStorable: The role has `applies_to`, `exclusive` or `echo`.
    """
    if role.applies_to or role.exclusive or role.echo:
        raise RoleNotStorable(
            f"the {tier} role {role.name!r} has applies_to, exclusive or echo, and a stored role keeps none of them",
            remedy="store it without them, or pass it with the call",
        )


def _read(name: str | bytes, content: str) -> Role:
    """A stored role. Older versions stored any name, even bytes that are not text."""
    return Role.of_record(name if isinstance(name, str) and name.strip() else "unnamed", content)


@runtime_checkable
class RoleSource(Protocol):
    """Returns the role of one tier: `Roles(sources={Tier.CHANNEL: my_source})`."""

    async def __call__(self, scope: Scope, /) -> Role | None:
        """Return the tier's role in `scope`, or None. An exception means that the source is down (R14)."""
        ...


@runtime_checkable
class RoleStore(Protocol):
    """Stores one role per tier and scope: its content, tier and name, nothing else (R9).

    Attributes:
        tiers: The tiers it offers: workspace, account, and channel if the store has channels.
    """

    @property
    def tiers(self) -> frozenset[Tier]: ...

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        """All roles that are set for these scopes, in one round trip."""
        ...

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        """The role of one tier and scope, or None."""
        ...

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        """Set or replace the role.

        Raises:
            RoleNotStorable: The role has `applies_to`, `exclusive` or `echo`.
            RoleTooLong: Its content is over the limit.
        """
        ...

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        """Clear the role; True if there was one."""
        ...


@runtime_checkable
class RemoteStore(RoleStore, Protocol):
    """A remote `RoleStore`. Its `tiers` are final only once it is connected."""

    async def connect(self) -> None:
        """Connect, if it is not connected.

        Raises:
            HostError: It cannot be reached or used.
        """
        ...

    def on_change(self, callback: Callable[[Tier, str], None], /) -> None:
        """Register a callback. It gets tier and scope when another client changes a role, if the store knows that."""
        ...


_Key = tuple[Tier, str]


class CachedRoleStore:
    """A `RoleStore` that caches the answers of another one.

    Args:
        store: The store to ask.
        ttl: Seconds for which an answer is used; 0 asks the store every time.
        clock: The source of time.
        limit: The most bytes of UTF-8 in the content of a role to be stored.
        bound: How many answers are kept at most. The least recently used one is dropped first, and expired ones are
            dropped with the next answer.
    """

    def __init__(
        self, store: RoleStore, *, ttl: float, clock: Clock, limit: int = ROLE_LIMIT, bound: int = 10_000
    ) -> None:
        self._store = store
        self._ttl = ttl
        self._clock = clock
        self._limit = limit
        self._kept = Expiring[tuple[Role | None]](clock, bound)  # a tuple, since no role is an answer too
        self._changes = 0
        if isinstance(store, RemoteStore):
            store.on_change(lambda tier, scope_id: self._forget((tier, scope_id)))

    @property
    def tiers(self) -> frozenset[Tier]:
        return self._store.tiers

    async def connect(self) -> None:
        """Connect a remote store, so that `tiers` is what it offers.

        Raises:
            HostError: The store is remote and cannot be reached or used.
        """
        if isinstance(self._store, RemoteStore):
            await self._store.connect()

    def peek(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role] | None:
        """The answer to `list` if all of it is in memory and has not expired, else None."""
        found: dict[Tier, Role] = {}
        for key in scope_ids.items():
            kept = self._kept.get(key)
            if kept is None:
                return None
            if kept[0] is not None:
                found[key[0]] = kept[0]
        return found

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        found = self.peek(scope_ids)
        if found is None:
            # The ttl counts from the request. An answer is not kept if a role changed while the store was asked.
            asked, changes = self._clock.monotonic(), self._changes
            found = await self._store.list(scope_ids)
            if changes == self._changes:
                self._keep(scope_ids, found, asked)
        return found

    async def get(self, tier: Tier, scope_id: str) -> Role | None:
        return await self._store.get(tier, scope_id)

    async def put(self, tier: Tier, scope_id: str, role: Role) -> None:
        check_storable(tier, role, self._limit)
        try:
            await self._store.put(tier, scope_id, role)
        finally:
            self._forget((tier, scope_id))

    async def delete(self, tier: Tier, scope_id: str) -> bool:
        try:
            return await self._store.delete(tier, scope_id)
        finally:
            self._forget((tier, scope_id))

    def _keep(self, scope_ids: Mapping[Tier, str], found: Mapping[Tier, Role], asked: float) -> None:
        # The resolver refuses an answer that is not a mapping.
        if self._ttl <= 0 or not isinstance(found, Mapping):
            return
        for key in scope_ids.items():
            role = found.get(key[0])
            if role is None or isinstance(role, Role):
                self._kept.put(key, (role,), end=asked + self._ttl)

    def _forget(self, key: _Key) -> None:
        self._changes += 1
        self._kept.drop(key)


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
