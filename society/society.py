"""Who may write to whom: every message and introduction of a workspace passes here, and is stored or refused (002).

Nothing here starts a turn. A gateway takes what waits, lets `settle` do what needs no model, and starts the receiver's
turn for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ..core import Clock, SystemClock, check_id, new_id
from ..core.checks import check_text
from ..core.errors import (
    BriefInvalid,
    ChainTooLong,
    InvalidArgument,
    LifecycleError,
    MailboxFull,
    MessageInvalid,
    RoleExists,
    SpawnForbidden,
    UnknownContact,
    WorldAgentError,
)
from ..core.scope import is_id
from ..core.validation import check_integer
from ..memory.entries.words import question_words, words_of
from ..storage import Database, Transaction
from .bootstrap import circle_of, redefine
from .brief import Collaborator, InterfaceSpec, Language, TaskBrief, interface_of
from .consent import CONSENT, agreed, answer_of, is_question, question, to_ask
from .contacts import BIRTH, FIRST_MESSAGE, Contact, ContactRegistry, add_contact, contact_of, contacts_of
from .delivery import Introduction, delivered, quoted
from .drafts import Drafts, check_no_draft, put_template, stored_template, stored_templates
from .events import Events
from .failures import failed, failure_text, is_failure
from .lifecycle import (
    HUMAN_DECISION,
    LIFETIME_OVER,
    NOT_APPROVED,
    NOTICES,
    PARENT_TERMINATED,
    TASK_COMPLETE,
    LifeStep,
    moved,
    terminated,
)
from .lives import (
    MemoryDue,
    add_memory_due,
    below,
    expired,
    memory_done,
    memory_due,
    report_done,
    steps_of,
    steps_since,
    write_lives,
)
from .mail import (
    MAX_WAITING,
    Letter,
    answering,
    asked_with,
    close_mailbox,
    handled_by,
    heads,
    held,
    hold_mailbox,
    letter_of,
    letters_of,
    mark_answered,
    post,
    prepare,
    prepared_of,
    recorded_of,
    set_state,
    task_of,
    unanswered,
    waiting_for,
)
from .members import (
    LIVE,
    PENDING,
    Member,
    Members,
    add_member,
    hold_members,
    members_of,
    new_member,
    participant,
    put_person,
    unknown_member,
)
from .messages import MESSAGE_TYPE, Envelope, MessageType, RoleMessage, envelope_of
from .notices import Announcing, Notify, Refusal, note
from .outcomes import Outcomes
from .recommendations import Recommendations, close_recommendations
from .roles import ROOT, USER, Participant, RoleSpec, RoleStatus
from .spawning import check_spawner, derived_brief, spec_of
from .transport import REPLY_SECONDS, no_reply
from .wakeups import POLL_SECONDS, DatabaseWakeups, Wakeups, Watch, first_of
from .workspace import RoleTemplate, WorkspaceConfig

MAX_HOPS: Final = 8
"""How many members can be asked after one another for one introduction."""


@dataclass(frozen=True, slots=True)
class _Sending:
    """What is known of a message while it is checked."""

    message: RoleMessage
    sender: Participant
    receiver: Participant
    handling: Letter | None
    now: datetime


class Society:
    """The members of a workspace and what passes between them.

    Args:
        config: The workspace.
        database: A database that was opened with the schema `SOCIETY`, such as that of an agent.
        clock: Source of time.
        notify: Receives what was sent and refused, after each change that did so; it must not block.
        wakeups: What wakes gateways. Default: the database.

    Attributes:
        config: The workspace.
        members: Its members.
        contacts: Who knows whom.
        drafts: Templates that members propose.
        recommendations: Children that members' episodes speak for.
        outcomes: What members did, and the trust that follows.
        events: What happened, and what members decided about it.
    """

    def __init__(
        self,
        config: WorkspaceConfig,
        database: Database,
        clock: Clock | None = None,
        *,
        notify: Notify | None = None,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.config = config
        self.members = Members(database, owner=config.owner, policy=config.policy, clock=clock)
        self.contacts = ContactRegistry(database, config.id, clock)
        self.drafts = Drafts(database, config, clock)
        self.recommendations = Recommendations(database, config.id, clock)
        self.outcomes = Outcomes(database, config.id)
        self._wakeups = wakeups or DatabaseWakeups(database)
        self._announcing = Announcing(database, config.id, self._wakeups, notify)
        self.events = Events(config, database, self._announcing, clock)
        self._database = database
        self._clock = clock or SystemClock()

    def notifying(self, notify: Notify) -> Society:
        """The same society, for calls whose messages are reported to another receiver."""
        return Society(self.config, self._database, self._clock, notify=notify, wakeups=self._wakeups)

    async def aclose(self) -> None:
        """Close the connections that wake gateways; the database stays open."""
        await self._wakeups.aclose()

    # --- members ------------------------------------------------------------------------------------------------------

    async def join(
        self,
        spec: RoleSpec,
        *,
        name: str = "",
        interface: InterfaceSpec | None = None,
        status: RoleStatus = RoleStatus.ACTIVE,
    ) -> str:
        """Add a member of the workspace's file or of a template, with the contacts that it has from birth (C2).

        It knows its parent, which is the World Agent if it has none, and who it reports to. Its parent knows it.

        Args:
            spec: Its definition.
            name: The name of its role; its id by default.
            interface: How others ask it.
            status: The state in which it begins: a draft and one in testing become active later (A7).

        Raises:
            RoleExists: Another member has this id.
            RolesFull: The workspace has as many members as it can.
            InvalidArgument: It is of another workspace, its parent is not a member, or it begins suspended or
                terminated.
        """
        if spec.workspace != self.config.id:
            raise InvalidArgument(
                f"{spec.role_id!r} is of the workspace {spec.workspace!r}, and this is {self.config.id!r}",
                remedy="add it to its own workspace",
            )
        if status not in (RoleStatus.DRAFT, *LIVE):
            raise InvalidArgument(
                f"{spec.role_id!r} cannot begin as {status!r}", remedy="begin with draft, testing or active"
            )
        member = new_member(spec, name, interface, RoleStatus(status), self._clock.now(), self.config.policy)

        def work(tx: Transaction) -> None:
            if add_member(tx, member, most=self.config.policy.max_roles):
                self._acquaint(tx, member)

        await self._database.transact(work)
        return spec.role_id

    async def bootstrap(self) -> tuple[str, ...]:
        """Add the members and people of the configuration, in its order (000 4.9, path 1).

        A second call changes nothing. A member whose definition has changed gets the new one, and keeps its state,
        memory, messages, contacts and earned trust; what it may not do any more, its descendants may not either. A
        member that the configuration does not name any more stays, and
        one that was terminated stays so.

        Returns:
            The ids of the people and members that were added or changed.

        Raises:
            InvalidArgument: Members report to each other in a circle, or one names who is not in the workspace.
            RoleExists: A member of a template, or a person, has the id of one of them.
            RolesFull: The workspace has as many members as it can.
        """
        circle = circle_of(self.config.roles)
        if circle:
            raise InvalidArgument(
                f"{', '.join(repr(each.role_id) for each in circle)} report to each other in a circle",
                remedy="let one of them report to the owner",
            )
        if not await self._database.read(self._to_join):
            return ()
        return await self._database.transact(self._bootstrapped)

    def _to_join(self, tx: Transaction) -> list[RoleSpec | Participant]:
        """The people and members of the configuration that are not stored as it defines them."""
        config = self.config
        people = [each for each in config.people if participant(tx, config.id, each.id, config.owner) != each]
        stored = members_of(tx, config.id, [each.role_id for each in config.roles])
        ended = {id_ for id_, each in stored.items() if each.life.status is RoleStatus.TERMINATED}
        specs = {id_: each.spec for id_, each in stored.items()}
        changed = [each for each in config.roles if specs.get(each.role_id) != each and each.role_id not in ended]
        return [*people, *changed]

    def _bootstrapped(self, tx: Transaction) -> tuple[str, ...]:
        hold_members(tx, self.config.id)  # so that two agents that open at once do not both add a member
        policy, changed, met = self.config.policy, list[str](), list[Member]()
        for each in self._to_join(tx):
            if isinstance(each, Participant):
                put_person(tx, self.config.id, each)
                changed.append(each.id)
                continue
            before = members_of(tx, self.config.id, [each.role_id]).get(each.role_id)
            if before is None:
                member = new_member(each, "", None, RoleStatus.ACTIVE, self._clock.now(), policy)
                add_member(tx, member, most=policy.max_roles)
            else:
                member = redefine(tx, before, each, policy)
            changed.append(member.id)
            if before is None or before.spec.reports_to != each.reports_to:
                met.append(member)
        for member in met:  # once all are there, so that a member can come before the one that it reports to
            self._acquaint(tx, member)
        return tuple(changed)

    async def spawn(
        self,
        spawner: str,
        template_id: str,
        params: Mapping[str, str],
        brief: TaskBrief | Mapping[str, Any] | None = None,
        *,
        message_id: str | None = None,
        marks: Sequence[str] = (),
        by_event: bool = False,
    ) -> str:
        """Make a member of a template, with its contacts and its first task; returns its id (C1, C7, A9).

        Its parent is the spawner. Its first message is the task, from its parent. The collaborators that the brief
        names become its contacts. All of it is written, or nothing.

        Under `spawn_requires_approval` the member stays a draft until the owner approves it, and its task waits with
        it. The id that is returned then has the prefix `pending:`. The owner's own spawns need no approval.

        Args:
            spawner: The member that makes it, `root` for the World Agent, or `user`.
            template_id: The template.
            params: The parameters of the template.
            brief: What its first task is, also as JSON. Without one it is made of the template if the policy says so.
            message_id: The id of the first message. A second call with the same id returns the same member.
            marks: The untrusted content that the spawner had read.
            by_event: Whether an event led to it, so that a new chain begins, and no message that the spawner handles.

        Raises:
            BriefInvalid: There is no brief, and the policy requires one; or it names the member itself.
            UnknownTemplate, DraftRequired, SpawnForbidden, ParamsInvalid: The template cannot be used so.
            UnknownContact: A collaborator is not a contact of the spawner.
            UnknownMember: The spawner is not in the workspace.
            InvalidArgument: The id of the template is invalid.
            RoleExists, RolesFull: The member cannot be added.
        """
        check_id("the template", template_id)
        spawner, task = self._alias(spawner), message_id or new_id("msg")
        given = brief if brief is None or isinstance(brief, TaskBrief) else TaskBrief.from_json(brief)
        if given is None and self.config.policy.brief == "required":
            TaskBrief()  # raises, and names the fields

        def work(tx: Transaction) -> str:
            there = letter_of(tx, self.config.id, task)
            if there is not None:
                return self._spawned(tx, there.message.to_id)
            template = self._usable(tx, template_id, spawner)
            hold_members(tx, self.config.id)  # so that the spawner is not terminated meanwhile
            parent = members_of(tx, self.config.id, [spawner]).get(spawner)
            if parent is None and participant(tx, self.config.id, spawner, self.config.owner) is None:
                raise unknown_member(spawner, self.config.id)  # one that was removed while its turn ran
            if parent is not None and parent.life.status is not RoleStatus.ACTIVE:
                raise SpawnForbidden(
                    f"{spawner!r} is {parent.life.status.value} and makes no members",
                    remedy="let it become active first",
                )
            spec, name = spec_of(self.config, template, params, parent)
            now, policy = self._clock.now(), self.config.policy
            status = RoleStatus.DRAFT if policy.spawn_requires_approval and spawner != USER else RoleStatus.ACTIVE
            member = new_member(spec, name, template.interface_spec, status, now, policy)
            if not add_member(tx, member, most=policy.max_roles):
                raise RoleExists(f"the workspace has {spec.role_id!r} already", remedy="use other params")
            self._acquaint(tx, member)
            task_brief = given or derived_brief(template, params, spec.reports_to)
            for each in task_brief.collaborators:
                self._collaborate(tx, spawner, member, each, marks)
            above = ROOT if parent is None else parent.id
            payload = {MESSAGE_TYPE: "task_assignment", "task_brief": task_brief.to_json()}
            message = RoleMessage(
                id=task, type="notification", from_id=above, to_id=spec.role_id, content="", payload=payload
            )
            self._send(tx, message, marks, begins=by_event)
            close_recommendations(tx, self.config.id, spawner, template_id)
            if parent is not None:
                add_memory_due(tx, member, "inherit", params.values())
            return self._spawned(tx, spec.role_id)

        return await self._announcing.transact(work)

    async def templates(self) -> tuple[RoleTemplate, ...]:
        """All templates: those of the configuration, then those that were added."""
        return tuple(await self._database.read(lambda tx: stored_templates(tx, self.config)))

    def _usable(self, tx: Transaction, template_id: str, spawner: str) -> RoleTemplate:
        found = stored_template(tx, self.config, template_id)
        if found is None:
            check_no_draft(tx, self.config.id, template_id)
        return check_spawner(found, template_id, spawner, self.config.role_templates)

    def _spawned(self, tx: Transaction, role_id: str) -> str:
        """The id of a member that was made, with the prefix `pending:` if it was not approved."""
        found = members_of(tx, self.config.id, [role_id]).get(role_id)
        return role_id if found is None or found.life.activated_at is not None else PENDING + role_id

    async def spawns(self) -> tuple[Member, ...]:
        """The members that wait for the owner's approval, the oldest first. `task_of` has the brief of each."""
        found = await self.members.members(self.config.id)
        return tuple(each for each in found if each.life.status is RoleStatus.DRAFT)

    async def approve_spawn(self, role_id: str) -> str:
        """Let a member that waits for approval begin its task, and tell the one that made it; returns its id (A9).

        Args:
            role_id: The member, with or without the prefix `pending:`.

        Raises:
            LifecycleError: It is not a draft.
            UnknownMember: There is no such member.
        """

        def work(tx: Transaction) -> str:
            member, now = self._draft(tx, role_id), self._clock.now()
            tested = moved(member.id, member.life, RoleStatus.TESTING, now)
            write_lives(tx, member, [tested, moved(member.id, tested, RoleStatus.ACTIVE, now)], now)
            self._tell_spawner(tx, member, "approved")
            return member.id

        return await self._announcing.transact(work)

    async def reject_spawn(self, role_id: str, reason: str = "") -> str:
        """End a member that waits for approval, and tell the one that made it; returns its id, which is free again.

        Args:
            role_id: The member, with or without the prefix `pending:`.
            reason: Why, for the member that made it.

        Raises:
            LifecycleError: It is not a draft.
            UnknownMember: There is no such member.
        """
        check_text("reason", reason, most=2000, empty=True)

        def work(tx: Transaction) -> str:
            member = self._draft(tx, role_id)
            self._tell_spawner(tx, member, "rejected", reason)
            self._terminate(tx, member.id, NOT_APPROVED)
            return member.id

        return await self._announcing.transact(work)

    def _draft(self, tx: Transaction, role_id: str) -> Member:
        member = self._held(tx, role_id.removeprefix(PENDING))
        if member.life.status is not RoleStatus.DRAFT:
            raise LifecycleError(
                f"{member.id!r} is {member.life.status.value} and does not wait for approval",
                remedy="list the members that do",
            )
        return member

    def _tell_spawner(self, tx: Transaction, member: Member, notice: str, reason: str = "") -> None:
        """Tell the one that gave a member its task, in the member's name, what the owner decided."""
        for task in waiting_for(tx, self.config.id, member.id, 1):
            text = NOTICES[self._language(tx, task.message.from_id)][notice]
            message = RoleMessage(
                id=f"{task.message.id}.approval",
                type="notification",
                from_id=member.id,
                to_id=task.message.from_id,
                content=text.format(member=member.id, reason=reason).strip(),
            )
            chain, now = min(task.chain + 1, self.config.policy.message_chain), self._clock.now()
            with suppress(MailboxFull):
                post(tx, self.config.id, message, chain=chain, opening=None, marks=(), now=now)

    def _collaborate(
        self, tx: Transaction, spawner: str, child: Member, given: Collaborator, marks: Sequence[str]
    ) -> None:
        """Make a collaborator a contact of a child. It must be a contact of who names it, unless discovery is open."""
        now, id_ = self._clock.now(), self._alias(given.id)
        known = contact_of(tx, self.config.id, spawner, id_, now)
        other = participant(tx, self.config.id, id_, self.config.owner)
        if other is None or (known is None and spawner != USER and self.config.policy.discovery != "open"):
            raise self._stranger(tx, spawner, given.id)
        if id_ == child.id:
            raise BriefInvalid(f"{id_!r} cannot be its own collaborator", remedy="name other members")
        interface = given.interface or (self._contact(tx, other, spawner).interface)
        contact = Contact(
            id=id_,
            role=given.role[:200],
            introduced_by=spawner,
            interface=interface,
            note=given.note,
            marks=_told_by(spawner, marks),
        )
        add_contact(tx, self.config.id, child.id, contact, now)

    async def create_role(self, template: RoleTemplate) -> None:
        """Add a template to the workspace, or replace one that was added so. It is for people and the host's code (C4).

        Raises:
            InvalidArgument: The workspace's own configuration has a template with this id.
        """
        await self._database.transact(lambda tx: put_template(tx, self.config, template))

    def _acquaint(self, tx: Transaction, member: Member) -> None:
        """Make a member and its parent contacts of one another, and who it reports to one of its contacts."""
        role_id, parent, now = member.id, member.spec.parent_role_id or ROOT, self._clock.now()
        for known in {parent: None, self._alias(member.spec.reports_to or USER): None}:
            other = participant(tx, self.config.id, known, self.config.owner)
            if other is None or not self._lives(tx, known):
                raise InvalidArgument(
                    f"{role_id!r} names {known!r}, which is not in the workspace, or terminated",
                    remedy="add members after those that they name",
                )
            add_contact(tx, self.config.id, role_id, self._contact(tx, other, BIRTH), now)
        add_contact(tx, self.config.id, parent, self._contact(tx, member.as_participant(), BIRTH), now)

    def _contact(self, tx: Transaction, other: Participant, by: str, note: str = "") -> Contact:
        found = members_of(tx, self.config.id, [other.id]).get(other.id)
        interface = None if found is None else found.interface
        return Contact(id=other.id, role=other.name or other.id, introduced_by=by, interface=interface, note=note)

    def _language(self, tx: Transaction, id_: str) -> Language:
        """The language of a member; that of the workspace where it has none of its own (C10)."""
        found = members_of(tx, self.config.id, [id_]).get(id_)
        return (None if found is None else found.spec.language) or self.config.language

    def _alias(self, id_: str) -> str:
        return USER if id_ == self.config.owner else id_

    # --- lives --------------------------------------------------------------------------------------------------------

    async def test(self, role_id: str) -> None:
        """Let a draft be tested: it receives messages and events, and what it does has no effect (A7).

        Raises:
            LifecycleError: It is not a draft.
            UnknownMember: There is no such member.
        """
        await self._move(role_id, RoleStatus.DRAFT, RoleStatus.TESTING)

    async def activate(self, role_id: str) -> None:
        """Let a member that was tested work.

        Raises:
            LifecycleError: It is not in testing.
            UnknownMember: There is no such member.
        """
        await self._move(role_id, RoleStatus.TESTING, RoleStatus.ACTIVE)

    async def suspend(self, role_id: str) -> None:
        """Pause a member. It receives nothing until it is resumed; what it is in the middle of, it finishes.

        Messages that wait for it are kept. Messages to it are refused.

        Raises:
            LifecycleError: It is not active.
            UnknownMember: There is no such member.
        """
        await self._move(role_id, RoleStatus.ACTIVE, RoleStatus.SUSPENDED)

    async def resume(self, role_id: str) -> None:
        """Let a suspended member work again, with the messages that waited for it first.

        Raises:
            LifecycleError: It is not suspended.
            UnknownMember: There is no such member.
        """
        await self._move(role_id, RoleStatus.SUSPENDED, RoleStatus.ACTIVE)

    async def terminate(self, role_id: str, reason: str = HUMAN_DECISION) -> tuple[str, ...]:
        """End a member and all its descendants, these first; returns the ids of all of them in that order (A7).

        Each takes every step from its state to its end. Its requests to others remain. What others asked of it is
        answered with that it was terminated, what waits for it is closed, and it is no contact any more. A gateway then
        cancels its turn and does with its memory what its `memory_policy` says.

        Args:
            role_id: The member.
            reason: Why. Descendants end with `parent_terminated`.

        Raises:
            LifecycleError: It is terminated already.
            UnknownMember: There is no such member.
        """
        check_text("reason", reason, most=200)
        return await self._announcing.transact(lambda tx: self._terminate(tx, role_id, reason))

    async def receives(self, id_: str) -> bool:
        """Whether one receives messages: a member does while it is active or in testing, and a person always."""
        return await self._database.read(lambda tx: self._receives(tx, id_))

    async def expire(self) -> tuple[str, ...]:
        """Terminate the members whose lifetime is over, with their descendants; returns their ids. A gateway calls it.

        A lifetime of days begins when the member first becomes active. That of a task is over once the member has
        reported the task done to its parent, to whom it reports, or to the owner, and its turn has ended.
        """

        def work(tx: Transaction) -> tuple[str, ...]:
            ended: list[str] = []
            hold_members(tx, self.config.id)
            for member in expired(tx, self.config.id, self._clock.now()):
                if member.id not in ended:
                    reason = TASK_COMPLETE if member.spec.ttl == "task" else LIFETIME_OVER
                    ended += self._terminate(tx, member.id, reason)
            return tuple(ended)

        now = self._clock.now()
        found = await self._database.read(lambda tx: expired(tx, self.config.id, now))
        return await self._announcing.transact(work) if found else ()

    async def steps(self, role_id: str) -> tuple[LifeStep, ...]:
        """The states that a member reached after its first, the oldest first."""
        return tuple(await self._database.read(lambda tx: steps_of(tx, self.config.id, role_id)))

    async def steps_since(self, number: int, *, most: int = 1000) -> tuple[LifeStep, ...]:
        """The steps of all members after the one with this number, the oldest first.

        Args:
            number: The number of the last step that is known; 0 for all.
            most: The most to return.
        """
        return tuple(await self._database.read(lambda tx: steps_since(tx, self.config.id, number, most)))

    async def memory_due(self, *, most: int = 100) -> tuple[MemoryDue, ...]:
        """What is still to be done with the memory of members, in the order in which it must be done.

        A member that another one made inherits once it is active, and a terminated one ends by its memory policy.

        Args:
            most: The most to return.
        """
        return tuple(await self._database.read(lambda tx: memory_due(tx, self.config.id, most)))

    async def memory_done(self, number: int) -> None:
        """Note that what was due was done."""
        await self._database.transact(lambda tx: memory_done(tx, self.config.id, number))

    async def _move(self, role_id: str, before: RoleStatus, after: RoleStatus) -> None:
        def work(tx: Transaction) -> None:
            member, now = self._held(tx, role_id), self._clock.now()
            if member.life.status is not before:
                raise LifecycleError(
                    f"{role_id!r} is {member.life.status.value}, not {before.value}", remedy="look at its status first"
                )
            write_lives(tx, member, [moved(role_id, member.life, after, now)], now)

        await self._announcing.transact(work, wakes=after in LIVE)  # messages can wait for it

    def _held(self, tx: Transaction, role_id: str) -> Member:
        """A member whose life no other transaction changes before this one ends."""
        hold_members(tx, self.config.id)
        found = members_of(tx, self.config.id, [role_id]).get(role_id)
        if found is None:
            raise unknown_member(role_id, self.config.id)
        return found

    def _terminate(self, tx: Transaction, role_id: str, reason: str) -> tuple[str, ...]:
        member, now = self._held(tx, role_id), self._clock.now()
        lives = {role_id: terminated(role_id, member.life, reason, now)}
        children = below(tx, self.config.id, role_id)
        found = {**members_of(tx, self.config.id, children), role_id: member}
        lives |= {each: terminated(each, found[each].life, PARENT_TERMINATED, now) for each in children}
        for each in (*children, role_id):
            self._close_mailbox(tx, each)
            write_lives(tx, found[each], lives[each], now)
        return (*children, role_id)

    def _close_mailbox(self, tx: Transaction, member: str) -> None:
        """Close the mailbox of a member that ends, and answer for it what others asked of it."""
        hold_mailbox(tx, self.config.id, member)
        for letter in close_mailbox(tx, self.config.id, member):
            if is_question(letter):
                self._agreed(tx, letter, yes=False)
            elif self._lives(tx, letter.message.from_id):
                # Not sent as others are: the member may be suspended, and the one that waits must get it.
                chain = min(letter.chain + 1, self.config.policy.message_chain)
                marks, now = letter.marks, self._clock.now()
                language = self._language(tx, letter.message.from_id)
                with suppress(MailboxFull):
                    post(tx, self.config.id, _ended(letter, language), chain=chain, opening=None, marks=marks, now=now)
            mark_answered(tx, self.config.id, letter.message.id)

    def _lives(self, tx: Transaction, id_: str) -> bool:
        """Whether one can still receive an answer: a person, or a member that is not terminated."""
        found = members_of(tx, self.config.id, [id_]).get(id_)
        if found is None:
            return participant(tx, self.config.id, id_, self.config.owner) is not None
        return found.life.status is not RoleStatus.TERMINATED

    def _done(self, tx: Transaction, message: RoleMessage) -> Member | None:
        """The sender of a message if it reports by it that the task is done for which it lives (A7)."""
        payload = message.payload
        if message.message_type != "status_report" or payload.get("done") is not True:
            return None
        hold_members(tx, self.config.id)
        member = members_of(tx, self.config.id, [message.from_id]).get(message.from_id)
        if member is None or member.spec.ttl != "task":
            return None
        above = (USER, member.spec.parent_role_id or ROOT, self._alias(member.spec.reports_to or USER))
        return member if message.to_id in above else None

    def _end_task(self, tx: Transaction, done: Member | None, sending: _Sending) -> None:
        """End a member that reported its task done: at once, or after the turn in which it did so."""
        if done is not None:
            report_done(tx, done, sending.now)
            if sending.handling is None:
                self._terminate(tx, done.id, TASK_COMPLETE)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        from_id: str,
        to_id: str,
        content: str | RoleMessage = "",
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        kind: Envelope = "notification",
        answers: str = "",
        message_id: str | None = None,
        marks: Sequence[str] = (),
    ) -> Letter:
        """Check a message and put it into the mailbox of its receiver. A gateway starts the receiver's turn.

        Args:
            from_id: Who sends it. The caller stamps this; it never comes from a model (C9).
            to_id: Who receives it.
            content: Its text, or the message itself: then neither payload, kind, answers nor an id are given, and
                its sender and receiver become those that are given here.
            payload: What comes with it; `message_type` says what it must hold.
            kind: What it is where it has no `message_type`.
            answers: The id of the message that it answers; by default the oldest open one of a response.
            message_id: Its id. A second call with the same id returns the message of the first.
            marks: The untrusted content that its sender had read. The turn that it starts has them, too.

        Returns:
            The message as it is stored. That of a member in testing is recorded, and never delivered (A7).

        Raises:
            MessageInvalid: It does not fit its type, is to the sender itself, to one that is terminated, or it lacks
                the reason that a first message needs.
            UnknownContact: The sender does not know the receiver, or the one that it introduces.
            ChainTooLong: Too many messages led to it since the last of a person or event.
            MailboxFull: As many messages wait for the receiver as its mailbox holds.
            InvalidArgument: An id is invalid.
        """
        sender, receiver = self._alias(from_id), self._alias(to_id)
        try:
            if isinstance(content, RoleMessage):
                message = replace(content, from_id=sender, to_id=receiver)
            else:
                given = dict(payload or {})
                message = RoleMessage(
                    id=message_id or new_id("msg"),
                    type=envelope_of(_type_of(given), kind),
                    from_id=sender,
                    to_id=receiver,
                    content=content,
                    payload=given,
                    correlation_id=answers,
                )
            return await self._announcing.transact(lambda tx: self._send(tx, message, marks))
        except _REFUSALS as error:
            await self._refused(error, sender, receiver)
            raise

    async def _refused(self, error: WorldAgentError, *ids: object) -> None:
        """Report a refused message. An id that is not in the workspace is left out: it can be any text of a model."""

        def work(tx: Transaction) -> list[str]:
            known = [str(each) if is_id(each) else "" for each in ids]
            return [each if participant(tx, self.config.id, each, self.config.owner) else "" for each in known]

        if self._announcing.notify is not None:
            with suppress(WorldAgentError):  # the refusal itself is what the caller must receive
                sender, receiver = await self._database.read(work)
                self._announcing.notify([Refusal(code=error.code, sender=sender, receiver=receiver)])

    async def request(
        self, from_id: str, to_id: str, message: RoleMessage, /, *, seconds: float = REPLY_SECONDS
    ) -> RoleMessage:
        """Send a message and wait for the reply. No turn starts with the reply, unless a gateway was faster.

        It is for code outside of turns. In a turn, members and the World Agent have `request_role`, which pauses it.

        Args:
            from_id: Who sends it.
            to_id: Who receives it.
            message: The message.
            seconds: How long to wait.

        Raises:
            MessageInvalid, UnknownContact, ChainTooLong, MailboxFull, InvalidArgument: As for `send`.
            PauseExpired: No reply came in time. It is a message like any other once it comes.
        """
        late = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            async with self._wakeups.listen(self.config.id, every=True) as watch:
                letter = await self.send(from_id, to_id, message)
                while (reply := await self.reply_to(letter.message.id)) is None:
                    if late.done():
                        raise no_reply(to_id, letter.message.id, seconds)
                    await first_of(watch.wait(), self._clock.sleep(POLL_SECONDS), asyncio.shield(late))
        finally:
            late.cancel()
        await self._claim(reply.message.id)
        return reply.message

    async def _claim(self, message_id: str) -> None:
        """Mark a reply as handled, unless a turn handles it."""

        def work(tx: Transaction) -> None:
            letter = held(tx, self.config.id, message_id)
            if letter is not None and letter.state == "waiting":
                set_state(tx, self.config.id, message_id, "handled")

        await self._database.transact(work)

    def listen(self) -> AbstractAsyncContextManager[Watch]:
        """Be woken while messages wait. A gateway uses this, with polling behind it."""
        return self._wakeups.listen(self.config.id)

    def _send(
        self,
        tx: Transaction,
        message: RoleMessage,
        marks: Sequence[str] = (),
        *,
        after: Letter | None = None,
        begins: bool = False,
    ) -> Letter:
        there = letter_of(tx, self.config.id, message.id)
        if there is not None:
            return there
        sender, receiver = (
            participant(tx, self.config.id, each, self.config.owner) for each in (message.from_id, message.to_id)
        )
        if sender is None:
            raise InvalidArgument(f"{message.from_id!r} is not in the workspace", remedy="send as a member or a person")
        done = self._done(tx, message)
        if receiver is None:
            raise self._stranger(tx, message.from_id, message.to_id)
        handling = None if begins else after or handled_by(tx, self.config.id, message.from_id)
        sending = _Sending(message, sender, receiver, handling, self._clock.now())
        replied = self._replied(tx, sending)
        testing = self._check_lives(tx, sending, replied)
        contact = contact_of(tx, self.config.id, message.from_id, message.to_id, sending.now)
        if contact is None and not replied and self.config.policy.discovery != "open":
            raise self._stranger(tx, message.from_id, message.to_id)
        self._check_answers(tx, message)
        chain = self._chain(sending)
        message, introduced = self._introduced(tx, sending, replied, marks)
        if replied and not message.correlation_id:
            message = replace(message, correlation_id=_first_question(replied))
        asked = self._question(tx, message, chain, marks, sending.now) if introduced and not testing else None
        if asked is not None:
            return asked
        questions = self._answered_questions(tx, message, replied)
        # A reply introduces no one: who asked knows whom it asked, or its contact was taken away (C5.7).
        known = replied or contact_of(tx, self.config.id, message.to_id, message.from_id, sending.now)
        opening = None if known else self._opening(sending, contact)
        # All checks come before the first write, so that a refusal inside of a larger transaction leaves nothing.
        letter = post(
            tx, self.config.id, message, chain=chain, opening=opening, marks=marks, now=sending.now, recorded=testing
        )
        if testing:
            return letter
        made = [] if known else [self._contact(tx, sender, FIRST_MESSAGE)]
        for each in (*made, *introduced):
            add_contact(tx, self.config.id, message.to_id, each, sending.now)
        self._close(tx, message, replied, questions, by_person=sending.sender.type == "human")
        self._end_task(tx, done, sending)
        return letter

    def _close(
        self,
        tx: Transaction,
        message: RoleMessage,
        replied: Mapping[str, Envelope],
        questions: Sequence[Letter],
        *,
        by_person: bool,
    ) -> None:
        """Note which messages a reply answers, and continue the introductions that it agrees to.

        A request for an introduction waits for its own kind of answer until the turn of it is over. A person has none.
        """
        mark_answered(tx, self.config.id, *(each for each, kind in replied.items() if kind != "request"))
        for answered in (each for each, kind in replied.items() if kind == "request"):
            final = message.message_type == "introduction_response" or (by_person and self._is_request(tx, answered))
            if final or not self._waits(tx, answered, questions):
                mark_answered(tx, self.config.id, answered)
        for each in questions:
            self._agreed(tx, each, yes=message.payload[CONSENT] is True)

    def _waits(self, tx: Transaction, message_id: str, answered: Sequence[Letter]) -> bool:
        """Whether a message still waits for its own kind of answer after a plain reply."""
        letter = letter_of(tx, self.config.id, message_id)
        question = is_question(letter) and message_id not in [each.message.id for each in answered]
        return question or self._is_request(tx, message_id)

    def _check_answers(self, tx: Transaction, message: RoleMessage) -> None:
        """Refuse an answer to a message of others. That a request is a referral is checked with its path."""
        if not message.correlation_id or message.message_type == "introduction_request":
            return
        letter = letter_of(tx, self.config.id, message.correlation_id)
        if letter is None or (letter.message.from_id, letter.message.to_id) != (message.to_id, message.from_id):
            raise MessageInvalid(
                f"`answers` is not the id of a message from {message.to_id!r} to {message.from_id!r}",
                remedy="leave `answers` out, or give the id of a message that you answer",
            )

    def _replied(self, tx: Transaction, sending: _Sending) -> dict[str, Envelope]:
        """The messages that this one replies to, by their ids: a reply is always allowed (C5.6)."""
        message = sending.message
        found = unanswered(tx, self.config.id, message.to_id, message.from_id)
        if message.correlation_id:
            return {each: found[each] for each in (message.correlation_id,) if each in found}
        if message.type == "request":  # a question of one's own answers nothing
            return {}
        requests = [each for each, kind in found.items() if kind == "request"]
        if message.message_type == "introduction_response":
            open_ones = [each for each in requests if self._is_request(tx, each)]
        else:
            own = [each for each in requests if each.endswith(f".{message.from_id}")]  # as the ids of questions end
            questions = [each for each in own if is_question(letter_of(tx, self.config.id, each))]
            others = [each for each in found if each not in {*questions}] if questions else [*found]
            open_ones = questions if CONSENT in message.payload else others or questions
        return {each: found[each] for each in (open_ones[:1] if message.type == "response" else open_ones)}

    def _is_request(self, tx: Transaction, message_id: str) -> bool:
        letter = letter_of(tx, self.config.id, message_id)
        return letter is not None and letter.message.message_type == "introduction_request"

    def _check_lives(self, tx: Transaction, sending: _Sending, replied: Mapping[str, Envelope]) -> bool:
        """Refuse a sender or receiver that takes part in nothing; return whether the sender is in testing.

        What a suspended member asked can be answered: its turn may wait for that, and does not ask again.
        """
        hold_mailbox(tx, self.config.id, sending.message.to_id)  # so that the receiver is not terminated meanwhile
        found = members_of(tx, self.config.id, [sending.message.from_id, sending.message.to_id])
        for member in found.values():
            if member.life.status in LIVE or _is_first_task(member, sending.message):
                continue
            answers = member.id == sending.message.to_id and "request" in replied.values()
            if member.life.status is not RoleStatus.SUSPENDED or not answers:
                raise MessageInvalid(
                    f"{member.id!r} is {member.life.status.value} and takes part in no conversation",
                    remedy="ask who made it, or the user",
                )
        sender = found.get(sending.message.from_id)
        return sender is not None and sender.life.status is RoleStatus.TESTING

    def _chain(self, sending: _Sending) -> int:
        """How many messages led to this one, with itself. A person begins a new chain."""
        if sending.sender.type == "human" or sending.handling is None:
            return 1
        chain, most = sending.handling.chain + 1, self.config.policy.message_chain
        if chain > most:
            raise ChainTooLong(
                f"{most} messages led to one another without a person", remedy="report to the user what was reached"
            )
        return chain

    def _opening(self, sending: _Sending, contact: Contact | None) -> Introduction | None:
        """What a first message tells about its sender; the receiver knows it from then on (C5)."""
        message = sending.message
        if sending.sender.type == "human" or sending.receiver.type == "human":
            return None
        reason = message.payload.get("reason") or ("" if contact is None else contact.reason or contact.note)
        if not isinstance(reason, str) or not reason.strip():
            raise MessageInvalid(
                f"the first message to {message.to_id!r} lacks `reason`",
                remedy="say in the payload's `reason` why you write to it",
            )
        role = sending.sender.name or sending.sender.id
        return Introduction(role=role, duties=", ".join(sending.sender.domains) or role, reason=reason)

    def _stranger(self, tx: Transaction, from_id: str, to_id: str) -> UnknownContact:
        """The refusal of a stranger, which names whom to ask (C11)."""
        known = [each.id for each in contacts_of(tx, self.config.id, from_id, self._clock.now())]
        if from_id == USER:
            return UnknownContact(
                f"{str(to_id)[:60]!r} is not a contact of {from_id!r}, whose contacts are: {', '.join(known)}",
                remedy="write to one of them, or add the contact with agent.society.contacts.add('user', ...)",
            )
        shown = ", ".join(known[:_MAX_SHOWN]) or USER
        return UnknownContact(
            f"{str(to_id)[:60]!r} is not a contact of {from_id!r}",
            remedy=f"ask a contact for an introduction with the message_type introduction_request: {shown}",
        )

    # --- introductions ------------------------------------------------------------------------------------------------

    def _introduced(
        self, tx: Transaction, sending: _Sending, replied: Mapping[str, Envelope], marks: Sequence[str]
    ) -> tuple[RoleMessage, tuple[Contact, ...]]:
        """Check a request or answer about an introduction; returns it with the contact that an answer brings (C3)."""
        message = sending.message
        if message.message_type == "introduction_request":
            return self._referral(tx, sending), ()
        if message.message_type != "introduction_response":
            return message, ()
        asked = [each for each, kind in replied.items() if kind == "request" and self._is_request(tx, each)]
        if not asked:
            raise MessageInvalid(
                f"{message.to_id!r} has no open introduction_request to {message.from_id!r}",
                remedy="answer each request once; send a collaboration_request for anything else",
            )
        target, request = message.payload.get("target_id"), letter_of(tx, self.config.id, asked[0])
        reason = "" if request is None else str(request.message.payload["reason"])
        introduced = () if target is None else (self._introduce(tx, sending, str(target), reason, marks),)
        return replace(message, correlation_id=asked[0]), introduced

    def _introduce(self, tx: Transaction, sending: _Sending, target: str, reason: str, marks: Sequence[str]) -> Contact:
        message, payload = sending.message, sending.message.payload
        contact = contact_of(tx, self.config.id, message.from_id, self._alias(target), sending.now)
        if contact is None:
            raise self._stranger(tx, message.from_id, target)
        if contact.id == message.to_id:
            raise MessageInvalid(f"{target!r} cannot be introduced to itself", remedy="name another member")
        return Contact(
            id=contact.id,
            role=contact.role,
            introduced_by=message.from_id,
            interface=contact.interface or interface_of(message.to_json()["payload"]["interface_spec"]),
            note=str(payload["usage_advice"]),
            reason=reason,
            marks=_told_by(message.from_id, (*contact.marks, *marks)),
        )

    def _question(
        self, tx: Transaction, answer: RoleMessage, chain: int, marks: Sequence[str], now: datetime
    ) -> Letter | None:
        """Ask the next one that has to agree to an introduction; None if all have agreed.

        Raises:
            MessageInvalid: One has refused.
        """
        for who in to_ask(tx, self.config.id, self.config.policy, answer):
            request = letter_of(tx, self.config.id, answer.correlation_id)
            reason = "" if request is None else str(request.message.payload["reason"])
            asked = question(answer, who, reason, self._language(tx, who))
            said = agreed(tx, self.config.id, asked.id)
            if said is None:
                there = letter_of(tx, self.config.id, asked.id)
                return there or post(tx, self.config.id, asked, chain=chain, opening=None, marks=marks, now=now)
            if not said:
                raise MessageInvalid(f"{who!r} does not agree to the introduction", remedy="answer with `declined`")
        return None

    def _answered_questions(
        self, tx: Transaction, message: RoleMessage, replied: Mapping[str, Envelope]
    ) -> list[Letter]:
        """The questions for consent that a message answers.

        Raises:
            MessageInvalid: It is a collaboration_response to one, and does not say yes or no.
        """
        found = [letter_of(tx, self.config.id, each) for each, kind in replied.items() if kind == "request"]
        questions = [each for each in found if each is not None and is_question(each)]
        said = message.payload.get(CONSENT)
        if questions and message.type == "response" and not isinstance(said, bool):
            raise MessageInvalid(
                f"the answer to {message.to_id!r} lacks `consent`", remedy="say true or false in the payload"
            )
        return questions if isinstance(said, bool) else []

    def _agreed(self, tx: Transaction, asked: Letter, *, yes: bool) -> None:
        """Continue an introduction that one has agreed to, or decline it."""
        request = letter_of(tx, self.config.id, asked.message.correlation_id)
        if request is not None and not request.answered:
            declined = {MESSAGE_TYPE: "introduction_response", "declined": _NOT_AGREED}
            self._replies(tx, request, answer_of(asked) if yes else declined, asked.marks, after=asked)

    def _referral(self, tx: Transaction, sending: _Sending) -> RoleMessage:
        """Tie a request to the one that its sender is asked, and end loops and paths that are too long."""
        message, handling = sending.message, sending.handling
        origin = message.correlation_id
        if not origin and handling is not None:
            asked_for = self._origin(tx, handling)
            origin = "" if asked_for is None or asked_for.answered else asked_for.message.id
        path = self._path(tx, origin)
        if origin and (not path or path[0].message.to_id != message.from_id or path[0].answered):
            raise MessageInvalid(
                f"{message.from_id!r} is not asked for the introduction that `answers` names",
                remedy="leave `answers` out",
            )
        if path and message.to_id in (path[-1].message.from_id, *asked_with(tx, self.config.id, path[-1].message.id)):
            raise MessageInvalid(
                f"{message.to_id!r} was asked for this introduction already", remedy="ask another contact"
            )
        if len(path) >= MAX_HOPS:
            raise MessageInvalid(
                f"{len(path)} members were asked after one another for this introduction",
                remedy="answer with `declined` and say why",
            )
        return replace(message, correlation_id=origin)

    def _origin(self, tx: Transaction, letter: Letter) -> Letter | None:
        """The request for an introduction that a request is, or for which the receiver of an answer had asked on."""
        kind = letter.message.message_type
        if kind == "introduction_request":
            return letter
        request = letter_of(tx, self.config.id, letter.message.correlation_id)
        if request is None or request.message.message_type != "introduction_request":
            return None
        by_person = members_of(tx, self.config.id, [letter.message.from_id]) == {} and letter.message.from_id != ROOT
        if kind != "introduction_response" and not by_person:  # a remark, while the turn of the request is not over
            return None
        return letter_of(tx, self.config.id, request.message.correlation_id)

    def _path(self, tx: Transaction, origin: str) -> list[Letter]:
        """The requests that led to one another, the last first."""
        path: list[Letter] = []
        while origin and len(path) <= MAX_HOPS:
            letter = letter_of(tx, self.config.id, origin)
            if letter is None or letter.message.message_type != "introduction_request":
                break
            path.append(letter)
            origin = letter.message.correlation_id
        return path

    async def settle(self, message_id: str) -> bool:
        """Do what a message asks for that needs no model; returns whether nothing is left to do (C3).

        A request for an introduction is answered if exactly one contact of the member that is asked fits all its
        words. An answer to a referral is forwarded to the one that asked before. A message to a member that was
        suspended since it was taken stays in the mailbox.

        Args:
            message_id: The message that is about to be delivered.
        """

        def work(tx: Transaction) -> bool:
            letter = held(tx, self.config.id, message_id)
            if letter is None or letter.state == "handled" or not self._receives(tx, letter.message.to_id):
                return True
            set_state(tx, self.config.id, message_id, "handling")
            kind = letter.message.message_type
            done = (
                (kind == "introduction_request" and self._answer(tx, letter))
                or (kind == "introduction_response" and self._forward(tx, letter))
                or (letter.message.type == "response" and self._answers_question(tx, letter))
            )
            if done:
                set_state(tx, self.config.id, message_id, "handled")
            return done

        return await self._announcing.transact(work)

    def _receives(self, tx: Transaction, id_: str) -> bool:
        found = members_of(tx, self.config.id, [id_]).get(id_)
        return found is None or found.life.status in LIVE

    def _answer(self, tx: Transaction, letter: Letter) -> bool:
        asked, asker = letter.message.to_id, letter.message.from_id
        wanted = {*question_words(str(letter.message.payload["required_capability"]))}
        fitting = [
            contact
            for contact in contacts_of(tx, self.config.id, asked, self._clock.now())
            if contact.id not in (asker, USER, ROOT)
            and wanted
            and wanted <= self._known_for(tx, contact)
            and self._receives(tx, contact.id)
        ]
        if letter.answered or len(fitting) != 1:
            return letter.answered
        [found] = fitting
        return self._replies(tx, letter, _response(found), (*letter.marks, *found.marks))

    def _answers_question(self, tx: Transaction, letter: Letter) -> bool:
        return is_question(letter_of(tx, self.config.id, letter.message.correlation_id))

    def _replies(
        self,
        tx: Transaction,
        letter: Letter,
        payload: Mapping[str, Any],
        marks: Sequence[str] = (),
        *,
        after: Letter | None = None,
    ) -> bool:
        """Reply for the member that was asked; False if the reply is refused, so that no message is tried for ever."""
        try:
            self._send(tx, _reply(letter, payload), marks, after=after)
        except _REFUSALS as error:  # such as to one that is terminated, or to a full mailbox
            note(tx, Refusal(code=error.code, sender=letter.message.to_id, receiver=letter.message.from_id))
            return False
        return True

    def _known_for(self, tx: Transaction, contact: Contact) -> set[str]:
        other = participant(tx, self.config.id, contact.id, self.config.owner)
        services = "" if contact.interface is None else contact.interface.services
        domains = () if other is None else other.domains
        return {*words_of(" ".join((contact.id, contact.role, contact.note, services, *domains)))}

    def _forward(self, tx: Transaction, letter: Letter) -> bool:
        """Forward the answer to a referral; False where the member asked for itself, or the answer helps no further."""
        origin = self._origin(tx, letter)
        if origin is None or origin.answered or "declined" in letter.message.payload:
            return False
        payload = letter.message.to_json()["payload"]
        if payload["target_id"] == origin.message.from_id:
            return False
        return self._replies(tx, origin, payload, letter.marks)

    async def prepared(
        self, message_id: str, make: Callable[[], Awaitable[tuple[str, Iterable[str]]]]
    ) -> tuple[str, tuple[str, ...]]:
        """What the turn of a message is given, and the untrusted content in that: what was stored first.

        Args:
            message_id: The message.
            make: Makes both, if nothing is stored yet.
        """
        found = await self._database.read(lambda tx: prepared_of(tx, self.config.id, message_id))
        if found is not None:
            return found
        text, marks = await make()
        return await self._database.transact(lambda tx: prepare(tx, self.config.id, message_id, text, sorted({*marks})))

    async def reply_to(self, message_id: str) -> Letter | None:
        """The first reply to a message; None if there is none yet."""
        found = await self._database.read(lambda tx: self._answers(tx, message_id))
        return min(found, key=lambda each: each.place) if found else None

    def _answers(self, tx: Transaction, message_id: str) -> list[Letter]:
        """The messages that answer a message, also those of plain text."""
        kinds = ("response", "notification")
        return [each for kind in kinds for each in answering(tx, self.config.id, message_id, kind)]

    async def ended(self, message_id: str, error: WorldAgentError | None = None) -> None:
        """Note that the turn of a message is over. A request for an introduction that nothing answers is declined.

        So is one whose last referral was answered without an introduction. An answer that waits is looked at first.
        If the turn failed, its sender is notified, which a message without an answer that it waits for ends too.

        Args:
            message_id: The message.
            error: What the turn failed with; None if it did not.
        """

        def work(tx: Transaction) -> None:
            letter = held(tx, self.config.id, message_id)
            if letter is None or letter.state == "handled":
                return
            if is_question(letter) and not letter.answered:
                self._agreed(tx, letter, yes=False)
            origin = self._origin(tx, letter)
            if origin is not None and not self._is_open(tx, origin, letter):
                why, marks = self._why_declined(tx, origin, letter)
                why = why if error is None else failure_text(letter, error, self._language(tx, origin.message.from_id))
                self._replies(tx, origin, {MESSAGE_TYPE: "introduction_response", "declined": why}, marks)
            elif error is not None and origin is None:
                self._notify_failure(tx, letter, error)
            set_state(tx, self.config.id, message_id, "handled")

        await self._announcing.transact(work)

    def _why_declined(self, tx: Transaction, origin: Letter, over: Letter) -> tuple[str, tuple[str, ...]]:
        """What the member that was asked said or was told without an introduction, and what that is marked with."""
        told = over
        if over.message.id == origin.message.id:
            replies = [each for each in self._answers(tx, origin.message.id) if each.message.message_type is None]
            told = max(replies, key=lambda each: each.place, default=over)
        plain = told.message.content if told.message.message_type is None else ""
        said = told.message.payload.get("declined") or plain
        return (str(said), told.marks) if said else (_NONE_KNOWN, ())

    def _notify_failure(self, tx: Transaction, letter: Letter, error: WorldAgentError) -> None:
        """Notify the sender of a message, unless the system sent it: then no notification leads to another."""
        sender = letter.message.from_id
        member = members_of(tx, self.config.id, [sender]).get(sender)
        there = (
            participant(tx, self.config.id, sender, self.config.owner) if member is None else self._lives(tx, sender)
        )
        if not there or is_failure(letter) or is_question(letter):
            return
        with suppress(*_REFUSALS):  # a mailbox that is full
            message, now = failed(letter, error, self._language(tx, sender)), self._clock.now()
            post(tx, self.config.id, message, chain=letter.chain + 1, opening=None, marks=letter.marks, now=now)
            mark_answered(tx, self.config.id, letter.message.id)

    def _is_open(self, tx: Transaction, request: Letter, over: Letter) -> bool:
        """Whether a request is answered, or can be by an answer to a referral that is still to come or to be handled.

        Args:
            tx: The transaction.
            request: The request.
            over: The message whose turn is over.
        """
        for referral in answering(tx, self.config.id, request.message.id, "request"):
            answers = self._answers(tx, referral.message.id)
            left = [each for each in answers if each.state != "handled" and each.message.id != over.message.id]
            if left or not referral.answered:
                return True
        return request.answered

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def waiting(self, most: int = 100, *, after: Letter | None = None) -> list[Letter]:
        """The oldest message of each mailbox of a member that is not handled yet, the oldest first.

        Args:
            most: The most to return.
            after: Only those that were sent after this one.
        """
        return await self._database.read(lambda tx: heads(tx, self.config.id, most, after))

    async def inbox(self, person: str = USER, *, limit: int = 100) -> list[Letter]:
        """The messages that a person has not marked as read, the oldest first.

        Args:
            person: The person; by default the owner.
            limit: The most to return, 1 to 1000.

        Raises:
            InvalidArgument: `limit` is out of bounds.
        """
        check_integer("limit", limit, MAX_WAITING, remedy="choose another number")
        receiver = self._alias(person)
        return await self._database.read(lambda tx: waiting_for(tx, self.config.id, receiver, limit))

    async def recorded(self, member: str) -> list[Letter]:
        """The messages that a member sent while it was in testing, the oldest first. They were not delivered (A7).

        Args:
            member: The member.
        """
        return await self._database.read(lambda tx: recorded_of(tx, self.config.id, member))

    async def mail_of(self, member: str, *, most: int = 1000) -> list[Letter]:
        """The last messages that a member received and sent, the oldest first.

        Args:
            member: The member, or a person.
            most: The most to return.
        """
        return await self._database.read(lambda tx: letters_of(tx, self.config.id, self._alias(member), most))

    async def read(self, message_id: str) -> None:
        """Mark a message of a person as read.

        Raises:
            InvalidArgument: It is a message to a member, which its turn handles.
        """

        def work(tx: Transaction) -> None:
            letter = letter_of(tx, self.config.id, message_id)
            receiver = None if letter is None else letter.message.to_id
            if receiver == ROOT or (receiver is not None and members_of(tx, self.config.id, [receiver])):
                raise InvalidArgument(
                    f"the message {message_id[:60]!r} is to {receiver!r}, which is no person",
                    remedy="mark messages of people as read; a gateway delivers the others",
                )
            set_state(tx, self.config.id, message_id, "handled")

        await self._database.transact(work)

    async def task_of(self, member: str) -> str:
        """The brief of the last task that a member was given, as it reads it; empty if it was given none."""
        task = await self.last_task(member)
        return "" if task is None else await self.brief_in(task)

    async def last_task(self, member: str) -> Letter | None:
        """The message with the last task that a member was given; None if it was given none."""
        return await self._database.read(lambda tx: task_of(tx, self.config.id, member))

    async def brief_in(self, task: Letter) -> str:
        """The brief of a message with a task, as its receiver reads it."""
        language: Language = await self._database.read(lambda tx: self._language(tx, task.message.to_id))
        return quoted(TaskBrief.from_json(task.message.to_json()["payload"]["task_brief"]).to_text(language))

    async def earlier(self, letter: Letter, *, most: int) -> list[Letter]:
        """The last messages that the receiver of a message received and sent before it, the oldest first.

        Those that it sent are among them from the start, those that it received once its turn with them began.

        Args:
            letter: The message.
            most: The most to return.
        """
        receiver = letter.message.to_id
        rows = await self._database.read(lambda tx: letters_of(tx, self.config.id, receiver, most + 1))
        shown = [
            each
            for each in rows
            if each.message.id != letter.message.id and (each.state != "waiting" or each.message.from_id == receiver)
        ]
        return shown[-most:]

    async def text_for(self, reader: str, letter: Letter) -> str:
        """An earlier message as a member reads it that received or sent it.

        Args:
            reader: The member.
            letter: The message.
        """
        message = letter.message
        if message.to_id == reader:
            return await self.text_of(letter, can_reply=False)
        return f"-> {message.to_id}: {quoted(message.content or str(message.message_type))}"

    async def text_of(self, letter: Letter, *, can_reply: bool = True) -> str:
        """A message as its receiver reads it (C10).

        Args:
            letter: The message.
            can_reply: Whether the receiver has `send_message`.
        """
        sender, receiver = [
            await self.members.get(self.config.id, each) for each in (letter.message.from_id, letter.message.to_id)
        ]
        to_person = receiver is not None and receiver.type == "human"
        return delivered(
            letter.message,
            language=await self._database.read(lambda tx: self._language(tx, letter.message.to_id)),
            role=sender.name if sender is not None and sender.name != sender.id else "",
            from_user=letter.message.from_id == USER,
            can_reply=can_reply and not to_person,
            introduction=letter.opening,
        )


