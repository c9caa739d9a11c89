"""The functions by which models write to members, make members, and look up what they may do.

They pass the gate like all others. Memory is looked into by the function `recall`, which an agent with memory has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from glob import escape
from importlib.resources import files
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from ..core import digest
from ..core.errors import CallRefused, InvalidArgument, MessageInvalid, ParamsInvalid, PauseExpired, UnknownMember
from ..core.scope import is_id
from ..harness import CallContext, Function, flow
from ..harness.context import wait_for_replies, wait_for_reply
from ..harness.gate import Predicate, Rule
from ..harness.journal import Step
from ..memory.attachments import Attachments
from ..memory.entries.recall import RECALL
from ..memory.entries.words import words_of
from .data.accounts import case_of_turn, on_messages, scope_of
from .data.brief import Language, TaskBrief, interface_of
from .data.limits import Period
from .data.roles import ROOT, Participant, goals_text
from .data.store import emit_notices
from .data.workspace import RoleTemplate, RoleTemplateDraft, WorkspaceConfig
from .life.drafts import proposed
from .life.members import MAX_PAGE, Member
from .life.spawning import MAX_TEMPLATES, usable_by
from .mail.contacts import MAX_SHOWN, OTHERS, as_listed, fitting
from .mail.groups import MAX_GROUP
from .mail.letters import Letter
from .mail.messages import MESSAGE_TYPE, Envelope, MessageType
from .mail.rules import ACCOUNT_MARK
from .society import Society

T = TypeVar("T")

SEND: Final = "send_message"
REQUEST: Final = "request_role"
ASK_GROUP: Final = "ask_group"
ASK_MEMBERS: Final = "ask_members"
SPAWN: Final = "spawn_agent"
CONTACTS: Final = "list_contacts"
CREATE: Final = "create_role"
EXTEND: Final = "extend_budget"
END_WORK: Final = "end_work"
BUDGETS: Final = (EXTEND, END_WORK)
"""The functions of members where the workspace's definitions have limits (A16)."""

FUNCTIONS: Final = (SEND, REQUEST, ASK_GROUP, SPAWN, CONTACTS, CREATE)

GOALS: Final = "check_goals"
LOOK_UP: Final = "look_up_role"
AUTHORITY: Final = "check_authority"
BOARD: Final = "task_board"
AMBIENT: Final = (RECALL, GOALS, LOOK_UP, AUTHORITY, BOARD)
"""The functions that a member can call while it answers, and no others. None changes anything (A6)."""

SEND_RULES: Final = (
    Rule(
        decision="approve",
        function=(SEND, REQUEST),
        after=("message:*", "account:*"),
        arguments={"to": "*"},
        times=1000,
        name="contacts may be written to after messages",
    ),
    Rule(
        decision="approve",
        function=ASK_MEMBERS,
        after=("message:*", "account:*"),
        arguments={"members": Predicate(each="*")},
        times=1000,
        name="groups of contacts may be asked after messages",
    ),
    Rule(decision="approve", function=(SEND, REQUEST, ASK_MEMBERS), times=1000, name="contacts may be written to"),
)
"""Rules for a policy under which messages need no approval, unless their sender has read other untrusted content."""


Seconds = Annotated[float, Field(ge=1, le=366 * 86_400)]
Quorum = Annotated[int, Field(ge=1, le=MAX_GROUP)]
Group = Annotated[list[str], Field(min_length=1, max_length=MAX_GROUP)]

_MAX_MARK: Final = 200  # characters, as of an id
_RECORDED: Final = "You are in testing: the message to {} is recorded, and it is not delivered."
_CONTACTS: Final = f"List your contacts, and how they want to be asked; {MAX_SHOWN} at most, so search among many."
_REQUEST: Final = "Ask a contact something and wait for its reply, in the middle of your work."
_EXTEND: Final = "Replace the limits of a member below you, within what is left of your own budget."
_END_WORK: Final = "End work of a member below you that waits because a budget is reached."
_ASKED: Final = "Ask the members of a group that ask_group has chosen, and wait once for their answers."
_GROUP: Final = (
    f"Ask several contacts the same, {MAX_GROUP} at most, and wait once for their answers: name `members`, or the"
    " `domain` they are responsible for, or set `children` for all that you made."
)


