"""Whom a member knows, since when and by whom (C2). A message passes only to a contact."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import Json

from ...core import canonical_json, check_id
from ...core.checks import check_text, check_texts, check_time
from ...core.errors import InvalidArgument
from ...memory.entries.words import question_words, words_of
from ...storage import Row, Time, Transaction, portions
from ..data.brief import InterfaceSpec, interface_of
from ..data.roles import ROOT, USER, check_kind
from ..data.rows import read, seconds
from ..data.store import WorkspaceStore

BIRTH: Final = "birth"
"""Who introduced a contact that a member has from its birth: parent, children and who it reports to."""

PERSON: Final = "person"
"""Who introduced a contact that a person or the host's code added."""

MAX_SHOWN: Final = 20
"""How many contacts a model is shown at once."""

OTHERS: Final = ({"more": "there are others; search for words of what you need"},)
"""What ends a list that is not complete."""

_MAX_SHOWN_CHARACTERS: Final = 12_000
_MAX_NOTE: Final = 200  # characters of the note of a contact that these have no room for
_MAX_RECENT: Final = 200  # messages in which it is looked up with whom one wrote last

FIRST_MESSAGE: Final = "first message"
"""Who introduced a contact that wrote first (C5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A member or person that a member can write to (C2.7).

    Attributes:
        id: Its id.
        role: The name of its role.
        introduced_by: The member that introduced it, or `birth`, `person` or `first message`.
        interface: How it wants to be asked.
        note: What to write to it about.
        reason: Why it was introduced; a first message that gives no reason tells this.
        since: When it became a contact; None before it is stored.
        expires: When it stops being a contact; None is never.
        marks: The untrusted functions and senders whose content those had read that told of it. They mark the turns of
            members that are shown it.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    role: str
    introduced_by: str = PERSON
    interface: InterfaceSpec | None = None
    note: str = ""
    reason: str = ""
    since: datetime | None = None
    expires: datetime | None = None
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id("the id of a contact", self.id)
        check_text("role", self.role, most=200)
        check_id("introduced_by", self.introduced_by)
        check_text("note", self.note, empty=True)
        check_text("reason", self.reason, empty=True)
        check_time("since", self.since, optional=True)
        check_time("expires", self.expires, optional=True)
        object.__setattr__(self, "marks", tuple(self.marks))
        if not isinstance(self.interface, InterfaceSpec | None):
            raise InvalidArgument("`interface` must be an InterfaceSpec", remedy="omit it where there is none")


_ALWAYS: Final = {
    ROOT: Contact(id=USER, role="user", introduced_by=BIRTH),
    USER: Contact(id=ROOT, role="World Agent", introduced_by=BIRTH),
}
"""The contact that the World Agent and the owner have in each workspace (C2.3, C2.4). It is not stored."""


class _Stored(Row):
    workspace: str
    owner: str
    id: str
    role: str
    introduced_by: str
    interface: Json[dict[str, Any]] | None
    note: str
    reason: str
    since: Time
    expires: Time | None
    marks: Json[tuple[str, ...]]


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ALIVE: Final = "(expires IS NULL OR expires > ?)"
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_contact WHERE workspace=? AND owner=? AND id=? AND {_ALIVE}"
_OWN: Final = f"SELECT {_COLUMNS} FROM wa_contact WHERE workspace=? AND owner=? AND {_ALIVE} ORDER BY since, id"
_ALL: Final = f"SELECT {_COLUMNS} FROM wa_contact WHERE workspace=? AND {_ALIVE} ORDER BY owner, since, id"
_ADD: Final = f"""INSERT INTO wa_contact({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                  ON CONFLICT(workspace, owner, id) DO UPDATE SET role=excluded.role, interface=excluded.interface,
                  marks=excluded.marks,
                  reason=CASE WHEN excluded.reason='' THEN wa_contact.reason ELSE excluded.reason END,
                  note=CASE WHEN excluded.note='' THEN wa_contact.note ELSE excluded.note END,
                  introduced_by=CASE WHEN {_ALIVE.replace("expires", "wa_contact.expires")}
                                     THEN wa_contact.introduced_by ELSE excluded.introduced_by END,
                  expires=CASE WHEN wa_contact.expires IS NULL THEN NULL ELSE excluded.expires END"""
_SOME: Final = f"SELECT {_COLUMNS} FROM wa_contact WHERE workspace=? AND owner=? AND {_ALIVE} AND id IN ({{}})"
_TEXTS: Final = f"""SELECT id, role, note, interface FROM wa_contact WHERE workspace=? AND owner=? AND {_ALIVE}
                    ORDER BY since, id"""
_DOMAINS: Final = """SELECT c.id, d.domain FROM wa_contact AS c JOIN wa_member_domain AS d
                     ON d.workspace=c.workspace AND d.member=c.id WHERE c.workspace=? AND c.owner=?"""
_PEOPLE: Final = """SELECT c.id, p.body FROM wa_contact AS c JOIN wa_person AS p
                    ON p.workspace=c.workspace AND p.id=c.id WHERE c.workspace=? AND c.owner=?"""
_RECENT: Final = f"""SELECT other FROM (
                       SELECT * FROM (SELECT receiver AS other, sent FROM wa_mail WHERE workspace=? AND sender=?
                                      ORDER BY sent DESC, id DESC LIMIT {_MAX_RECENT}) AS given UNION ALL
                       SELECT * FROM (SELECT sender AS other, sent FROM wa_mail WHERE workspace=? AND receiver=?
                                      ORDER BY sent DESC, id DESC LIMIT {_MAX_RECENT}) AS received) AS passed
                     GROUP BY other ORDER BY MAX(sent) DESC"""
_MARKS: Final = "SELECT marks FROM wa_contact WHERE workspace=? AND owner=? AND id=?"
_MARKS_OF: Final = "SELECT owner, marks FROM wa_contact WHERE workspace=? AND id=?"
_MARK: Final = "UPDATE wa_contact SET marks=? WHERE workspace=? AND owner=? AND id=?"
_DROP: Final = "DELETE FROM wa_contact WHERE workspace=? AND owner=? AND id=?"


class ContactRegistry:
    """The contacts of a workspace's members.

    Args:
        store: The database of the workspace.
    """

    def __init__(self, store: WorkspaceStore) -> None:
        self._store = store
        self._workspace = store.id

    async def get(self, owner: str, contact_id: str) -> Contact | None:
        """The contact of a member with this id; None if there is none, or it has expired."""
        check_texts(owner=owner, contact_id=contact_id)
        now = self._store.clock.now()
        return await self._store.read(lambda tx: contact_of(tx, self._workspace, owner, contact_id, now))

    async def list(self, owner: str) -> tuple[Contact, ...]:
        """The contacts of a member, the oldest first, without those that have expired."""
        check_texts(owner=owner)
        now = self._store.clock.now()
        return await self._store.read(lambda tx: contacts_of(tx, self._workspace, owner, now))

    async def nearest(
        self, owner: str, about: str = "", *, first: Sequence[str] = (), limit: int = MAX_SHOWN
    ) -> tuple[tuple[Contact, ...], bool]:
        """The contacts of a member that matter most for something, the oldest first, and whether it has more.

        First those that are named here. Half of the rest can be those that fit best, and the others are those with
        which it exchanged messages last, then the newest ones.

        Args:
            owner: The member.
            about: What it is about, such as a message.
            first: The ids of contacts that are among them in any case, if the member has them.
            limit: The most to return.
        """
        check_texts(owner=owner, about=about)

        def work(tx: Transaction) -> tuple[tuple[Contact, ...], bool]:
            now = self._store.clock.now()
            known = contact_words(tx, self._workspace, owner, now)
            ids = [*known]
            chosen = dict.fromkeys(each for each in first if each in known)
            if len(ids) > limit:
                best = fitting(known, about)
                half = len(chosen) + (limit - len(chosen)) // 2
                recent = [other for (other,) in tx.execute(_RECENT, 2 * (self._workspace, owner)) if other in known]
                chosen |= dict.fromkeys(best[:half])
                chosen |= dict.fromkeys([*recent, *reversed(ids)])
                ids = [*chosen][:limit]
            return self._shown(tx, owner, ids, now), len(known) > len(ids)

        return await self._store.read(work)

    async def find(
        self, owner: str, search: str = "", *, domain: str = "", limit: int = MAX_SHOWN
    ) -> tuple[tuple[Contact, ...], bool]:
        """The contacts of a member with words of a search, and whether more have such words.

        Those that fit best are returned, the oldest of them first.

        Args:
            owner: The member.
            search: Words of their ids, names, notes, services or domains; empty is any.
            domain: Only those with this domain.
            limit: The most to return.
        """
        check_texts(owner=owner, search=search, domain=domain)

        def work(tx: Transaction) -> tuple[tuple[Contact, ...], bool]:
            now = self._store.clock.now()
            known = contact_words(tx, self._workspace, owner, now)
            if domain:
                has = {id_ for id_, each in tx.execute(_DOMAINS, (self._workspace, owner)) if each == domain}
                known = {id_: words for id_, words in known.items() if id_ in has}
            ids = fitting(known, search) if search else [*known]
            return self._shown(tx, owner, ids[:limit], now), len(ids) > limit

        return await self._store.read(work)

    def _shown(self, tx: Transaction, owner: str, ids: Sequence[str], now: datetime) -> tuple[Contact, ...]:
        always = [_ALWAYS[owner]] if owner in _ALWAYS and _ALWAYS[owner].id in ids else []
        key = (self._workspace, owner, now.timestamp())
        rows = [row for marks, some in portions(ids) for row in tx.execute(_SOME.format(marks), (*key, *some))]
        found = sorted((_contact(row) for row in rows if not _is_always(owner, row[2])), key=_age)
        return (*always, *found)

    async def every(self) -> tuple[tuple[str, Contact], ...]:
        """All contacts of the workspace with their owners: who knows whom."""
        given = (self._workspace, self._store.clock.now().timestamp())
        rows = await self._store.read(lambda tx: tx.execute(_ALL, given))
        return (*_ALWAYS.items(), *((row[1], _contact(row)) for row in rows if not _is_always(row[1], row[2])))

    async def add(self, owner: str, contact: Contact) -> None:
        """Add a contact for a member, or update what it knows of it.

        This is for people and the host's code: members get contacts by birth, introduction and first messages.
        """
        check_texts(owner=owner)
        check_kind("contact", contact, Contact)
        now = self._store.clock.now()
        await self._store.transact(lambda tx: add_contact(tx, self._workspace, owner, contact, now))

    async def withdraw(self, owner: str, contact_id: str) -> None:
        """Take a contact away from a member. Its next message to it is refused, unless it is a reply (C5).

        The World Agent and the owner always know each other.
        """
        check_texts(owner=owner, contact_id=contact_id)
        await self._store.transact(lambda tx: tx.execute(_DROP, (self._workspace, owner, contact_id)))


def _contact(row: Sequence[Any]) -> Contact:
    kept = read(_Stored, row, f"the contact {row[2]!r} of {row[1]!r}")
    given = kept.model_dump(exclude={"workspace", "owner"})
    given["interface"] = interface_of(kept.interface)
    return Contact(**given)


def contact_of(tx: Transaction, workspace: str, owner: str, contact_id: str, now: datetime) -> Contact | None:
    """A contact of a member, in a transaction; None if there is none."""
    if _is_always(owner, contact_id):
        return _ALWAYS[owner]
    rows = tx.execute(_ONE, (workspace, owner, contact_id, now.timestamp()))
    return _contact(rows[0]) if rows else None


def contacts_of(tx: Transaction, workspace: str, owner: str, now: datetime) -> tuple[Contact, ...]:
    """The contacts of a member, in a transaction, the oldest first."""
    always = [_ALWAYS[owner]] if owner in _ALWAYS else []
    rows = tx.execute(_OWN, (workspace, owner, now.timestamp()))
    return (*always, *(_contact(row) for row in rows if not _is_always(owner, row[2])))


def contact_words(tx: Transaction, workspace: str, owner: str, now: datetime) -> dict[str, set[str]]:
    """The words by which each contact of a member can be found, in a transaction, the oldest contact first."""
    texts = {_ALWAYS[owner].id: [_ALWAYS[owner].id, _ALWAYS[owner].role]} if owner in _ALWAYS else {}
    for id_, role, note, interface in tx.execute(_TEXTS, (workspace, owner, now.timestamp())):
        services = "" if interface is None else str(json.loads(interface).get("services", ""))
        texts.setdefault(id_, [id_, role, note, services])
    for id_, domain in tx.execute(_DOMAINS, (workspace, owner)):
        texts.get(id_, []).append(domain)
    for id_, body in tx.execute(_PEOPLE, (workspace, owner)):
        texts.get(id_, []).extend(json.loads(body).get("domains", ()))
    return {id_: {*words_of(" ".join(each))} for id_, each in texts.items()}


def fitting(known: Mapping[str, set[str]], about: str) -> list[str]:
    """The ids of contacts that have words of a text, those that fit best first. A word that few have counts more."""
    wanted = {*question_words(about)}
    shared = {id_: wanted & words for id_, words in known.items()}
    having = Counter(word for words in shared.values() for word in words)
    scores = {id_: sum(1 / having[word] for word in words) for id_, words in shared.items() if words}
    return sorted(scores, key=lambda id_: -scores[id_])


def _age(contact: Contact) -> tuple[datetime, str]:
    return contact.since or datetime.min.replace(tzinfo=UTC), contact.id


def _is_always(owner: str, contact_id: str) -> bool:
    return owner in _ALWAYS and _ALWAYS[owner].id == contact_id


def add_contact(tx: Transaction, workspace: str, owner: str, contact: Contact, now: datetime) -> None:
    """Add or update a contact in a transaction. It keeps who introduced it first, and one without an end keeps none."""
    interface = None if contact.interface is None else canonical_json(contact.interface.to_json())
    given = (workspace, owner, contact.id, contact.role, contact.introduced_by, interface, contact.note, contact.reason)
    before = [mark for (body,) in tx.execute(_MARKS, given[:3]) for mark in json.loads(body)]
    marks = canonical_json(sorted({*before, *contact.marks}))  # what was said of it before can still be there
    tx.execute(_ADD, (*given, now.timestamp(), seconds(contact.expires), marks, now.timestamp()))


def add_marks(tx: Transaction, workspace: str, contact_id: str, marks: Sequence[str]) -> None:
    """Note in a transaction what was read of a contact, for all that have it."""
    for owner, body in tx.execute(_MARKS_OF, (workspace, contact_id)):
        together = canonical_json(sorted({*json.loads(body), *marks}))
        tx.execute(_MARK, (together, workspace, owner, contact_id))


def as_shown(contact: Contact) -> dict[str, Any]:
    """A contact as a model reads it."""
    interface = {} if contact.interface is None else {"interface": contact.interface.to_json()}
    note = {"note": contact.note} if contact.note else {}
    return {"id": contact.id, "role": contact.role, **note, **interface}


def as_listed(contacts: Sequence[Contact], more: bool) -> list[dict[str, Any]]:
    """Some contacts as a model reads them, and that there are more. All but the first have to fit into a budget.

    Args:
        contacts: The contacts.
        more: Whether there are others.
    """
    shown, used = list[dict[str, Any]](), 0
    for contact in contacts:
        each = as_shown(contact)
        size = len(canonical_json(each))
        if shown and used + size > _MAX_SHOWN_CHARACTERS:  # the rest of it is found by a search for it
            each = as_shown(replace(contact, interface=None, note=contact.note[:_MAX_NOTE]))
            size = len(canonical_json(each))
        shown.append(each)
        used += size
    return [*shown, *OTHERS] if more else shown
