"""The members of a workspace: who there is, and for what (A3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from pydantic import BaseModel, Json

from ...core import canonical_json
from ...core.checks import check_texts, to_json
from ...core.errors import InvalidArgument, LifecycleError, RoleExists, RolesFull, UnknownMember
from ...core.lookalikes import skeleton
from ...core.validation import check_integer
from ...storage import Row, Transaction, portions
from ..data.brief import InterfaceSpec
from ..data.identity import looks_of, mistakable
from ..data.limits import put_limits
from ..data.roles import ROOT, USER, Participant, RoleLifecycle, RoleSpec, RoleStatus, TrustProfile, check_kind
from ..data.rows import read, read_as, seconds
from ..data.store import WorkspaceStore
from ..data.workspace import WorkspacePolicy
from ..mail.letters import keep_answers

PENDING: Final = "pending:"
"""Stands before the id of a member that waits for the approval of the owner."""

LIVE: Final = (RoleStatus.TESTING, RoleStatus.ACTIVE)
"""The states in which a member receives messages and events."""

MAX_PAGE: Final = 1000
"""The most members that one look-up returns."""


@runtime_checkable
class RoleRegistry(Protocol):
    """The registry of a workspace's members (A3). `MemberRegistry` keeps it in the agent's database."""

    async def get(self, workspace: str, role_id: str) -> Participant | None:
        """The member or person with this id; None if there is none."""
        ...

    async def list_roles(self, workspace: str, *, after: str = "", limit: int = MAX_PAGE) -> list[Participant]:
        """The first members that are not terminated, in the order in which they were registered.

        Args:
            workspace: The workspace.
            after: Only those that were registered after this member.
            limit: The most to return.
        """
        ...

    async def find_by_domain(
        self, workspace: str, domain: str, *, after: str = "", limit: int = MAX_PAGE
    ) -> list[Participant]:
        """The first members that are active or in testing and have this domain, in the order of registration (A2)."""
        ...

    async def register(self, spec: RoleSpec) -> str:
        """Add a member and return its id."""
        ...

    async def remove(self, workspace: str, role_id: str) -> None:
        """Remove a member and all that belongs to it."""
        ...

    async def queue_spawn(self, spec: RoleSpec) -> str:
        """Add a member that waits for approval; returns its id after `pending:`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member as it is stored.

    Attributes:
        spec: Its definition.
        name: The name of its role, for people and other members.
        interface: How others ask it.
        life: Where it is in its life.
        trust: How far it is trusted, after all that it did (A8).
        soul_version: The number of its soul: 1 at first, and one more each time that the soul is replaced by another
            text (A13).
    """

    spec: RoleSpec
    name: str
    interface: InterfaceSpec | None
    life: RoleLifecycle
    trust: TrustProfile
    soul_version: int = 1

    @property
    def id(self) -> str:
        """Its id."""
        return self.spec.role_id

    def as_participant(self) -> Participant:
        """What others can know of it."""
        return Participant(id=self.id, type="role", name=self.name, domains=self.spec.domains)


def check_speaks(member: Member) -> None:
    """Refuse a member that cannot speak in the conversation of a person (A21).

    Raises:
        UnknownMember: It is terminated.
        LifecycleError: It is a draft, or suspended, or it runs elsewhere (A22).
    """
    id_, status = member.spec.role_id, member.life.status
    if member.spec.remote is not None:
        raise LifecycleError(
            f"{id_!r} is a remote agent, which has no conversations here", remedy="hand it to a member that runs here"
        )
    if status is RoleStatus.TERMINATED:
        raise UnknownMember(f"{id_!r} is terminated", remedy="hand the conversation to another member")
    if status not in LIVE:
        raise LifecycleError(
            f"{id_!r} is {status}, so it cannot speak in a conversation",
            remedy="activate it, or hand the conversation back with hand_back()",
        )


class _Stored(Row):
    workspace: str
    id: str
    place: int
    name: str
    status: str
    parent: str
    spec: Json[dict[str, Any]]
    interface: Json[dict[str, Any]] | None
    life: Json[dict[str, Any]]
    trust: Json[dict[str, Any]]
    soul_version: int


class _Domains(BaseModel):
    domains: tuple[str, ...]


class _Listed(Row):
    id: str
    name: str
    spec: Json[_Domains]


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? AND id=?"
# Whether something has limits is read along, so that it costs no query of its own.
_WITH_LIMITS: Final = f"""SELECT {_COLUMNS}, EXISTS(SELECT 1 FROM wa_limit AS l WHERE l.workspace=m.workspace)
                          FROM wa_member AS m WHERE workspace=? AND id=?"""
_SOME: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? AND id IN ({{}})"
_ALL: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? AND status <> 'terminated' ORDER BY place"
_EVERY: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? ORDER BY place"
_IDS: Final = "SELECT id FROM wa_member WHERE workspace=? AND status <> 'terminated' ORDER BY place"
_CHILDREN: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? AND parent=? ORDER BY place"
_DRAFTS: Final = f"SELECT {_COLUMNS} FROM wa_member WHERE workspace=? AND status='draft' ORDER BY place"
_OF_DOMAIN: Final = """SELECT {} FROM wa_member_domain AS d JOIN wa_member AS m ON m.workspace=d.workspace
                       AND m.id=d.member WHERE d.workspace=? AND d.domain=? AND m.status IN ('active', 'testing')
                       AND d.place > ? ORDER BY d.place LIMIT ?"""
_WHOLE_OF_DOMAIN: Final = _OF_DOMAIN.format(", ".join(f"m.{each}" for each in _COLUMNS.split(", ")))
_LISTED_OF_DOMAIN: Final = _OF_DOMAIN.format("m.id, m.name, m.spec")
_LIST: Final = """SELECT id, name, spec FROM wa_member WHERE workspace=? AND status <> 'terminated' AND place > ?
                  ORDER BY place LIMIT ?"""
_LIST_SOME: Final = "SELECT id, name, spec FROM wa_member WHERE workspace=? AND id IN ({})"
_INSERT: Final = f"INSERT INTO wa_member({_COLUMNS}, expires) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DOMAIN: Final = "INSERT INTO wa_member_domain(workspace, domain, place, member) VALUES(?, ?, ?, ?)"
_FIRST: Final = "INSERT INTO wa_society(workspace, members, last, steps) VALUES(?, 0, 0, 0) ON CONFLICT DO NOTHING"
_COUNTER: Final = "SELECT members, last FROM wa_society WHERE workspace=?"
_COUNT: Final = "UPDATE wa_society SET members=?, last=? WHERE workspace=?"
_REDEFINE: Final = "UPDATE wa_member SET spec=?, life=?, trust=?, soul_version=?, expires=? WHERE workspace=? AND id=?"
_PLACE: Final = "SELECT place FROM wa_member WHERE workspace=? AND id=?"
_NO_DOMAINS: Final = "DELETE FROM wa_member_domain WHERE workspace=? AND member=?"
_NAMES: Final = "SELECT id, name FROM wa_member WHERE workspace=? AND status <> 'terminated' ORDER BY place"
_PEOPLE: Final = "SELECT body FROM wa_person WHERE workspace=? ORDER BY id"
_PERSON: Final = "SELECT body FROM wa_person WHERE workspace=? AND id=?"
_ADD_PERSON: Final = """INSERT INTO wa_person(workspace, id, body) VALUES(?, ?, ?)
                        ON CONFLICT(workspace, id) DO UPDATE SET body=excluded.body"""
# What it sent and no one has handled no longer counts in the mailboxes of the others.
_UNCOUNT: Final = """UPDATE wa_mailbox SET waiting=waiting - (
                       SELECT COUNT(*) FROM wa_mail AS m WHERE m.workspace=wa_mailbox.workspace AND m.sender=?
                       AND m.receiver=wa_mailbox.member AND m.state IN ('waiting', 'handling'))
                     WHERE workspace=? AND member IN (SELECT receiver FROM wa_mail WHERE workspace=? AND sender=?)"""
_SEEN: Final = "SELECT 1 FROM wa_look WHERE workspace=? LIMIT 1"
_ALIKE: Final = "SELECT look, id FROM wa_look WHERE workspace=? AND look IN (?, ?) AND id <> ? LIMIT 2"
_LOOKS: Final = "INSERT INTO wa_look(workspace, look, id) VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_NO_LOOKS: Final = "DELETE FROM wa_look WHERE workspace=? AND id=?"
_OF_MEMBER: Final = (
    "DELETE FROM wa_member WHERE workspace=? AND id=?",
    _NO_DOMAINS,
    "DELETE FROM wa_contact WHERE workspace=? AND owner=?",
    "DELETE FROM wa_contact WHERE workspace=? AND id=?",
    "DELETE FROM wa_mail WHERE workspace=? AND receiver=?",
    "DELETE FROM wa_mail WHERE workspace=? AND sender=?",
    "DELETE FROM wa_mailbox WHERE workspace=? AND member=?",
    *(
        f"""UPDATE wa_brief SET note='a brief that it waits for was removed', note_marks='[]'
            WHERE workspace=? AND unmet > 0 AND id IN (
              SELECT a.brief FROM wa_brief_after AS a JOIN wa_brief AS b ON b.workspace=a.workspace AND b.id=a.needs
              WHERE a.workspace=wa_brief.workspace AND b.{column}=?)"""
        for column in ("member", "giver")
    ),
    *(
        f"""DELETE FROM wa_brief_after WHERE workspace=? AND brief IN (
              SELECT id FROM wa_brief AS b WHERE b.workspace=wa_brief_after.workspace AND b.{column}=?)"""
        for column in ("member", "giver")
    ),
    "DELETE FROM wa_brief WHERE workspace=? AND member=?",
    "DELETE FROM wa_brief WHERE workspace=? AND giver=?",
    "DELETE FROM wa_outcome WHERE workspace=? AND member=?",
    "DELETE FROM wa_outcome_sum WHERE workspace=? AND member=?",
    "DELETE FROM wa_occurrence WHERE workspace=? AND member=? AND state='done'",
    "DELETE FROM wa_member_step WHERE workspace=? AND member=?",
    "DELETE FROM wa_memory_due WHERE workspace=? AND member=?",
    "DELETE FROM wa_recommendation WHERE workspace=? AND member=?",
    "DELETE FROM wa_remote WHERE workspace=? AND member=?",
    "DELETE FROM wa_remote WHERE workspace=? AND peer=?",
    "DELETE FROM wa_offered WHERE workspace=? AND member=?",
    _NO_LOOKS,
    "DELETE FROM wa_limit WHERE workspace=? AND member=?",
    "DELETE FROM wa_budget WHERE workspace=? AND holder='member ' || ?",
    "DELETE FROM wa_reserved WHERE workspace=? AND member=?",
    "DELETE FROM wa_held WHERE workspace=? AND member=?",
)


class MemberRegistry:
    """The registry in the database of a workspace.

    Args:
        store: The database. The workspace says who the owner is, how many members there can be, and how far a new one
            is trusted.
        is_taken: Says of an id whether a function, a worker or a shape of the agent has it. The worker of a member has
            the member's id, so no member can have such an id.
    """

    def __init__(self, store: WorkspaceStore, is_taken: Callable[[str], bool] | None = None) -> None:
        self._store = store
        self._owner = store.config.owner
        self._policy = store.config.policy
        self.is_taken = is_taken or (lambda _: False)

    async def get(self, workspace: str, role_id: str) -> Participant | None:
        """The member or person with this id; None if there is none. `user` is the owner, `root` the World Agent."""
        check_texts(workspace=workspace, role_id=role_id)
        return await self._store.read(lambda tx: participant(tx, workspace, role_id, self._owner))

    async def member(self, workspace: str, role_id: str) -> Member:
        """The member with this id.

        Raises:
            UnknownMember: There is none.
        """
        check_texts(workspace=workspace, role_id=role_id)
        rows = await self._store.read(lambda tx: tx.execute(_WITH_LIMITS, (workspace, role_id)))
        if not rows:
            raise unknown_member(role_id, workspace)
        *row, limited = rows[0]
        self._store.limited = bool(limited)
        return _member(row)

    async def list_roles(self, workspace: str, *, after: str = "", limit: int = MAX_PAGE) -> list[Participant]:
        """The first members that are not terminated, in the order in which they were registered.

        Args:
            workspace: The workspace.
            after: Only those that were registered after this member, for the next page; empty is all.
            limit: The most to return, 1 to 1,000.

        Raises:
            UnknownMember: There is no member `after`.
            InvalidArgument: `limit` is out of bounds.
        """
        check_texts(workspace=workspace)
        return await self._page(_LIST, workspace, (), after, limit)

    async def _page(
        self, statement: str, workspace: str, given: Sequence[str], after: str, limit: int
    ) -> list[Participant]:
        check_texts(after=after)
        check_integer("limit", limit, MAX_PAGE, remedy="choose another number, and pass `after` for the next page")

        def work(tx: Transaction) -> list[Sequence[Any]]:
            place = tx.execute(_PLACE, (workspace, after)) if after else [(0,)]
            if not place:
                raise unknown_member(after, workspace)
            return [*tx.execute(statement, (workspace, *given, place[0][0], limit))]

        return [_listed(row) for row in await self._store.read(work)]

    async def some(self, workspace: str, ids: Sequence[str]) -> dict[str, Participant]:
        """Those of some ids that are members, by their ids."""
        check_texts(workspace=workspace)
        rows = await self._store.read(
            lambda tx: [
                row for marks, some in portions(ids) for row in tx.execute(_LIST_SOME.format(marks), (workspace, *some))
            ]
        )
        return {row[0]: _listed(row) for row in rows}

    async def ids(self, workspace: str) -> list[str]:
        """The ids of all members that are not terminated, in the order of registration."""
        check_texts(workspace=workspace)
        return [id_ for (id_,) in await self._store.read(lambda tx: tx.execute(_IDS, (workspace,)))]

    async def members(self, workspace: str) -> list[Member]:
        """All members that are not terminated, with all that is stored of them, in the order of registration."""
        check_texts(workspace=workspace)
        return [_member(row) for row in await self._store.read(lambda tx: tx.execute(_ALL, (workspace,)))]

    async def children(self, workspace: str, role_id: str) -> list[Member]:
        """The members that a member made, in the order of registration, with those that are terminated."""
        check_texts(workspace=workspace, role_id=role_id)
        rows = await self._store.read(lambda tx: tx.execute(_CHILDREN, (workspace, role_id)))
        return [_member(row) for row in rows]

    async def drafts(self, workspace: str) -> list[Member]:
        """The members that wait for approval, in the order of registration."""
        check_texts(workspace=workspace)
        return [_member(row) for row in await self._store.read(lambda tx: tx.execute(_DRAFTS, (workspace,)))]

    async def find_by_domain(
        self, workspace: str, domain: str, *, after: str = "", limit: int = MAX_PAGE
    ) -> list[Participant]:
        """The first members that are active or in testing and have this domain, in the order of registration (A2).

        Args:
            workspace: The workspace.
            domain: The domain.
            after: Only those that were registered after this member, for the next page; empty is all.
            limit: The most to return, 1 to 1,000.

        Raises:
            UnknownMember: There is no member `after`.
            InvalidArgument: `limit` is out of bounds.
        """
        check_texts(workspace=workspace, domain=domain)
        return await self._page(_LISTED_OF_DOMAIN, workspace, (domain,), after, limit)

    async def around(self, workspace: str, role_id: str, domain: str) -> list[Member]:
        """The members that matter for an event: its own one, and the first live ones of its domain, in their order.

        Args:
            workspace: The workspace.
            role_id: The member that has the event.
            domain: The domain of the event.
        """
        check_texts(workspace=workspace, role_id=role_id, domain=domain)

        def work(tx: Transaction) -> list[Sequence[Any]]:
            own = tx.execute(_ONE, (workspace, role_id))
            return [*own, *tx.execute(_WHOLE_OF_DOMAIN, (workspace, domain, 0, 2))]

        rows = {row[1]: row for row in await self._store.read(work)}
        return [_member(row) for row in sorted(rows.values(), key=lambda row: int(row[2]))]

    async def register(
        self,
        spec: RoleSpec,
        *,
        name: str = "",
        interface: InterfaceSpec | None = None,
        status: RoleStatus = RoleStatus.ACTIVE,
    ) -> str:
        """Add a member and return its id. A second call with an equal definition has no effect.

        Args:
            spec: Its definition.
            name: The name of its role; its id by default.
            interface: How others ask it.
            status: The state in which it begins.

        Raises:
            RoleExists, RolesFull: As for `admit`.
        """
        made = new_member(spec, name, interface, status, self._store.clock.now(), self._policy)
        await self._store.transact(lambda tx: self.admit(tx, made))
        return spec.role_id

    async def queue_spawn(self, spec: RoleSpec) -> str:
        """Add a member that waits for approval as a draft; returns its id after `pending:` (A9).

        Raises:
            RoleExists, RolesFull: As for `register`.
        """
        return PENDING + await self.register(spec, status=RoleStatus.DRAFT)

    async def remove(self, workspace: str, role_id: str) -> None:
        """Remove a member with its contacts, all messages from and to it, and the contacts that others have of it.

        Those that wait for an answer of it are notified that it was removed.
        Its turns, memory and role stay: `worldagent.members.remove_member` removes all. Removing again has no effect.
        """
        check_texts(workspace=workspace, role_id=role_id)

        def work(tx: Transaction) -> None:
            count, last = hold_members(tx, workspace)
            found = one_member(tx, workspace, role_id)
            if found is not None and found.life.status is not RoleStatus.TERMINATED:
                tx.execute(_COUNT, (count - 1, last, workspace))
            keep_answers(tx, workspace, role_id)
            tx.execute(_UNCOUNT, (role_id, workspace, workspace, role_id))
            for statement in _OF_MEMBER:
                tx.execute(statement, (workspace, role_id))

        await self._store.transact(work)
        await self._store.database.scrub()

    async def add_person(self, workspace: str, person: Participant) -> None:
        """Add a person other than the owner, or replace what is known of it. It gets an inbox of its own.

        Raises:
            InvalidArgument: It is not a person, or it would be taken for somebody else, as `admit` says.
        """
        check_texts(workspace=workspace)
        check_kind("person", person, Participant)
        if person.type != "human":
            raise InvalidArgument(
                f"{person.id!r} cannot be added as a person",
                remedy="pass a Participant of type 'human' with its own id",
            )
        await self._store.transact(lambda tx: self.admit_person(tx, workspace, person))

    # --- who is admitted ----------------------------------------------------------------------------------------------

    def admit(self, tx: Transaction, member: Member) -> bool:
        """Add a member in a transaction; False if it is there already with an equal definition.

        All members come in here, also those of a spawn, a file and drafts.

        Raises:
            RoleExists: Its id is taken by another member or a person; its id or its name by a function, worker or shape
                of the agent; or it would be taken for somebody else by one of them.
            RolesFull: The workspace has as many members as it can.
        """
        spec, workspace = member.spec, member.spec.workspace
        count, last = hold_members(tx, workspace)
        there = one_member(tx, workspace, spec.role_id)
        if there is not None and there.life.status is not RoleStatus.TERMINATED and there.spec == spec:
            return False
        if there is not None and there.life.status is RoleStatus.TERMINATED and there.life.activated_at is None:
            for statement in _OF_MEMBER:  # it was never approved, so its id is free
                tx.execute(statement, (workspace, spec.role_id))
            there = None
        if there is not None or tx.execute(_PERSON, (workspace, spec.role_id)):
            raise RoleExists(f"the workspace has {spec.role_id!r} already", remedy="use another id")
        self.check_identity(tx, member)
        if count >= self._policy.max_roles:
            raise RolesFull(
                f"the workspace {workspace!r} has {count} members, and its policy allows {self._policy.max_roles}",
                remedy="terminate members that are not needed, or raise `max_roles`",
            )
        _insert(tx, member, last + 1)
        _add_looks(tx, workspace, member.id, member.name)
        tx.execute(_COUNT, (count + 1, last + 1, workspace))
        return True

    def admit_person(self, tx: Transaction, workspace: str, person: Participant) -> None:
        """Add a person in a transaction, or replace what is known of it.

        Raises:
            InvalidArgument: Its id is that of a member, its id or name that of a function, worker or shape of the
                agent, or it would be taken for somebody else.
        """
        key = (workspace, person.id)
        if members_of(tx, workspace, [person.id]):
            raise InvalidArgument(f"{person.id!r} is the id of a member", remedy="use another id")
        there = next((read_as(Participant, json.loads(body)) for (body,) in tx.execute(_PERSON, key)), None)
        problem = self._taken(person.id, person.name) or self._mistaken(tx, *key, person.name)
        if problem and (there is None or there.name != person.name):
            raise InvalidArgument(problem, remedy="use another id and another name")
        tx.execute(_ADD_PERSON, (*key, canonical_json(to_json(person))))
        tx.execute(_NO_LOOKS, key)
        _add_looks(tx, *key, person.name)

    def check_identity(self, tx: Transaction, member: Member) -> None:
        """Refuse a member that would be taken for somebody else, or whose worker cannot have its name.

        Raises:
            RoleExists: It is.
        """
        key = (member.spec.workspace, member.id, member.name)
        if problem := self._taken(member.id, member.name) or self._mistaken(tx, *key):
            raise RoleExists(problem, remedy="use another id and another name")

    def _taken(self, id_: str, name: str) -> str:
        for what, text in (("id", id_), ("name", name)):
            if any(self.is_taken(each) for each in {text, text.casefold()} - {""}):
                return f"the {what} {text[:80]!r} is the name of a function, worker or shape of the agent"
        return ""

    def _mistaken(self, tx: Transaction, workspace: str, id_: str, name: str) -> str:
        if not tx.execute(_SEEN, (workspace,)):
            for each in self._named(tx, workspace):
                _add_looks(tx, workspace, *each)
        others = dict(tx.execute(_ALIKE, (workspace, skeleton(id_), skeleton(name), id_)))
        return mistakable(id_, name, owner=self._owner, others=others)

    def _named(self, tx: Transaction, workspace: str) -> list[tuple[str, str]]:
        """The id and the name of each person, and of each member that is not terminated."""
        people = (json.loads(body) for (body,) in tx.execute(_PEOPLE, (workspace,)))
        return [*((each["id"], each["name"]) for each in people), *map(tuple, tx.execute(_NAMES, (workspace,)))]

    async def mistaken(self, workspace: str) -> Mapping[str, str]:
        """The members and people that could not join as they are called, each with the reason.

        An earlier version admitted them, or the owner or a function has got such a name since.
        """
        check_texts(workspace=workspace)

        def work(tx: Transaction) -> tuple[list[tuple[str, str]], dict[str, str]]:
            named = self._named(tx, workspace)  # compared here, since the event loop would wait for many of them
            looks = looks_of(named)
            found = {id_: mistakable(id_, name, owner=self._owner, others=looks) for id_, name in named}
            return named, {id_: problem for id_, problem in found.items() if problem}

        named, found = await self._store.read(work)
        return found | {id_: problem for id_, name in named if (problem := self._taken(id_, name))}


# --- rows -------------------------------------------------------------------------------------------------------------


def _member(row: Sequence[Any]) -> Member:
    kept = read(_Stored, row, f"the member {row[1]!r}")
    return Member(
        spec=read_as(RoleSpec, kept.spec),
        name=kept.name,
        interface=read_as(InterfaceSpec, kept.interface),
        life=read_as(RoleLifecycle, kept.life),
        trust=read_as(TrustProfile, kept.trust),
        soul_version=kept.soul_version,
    )


def _listed(row: Sequence[Any]) -> Participant:
    kept = read(_Listed, row, f"the member {row[0]!r}")
    return Participant(id=kept.id, type="role", name=kept.name, domains=kept.spec.domains)


def hold_members(tx: Transaction, workspace: str) -> tuple[int, int]:
    """Hold the members of a workspace: until the transaction ends no other one adds one or changes its life.

    Returns:
        How many there are that are not terminated, and the number of the last.
    """
    tx.execute(_FIRST, (workspace,))
    [(count, last)] = tx.hold(_COUNTER, (workspace,), alone=True)
    return count, last


def members_of(tx: Transaction, workspace: str, ids: Sequence[str]) -> Mapping[str, Member]:
    """Those of some ids that are members, by their ids."""
    rows = [row for marks, some in portions(ids) for row in tx.execute(_SOME.format(marks), (workspace, *some))]
    return {row[1]: _member(row) for row in rows}


def all_members(tx: Transaction, workspace: str) -> list[Member]:
    """All members of a workspace, also those that are terminated, in the order of registration."""
    return [_member(row) for row in tx.execute(_EVERY, (workspace,))]


def one_member(tx: Transaction, workspace: str, role_id: str) -> Member | None:
    """The member with an id, in a transaction; None if there is none."""
    return members_of(tx, workspace, [role_id]).get(role_id)


def first_of_domain(tx: Transaction, workspace: str, domain: str) -> str | None:
    """The id of the first live member with a domain, in the order of registration; None if there is none."""
    rows = tx.execute(_LISTED_OF_DOMAIN, (workspace, domain, 0, 1))
    return str(rows[0][0]) if rows else None


def participant(tx: Transaction, workspace: str, id_: str, owner: str) -> Participant | None:
    """The member or person with an id, in a transaction; None if there is none."""
    if id_ in (USER, owner):
        return Participant(id=USER, type="human", name=owner)
    if id_ == ROOT:
        return Participant(id=ROOT, type="role", name="World Agent")
    found = one_member(tx, workspace, id_)
    if found is not None:
        shown = found.as_participant()  # one that an earlier version admitted has no name that means somebody else
        return replace(shown, name=id_) if mistakable(id_, shown.name, owner=owner, others={}) else shown
    people = tx.execute(_PERSON, (workspace, id_))
    return read_as(Participant, json.loads(people[0][0])) if people else None


def new_member(
    spec: RoleSpec,
    name: str,
    interface: InterfaceSpec | None,
    status: RoleStatus,
    now: datetime,
    policy: WorkspacePolicy,
) -> Member:
    """A member that begins its life."""
    life = RoleLifecycle(
        status=status,
        created_at=now,
        created_by=spec.created_by or spec.parent_role_id or USER,
        activated_at=now if status is RoleStatus.ACTIVE else None,
        memory_policy=spec.memory_policy,
    )
    trust = spec.trust or TrustProfile(default=policy.default_trust)
    return Member(spec=spec, name=name or spec.role_id, interface=interface, life=life, trust=trust)


def _insert(tx: Transaction, member: Member, place: int) -> None:
    spec, workspace = member.spec, member.spec.workspace
    interface = None if member.interface is None else canonical_json(member.interface.to_json())
    given = (workspace, spec.role_id, place, member.name, member.life.status.value, spec.parent_role_id)
    life, trust = (canonical_json(to_json(each)) for each in (member.life, member.trust))
    expires = seconds(member.life.ends_at(spec.ttl))
    tx.execute(_INSERT, (*given, canonical_json(spec.to_json()), interface, life, trust, member.soul_version, expires))
    for domain in spec.domains:
        tx.execute(_DOMAIN, (workspace, domain, place, spec.role_id))
    if spec.limits is not None:
        put_limits(tx, workspace, f"member {spec.role_id}", spec.limits, member=spec.role_id)


def _add_looks(tx: Transaction, workspace: str, id_: str, name: str) -> None:
    for look in looks_of([(id_, name)]):
        tx.execute(_LOOKS, (workspace, look, id_))


def redefine_member(tx: Transaction, member: Member, before: Member) -> None:
    """Replace all that a definition changes of a member in a transaction; its id and its place stay."""
    spec, key = member.spec, (member.spec.workspace, member.id)
    if spec.limits != before.spec.limits:  # others stay as they were extended
        put_limits(tx, spec.workspace, f"member {member.id}", spec.limits, member=member.id)
    given = (canonical_json(to_json(each)) for each in (spec, member.life, member.trust))
    tx.execute(_REDEFINE, (*given, member.soul_version, seconds(member.life.ends_at(spec.ttl)), *key))
    tx.execute(_NO_DOMAINS, key)
    [(place,)] = tx.execute(_PLACE, key)
    for domain in spec.domains:
        tx.execute(_DOMAIN, (spec.workspace, domain, place, member.id))


def unknown_member(role_id: object, workspace: str) -> UnknownMember:
    """The error that there is no such member."""
    return UnknownMember(
        f"there is no member {str(role_id)[:60]!r} in the workspace {workspace!r}",
        remedy="list the members for their ids",
    )


class InMemoryRegistry:
    """The registry of a test: nothing is stored (A3).

    Args:
        owner: The person that `user` stands for.

    Attributes:
        queued: The members that wait for approval.
    """

    def __init__(self, owner: str = USER) -> None:
        self.queued: list[RoleSpec] = []
        self._owner = owner
        self._specs: dict[tuple[str, str], RoleSpec] = {}

    async def get(self, workspace: str, role_id: str) -> Participant | None:
        """The member or person with this id; None if there is none."""
        if role_id in (USER, self._owner):
            return Participant(id=USER, type="human", name=self._owner)
        spec = self._specs.get((workspace, role_id))
        return None if spec is None else _participant_of(spec)

    async def list_roles(self, workspace: str, *, after: str = "", limit: int = MAX_PAGE) -> list[Participant]:
        """The first members, in the order in which they were registered, or those after one of them.

        Raises:
            UnknownMember: There is no member `after`.
        """
        return self._after(workspace, after)[:limit]

    async def find_by_domain(
        self, workspace: str, domain: str, *, after: str = "", limit: int = MAX_PAGE
    ) -> list[Participant]:
        """The first members with this domain, in the order of registration, or those after one of them.

        Raises:
            UnknownMember: There is no member `after`.
        """
        return [each for each in self._after(workspace, after) if domain in each.domains][:limit]

    def _after(self, workspace: str, after: str) -> list[Participant]:
        found = [_participant_of(spec) for (place, _), spec in self._specs.items() if place == workspace]
        ids = [each.id for each in found]
        if after and after not in ids:
            raise unknown_member(after, workspace)
        return found[ids.index(after) + 1 :] if after else found

    async def register(self, spec: RoleSpec) -> str:
        """Add a member and return its id.

        Raises:
            RoleExists: Another member has this id.
        """
        if self._specs.setdefault((spec.workspace, spec.role_id), spec) != spec:
            raise RoleExists(f"the workspace has {spec.role_id!r} already", remedy="use another id")
        return spec.role_id

    async def remove(self, workspace: str, role_id: str) -> None:
        """Remove a member."""
        self._specs.pop((workspace, role_id), None)

    async def queue_spawn(self, spec: RoleSpec) -> str:
        """Keep a member in `queued` until it is registered; returns its id after `pending:`."""
        self.queued.append(spec)
        return PENDING + spec.role_id


def _participant_of(spec: RoleSpec) -> Participant:
    return Participant(id=spec.role_id, type="role", name=spec.role_id, domains=spec.domains)
