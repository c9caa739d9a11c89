"""A society: the members of a workspace with all that passes between them."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..core import Clock, check_id, new_id
from ..core.checks import check_number, check_text, check_texts, items
from ..core.errors import BriefInvalid, BudgetReached, InvalidArgument, LifecycleError, RoleExists, SpawnForbidden
from ..core.validation import check_integer
from ..storage import Database, Transaction
from .board import Board
from .budgets import Budgets, HeldWork
from .data.brief import Collaborator, InterfaceSpec, TaskBrief
from .data.identity import mistakable
from .data.roles import RESERVED, ROOT, USER, Participant, RoleSpec, RoleStatus, check_kind
from .data.store import Notify, WorkspaceStore
from .data.workspace import RoleTemplate, WorkspaceConfig, circle_of
from .events.events import MAX_EVENTS, Events, PostedEvent, open_events
from .life.drafts import Drafts, check_no_draft, put_template, stored_template, stored_templates
from .life.lives import (
    HUMAN_DECISION,
    LIFETIME_OVER,
    NOT_APPROVED,
    NOTICES,
    TASK_COMPLETE,
    LifeStep,
    MemoryDue,
    add_memory_due,
    expired,
    memory_done,
    memory_due,
    moved,
    redefine,
    steps_of,
    steps_since,
    write_lives,
)
from .life.members import (
    LIVE,
    PENDING,
    Member,
    MemberRegistry,
    hold_members,
    members_of,
    new_member,
    one_member,
    unknown_member,
)
from .life.outcomes import Outcomes
from .life.recommendations import Recommendations, close_recommendations, untrusted_in
from .life.spawning import MAX_TEMPLATES, check_spawner, derived_brief, spec_of, usable_by
from .mail.contacts import BIRTH, Contact, ContactRegistry, add_contact, contact_of
from .mail.letters import Letter, letter_of, waiting_for
from .mail.mailroom import Mailroom
from .mail.messages import MESSAGE_TYPE, RoleMessage
from .mail.rules import MESSAGE_MARK, MessageRules, told_by
from .mail.wakeups import Wakeups
from .remote.offers import Offers
from .stalls import Stall, find_stalls, look
from .waiting import MemberPause, Threads, member_pauses

_LOG: Final = logging.getLogger("worldagent.society")


class Society:
    """The members of a workspace: how they join, are made of templates, live and end, and what passes between them.

    In each call of it and of its parts, an id that is not a text is `InvalidArgument`.

    Args:
        config: The workspace.
        database: A database that was opened with the schema `SOCIETY`, such as that of an agent.
        clock: Source of time.
        notify: Receives what was sent and refused, after each change that did so; it must not block.
        wakeups: What wakes gateways. Default: the database.
        is_taken: Says of an id whether a function, a worker or a shape of the agent has it, so that no member can.
        threads: The threads of the database, for `pauses`. The society of an agent has them.

    Attributes:
        config: The workspace.
        mail: The messages between them.
        board: The task briefs that were given, and how far they are.
        members: Its members.
        contacts: Who knows whom.
        drafts: Templates that members propose.
        recommendations: Children that members' episodes speak for.
        outcomes: What members did, and the trust that follows.
        events: What happened, and what members decided about it.
        offers: What callers over A2A asked of members.
        budgets: What members can use, and what they have used.
    """

    def __init__(
        self,
        config: WorkspaceConfig,
        database: Database,
        clock: Clock | None = None,
        *,
        notify: Notify | None = None,
        wakeups: Wakeups | None = None,
        is_taken: Callable[[str], bool] | None = None,
        threads: Threads | None = None,
    ) -> None:
        self.config = config
        self._threads = threads
        self._store = WorkspaceStore(config, database, clock, notify=notify, wakeups=wakeups)
        self._rules = MessageRules(self._store)
        self.budgets = Budgets(self._store, self._end_held)
        self.mail = Mailroom(self._store, self._rules, self.budgets)
        self.board = Board(self._store, self._rules, self.mail)
        self.members = MemberRegistry(self._store, is_taken)
        self.contacts = ContactRegistry(self._store)
        self.drafts = Drafts(self._store)
        self.recommendations = Recommendations(self._store)
        self.outcomes = Outcomes(database, config.id, self._store.clock)
        self.events = Events(self._store, self.budgets)
        self.offers = Offers(self._store, self._rules, self.mail, self.members)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """What `mail` does was done by the society itself before version 0.2.0."""
            if name.startswith("_") or not hasattr(Mailroom, name):
                raise AttributeError(f"a society has no attribute {name!r}")
            warnings.warn(f"use `society.mail.{name}`", DeprecationWarning, stacklevel=2)
            return getattr(self.mail, name)

    def notifying(self, notify: Notify) -> Society:
        """The same society, for calls whose messages are reported to another receiver."""
        store, is_taken = self._store, self.members.is_taken
        more: dict[str, Any] = {"wakeups": store.wakeups, "is_taken": is_taken, "threads": self._threads}
        return Society(self.config, store.database, store.clock, notify=notify, **more)

    async def aclose(self) -> None:
        """Close the connections that wake gateways; the database stays open."""
        await self._store.wakeups.aclose()

    async def stalls(self) -> tuple[Stall, ...]:
        """What stands still or goes round now: long waits, mailboxes that do not move, ping-pong, circles of forwards.

        The alarms of the policy say from when on. A gateway tells the owner of each, once (A18).
        """
        policy, now = self.config.policy, self._store.clock.now()
        return find_stalls(await self._store.read(lambda tx: look(tx, self.config.id, policy, now)), policy)

    async def _end_held(self, held: HeldWork) -> None:
        """End work that waits because a budget is reached."""
        error = BudgetReached(
            f"the work was ended because the budget of {held.holder!r} is reached", remedy="extend it, and ask again"
        )
        _, events = await self.queue(held.member, most=MAX_EVENTS)
        found = [each for each in events if each.case == held.work]
        for posted in found:
            await self.events.settle(posted.event.id, "cancelled", code=error.code)
        if not found:
            await self.mail.ended(held.work, error)

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

        It knows its parent, which is the World Agent if it has none, and who it reports to. Both know it.

        Args:
            spec: Its definition.
            name: The name of its role; its id by default.
            interface: How others ask it.
            status: The state in which it begins: a draft and one in testing become active later (A7).

        Raises:
            RoleExists: Its id is taken, or it would be taken for somebody else by its id or its name.
            RolesFull: The workspace has as many members as it can.
            InvalidArgument: It is no `RoleSpec`, it is of another workspace, its parent is not a member, or it begins
                suspended or terminated.
        """
        check_kind("spec", spec, RoleSpec)
        if spec.workspace != self.config.id:
            raise InvalidArgument(
                f"{spec.role_id!r} is of the workspace {spec.workspace!r}, and this is {self.config.id!r}",
                remedy="add it to its own workspace",
            )
        if status not in (RoleStatus.DRAFT, *LIVE):
            raise InvalidArgument(
                f"{spec.role_id!r} cannot begin as {status!r}", remedy="begin with draft, testing or active"
            )
        member = new_member(spec, name, interface, RoleStatus(status), self._store.clock.now(), self.config.policy)

        def work(tx: Transaction) -> None:
            if self.members.admit(tx, member):
                self._acquaint(tx, member)

        await self._store.transact(work)
        return spec.role_id

    async def bootstrap(self) -> tuple[str, ...]:
        """Add the members and people of the configuration, in its order (A9).

        A second call changes nothing. A member whose definition has changed gets the new one, and keeps its state,
        memory, messages, contacts and earned trust; what it may not do any more, its descendants may not either. A
        member that the configuration does not name any more stays, and
        one that was terminated stays so.

        Returns:
            The ids of the people and members that were added or changed.

        Raises:
            InvalidArgument: Members report to each other in a circle, or one names who is not in the workspace.
            RoleExists: A member of a template, or a person, has the id of one of them, or a new one would be taken for
                somebody else by its id.
            RolesFull: The workspace has as many members as it can.
        """
        circle = circle_of(self.config.roles)
        if circle:
            raise InvalidArgument(
                f"{', '.join(repr(each.role_id) for each in circle)} report to each other in a circle",
                remedy="let one of them report to the owner",
            )
        for id_, problem in (await self.members.mistaken(self.config.id)).items():
            _LOG.warning("%r is a member or a person that could not join today: %s", id_, problem)
        if not await self._store.read(self._to_join):
            return ()
        return await self._store.transact(self._bootstrapped)

    def _to_join(self, tx: Transaction) -> list[RoleSpec | Participant]:
        """The people and members of the configuration that are not stored as it defines them."""
        config = self.config
        people = [each for each in config.people if self._rules.participant(tx, each.id) != each]
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
                self.members.admit_person(tx, self.config.id, each)
                changed.append(each.id)
                continue
            before = one_member(tx, self.config.id, each.role_id)
            if before is None:
                member = new_member(each, "", None, RoleStatus.ACTIVE, self._store.clock.now(), policy)
                self.members.admit(tx, member)
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
        case: str = "",
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
            case: The case that it belongs to; see `Mailroom.send`.

        Raises:
            BriefInvalid: There is no brief, and the policy requires one; or it names the member itself.
            UnknownTemplate, DraftRequired, SpawnForbidden, ParamsInvalid: The template cannot be used so.
            UnknownContact: A collaborator is not a contact of the spawner.
            UnknownMember: The spawner is not in the workspace.
            InvalidArgument: The id of the template, or `marks`, is invalid.
            RoleExists: Its id is taken, it would be taken for somebody else by its id or its name, or the spawner is
                given by the id of the owner, which a member has, too.
            RolesFull: The workspace has as many members as it can.
        """
        check_id("the template", template_id)
        marks = items("marks", marks, str)
        named, spawner, task = spawner, self._rules.alias(spawner), message_id or new_id("msg")
        given = brief if brief is None or isinstance(brief, TaskBrief) else TaskBrief.from_json(brief)
        if given is None and self.config.policy.brief == "required":
            TaskBrief()  # raises, and names the fields

        def work(tx: Transaction) -> str:
            there = letter_of(tx, self.config.id, task)
            if there is not None:
                return self._spawned(tx, there.message.to_id)
            self._rules.check_acting(tx, named)
            template, parent = self._usable(tx, template_id, spawner), self._parent(tx, spawner)
            spec, name = spec_of(self.config, template, params, parent)
            spec = self._marked(tx, spec, template, params, marks)
            now, policy = self._store.clock.now(), self.config.policy
            status = RoleStatus.DRAFT if policy.spawn_requires_approval and spawner != USER else RoleStatus.ACTIVE
            member = new_member(spec, name, template.interface_spec, status, now, policy)
            if not self.members.admit(tx, member):
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
            self.mail.send_within(tx, message, marks, begins=by_event, case=case)
            close_recommendations(tx, self.config.id, spawner, template_id)
            if parent is not None:
                add_memory_due(tx, member, "inherit", params.values())
            return self._spawned(tx, spec.role_id)

        return await self._store.transact(work)

    async def templates(self, spawner: str | None = None) -> tuple[RoleTemplate, ...]:
        """All templates: those of the configuration, then those that were added, such as approved drafts.

        Args:
            spawner: Only those of which this member can make members; None is all.
        """
        found = await self._store.read(lambda tx: stored_templates(tx, self.config, spawner))
        return tuple(found if spawner is None else usable_by(spawner, found))

    def _usable(self, tx: Transaction, template_id: str, spawner: str) -> RoleTemplate:
        found, known = stored_template(tx, self.config, template_id), list[str]()
        if found is None:
            check_no_draft(tx, self.config.id, template_id)
            usable = usable_by(spawner, stored_templates(tx, self.config, spawner))
            known = [each.template_id for each in usable[:MAX_TEMPLATES]]
        return check_spawner(found, template_id, spawner, known)

    def _parent(self, tx: Transaction, spawner: str) -> Member | None:
        """The member that makes another one; None for the World Agent and the owner."""
        hold_members(tx, self.config.id)  # so that the spawner is not terminated meanwhile
        parent = one_member(tx, self.config.id, spawner)
        if parent is None and self._rules.participant(tx, spawner) is None:
            raise unknown_member(spawner, self.config.id)  # one that was removed while its turn ran
        if parent is not None and parent.life.status is not RoleStatus.ACTIVE:
            raise SpawnForbidden(
                f"{spawner!r} is {parent.life.status.value} and makes no members",
                remedy="let it become active first",
            )
        return parent

    def _marked(
        self, tx: Transaction, spec: RoleSpec, template: RoleTemplate, params: Mapping[str, str], marks: Sequence[str]
    ) -> RoleSpec:
        """A definition with the untrusted content that the params of its template can come from."""
        given = [params[name] for name in template.parameters]
        read = {*marks, *untrusted_in(tx, self.config.id, template.template_id, given)} if given else set[str]()
        return replace(spec, untrusted=tuple(sorted(each for each in read if not each.startswith(MESSAGE_MARK))))

    def _spawned(self, tx: Transaction, role_id: str) -> str:
        """The id of a member that was made, with the prefix `pending:` if it was not approved."""
        found = one_member(tx, self.config.id, role_id)
        return role_id if found is None or found.life.activated_at is not None else PENDING + role_id

    async def spawns(self) -> tuple[Member, ...]:
        """The members that wait for the owner's approval, the oldest first. `task_of` has the brief of each."""
        return tuple(await self.members.drafts(self.config.id))

    async def approve_spawn(self, role_id: str) -> str:
        """Let a member that waits for approval begin its task, and tell the one that made it; returns its id (A9).

        Args:
            role_id: The member, with or without the prefix `pending:`.

        Raises:
            LifecycleError: It is not a draft.
            RoleExists: It would be taken for somebody else, such as an owner that is called so since.
            UnknownMember: There is no such member.
        """

        def work(tx: Transaction) -> str:
            member, now = self._draft(tx, role_id), self._store.clock.now()
            self.members.check_identity(tx, member)
            tested = moved(member.id, member.life, RoleStatus.TESTING, now)
            write_lives(tx, member, [tested, moved(member.id, tested, RoleStatus.ACTIVE, now)], now)
            self._tell_spawner(tx, member, "approved")
            return member.id

        return await self._store.transact(work)

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
            self.mail.terminate_within(tx, member.id, NOT_APPROVED)
            return member.id

        return await self._store.transact(work)

    def _draft(self, tx: Transaction, role_id: str) -> Member:
        member = self._rules.held(tx, check_id("role_id", role_id).removeprefix(PENDING))
        if member.life.status is not RoleStatus.DRAFT:
            raise LifecycleError(
                f"{member.id!r} is {member.life.status.value} and does not wait for approval",
                remedy="list the members that do",
            )
        return member

    def _tell_spawner(self, tx: Transaction, member: Member, notice: str, reason: str = "") -> None:
        """Tell the one that gave a member its task, in the member's name, what the owner decided."""
        for task in waiting_for(tx, self.config.id, member.id, 1):
            text = NOTICES[self._rules.language(tx, task.message.from_id)][notice]
            message = RoleMessage(
                id=f"{task.message.id}.approval",
                type="notification",
                from_id=member.id,
                to_id=task.message.from_id,
                content=text.format(member=member.id, reason=reason).strip(),
            )
            self.mail.post_after(tx, task, message)

    def _collaborate(
        self, tx: Transaction, spawner: str, child: Member, given: Collaborator, marks: Sequence[str]
    ) -> None:
        """Make a collaborator a contact of a child. It must be a contact of who names it, unless discovery is open."""
        now, id_ = self._store.clock.now(), self._rules.alias(given.id)
        known = contact_of(tx, self.config.id, spawner, id_, now)
        other = self._rules.participant(tx, id_)
        if other is None or (known is None and spawner != USER and self.config.policy.discovery != "open"):
            raise self._rules.stranger(tx, spawner, given.id)
        if id_ == child.id:
            raise BriefInvalid(f"{id_!r} cannot be its own collaborator", remedy="name other members")
        mistaken = "" if id_ in RESERVED else mistakable(id_, given.role, owner=self.config.owner, others={})
        if mistaken:  # the child would be shown the role beside the id
            raise BriefInvalid(f"of the collaborator {id_!r}, {mistaken}", remedy="say in `role` what it does")
        interface = given.interface or (self._rules.as_contact(tx, other, spawner).interface)
        contact = Contact(
            id=id_,
            role=given.role[:200],
            introduced_by=spawner,
            interface=interface,
            note=given.note,
            marks=told_by(spawner, marks),
        )
        add_contact(tx, self.config.id, child.id, contact, now)

    async def create_role(self, template: RoleTemplate) -> None:
        """Add a template to the workspace, or replace one that was added so. It is for people and the host's code (C4).

        Raises:
            InvalidArgument: It is no `RoleTemplate`, or the workspace's own configuration has one with this id.
        """
        check_kind("template", template, RoleTemplate)
        await self._store.transact(lambda tx: put_template(tx, self.config, template))

    def _acquaint(self, tx: Transaction, member: Member) -> None:
        """Make a member, its parent and the member that it reports to contacts of one another; people need none."""
        role_id, parent, now = member.id, member.spec.parent_role_id or ROOT, self._store.clock.now()
        itself = self._rules.as_contact(tx, member.as_participant(), BIRTH)
        for known in {parent: None, self._rules.alias(member.spec.reports_to or USER): None}:
            other = self._rules.participant(tx, known)
            if other is None or not self._rules.lives(tx, known):
                raise InvalidArgument(
                    f"{role_id!r} names {known!r}, which is not in the workspace, or terminated",
                    remedy="add members after those that they name",
                )
            add_contact(tx, self.config.id, role_id, self._rules.as_contact(tx, other, BIRTH), now)
            if known == parent or one_member(tx, self.config.id, known) is not None:
                add_contact(tx, self.config.id, known, itself, now)

    # --- what waits ---------------------------------------------------------------------------------------------------

    async def pauses(self) -> tuple[MemberPause, ...]:
        """The questions to people that wait in the turns of all members, the longest waiting first (A12).

        Of each status of threads, the newest 1,000 are searched.

        Raises:
            InvalidArgument: The society was made without the threads of its database.
        """
        if self._threads is None:
            raise InvalidArgument("this society has no threads", remedy="use the society of an agent")
        return await member_pauses(self._threads, self.config.id)

    async def queue(self, role_id: str, *, most: int = 100) -> tuple[list[Letter], list[PostedEvent]]:
        """The messages and the events that wait for a member or are under way, in their order (A12).

        Args:
            role_id: The member.
            most: The most of each to return.

        Raises:
            InvalidArgument: `most` is not a positive integer.
        """
        check_texts(role_id=role_id)
        check_integer("most", most, sys.maxsize, remedy="choose another number")
        ws = self.config.id
        return await self._store.read(
            lambda tx: (waiting_for(tx, ws, role_id, most), open_events(tx, ws, role_id, most))
        )

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
        answered with that it was terminated, what waits for it is closed, and it is no longer a contact. A gateway then
        cancels its turn and does with its memory what its `memory_policy` says.

        Args:
            role_id: The member.
            reason: Why. Descendants end with `parent_terminated`.

        Raises:
            LifecycleError: It is terminated already.
            UnknownMember: There is no such member.
        """
        check_texts(role_id=role_id)
        check_text("reason", reason, most=200)
        return await self._store.transact(lambda tx: self.mail.terminate_within(tx, role_id, reason))

    async def expire(self) -> tuple[str, ...]:
        """Terminate the members whose lifetime is over, with their descendants; returns their ids. A gateway calls it.

        A lifetime of days begins when the member first becomes active. That of a task is over once the member has
        reported the task done to its parent, to whom it reports, or to the owner, and its turn has ended.
        """

        def work(tx: Transaction) -> tuple[str, ...]:
            ended: list[str] = []
            hold_members(tx, self.config.id)
            for member in expired(tx, self.config.id, self._store.clock.now()):
                if member.id not in ended:
                    reason = TASK_COMPLETE if member.spec.ttl == "task" else LIFETIME_OVER
                    ended += self.mail.terminate_within(tx, member.id, reason)
            return tuple(ended)

        now = self._store.clock.now()
        found = await self._store.read(lambda tx: expired(tx, self.config.id, now))
        return await self._store.transact(work) if found else ()

    async def steps(self, role_id: str) -> tuple[LifeStep, ...]:
        """The states that a member reached after its first, the oldest first."""
        check_texts(role_id=role_id)
        return tuple(await self._store.read(lambda tx: steps_of(tx, self.config.id, role_id)))

    async def steps_since(self, number: int, *, most: int = 1000) -> tuple[LifeStep, ...]:
        """The steps of all members after the one with this number, the oldest first.

        Args:
            number: The number of the last step that is known; 0 for all.
            most: The most to return.

        Raises:
            InvalidArgument: `number` is not a number, or `most` is not a positive integer.
        """
        check_number("number", number)
        check_integer("most", most, sys.maxsize, remedy="choose another number")
        return tuple(await self._store.read(lambda tx: steps_since(tx, self.config.id, number, most)))

    async def memory_due(self, *, most: int = 100) -> tuple[MemoryDue, ...]:
        """What is still to be done with the memory of members, in the order in which it must be done.

        A member that another one made inherits once it is active, and a terminated one ends by its memory policy.

        Args:
            most: The most to return.

        Raises:
            InvalidArgument: `most` is not a positive integer.
        """
        check_integer("most", most, sys.maxsize, remedy="choose another number")
        return tuple(await self._store.read(lambda tx: memory_due(tx, self.config.id, most)))

    async def memory_done(self, number: int) -> None:
        """Note that what was due was done.

        Raises:
            InvalidArgument: `number` is not a number.
        """
        check_number("number", number)
        await self._store.transact(lambda tx: memory_done(tx, self.config.id, number))

    async def _move(self, role_id: str, before: RoleStatus, after: RoleStatus) -> None:
        check_texts(role_id=role_id)

        def work(tx: Transaction) -> None:
            member, now = self._rules.held(tx, role_id), self._store.clock.now()
            if member.life.status is not before:
                raise LifecycleError(
                    f"{role_id!r} is {member.life.status.value}, not {before.value}", remedy="look at its status first"
                )
            write_lives(tx, member, [moved(role_id, member.life, after, now)], now)
            if after is RoleStatus.SUSPENDED:
                self.mail.briefs.ended(tx, role_id, suspended=True)

        await self._store.transact(work, wakes=after in LIVE)  # messages can wait for it