@lru_cache(maxsize=8)
def prompt(language: Language, name: str) -> str:
    """A text of `prompts`, which explains a function to the models that have it (C6)."""
    return (
        (files(__name__.rpartition(".")[0]) / "prompts" / language / f"{name}.txt").read_text(encoding="utf-8").strip()
    )


class SocietyFunctions:
    """What the models of an agent with a workspace of members can call.

    The sender is the member that the turn runs for, or the World Agent: no argument sets it (C9). A repeated call
    sends and makes nothing twice, because the id of a message is that of its call.

    Args:
        config: The workspace.
        society: Returns the society of the open agent.
        attachments: Returns its attachments.

    Attributes:
        config: The workspace.
        functions: The functions.
    """

    def __init__(
        self, config: WorkspaceConfig, society: Callable[[], Society], attachments: Callable[[], Attachments]
    ) -> None:
        self.config = config
        self._society = society
        self._attachments = attachments
        about = prompts(config.language, usable_by(ROOT, config.role_templates.values()))
        self.functions: tuple[Function, ...] = (
            # A member in testing runs the same code: the society records what it sends, and delivers nothing.
            # The owner approves what anybody asks of the World Agent (A1).
            *(
                replace(each, approvers=(escape(config.owner),))
                for each in (
                    flow(name=SEND, description=about[SEND], risk="write", dry_run=self._send)(self._send),
                    flow(name=REQUEST, description=_REQUEST, risk="write", dry_run=self._request)(self._request),
                    flow(name=ASK_MEMBERS, description=_ASKED, risk="write", offered=False, dry_run=self._ask_members)(
                        self._ask_members
                    ),
                    flow(name=SPAWN, description=about[SPAWN], risk="write")(self._spawn),
                )
            ),
            # It chooses the members, for which its caller then calls `ask_members`: who approves that sees them all.
            replace(flow(name=ASK_GROUP, description=_GROUP, risk="read_only")(self._ask_group), calls_as_caller=True),
            flow(name=CONTACTS, description=_CONTACTS)(self._contacts),
            flow(name=EXTEND, description=_EXTEND, risk="write", offered=False)(self._extend),
            flow(name=END_WORK, description=_END_WORK, risk="write", offered=False)(self._end_work),
            flow(name=CREATE, description="Propose a role template to a person.")(self._create),
            *ambient_functions(self._opened),
        )

    def _opened(self, ctx: CallContext) -> Society:
        """The society, with what is sent as events of the call's turn."""
        return self._society().notifying(lambda notices: emit_notices(ctx.emit, notices, call_id=ctx.path))

    def _marks(self, ctx: CallContext) -> tuple[str, ...]:
        """The marks of what a call writes: what its turn has read, and who asked for it if that is not the owner."""
        account, asked = ctx.scope.account, set[str]()
        if (ctx.on_behalf_of == ROOT or ctx.handed) and account not in (None, self.config.owner):
            asked = {f"{ACCOUNT_MARK}{account}"[:_MAX_MARK]}
        return tuple(sorted({*ctx.gate.marks, *asked}))

    @staticmethod
    def _case(ctx: CallContext) -> str:
        member = ROOT if ctx.handed else ctx.on_behalf_of  # a conversation claims no event, whoever speaks in it
        return case_of_turn(ctx.scope, member, ctx.path.partition("/")[0])

    async def _pass_on(self, ctx: CallContext, to: str, *given: object) -> None:
        """Let the receiver read the files that a message names, as far as the turn that sends it reaches them."""
        if is_id(to):
            await self._attachments().reached_by(ctx.scope).pass_on(str(given), scope_of(self.config.id, to))

    async def _sent(
        self, ctx: CallContext, to: str, content: str, payload: dict[str, Any], kind: Envelope, **more: Any
    ) -> Letter:
        """Send a message with the files that it names."""
        await self._pass_on(ctx, to, content, payload)
        given: dict[str, Any] = {"payload": payload, "kind": kind, "message_id": _id_of(ctx), **more}
        given["case"] = self._case(ctx)
        sending = self._opened(ctx).mail.send(ctx.on_behalf_of, to, content, marks=self._marks(ctx), **given)
        return await _refused_as(MessageInvalid, sending)

    async def _send(
        self,
        ctx: CallContext,
        to: str,
        content: str = "",
        message_type: MessageType | None = None,
        payload: dict[str, Any] | None = None,
        reason: str = "",
        answers: str = "",
    ) -> str:
        """Send a message.

        Args:
            to: The id of the contact.
            content: The text.
            message_type: What kind of message it is; omit it for plain text.
            payload: The fields of that kind.
            reason: Why you write, in a first message.
            answers: The id of the message that it answers.
        """
        given: dict[str, Any] = {name: value for name, value in (payload or {}).items() if name != MESSAGE_TYPE}
        given |= {MESSAGE_TYPE: message_type} if message_type is not None else {}
        given |= {"reason": reason} if reason else {}
        letter = await self._sent(ctx, to, content, given, "notification", answers=answers)
        if letter.state == "recorded":
            return _RECORDED.format(letter.message.to_id)
        return f"Sent to {letter.message.to_id} as {letter.message.id}."

    async def _request(
        self, ctx: CallContext, to: str, content: str, reason: str = "", seconds: Seconds = 86_400
    ) -> str:
        """Ask a contact and wait.

        Args:
            to: The id of the contact.
            content: What you ask.
            reason: Why you write, in a first message.
            seconds: How long you wait for the reply.
        """
        given: dict[str, Any] = {"reason": reason} if reason else {}
        letter = await self._sent(ctx, to, content, given, "request", waits=_waits(ctx, seconds))
        if letter.state == "recorded":
            return _RECORDED.format(letter.message.to_id)
        try:
            reply = await wait_for_reply(ctx, letter.message.id, seconds=seconds)
        except PauseExpired:
            return f"{letter.message.to_id} did not reply in time."
        ctx.gate.mark(*reply["marks"])
        return str(reply["text"])

    async def _ask_group(
        self,
        ctx: CallContext,
        request: str,
        members: list[str] | None = None,
        domain: str = "",
        children: bool = False,
        quorum: Quorum | None = None,
        deadline: Seconds = 86_400,
        reason: str = "",
    ) -> dict[str, Any]:
        """Ask several contacts and wait.

        Args:
            request: What you ask.
            members: The ids of the contacts.
            domain: In place of `members`, a domain: all your contacts that are responsible for it.
            children: In place of `members`, all members that you made.
            quorum: How many answers are enough; omit it to wait for all.
            deadline: How many seconds you wait for answers.
            reason: Why you write, if it is the first message to one of them.
        """
        which: dict[str, Any] = {"members": members or [], "domain": domain, "children": children, "quorum": quorum}

        async def choose(_: Any) -> list[str]:
            choosing = self._opened(ctx).mail.groups.chosen(ctx.on_behalf_of, **which)
            return await _refused_as(MessageInvalid, choosing)

        # Whoever is a contact by the time that the turn resumes, it has asked these.
        chosen = await _recorded(ctx, "choose_members", which, choose)
        asked = {"members": chosen, "request": request, "deadline": deadline}
        asked |= {"quorum": quorum or len(chosen), "reason": reason}
        answers: dict[str, Any] = await replace(ctx, tools=(ASK_MEMBERS,)).call(ASK_MEMBERS, asked)
        return answers

    async def _ask_members(
        self, ctx: CallContext, members: Group, request: str, quorum: Quorum, deadline: Seconds, reason: str
    ) -> dict[str, Any]:
        """Ask the members of a group and wait.

        Args:
            members: Their ids.
            request: What they are asked.
            quorum: How many answers are enough.
            deadline: How many seconds the turn waits for answers.
            reason: Why they are asked.
        """
        groups, asked = self._opened(ctx).mail.groups, {_id_of(ctx, each): each for each in members}

        async def send(_: Any) -> list[str]:
            for member in members:
                await self._pass_on(ctx, member, request)
            about: dict[str, Any] = {"marks": self._marks(ctx), "case": self._case(ctx), "waits": _waits(ctx, deadline)}
            sending = groups.send(ctx.on_behalf_of, asked, request, reason, **about)
            return [each.state for each in await _refused_as(MessageInvalid, sending)]

        # Recorded, since a message goes with a member that is removed while the others are waited for.
        if "recorded" in await _recorded(ctx, "send_requests", {}, send):
            return {"answers": {}, "missing": {each: _RECORDED.format(each) for each in members}, "enough": False}
        least = min(quorum, len(asked))  # the person who approved the call can have left members out

        async def gather(_: Any, until: datetime | None) -> dict[str, Any]:
            return await groups.gathered(asked, least, until)

        found: dict[str, Any] = await wait_for_replies(ctx, [*asked], gather, quorum=least, seconds=deadline)
        ctx.gate.mark(*found.pop("marks"))
        return found

    async def _extend(
        self,
        ctx: CallContext,
        member: str,
        turns: int | None = None,
        calls: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        period: Period = "life",
    ) -> str:
        """Replace limits.

        Args:
            member: The id of the member.
            turns: Turns; each limit that you omit is none.
            calls: Calls of models.
            tokens: Tokens of models.
            cost: US dollars.
            period: How long they hold before they begin again.
        """
        given = {"turns": turns, "calls": calls, "tokens": tokens, "cost": cost, "period": period}
        extending = self._society().budgets.extend(member, given, by=ctx.on_behalf_of)
        return f"{member}: {(await _refused_as(ParamsInvalid, extending)).to_text()}"

    async def _end_work(self, ctx: CallContext, work: str) -> str:
        """End work that waits.

        Args:
            work: The id of the message or the event.
        """
        await _refused_as(ParamsInvalid, self._society().budgets.end(work, by=ctx.on_behalf_of))
        return f"{work} was ended."

    async def _spawn(
        self, ctx: CallContext, template: str, params: dict[str, str], brief: dict[str, Any] | None = None
    ) -> str:
        """Make a child.

        Args:
            template: The id of the role template.
            params: The parameters of the template.
            brief: The task brief.
        """
        spawning = self._opened(ctx).spawn(
            ctx.on_behalf_of,
            template,
            params,
            None if brief is None else TaskBrief.from_json(brief),
            message_id=_id_of(ctx),
            marks=self._marks(ctx),
            case=self._case(ctx),
        )
        child = await _refused_as(ParamsInvalid, spawning)
        await self._pass_on(ctx, child, params, brief)
        return child

    async def _contacts(self, ctx: CallContext, search: str = "") -> list[dict[str, Any]]:
        """List contacts.

        Args:
            search: Words of what you look for; empty lists those that you wrote with last.
        """
        contacts, me = self._opened(ctx).contacts, ctx.on_behalf_of
        found, more = await (contacts.find(me, search) if search else contacts.nearest(me))
        ctx.gate.mark(*(mark for each in found for mark in each.marks))
        return as_listed(found, more)

    async def _create(
        self,
        ctx: CallContext,
        name: str,
        soul: str,
        interface_spec: dict[str, str] | None = None,
        collaboration_notes: str = "",
    ) -> str:
        """Propose a role template.

        Args:
            name: Its name.
            soul: Who such a member is, and what it does.
            interface_spec: How others ask it: services, input_format, output_format, examples.
            collaboration_notes: Whom it asks for which work.
        """

        async def propose() -> RoleTemplateDraft:
            interface, read = interface_of(interface_spec), self._marks(ctx)
            draft = proposed(ctx.on_behalf_of, name, soul, interface, collaboration_notes, read)
            return await self._opened(ctx).drafts.propose(draft, draft_id=f"draft_{digest(ctx.path)}")

        stored = await _refused_as(ParamsInvalid, propose())
        return (
            f"Your draft {stored.id} of the template {stored.template.template_id} waits for a person."
            " No member can be made of it before it is approved."
        )


