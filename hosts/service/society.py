"""The calls about the members of a workspace: their arguments and records, and what they do (C2, C3, C9).

A call acts as the person of its account, so no argument says who sends a message. The account of the workspace's owner
is the owner; a call of an operator without an account is the owner, too. Only they see and change what others know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ...core import digest
from ...core.checks import check_choice, to_json
from ...members.data.roles import ROOT, USER, Feedback
from ...members.graph import as_mermaid, graph_of, standing
from ...members.life.members import unknown_member
from ...members.mail.letters import MAX_WAITING, State
from ...members.mail.messages import MAX_CONTENT, MESSAGE_TYPE, Envelope, MessageType
from ...members.stalls import StallKind
from .arguments import JsonObject, WorkspaceArguments
from .budgets import BudgetRecord, budget_record
from .call import Call, Refused
from .operation import check_owner, is_owner, operation
from .records import Answer
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...members.mail.letters import Letter
    from ...members.society import Society
    from .home import Workspace

# --- arguments --------------------------------------------------------------------------------------------------------

MemberId = Annotated[
    Label, Field(description="the id of a member; `root` is the World Agent, `user` the owner", examples=["cro"])
]


class SocietyContactsArguments(WorkspaceArguments):
    """Arguments of `society_contacts`."""

    member: MemberId | None = Field(default=None, description="whose contacts; null: those of the person of the call")


class SocietyInboxArguments(WorkspaceArguments):
    """Arguments of `society_inbox`."""

    limit: int = Field(default=100, ge=1, le=1000, description="messages in the answer, at most")


class SocietyReadArguments(WorkspaceArguments):
    """Arguments of `society_read`."""

    messages: list[Label] = Field(
        min_length=1, max_length=1000, description="the ids of messages in the inbox", examples=[["msg_0b7d6c1e"]]
    )


class SocietySendArguments(WorkspaceArguments):
    """Arguments of `society_send`."""

    to: MemberId
    text: str = Field(
        default="",
        max_length=MAX_CONTENT,
        description="what to write; only a message with a `message_type` can be without",
        examples=["Please have the contract checked."],
    )
    message_type: MessageType | None = Field(default=None, description="its type; null is plain text")
    payload: JsonObject = Field(
        default_factory=dict,
        description="the fields that its type needs, such as `consent` in the answer to a question for it",
        examples=[{"consent": True}],
    )
    answers: Label | None = Field(
        default=None, description="the id of the message that it answers; null: the oldest one that waits for an answer"
    )
    key: Label | None = Field(
        default=None,
        description="an idempotency key: a second call of the person with the same key sends nothing, and answers with "
        "the message of the first",
        examples=["0b7d6c1e"],
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if MESSAGE_TYPE in self.payload:
            raise PydanticCustomError("alone", "Its payload must not have message_type, which is an argument")
        return self


class SocietyApproveArguments(WorkspaceArguments):
    """Arguments of `society_approve`."""

    member: Label = Field(description="the id of a member that waits for approval", examples=["bdr-emea"])


class SocietyRejectArguments(WorkspaceArguments):
    """Arguments of `society_reject`."""

    member: Label = Field(description="the id of a member that waits for approval", examples=["bdr-apac"])
    reason: str = Field(default="", max_length=2000, description="why, for the member that made it")


class SocietyStateArguments(WorkspaceArguments):
    """Arguments of `society_state`."""

    member: MemberId
    state: Literal["testing", "active", "suspended"] = Field(description="its new state", examples=["suspended"])


class SocietyTerminateArguments(WorkspaceArguments):
    """Arguments of `society_terminate`."""

    member: MemberId
    reason: str = Field(default="human_decision", max_length=2000, description="why")


class SocietyWithdrawArguments(WorkspaceArguments):
    """Arguments of `society_withdraw`."""

    member: MemberId
    contact: Label = Field(description="the contact that it loses", examples=["legal"])


class SocietyMemberArguments(WorkspaceArguments):
    """Arguments of `society_member`."""

    member: MemberId


class SocietyOutcomesArguments(WorkspaceArguments):
    """Arguments of `society_outcomes`."""

    member: MemberId


class SocietyFeedbackArguments(WorkspaceArguments):
    """Arguments of `society_feedback`."""

    episode: Label = Field(
        description="the id of what a member did, from `society_outcomes`", examples=["event.lead-7"]
    )
    feedback: Feedback | None = Field(description="what the person thinks of it; null takes it back", examples=["good"])


# --- records ----------------------------------------------------------------------------------------------------------


class MemberRecord(Wire):
    """A member."""

    id: str
    role: str = Field(description="the name of its role")
    status: str
    parent: str = Field(description="the member that made it")
    soul_version: int = Field(description="1 at first, and one more each time that its soul was replaced by another")


class SpawnRecord(Wire):
    """A member that waits for the owner's approval."""

    id: str
    role: str = Field(description="the name of its role")
    parent: str = Field(description="the member that made it")
    soul: str = Field(description="who it is to be")
    task: str = Field(description="its brief, as it will read it")