_MAX_SHOWN: Final = 20
_REFUSALS: Final = (ChainTooLong, InvalidArgument, MailboxFull, MessageInvalid, UnknownContact)
_NONE_KNOWN: Final = "I know of none."
_NOT_AGREED: Final = "The introduction was not agreed to."


def _type_of(payload: Mapping[str, Any]) -> MessageType | None:
    kind = payload.get(MESSAGE_TYPE)
    return kind if isinstance(kind, str) else None  # type: ignore[return-value] # `RoleMessage` refuses unknown ones


def _first_question(replied: Mapping[str, Envelope]) -> str:
    """Which of several messages a reply is to: the oldest that wants an answer, or else the oldest."""
    return next((each for each, kind in replied.items() if kind == "request"), next(iter(replied)))


def _told_by(member: str, marks: Sequence[str]) -> tuple[str, ...]:
    """The marks of what a member tells of another one, which had read what `marks` says."""
    return tuple(sorted({*marks} if member == USER else {*marks, f"message:{member}"}))


def _reply(letter: Letter, payload: Mapping[str, Any], text: str = "") -> RoleMessage:
    """A reply of the member that was asked, made by the system. Its id makes it one, however often it is made."""
    return RoleMessage(
        id=f"{letter.message.id}.reply",
        type="response",
        from_id=letter.message.to_id,
        to_id=letter.message.from_id,
        content=text,
        payload=payload,
        correlation_id=letter.message.id,
    )


