"""The board: how far each brief is, who has it, and which moves it can make, in transactions (A19).

Each move is made in the transaction of the message, the turn or the end of a member that causes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ...core import digest
from ...core.checks import thawed
from ...core.errors import BriefInvalid, CallRefused, MailboxFull, MessageInvalid, WorldAgentError
from ...storage import Transaction
from ..data.brief import Language, TaskBrief
from ..data.roles import ROOT, USER
from ..data.store import WorkspaceStore
from ..life.members import one_member
from .letters import Letter, letter_of, lock_briefs, post, release, task_of, withdraw
from .messages import ASSIGNMENT, REPORT, TASK, RoleMessage
from .posted import (
    EDGES,
    OVER,
    BriefState,
    PostedBrief,
    add_brief,
    brief_of,
    briefs_waiting_for,
    due_briefs,
    one_brief,
    open_briefs_of,
    write_brief,
)
from .rules import MessageRules

_REPORTED: Final[tuple[BriefState, ...]] = ("accepted", "blocked", "done", "failed")
_MAX_NOTE: Final = 500  # characters
_MAX_SHOWN: Final = 20  # briefs in one message
_MAX_OBJECTIVE: Final = 200  # characters of it in a message

_TEXTS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "late": "From the system: the deadline of the brief {id} is over, and {member} has not reported it done.",
        "returned": "From the system: {member} cannot work on the brief {id} any more, so you have it. {remedy}",
        "needed": "From the system: the brief {id} failed, and these wait for it: {waiting}. {remedy}",
        "taken": "From the system: the brief {id} is not yours any more. Stop working on it.",
        "remedy": "To give it to a contact, send a task_assignment with its id as `task`.",
    },
    "zh": {
        "late": "系统通知：任务 {id} 已过截止时间，{member} 尚未汇报完成。",
        "returned": "系统通知：{member} 不再处理任务 {id}，任务已退回给你。{remedy}",
        "needed": "系统通知：任务 {id} 失败，以下任务在等待它：{waiting}。{remedy}",
        "taken": "系统通知：任务 {id} 不再由你负责，请停止处理。",
        "remedy": "要交给某个联系人，请发送 task_assignment，并以其 id 作为 `task`。",
    },
}


class Briefs:
    """The moves of a workspace's briefs, in transactions that hold its board.

    Args:
        store: The database of the workspace.
        rules: Its rules.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules) -> None:
        self._store = store
        self._workspace = store.id
        self._rules = rules

    # --- giving -------------------------------------------------------------------------------------------------------

    def assigned(self, tx: Transaction, message: RoleMessage) -> tuple[RoleMessage, PostedBrief | None]:
        """A message with its brief as it is stored, and the brief if it gives one again; checks both.

        Raises:
            BriefInvalid: The deadline is over, or it depends on a brief that its giver does not see.
            UnknownBrief: There is no brief that it gives again.
            MessageInvalid: It gives one again that is done, or that its sender did not give.
        """
        if message.message_type != ASSIGNMENT:
            return message, None
        lock_briefs(tx, self._workspace)
        payload = thawed(message.payload)
        if "task_brief" not in payload:
            again = one_brief(tx, self._workspace, payload[TASK])
            self.check_mover(tx, again, message.from_id)
            if again.state == "done":
                raise MessageInvalid(f"the brief {again.id!r} is done", remedy="give another brief")
            return replace(message, payload={**payload, "task_brief": again.brief.to_json()}), again
        given = TaskBrief.from_json(payload["task_brief"])
        if not given.is_tracked:
            return message, None
        for each in given.after:
            before = brief_of(tx, self._workspace, each)
            if before is None or message.from_id not in (USER, before.giver, before.member):
                raise BriefInvalid(
                    f"the task brief is invalid: `after` names {each[:60]!r}, which is not a brief that"
                    f" {message.from_id!r} gave or has",
                    remedy="name ids of the board, and give a brief after those that it depends on",
                )
        given = given.sent_at(self._store.clock.now())
        return replace(message, payload={**payload, "task_brief": given.to_json()}), None

    def check_mover(self, tx: Transaction, brief: PostedBrief, by: str) -> None:
        """Refuse to move a brief for one that is neither the owner nor its giver.

        Raises:
            MessageInvalid: It is neither; the text names whom to ask.
        """
        giver = self.giver_of(tx, brief)
        if by not in (USER, brief.giver, giver):
            raise MessageInvalid(
                f"the brief {brief.id!r} was given by {giver!r}, and {by!r} cannot move it",
                remedy=f"ask {giver!r} or the owner to move it",
            )

    def unmet(self, tx: Transaction, message: RoleMessage, again: PostedBrief | None) -> int:
        """How many briefs must be done before the one of a message is delivered."""
        if again is not None or message.message_type != ASSIGNMENT:
            return 0 if again is None else again.unmet
        after = message.payload["task_brief"].get("after", ())
        found = (brief_of(tx, self._workspace, each) for each in after)
        return sum(each is not None and each.state != "done" for each in found)

    def posted(self, tx: Transaction, letter: Letter, unmet: int, again: PostedBrief | None) -> None:
        """Note that a brief was given, for the first time or again, in the transaction of its message."""
        message, now = letter.message, self._store.clock.now()
        if message.message_type != ASSIGNMENT:
            return
        brief = TaskBrief.from_json(thawed(message.payload["task_brief"]))
        due = brief.deadline if isinstance(brief.deadline, datetime) and brief.deadline > now else None
        state: BriefState = "blocked" if unmet else "open"
        held: dict[str, Any] = {
            "member": message.to_id,
            "giver": message.from_id,
            "message": message.id,
            "state": state,
            "due": due,
        }
        if again is not None:
            self._taken_from(tx, again, letter)
            first = again.attempt + 1
            more: dict[str, Any] = {"note": "", "note_marks": (), "attempt": first, "most": first + brief.attempts - 1}
            self._write(tx, replace(again, **held, **more))
            return
        new = PostedBrief(
            id=message.id,
            brief=brief,
            marks=letter.marks,
            most=brief.attempts,
            unmet=unmet,
            case=letter.case,
            given=now,
            changed=now,
            **held,
        )
        add_brief(tx, self._workspace, new)

    def _taken_from(self, tx: Transaction, brief: PostedBrief, letter: Letter) -> None:
        """Take a brief from its member, which is told if it has begun with it and is not given it again."""
        before = withdraw(tx, self._workspace, brief.message) if brief.message else None
        begun = before is not None and before.state in ("handling", "handled") and not brief.is_over
        if begun and brief.member not in (letter.message.to_id, letter.message.from_id):
            self._tell(tx, brief, "taken", brief.member, by=letter.message.from_id)

    def begun(self, tx: Transaction, letter: Letter) -> None:
        """Note that the turn of a message with a brief begins."""
        brief = self._with(tx, letter)
        if brief is not None and brief.state == "open":
            self._write(tx, replace(brief, state="accepted"))

    # --- what comes of it ---------------------------------------------------------------------------------------------

    def reported(
        self, tx: Transaction, message: RoleMessage, handling: Letter | None
    ) -> tuple[PostedBrief, BriefState] | None:
        """The brief that a status report is about, and its state after it; None where it moves none.

        It is the one whose id is in `task`, that whose message it answers or its sender handles, or else the last one.

        Raises:
            MessageInvalid: `task` is not the id of a brief of its sender, or it is reported to somebody else.
        """
        if message.message_type != REPORT:
            return None
        given, done = message.payload.get("state"), message.payload.get("done") is True
        state: BriefState | None = given if given in _REPORTED else "done" if done else None
        if state is None:
            return None
        lock_briefs(tx, self._workspace)
        named, sender = message.payload.get(TASK), message.from_id
        found = brief_of(tx, self._workspace, named) if isinstance(named, str) else None
        if named is not None and given in _REPORTED and (found is None or found.member != sender):
            raise MessageInvalid(
                f"`{TASK}` is not the id of a brief that {sender!r} has",
                remedy=f"give the id of the message with your brief as `answers`, or leave `{TASK}` out",
            )
        for id_ in filter(None, (message.correlation_id, "" if handling is None else handling.message.id)):
            letter = letter_of(tx, self._workspace, id_) if found is None else None
            found = self._with(tx, letter) if letter is not None else found
        if found is None:
            last = task_of(tx, self._workspace, sender)
            found = None if last is None else self._with(tx, last)
        if found is None or found.member != sender or found.is_over:
            return None
        if message.to_id not in (USER, *self._above(tx, found)):
            return None
        if state not in OVER and (found.unmet or (state == "accepted" and found.state != "blocked")):
            return None  # it was not delivered, or the turn on it says so by itself
        return (found, state) if state != found.state and state in EDGES[found.state] else None

    def report(self, tx: Transaction, moved: tuple[PostedBrief, BriefState] | None, letter: Letter) -> None:
        """Move a brief as a status report says, in the transaction of the report."""
        if moved is None:
            return
        brief, state = moved
        noted = replace(brief, state=state, note=letter.message.content[:_MAX_NOTE], note_marks=letter.marks)
        if state not in OVER:
            self._write(tx, noted)
            return
        if brief.message:  # it can be over before it was delivered
            before = letter_of(tx, self._workspace, brief.message)
            if before is not None and before.state in ("waiting", "held"):
                withdraw(tx, self._workspace, brief.message)
        self._finish(tx, noted)

    def turn_failed(self, tx: Transaction, letter: Letter, error: WorldAgentError) -> bool:
        """Move the brief of a message whose turn failed; returns whether it is delivered again.

        A turn that was refused or cancelled is not tried again.
        """
        brief = self._with(tx, letter)
        if brief is None or brief.is_over:
            return False
        note = f"{error.code}: {error.remedy}"[:_MAX_NOTE]
        if brief.attempt < brief.most and not isinstance(error, CallRefused):
            payload = {**thawed(letter.message.payload), TASK: brief.id}
            same: dict[str, Any] = {"payload": payload, "correlation_id": "", "timestamp": None}
            again = replace(letter.message, id=_id_of(brief, "again"), **same)
            with suppress(MailboxFull):
                self._post(tx, letter, again, letter.marks)
                state: BriefState = "late" if brief.state == "late" else "open"
                more: dict[str, Any] = {"state": state, "message": again.id, "attempt": brief.attempt + 1}
                self._write(tx, replace(brief, note=note, note_marks=(), **more))
                return True
        self._finish(tx, replace(brief, state="failed", note=note, note_marks=()))
        return False

    def close(self, tx: Transaction, brief: PostedBrief, reason: str) -> None:
        """Close a brief as failed, and tell its member if it has begun with it."""
        before = withdraw(tx, self._workspace, brief.message) if brief.message else None
        if before is not None and before.state in ("handling", "handled") and brief.member != brief.giver:
            self._tell(tx, brief, "taken", brief.member, by=self._heir(tx, brief.giver))
        self._finish(tx, replace(brief, state="failed", note=reason[:_MAX_NOTE], note_marks=()))

    def ended(self, tx: Transaction, member: str, *, suspended: bool = False) -> None:
        """Do with the briefs of a member that was terminated or suspended as the policy says, in that transaction.

        A suspended member keeps those that it has begun.
        """
        back = self._store.config.policy.briefs_of_ended == "reassign"
        if suspended and not back:
            return
        lock_briefs(tx, self._workspace)
        for brief in open_briefs_of(tx, self._workspace, member):
            letter = letter_of(tx, self._workspace, brief.message) if brief.message else None
            if suspended and (letter is None or letter.state not in ("waiting", "held")):
                continue
            if brief.message:
                withdraw(tx, self._workspace, brief.message)
            note = f"{member} was {'suspended' if suspended else 'terminated'}"
            if not back:
                self._finish(tx, replace(brief, state="failed", note=note, note_marks=()))
                continue
            giver = self._heir(tx, brief.giver)
            state: BriefState = "late" if brief.state == "late" else "blocked" if brief.unmet else "open"
            moved: dict[str, Any] = {
                "member": giver,
                "giver": giver,
                "message": "",
                "state": state,
                "note": note,
                "note_marks": (),
            }
            self._write(tx, replace(brief, **moved))
            self._tell(tx, brief, "returned", giver, by=member)

    def is_due(self, tx: Transaction) -> bool:
        """Whether the deadline of a brief is over whose giver was not told."""
        return bool(due_briefs(tx, self._workspace, self._store.clock.now(), 1))

    def expire(self, tx: Transaction, most: int) -> list[str]:
        """Mark briefs whose deadline is over as late, and tell their givers once; returns their ids."""
        found = due_briefs(tx, self._workspace, self._store.clock.now(), most)
        for brief in found:
            self._write(tx, replace(brief, state="late", due=None))
            self._tell(tx, brief, "late", self._heir(tx, brief.giver), by=brief.member)
        return [brief.id for brief in found]

    # --- how a move is made -------------------------------------------------------------------------------------------

    def _finish(self, tx: Transaction, brief: PostedBrief) -> None:
        """Note that a brief is over, deliver those that waited for it, and tell who gave those that wait in vain."""
        self._write(tx, replace(brief, due=None))
        waiting = briefs_waiting_for(tx, self._workspace, brief.id)
        if brief.state == "done":
            for each in waiting:
                free = each.unmet == 1 and each.state == "blocked"
                self._write(tx, replace(each, unmet=each.unmet - 1, state="open" if free else each.state))
                if each.unmet == 1 and not each.is_over and each.message:
                    release(tx, self._workspace, each.message)
            return
        givers: dict[str, list[PostedBrief]] = {}
        for each in (each for each in waiting if not each.is_over):
            self._write(tx, replace(each, note=f"it waits for {brief.id}, which failed", note_marks=()))
            givers.setdefault(self._heir(tx, each.giver), []).append(each)
        for giver, those in givers.items():
            shown = ", ".join(each.id for each in those[:_MAX_SHOWN])
            more = len(those) - _MAX_SHOWN
            shown += f", +{more}" if more > 0 else ""
            self._tell(tx, brief, "needed", giver, by=brief.member, waiting=shown)

    def _tell(self, tx: Transaction, brief: PostedBrief, what: str, to: str, *, by: str, **more: str) -> None:
        """Tell one what became of a brief, once for each time that it was given. A full mailbox leaves it out."""
        if to == by:
            to, by = (USER, ROOT) if to == ROOT else (to, ROOT)
        if not self._rules.lives(tx, to):
            return
        texts = _TEXTS[self._rules.language(tx, to)]
        about = {"id": brief.id, "member": brief.member, "remedy": texts["remedy"], **more}
        objective = brief.brief.objective[:_MAX_OBJECTIVE]
        message = RoleMessage(
            id=_id_of(brief, what, to),
            type="notification",
            from_id=by,
            to_id=to,
            content=texts[what].format(**about),
            payload={TASK: brief.id, "objective": objective},
        )
        if letter_of(tx, self._workspace, message.id) is None:
            with suppress(MailboxFull):
                self._post(tx, letter_of(tx, self._workspace, brief.message), message, brief.marks, case=brief.case)

    def _post(
        self, tx: Transaction, after: Letter | None, message: RoleMessage, marks: Iterable[str], case: str = ""
    ) -> None:
        most = self._store.config.policy.message_chain
        chain = 1 if after is None else min(after.chain + 1, most)
        case = after.case if after is not None else case
        post(tx, self._workspace, message, now=self._store.clock.now(), chain=chain, marks=[*marks], case=case)

    def _with(self, tx: Transaction, letter: Letter) -> PostedBrief | None:
        """The brief that a member has with a message; None if the message has none, or it was given again since."""
        if letter.message.message_type != ASSIGNMENT:
            return None
        for id_ in (letter.message.payload.get(TASK), letter.message.id):
            found = brief_of(tx, self._workspace, id_) if isinstance(id_, str) else None
            if found is not None and found.message == letter.message.id:
                return found
        return None

    def _above(self, tx: Transaction, brief: PostedBrief) -> tuple[str, ...]:
        """To whom a brief can be reported besides the owner: who gave it, and those above its member."""
        member = one_member(tx, self._workspace, brief.member)
        spec = None if member is None else member.spec
        own = () if spec is None else (spec.parent_role_id or ROOT, self._rules.alias(spec.reports_to or USER))
        return (brief.giver, self._heir(tx, brief.giver), *own)

    def giver_of(self, tx: Transaction, brief: PostedBrief) -> str:
        """In whose name a brief is given again: its giver, or the next above it that can send."""
        return self._heir(tx, brief.giver, sends=True)

    def _heir(self, tx: Transaction, giver: str, *, sends: bool = False) -> str:
        """Who stands for the giver of a brief: it does while it lives, then who it reported to, and so on."""
        seen = set[str]()
        while giver not in seen and not (
            self._rules.lives(tx, giver) and (not sends or self._rules.receives(tx, giver))
        ):
            seen.add(giver)
            member = one_member(tx, self._workspace, giver)
            giver = USER if member is None else self._rules.alias(member.spec.reports_to or USER)
        return USER if giver in seen else giver

    def _write(self, tx: Transaction, brief: PostedBrief) -> None:
        write_brief(tx, self._workspace, brief, self._store.clock.now())


def next_message(brief: PostedBrief) -> str:
    """The id of the message with which a brief is given again."""
    return _id_of(brief, "given")


def _id_of(brief: PostedBrief, what: str, *more: str) -> str:
    """The id of a message about a brief: it is one for each time that the brief was given."""
    return f"brief.{digest([brief.id, brief.attempt, what, *more])}"
