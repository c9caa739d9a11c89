"""The board of a workspace: the task briefs that were given, how far they are, and the moves of people (A19)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ..core.checks import check_choice, check_text, check_texts
from ..core.errors import MessageInvalid
from ..core.validation import check_integer
from ..storage import Transaction
from .data.roles import USER
from .data.store import WorkspaceStore
from .mail.briefs import next_message
from .mail.letters import lock_briefs
from .mail.mailroom import Mailroom
from .mail.messages import ASSIGNMENT, MESSAGE_TYPE, TASK, RoleMessage
from .mail.posted import OPEN, STATES, BriefState, PostedBrief, has_briefs, one_brief, page_of
from .mail.rules import MessageRules

T = TypeVar("T")

MAX_PAGE: Final = 1000
"""The most briefs that one look-up returns."""

_SHOWN: Final = 20  # briefs that a member is shown
_EXPIRED: Final = 100  # briefs that one transaction marks as late


class Board:
    """The task briefs of a workspace. A brief has the id of the message with which it was given first.

    Args:
        store: The database of the workspace.
        rules: Its rules.
        mail: Its messages.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules, mail: Mailroom) -> None:
        self._store = store
        self._rules = rules
        self._mail = mail

    # --- reading ------------------------------------------------------------------------------------------------------

    async def list(
        self, *, state: BriefState | None = None, limit: int = 100, after: str = ""
    ) -> tuple[PostedBrief, ...]:
        """All briefs of the workspace, the newest first.

        Args:
            state: Only those in this state; None is all.
            limit: The most to return, 1 to 1,000.
            after: The id of the last brief of the page before; empty for the first page.

        Raises:
            UnknownBrief: There is no brief `after`.
            InvalidArgument: An argument is invalid.
        """
        return await self._page(state, limit, after)

    async def of(
        self, member: str, *, state: BriefState | None = None, limit: int = 100, after: str = ""
    ) -> tuple[PostedBrief, ...]:
        """The briefs that a member or a person has, the newest first; see `list`."""
        check_texts(member=member)
        return await self._page(state, limit, after, member=self._rules.alias(member))

    async def given_by(
        self, giver: str, *, state: BriefState | None = None, limit: int = 100, after: str = ""
    ) -> tuple[PostedBrief, ...]:
        """The briefs that a member or a person gave, the newest first; see `list`."""
        check_texts(giver=giver)
        return await self._page(state, limit, after, giver=self._rules.alias(giver))

    async def _page(self, state: BriefState | None, limit: int, after: str, **who: str) -> tuple[PostedBrief, ...]:
        check_texts(after=after)
        check_integer("limit", limit, MAX_PAGE, remedy="choose another number, and pass `after` for the next page")
        if state is not None:
            check_choice("state", state, STATES)
        states = STATES if state is None else (state,)
        return tuple(
            await self._store.read(lambda tx: page_of(tx, self._store.id, states, most=limit, after=after, **who))
        )

    async def get(self, brief_id: str) -> PostedBrief:
        """The brief with this id.

        Raises:
            UnknownBrief: There is none.
        """
        check_texts(brief_id=brief_id)
        return await self._store.read(lambda tx: one_brief(tx, self._store.id, brief_id))

    async def shown_to(self, member: str) -> tuple[tuple[PostedBrief, ...], tuple[PostedBrief, ...]]:
        """What a member's board shows: the briefs that it has and that are not over, and those that it gave.

        Of either, the newest 20 are shown. Those that it gave are not done.
        """
        check_texts(member=member)

        def work(tx: Transaction) -> tuple[tuple[PostedBrief, ...], tuple[PostedBrief, ...]]:
            has = page_of(tx, self._store.id, OPEN, most=_SHOWN, member=member)
            gave = page_of(tx, self._store.id, (*OPEN, "failed"), most=_SHOWN, giver=member)
            return tuple(has), tuple(gave)

        return await self._store.read(work)

    async def has_any(self, member: str) -> bool:
        """Whether a member was given a brief, or gave one."""
        check_texts(member=member)
        return await self._store.read(lambda tx: has_briefs(tx, self._store.id, member))

    # --- moving -------------------------------------------------------------------------------------------------------

    async def retry(self, brief_id: str, *, by: str = USER) -> PostedBrief:
        """Give a brief to its member again. One that is open, accepted, or waits for others stays as it is.

        Args:
            brief_id: The brief.
            by: Who moves it: its giver, or the owner.

        Raises:
            UnknownBrief: There is no such brief.
            MessageInvalid: It is done, it went back to its giver, `by` is neither its giver nor the owner, or its
                member takes part in nothing.
            UnknownContact, MailboxFull: As for `Mailroom.send`, from its giver to its member.
        """

        def work(tx: Transaction) -> PostedBrief:
            brief = one_brief(tx, self._store.id, brief_id)
            if not brief.message:
                raise MessageInvalid(
                    f"the brief {brief.id!r} went back to {brief.member!r}",
                    remedy="reassign it to a contact of its giver",
                )
            return self._give(tx, brief, brief.member, by, unless=("open", "accepted"))

        return await self._move(work, brief_id=brief_id, by=by)

    async def reassign(self, brief_id: str, to: str, *, by: str = USER) -> PostedBrief:
        """Give a brief to another member, in the name of its giver. The one that had it is told if it had begun.

        A brief that this member has and that is not over stays as it is, so that a repeated call changes nothing.

        Args:
            brief_id: The brief.
            to: Who gets it, a contact of its giver.
            by: Who moves it: its giver, or the owner.

        Raises:
            UnknownContact: `to` is not a contact of the giver; the text names whom to ask for an introduction.
            UnknownBrief, MessageInvalid, MailboxFull: As for `retry`.
        """
        check_texts(to=to)
        return await self._move(
            lambda tx: self._give(tx, one_brief(tx, self._store.id, brief_id), self._rules.alias(to), by, unless=OPEN),
            brief_id=brief_id,
            by=by,
        )

    async def close(self, brief_id: str, reason: str, *, by: str = USER) -> PostedBrief:
        """Close a brief as failed. Its member is told if it had begun; one that is over stays as it is.

        Args:
            brief_id: The brief.
            reason: Why, for its note.
            by: Who moves it: its giver, or the owner.

        Raises:
            UnknownBrief: There is no such brief.
            MessageInvalid: `by` is neither its giver nor the owner.
            InvalidArgument: `reason` is empty or too long.
        """
        check_text("reason", reason, most=2000)

        def work(tx: Transaction) -> PostedBrief:
            brief = one_brief(tx, self._store.id, brief_id)
            self._mail.briefs.check_mover(tx, brief, self._rules.alias(by))
            if not brief.is_over:
                self._mail.briefs.close(tx, brief, reason)
            return one_brief(tx, self._store.id, brief_id)

        return await self._move(work, brief_id=brief_id, by=by)

    async def expire(self) -> tuple[str, ...]:
        """Mark the briefs whose deadline is over as late, and tell their givers once; returns their ids.

        A gateway calls it.
        """
        found = list[str]()
        while await self._store.read(self._mail.briefs.is_due):
            found += await self._move(lambda tx: self._mail.briefs.expire(tx, _EXPIRED))
        return tuple(found)

    def _give(self, tx: Transaction, brief: PostedBrief, to: str, by: str, unless: Sequence[BriefState]) -> PostedBrief:
        """Give a brief again, unless `to` has it in one of some states, or it waits for others."""
        briefs = self._mail.briefs
        briefs.check_mover(tx, brief, self._rules.alias(by))
        if brief.message and brief.member == to and (brief.state in unless or (brief.unmet and not brief.is_over)):
            return brief
        message = RoleMessage(
            id=next_message(brief),
            type="notification",
            from_id=briefs.giver_of(tx, brief),
            to_id=to,
            content="",
            payload={MESSAGE_TYPE: ASSIGNMENT, TASK: brief.id, "reason": brief.brief.objective[:200]},
        )
        self._mail.send_within(tx, message, brief.marks, begins=True, case=brief.case)
        return one_brief(tx, self._store.id, brief.id)

    async def _move(self, work: Callable[[Transaction], T], **given: str) -> T:
        check_texts(**given)

        def locked(tx: Transaction) -> T:
            lock_briefs(tx, self._store.id)
            return work(tx)

        return await self._store.transact(locked, wakes=True)