def _is_first_task(member: Member, message: RoleMessage) -> bool:
    """Whether a message gives a member its task from its parent: it waits with the member until that is approved."""
    above = member.spec.parent_role_id or ROOT
    given = message.message_type == "task_assignment" and (message.from_id, message.to_id) == (above, member.id)
    return given and member.life.status is RoleStatus.DRAFT


def _ended(letter: Letter, language: Language) -> RoleMessage:
    """The answer to a request to a member that is terminated, made by the system."""
    text = NOTICES[language]["terminated"].format(member=letter.message.to_id)
    if letter.message.message_type == "introduction_request":
        return _reply(letter, {MESSAGE_TYPE: "introduction_response", "declined": text})
    if letter.message.message_type == "collaboration_request":
        return _reply(letter, {MESSAGE_TYPE: "collaboration_response"}, text)
    return _reply(letter, {}, text)


def _response(contact: Contact) -> dict[str, Any]:
    interface = contact.interface
    advice = contact.note or ("" if interface is None else interface.input_format)
    return {
        MESSAGE_TYPE: "introduction_response",
        "target_id": contact.id,
        "role_name": contact.role,
        "interface_spec": None if interface is None else interface.to_json(),
        "usage_advice": advice or "Say what you need and why.",
    }


__all__ = ["MAX_HOPS", "Society"]