class ContactRecord(Wire):
    """A contact of a member or a person."""

    id: str
    role: str
    introduced_by: str = Field(description="the member that introduced it, or `birth`, `person` or `first message`")
    interface: dict[str, Any] | None = Field(default=None, description="how it wants to be asked")
    note: str = Field(description="what to write to it about")
    reason: str = Field(description="why it was introduced")
    since: str | None = Field(default=None, description="when it became a contact; null for one that is always there")
    expires: str | None = Field(default=None, description="when it is no longer one; null is never")


class KnownRecord(Wire):
    """One contact in the graph: who knows whom."""

    owner: str = Field(description="who has the contact")
    id: str
    role: str
    introduced_by: str
    note: str
    reason: str
    since: str | None = Field(default=None, description="when it became a contact; null for one that is always there")
    expires: str | None = Field(default=None, description="when it is no longer one; null is never")


class MailRecord(Wire):
    """A message between members and people."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    id: str
    type: Envelope
    sender: str = Field(alias="from", description="who sent it; the system stamps it")
    receiver: str = Field(alias="to")
    content: str
    payload: dict[str, Any] = Field(description="`message_type` says what it holds")
    correlation_id: str = Field(description="the id of the message that it answers; empty for none")
    timestamp: str
    state: State
    untrusted: list[str] = Field(description="the untrusted functions and senders whose content its sender had read")
    case: str = Field(description="the case that it belongs to, which `case_show` tells; empty in old messages")


class OutcomeRecord(Wire):
    """Something that a member did."""

    episode_id: str
    capability: str
    succeeded: bool
    at: str = Field(description="when it ended")
    turn_id: str = Field(description="the turn in which it was done; empty for none")
    feedback: Feedback | None = Field(default=None, description="what a person said of it")
    change: float = Field(description="by how much it changed the trust in the capability")
    trust: float = Field(description="the trust in the capability after it, from 0 to 1")
    reason: str = Field(description="why it changed so")
    changed: str = Field(description="when: as it ended, or as a person rated it")


class TrustRecord(Wire):
    """How far a member is trusted, from 0 to 1."""

    scores: dict[str, float] = Field(description="by capability")
    default: float = Field(description="with anything else")


class StallRecord(Wire):
    """Something that stands still among members, or goes round."""

    kind: StallKind
    members: list[str] = Field(description="whom it is about")
    since: str
    what: str = Field(description="what it is, in a sentence")
    remedy: str = Field(description="what a person can do")


class SocietyMembersAnswer(Answer):
    """Answer of `society_members`."""

    members: list[MemberRecord] = Field(description="in the order in which they joined")


class WaitingRecord(Wire):
    """A message or an event that waits for a member."""

    id: str
    type: str
    source: str = Field(description="who sent the message, or where the event comes from")
    state: str = Field(description="waiting, or how far it is")
    since: str = Field(description="when it was sent or posted")


class MemberDetails(Wire):
    """A member with its goals, and how far it is trusted."""

    id: str
    role: str = Field(description="the name of its role")
    domains: list[str]
    goals: list[dict[str, Any]]
    trust: TrustRecord
    budget: BudgetRecord | None = Field(description="what it and all below it used; null: no budget counts it")
    soul_version: int
    messages: list[WaitingRecord] = Field(description="messages that wait for it or that it handles, the first 100")
    events: list[WaitingRecord] = Field(description="events that wait for it or are under way, the first 100")


class SocietyMemberAnswer(Answer):
    """Answer of `society_member`."""

    member: MemberDetails


class SocietyContactsAnswer(Answer):
    """Answer of `society_contacts`."""

    contacts: list[ContactRecord] = Field(description="the oldest first")


class SocietyGraphAnswer(Answer):
    """Answer of `society_graph`."""

    members: list[MemberRecord]
    contacts: list[KnownRecord]
    mermaid: str = Field(description="the same as a Mermaid flowchart")


class SocietyStallsAnswer(Answer):
    """Answer of `society_stalls`."""

    stalls: list[StallRecord]


class SocietyInboxAnswer(Answer):
    """Answer of `society_inbox`."""

    messages: list[MailRecord] = Field(description="the oldest first")


class SocietyReadAnswer(Answer):
    """Answer of `society_read`."""

    read: int = Field(description="how many were marked; others are not in the inbox")


class SocietySendAnswer(Answer):
    """Answer of `society_send`."""

    message: MailRecord


class SocietySpawnsAnswer(Answer):
    """Answer of `society_spawns`."""

    spawns: list[SpawnRecord] = Field(description="the oldest first")


class SocietyApproveAnswer(Answer):
    """Answer of `society_approve`."""

    approved: str = Field(description="the id of the member")


class SocietyRejectAnswer(Answer):
    """Answer of `society_reject`."""

    rejected: str = Field(description="the id of the member, which is free again")


class SocietyStateAnswer(Answer):
    """Answer of `society_state`."""

    member: str
    status: str


class SocietyTerminateAnswer(Answer):
    """Answer of `society_terminate`."""

    terminated: list[str] = Field(description="the ids of the members that have ended")


class SocietyOutcomesAnswer(Answer):
    """Answer of `society_outcomes`."""

    outcomes: list[OutcomeRecord] = Field(description="the oldest first")
    trust: TrustRecord


class SocietyFeedbackAnswer(Answer):
    """Answer of `society_feedback`."""

    trust: TrustRecord = Field(description="of the member, after it")


class SocietyWithdrawAnswer(Answer):
    """Answer of `society_withdraw`."""

    withdrawn: bool = Field(description="false where the member did not know it")


# --- calls ------------------------------------------------------------------------------------------------------------


@operation(
    "List members", "The members of the workspace that are not terminated, for its owner and operators.", who="owner"
)
async def society_members(call: Call[WorkspaceArguments], workspace: Workspace) -> SocietyMembersAnswer:
    """List the members."""
    return SocietyMembersAnswer.model_validate({"members": await standing(workspace.society)})


async def _budget(society: Society, member: str) -> BudgetRecord | None:
    state = await society.budgets.of(member)
    return budget_record(state) if state.limits is not None or any(state.used.values()) else None


@operation(
    "Show a member",
    "A member: its goals and domains, how far it is trusted, and what waits for it.",
    who="owner",
)
async def society_member(call: Call[SocietyMemberArguments], workspace: Workspace) -> SocietyMemberAnswer:
    """Show a member.

    Raises:
        UnknownMember: There is no such member.
    """
    society = workspace.society
    found = await society.members.member(society.config.id, call.given.member)
    letters, events = await society.queue(found.id)
    details = {
        "id": found.id,
        "role": found.name,
        "domains": [*found.spec.domains],
        "goals": [to_json(each) for each in found.spec.goals],
        "trust": to_json(found.trust),
        "budget": await _budget(society, found.id),
        "soul_version": found.soul_version,
        "messages": [
            {
                "id": each.message.id,
                "type": each.message.message_type or each.message.type,
                "source": each.message.from_id,
                "state": each.state,
                "since": to_json(each.message.timestamp),
            }
            for each in letters
        ],
        "events": [
            {
                **{name: getattr(each.event, name) for name in ("id", "type", "source")},
                "state": each.state,
                "since": to_json(each.posted),
            }
            for each in events
        ],
    }
    return SocietyMemberAnswer.model_validate({"member": details})


@operation(
    "List contacts",
    "Whom the person of the call can write to; with `member`, whom that member knows and who introduced them.",
)
async def society_contacts(call: Call[SocietyContactsArguments], workspace: Workspace) -> SocietyContactsAnswer:
    """List the contacts of the person of the call, or of a member.

    Raises:
        Refused: They are the contacts of another, and the person of the call is not the owner, and the caller is not an
            operator. Or the call has no person.
        UnknownMember: There is no such member.
        InvalidArgument: The workspace has no society.
    """
    society, member = workspace.society, call.given.member
    if member is not None:
        check_owner(call, society)
    member = member if member is not None else await _person(call, society)
    await _check_known(society, member)
    found = [to_json(each) for each in await society.contacts.list(member)]
    shown = [{name: value for name, value in each.items() if name != "marks"} for each in found]
    return SocietyContactsAnswer.model_validate({"contacts": shown})


@operation(
    "Who knows whom",
    "The members and all contacts, as data and as a Mermaid flowchart, for the owner and operators.",
    who="owner",
)
async def society_graph(call: Call[WorkspaceArguments], workspace: Workspace) -> SocietyGraphAnswer:
    """Return who knows whom, and by whose introduction."""
    found = await graph_of(workspace.society)
    return SocietyGraphAnswer.model_validate({**found, "mermaid": as_mermaid(found)})


@operation(
    "List stalls",
    "What stands still among the members or goes round, and what to do: long waits, mailboxes that do not move, "
    "ping-pong and circles of forwarded events.",
    who="owner",
)
async def society_stalls(call: Call[WorkspaceArguments], workspace: Workspace) -> SocietyStallsAnswer:
    """Return what stands still among the members, or goes round (A18)."""
    return SocietyStallsAnswer.model_validate({"stalls": to_json(await workspace.society.stalls())})


@operation(
    "Read the inbox", "What members wrote to the person of the call and that is not marked as read, the oldest first."
)
async def society_inbox(call: Call[SocietyInboxArguments], workspace: Workspace) -> SocietyInboxAnswer:
    """Return the messages that the person of the call has not marked as read.

    Raises:
        Refused: The call has no person.
        InvalidArgument: The workspace has no society.
    """
    society = workspace.society
    found = await society.mail.inbox(await _person(call, society), limit=call.given.limit)
    return SocietyInboxAnswer(messages=[mail_record(each) for each in found])


@operation(
    "Mark messages as read",
    "Mark messages of the person of the call as read, so that its inbox shows them no more.",
    effect="changes",
)
async def society_read(call: Call[SocietyReadArguments], workspace: Workspace) -> SocietyReadAnswer:
    """Mark messages of the person of the call as read. Ids that are not in its inbox are left out.

    Raises:
        Refused: The call has no person.
        InvalidArgument: The workspace has no society.
    """
    society, given = workspace.society, {*call.given.messages}
    inbox = await society.mail.inbox(await _person(call, society), limit=MAX_WAITING)
    found = [letter.message.id for letter in inbox if letter.message.id in given]
    for message_id in found:
        await society.mail.read(message_id)
    return SocietyReadAnswer(read=len(found))


@operation(
    "Write to a member",
    "Send a message as the person of the call, or answer one. The member's turn starts while the sidecar, or a "
    "worker, has the agent open.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def society_send(call: Call[SocietySendArguments], workspace: Workspace) -> SocietySendAnswer:
    """Send a message as the person of the call.

    Raises:
        Refused: The call has no person.
        UnknownContact, MessageInvalid, MailboxFull: As for `Society.send`.
        InvalidArgument: The workspace has no society.
    """
    society, given = workspace.society, call.given
    person = await _person(call, society)
    payload = given.payload if given.message_type is None else {**given.payload, MESSAGE_TYPE: given.message_type}
    # The keys of one person name no message of another person or of a model.
    key = None if given.key is None else f"msg_{digest(['call', person, given.key])}"
    letter = await society.mail.send(
        person, given.to, given.text, payload=payload, answers=given.answers or "", message_id=key
    )
    return SocietySendAnswer(message=mail_record(letter))


@operation(
    "List members to approve",
    "The members that wait for the owner's approval, with their tasks, for the owner and operators.",
    who="owner",
)
async def society_spawns(call: Call[WorkspaceArguments], workspace: Workspace) -> SocietySpawnsAnswer:
    """List the members that wait for approval."""
    society = workspace.society
    records = [
        SpawnRecord(
            id=each.id,
            role=each.name,
            parent=each.life.created_by,
            soul=each.spec.soul,
            task=await society.mail.task_of(each.id),
        )
        for each in await society.spawns()
    ]
    return SocietySpawnsAnswer(spawns=records)


@operation(
    "Approve a member",
    "Let a member that waits for approval begin with its task.",
    who="owner",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def society_approve(call: Call[SocietyApproveArguments], workspace: Workspace) -> SocietyApproveAnswer:
    """Let a member that waits for approval begin its task.

    Raises:
        UnknownMember, LifecycleError: As for `Society.approve_spawn`.
    """
    return SocietyApproveAnswer(approved=await workspace.society.approve_spawn(call.given.member))


@operation(
    "Reject a member",
    "End a member that waits for approval. The member that made it is notified.",
    who="owner",
    effect="changes",
)
async def society_reject(call: Call[SocietyRejectArguments], workspace: Workspace) -> SocietyRejectAnswer:
    """End a member that waits for approval.

    Raises:
        UnknownMember, LifecycleError: As for `Society.reject_spawn`.
    """
    return SocietyRejectAnswer(rejected=await workspace.society.reject_spawn(call.given.member, call.given.reason))


@operation(
    "Withdraw a contact",
    "Take a contact away from a member: its next message to it is refused, unless it is a reply.",
    who="owner",
    effect="changes",
)
async def society_withdraw(call: Call[SocietyWithdrawArguments], workspace: Workspace) -> SocietyWithdrawAnswer:
    """Take a contact away from a member.

    Raises:
        UnknownMember: There is no such member.
    """
    society, member, contact = workspace.society, call.given.member, call.given.contact
    await _check_known(society, member)
    known = await society.contacts.get(member, contact) is not None
    await society.contacts.withdraw(member, contact)
    return SocietyWithdrawAnswer(withdrawn=known and await society.contacts.get(member, contact) is None)


@operation(
    "List what a member did",
    "List what a member did, the oldest first, and how far it is trusted with each capability since.",
    who="owner",
)
async def society_outcomes(call: Call[SocietyOutcomesArguments], workspace: Workspace) -> SocietyOutcomesAnswer:
    """List what a member did, and how far it is trusted since.

    Raises:
        UnknownMember: There is no such member.
    """
    society, member = workspace.society, call.given.member
    trust = (await society.members.member(society.config.id, member)).trust
    shown = [
        {**{name: value for name, value in to_json(each.outcome).items() if name != "role_id"}}
        | {"change": each.change, "trust": each.trust, "reason": each.reason, "changed": each.at.isoformat()}
        for each in await society.outcomes.changes(member)
    ]
    return SocietyOutcomesAnswer.model_validate({"outcomes": shown, "trust": to_json(trust)})


@operation(
    "Rate what a member did",
    "Say whether what a member did was good or bad. It counts in place of the outcome, and its trust changes.",
    who="owner",
    effect="changes",
)
async def society_feedback(call: Call[SocietyFeedbackArguments], workspace: Workspace) -> SocietyFeedbackAnswer:
    """Rate what a member did.

    Raises:
        UnknownEpisode: The workspace has no outcome of this episode.
    """
    trust = await workspace.society.outcomes.rate(call.given.episode, call.given.feedback)
    return SocietyFeedbackAnswer.model_validate({"trust": to_json(trust)})


@operation(
    "Change a member's state",
    "Test, activate, suspend or resume a member. In testing, what it does has no effect; while it is suspended, it "
    "receives nothing.",
    who="owner",
    effect="changes",
)
async def society_state(call: Call[SocietyStateArguments], workspace: Workspace) -> SocietyStateAnswer:
    """Change the state of a member: a draft is tested, a tested one works, an active one is suspended or resumed.

    Raises:
        UnknownMember, LifecycleError: There is no such member, or it cannot have this state now.
        InvalidArgument: There is no such state.
    """
    society, member, state = workspace.society, call.given.member, call.given.state
    check_choice("state", state, ("testing", "active", "suspended"))
    before = (await society.members.member(society.config.id, member)).life.status
    change = {
        "testing": society.test,
        "suspended": society.suspend,
        "active": society.resume if before == "suspended" else society.activate,
    }
    await change[state](member)
    return SocietyStateAnswer(member=member, status=state)


@operation(
    "End a member",
    "End a member and all members below it. What it did and wrote is kept.",
    who="owner",
    effect="changes",
)
async def society_terminate(call: Call[SocietyTerminateArguments], workspace: Workspace) -> SocietyTerminateAnswer:
    """End a member and all members below it.

    Raises:
        UnknownMember, LifecycleError: There is no such member, or it has ended.
    """
    ended = await workspace.society.terminate(call.given.member, call.given.reason)
    return SocietyTerminateAnswer(terminated=[*ended])


async def _person(call: Call[Any], society: Society) -> str:
    """The person that a call acts as. An account that has the id of a member is not a person."""
    account = call.caller.account
    if is_owner(call, society):
        return USER
    if account is not None and account not in (USER, ROOT):
        found = await society.members.get(society.config.id, account)
        if found is not None and found.type == "human":
            return found.id
    raise Refused(
        "forbidden",
        "the account of the call is not a person of the workspace",
        remedy="name the account of the owner or of a person that was added, or as an operator name no account",
    )


async def _check_known(society: Society, member: str) -> None:
    """Refuse an id that no member and no person has."""
    if await society.members.get(society.config.id, member) is None:
        raise unknown_member(member, society.config.id)


def mail_record(letter: Letter) -> MailRecord:
    """A message as an answer has it."""
    return MailRecord.model_validate(
        {**letter.message.to_json(), "state": letter.state, "untrusted": [*letter.marks], "case": letter.case},
    )