def ambient_functions(society: Callable[[CallContext], Society]) -> tuple[Function, ...]:
    """The functions besides `recall`. Each is about the member that its turn runs for; no argument names another.

    Args:
        society: Returns the society for a call.
    """

    async def asking(ctx: CallContext) -> Member:
        known = society(ctx)
        try:
            return await known.members.member(known.config.id, ctx.on_behalf_of)
        except UnknownMember:
            pass
        raise CallRefused("this turn runs for no member of the workspace", remedy="continue without it")

    @flow(name=GOALS, description="Read your goals, and how far they are reached.", offered=False)
    async def check_goals(ctx: CallContext) -> str:
        return goals_text((await asking(ctx)).spec.goals) or "You have no goals now."

    @flow(name=LOOK_UP, description=f"Look up whom you can turn to, and for what; {MAX_SHOWN} at most.", offered=False)
    async def look_up_role(ctx: CallContext, domain: str = "", search: str = "") -> list[dict[str, Any]]:
        """Look up.

        Args:
            domain: What they are responsible for; empty is any.
            search: Words of what you look for; empty is all that you know.
        """
        member, known = await asking(ctx), society(ctx)
        if known.config.policy.discovery == "open":
            roles, more = await _all_roles(known, member.id, domain, search)
            shown = [{"id": each.id, "role": each.name, "domains": [*each.domains]} for each in roles]
        else:
            contacts, more = await known.contacts.find(member.id, search, domain=domain)
            ctx.gate.mark(*(mark for each in contacts for mark in each.marks))
            has = await known.members.some(known.config.id, [each.id for each in contacts])
            domains = {id_: [*each.domains] for id_, each in has.items()}
            shown = [{**each, "domains": domains.get(each["id"], [])} for each in as_listed(contacts, more=False)]
        return [*shown, *OTHERS] if more else shown

    @flow(name=AUTHORITY, description="Look up what you may do with a capability.", offered=False)
    async def check_authority(ctx: CallContext, capability: str) -> str:
        return (await asking(ctx)).spec.authority.of(capability)

    @flow(
        name=BOARD,
        description="Read your task board: the briefs that you have, and those that you gave.",
        offered=False,
    )
    async def task_board(ctx: CallContext) -> dict[str, Any]:
        me, board = (await asking(ctx)).id, society(ctx).board
        has, gave = await board.shown_to(me)
        ctx.gate.mark(*(mark for each in (*has, *gave) for mark in each.marks_for(me)))
        return {"yours": [each.as_listed() for each in has], "given": [each.as_listed() for each in gave]}

    return check_goals, look_up_role, check_authority, task_board


