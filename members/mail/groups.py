"""Groups of contacts that are asked something together: who is in one, its messages, and the answers (A20)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import MessageInvalid
from ...harness.journal import OpenReply
from ...storage import Transaction
from ..data.roles import ROOT
from ..data.store import WorkspaceStore
from ..life.members import LIVE, members_of
from .contacts import contacts_of
from .failures import is_failure
from .letters import Letter, end_waits, first_replies, take_for, taken
from .messages import RoleMessage
from .rules import MESSAGE_MARK, MessageRules

if TYPE_CHECKING:
    from .mailroom import Mailroom

MAX_GROUP: Final = 50
"""The most contacts that one call asks."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait of a paused turn, and what has come of it.

    Attributes:
        wait: The wait.
        replies: The replies to its messages; see `Groups.replies`.
    """

    wait: OpenReply
    replies: Mapping[str, Letter | None]

    @property
    def least(self) -> int:
        """How many more answers are enough."""
        answers = [letter for letter in self.replies.values() if letter is not None and is_answer(letter)]
        return (self.wait.quorum or 1) - len(answers)

    @property
    def over(self) -> bool:
        """Whether enough answers are there, or all replies that can come. A removed message gets none."""
        if self.wait.quorum is None:
            return any(self.replies.values())
        return self.least <= 0 or len(self.replies) == len(self.wait.message_ids)


class Groups:
    """The groups of a workspace.

    Args:
        store: The database of the workspace.
        rules: Its rules.
        mail: Its messages.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules, mail: Mailroom) -> None:
        self._store = store
        self._workspace = store.id
        self._rules = rules
        self._mail = mail

    async def chosen(
        self,
        asker: str,
        members: Sequence[str] = (),
        *,
        domain: str = "",
        children: bool = False,
        quorum: int | None = None,
    ) -> list[str]:
        """The ids of the contacts that a group is made of, each once, in the order of the alphabet.

        Args:
            asker: The member that asks, or `root`.
            members: The ids of contacts.
            domain: In their place, a domain: all contacts that are active and responsible for it.
            children: In their place, all active contacts that the member made.
            quorum: How many answers are enough.

        Raises:
            MessageInvalid: Not exactly one of the three is given, nobody is in the group, too many are, or the quorum
                is more than all of them.
            UnknownContact: One of `members` is not a contact; the text names it.
        """
        if bool(members) + bool(domain) + children != 1:
            raise MessageInvalid(
                "a group needs exactly one of `members`, `domain` and `children`",
                remedy="give the ids of contacts, or one domain, or children: true",
            )

        def work(tx: Transaction) -> list[str]:
            known = [each.id for each in contacts_of(tx, self._workspace, asker, self._store.clock.now())]
            if members:
                given = {self._rules.alias(each) for each in members}
                strangers = given - {*known} if self._store.config.policy.discovery != "open" else ()
                for each in sorted(strangers):
                    raise self._rules.stranger(tx, asker, each)
                return sorted(given)
            live = (each for each in members_of(tx, self._workspace, known).values() if each.life.status in LIVE)
            if domain:
                return sorted(each.id for each in live if domain in each.spec.domains)
            return sorted(each.id for each in live if (each.spec.parent_role_id or ROOT) == asker)

        found = await self._store.read(work)
        if not found:
            who = f"is responsible for {domain[:60]!r}" if domain else "was made by it"
            raise MessageInvalid(
                f"the group is empty: none of the active contacts of {asker!r} {who}",
                remedy="look at your contacts with list_contacts, and give their ids as `members`",
            )
        check_group(found, quorum)
        return found

    async def send(
        self,
        asker: str,
        asked: Mapping[str, str],
        content: str,
        reason: str = "",
        *,
        marks: Sequence[str] = (),
        case: str = "",
        waits: float | None = None,
    ) -> list[Letter]:
        """Send each member of a group its message, or nobody if one of them is refused. Repeating it sends nothing.

        Args:
            asker: Who asks.
            asked: The ids of the receivers, by the ids of their messages.
            content: What is asked.
            reason: Why, for receivers that do not know the asker yet.
            marks: The untrusted content that the asker had read.
            case: The case that the messages belong to (A17).
            waits: For how many seconds the asker's turn on messages waits; None where it keeps it from no message.

        Raises:
            MessageInvalid, UnknownContact, ChainTooLong, MailboxFull, WaitInCircle, InvalidArgument: As for
                `Mailroom.send`; the text names the receiver.
        """
        given: dict[str, Any] = {"type": "request", "content": content, "payload": {"reason": reason} if reason else {}}
        to = {id_: self._rules.alias(each) for id_, each in asked.items()}
        # In one order, so that two groups cannot hold mailboxes that the other one waits for.
        order = sorted(to, key=lambda id_: to[id_])
        messages = [RoleMessage(id=id_, from_id=asker, to_id=to[id_], **given) for id_ in order]
        return await self._mail.send_all(asker, messages, marks, case=case, waits=waits)

    async def replies(self, message_ids: Sequence[str], until: datetime | None = None) -> dict[str, Letter | None]:
        """The first reply to each message that has one, or None where the message itself was removed.

        Args:
            message_ids: The messages.
            until: Only replies that were sent until then; None is any.
        """
        found = await self._store.read(lambda tx: first_replies(tx, self._workspace, message_ids))

        def in_time(letter: Letter | None) -> bool:
            sent = None if letter is None else letter.message.timestamp
            return until is None or sent is None or sent <= until

        return {id_: letter for id_, letter in found.items() if in_time(letter)}

    async def keep(self, reply: Letter, turn: str) -> None:
        """Keep a reply for the turn of a group that waits for others as well: it starts no turn of its own."""
        await self._store.transact(lambda tx: take_for(tx, self._workspace, reply.message.id, turn))
        await self._mail.ended(reply.message.id)

    async def kept(self) -> dict[str, str]:
        """The turns that replies are kept for, by the ids of these replies."""
        return await self._store.read(lambda tx: taken(tx, self._workspace))

    async def let_go(self, message_id: str, *, read: bool) -> None:
        """End that a reply is kept for a turn, which is over. One that no model has read begins a turn of its own."""
        if not read:
            await self._mail.returned(message_id)
        await self._store.transact(lambda tx: take_for(tx, self._workspace, message_id, None))

    async def gathered(self, asked: Mapping[str, str], quorum: int, until: datetime | None) -> dict[str, Any]:
        """The answers of a group, which are read from now on: none of them starts a turn of its own.

        Args:
            asked: The ids of the receivers, by the ids of their messages.
            quorum: How many answers are enough.
            until: Only answers that were sent until then.

        Returns:
            `answers` and what is `missing`, by member, whether that is `enough`, and the `marks` of all of it.
        """
        late = until is not None and self._store.clock.now() >= until
        silent = "did not reply in time" if late else "had not replied when enough others had"
        replies, answers, marks = await self.replies([*asked], until), dict[str, str](), set[str]()
        missing = dict[str, str]()
        await self._store.transact(lambda tx: end_waits(tx, self._workspace, [*asked]))
        for id_, member in asked.items():
            letter = replies.get(id_)
            if letter is None:
                missing[member] = "was removed" if id_ in replies else silent
                continue
            await self._mail.ended(letter.message.id)
            text = await self._mail.text_of(letter, can_reply=False)
            (answers if is_answer(letter) else missing)[member] = text
            marks |= {*letter.marks, f"{MESSAGE_MARK}{letter.message.from_id}"}
        enough = len(answers) >= quorum
        return {"answers": answers, "missing": missing, "enough": enough, "marks": sorted(marks)}


def check_group(members: Collection[str], quorum: int | None = None) -> None:
    """Refuse a group that is too large, or has fewer members than are enough.

    Raises:
        MessageInvalid: It is one.
    """
    if len(members) > MAX_GROUP:
        raise MessageInvalid(
            f"the group has {len(members)} members, and {MAX_GROUP} are the most", remedy="ask fewer of them at once"
        )
    if quorum is not None and quorum > len(members):
        raise MessageInvalid(
            f"the quorum is {quorum}, and the group has {len(members)} members: {', '.join(members)}",
            remedy="lower `quorum`, or leave it out to wait for all of them",
        )


def is_answer(letter: Letter) -> bool:
    """Whether a reply is one of its sender, not of the system in its place, because a turn failed or it has ended."""
    return not is_failure(letter) and letter.message.id != f"{letter.message.correlation_id}.reply"