async def _all_roles(known: Society, me: str, domain: str, search: str) -> tuple[list[Participant], bool]:
    """Members of a workspace in which all know each other, without the one that asks, and whether there are others."""
    workspace, most = known.config.id, MAX_PAGE if search else MAX_SHOWN + 2
    listed = partial(known.members.find_by_domain, workspace, domain) if domain else None
    listed = listed or partial(known.members.list_roles, workspace)
    page = await listed(limit=most)
    found = [*page]
    while search and len(page) == most:
        page = await listed(after=page[-1].id, limit=most)
        found += page
    there = {each.id: each for each in found if each.id != me}
    if search:
        words = {each.id: {*words_of(" ".join((each.id, each.name, *each.domains)))} for each in there.values()}
        there = {id_: there[id_] for id_ in fitting(words, search)}
    return [*there.values()][:MAX_SHOWN], len(there) > MAX_SHOWN


def prompts(language: Language, usable: Sequence[RoleTemplate]) -> dict[str, str]:
    """The prompts of `send_message` and `spawn_agent`, with the templates of which the reader can make members.

    Args:
        language: The language of the prompts.
        usable: The templates.
    """
    known = [
        f"- {each.template_id}: {each.name_pattern}; params: {', '.join(each.parameters) or 'none'}"
        for each in usable[:MAX_TEMPLATES]
    ]
    if len(usable) > MAX_TEMPLATES:
        known.append(f"- and {len(usable) - MAX_TEMPLATES} more")
    return {SEND: prompt(language, "base"), SPAWN: "\n".join((prompt(language, "root"), *known))}


async def _refused_as(error: type[MessageInvalid | ParamsInvalid], work: Awaitable[T]) -> T:
    """Let the model read which argument is invalid: an InvalidArgument would end its turn."""
    try:
        return await work
    except InvalidArgument as invalid:
        problem, remedy = invalid.problem, invalid.remedy
    raise error(problem, remedy=remedy)


async def _recorded(
    ctx: CallContext, name: str, given: dict[str, Any], work: Callable[[Any], Awaitable[list[str]]]
) -> list[str]:
    """Do a part of a call; when the turn resumes, it returns what it returned then."""
    step_id = await ctx.frame.child(name, given)
    found: list[str] = await ctx.frame.do(
        Step(id=step_id, parent=ctx.path, name=name, kind="program", input=given, body=work)
    )
    return found


def _waits(ctx: CallContext, seconds: float) -> float | None:
    """For how long a wait keeps its member from other messages: a turn of an event or a conversation does not."""
    return seconds if on_messages(ctx.scope, ctx.on_behalf_of) else None


def _id_of(ctx: CallContext, receiver: str = "") -> str:
    return f"msg_{digest([ctx.path, receiver] if receiver else ctx.path)}"
