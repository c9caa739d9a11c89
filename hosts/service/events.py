"""The calls about what happens in a workspace: their arguments and records, and what they do (A12).

Only the owner of the workspace and operators post and see events, because members act on them without a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, Field

from ...core.checks import to_json
from ...members.data.roles import USER
from ...members.data.workspace import Event
from ...members.events.events import EventResult, EventState
from .arguments import JsonObject, WorkspaceArguments
from .call import Call
from .home import clock_of
from .operation import is_owner, operation
from .records import Answer
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...members.events.events import PostedEvent
    from .home import Workspace

# --- arguments --------------------------------------------------------------------------------------------------------


class EventPostArguments(WorkspaceArguments):
    """Arguments of `event_post`."""

    event: Label = Field(
        description="its id: a second call with the same id and content posts nothing, and answers with the event",
        examples=["lead-7"],
    )
    type: Label = Field(description="what happened", examples=["lead.created"])
    domain: Label = Field(description="what it is about: the first live member of it gets it", examples=["revenue"])
    payload: JsonObject = Field(
        default_factory=dict, description="what is known of it", examples=[{"company": "Acme", "seats": 40}]
    )
    metadata: JsonObject = Field(
        default_factory=dict,
        description="more about it; `untrusted` has the names of sources whose text the payload has",
        examples=[{"untrusted": ["mail"]}],
    )
    source: Label | None = Field(
        default=None,
        description="where it comes from; null is the person of the call. Members obey directives of the owner alone",
        examples=["hubspot"],
    )
    to: Label | None = Field(default=None, description="the member that gets it, whatever its domain is")


class EventListArguments(WorkspaceArguments):
    """Arguments of `event_list`."""

    state: EventState | None = Field(default=None, description="only events with this state")
    member: Label | None = Field(default=None, description="only events that this member has", examples=["cro"])
    type: Label | None = Field(default=None, description="only events of these types, a glob", examples=["lead.*"])
    result: EventResult | None = Field(default=None, description="only events with this result")
    since: AwareDatetime | None = Field(
        default=None, description="only events posted then or later", examples=["2026-02-18T00:00:00Z"]
    )
    limit: int = Field(default=100, ge=1, le=1000, description="events in the answer, at most")


# --- records ----------------------------------------------------------------------------------------------------------


class EventRecord(Wire):
    """An event, the decision about it, and its result."""

    id: str
    type: str
    source: str
    domain: str
    payload: dict[str, Any]
    metadata: dict[str, Any]
    timestamp: str
    member: str = Field(description="the member that has it; empty if no live member has its domain")
    trail: list[str] = Field(description="the members that forwarded it, the first one first")
    state: EventState = Field(description="paused: its operator waits for a person")
    decision: dict[str, Any] | None = Field(description="`action`, `reason`, and what is run, or who gets it")
    result: EventResult | None = Field(description="its result; null until it is over")
    code: str = Field(description="the code of the error, if it failed or was refused")
    thread: str = Field(description="the thread of its operator's turn; `pauses` shows what that waits for")
    case: str = Field(description="the case of what follows from it, which `case_show` tells")
    posted: str
    ended: str | None


class EventPostAnswer(Answer):
    """Answer of `event_post`."""

    event: EventRecord


class EventListAnswer(Answer):
    """Answer of `event_list`."""

    events: list[EventRecord] = Field(description="the last ones, the oldest of them first")


# --- calls ------------------------------------------------------------------------------------------------------------


@operation(
    "Post an event",
    "Post something that happened, for the owner and operators. The first live member of its domain decides what "
    "to do with it, while the sidecar, or a worker, has the agent open.",
    who="owner",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def event_post(call: Call[EventPostArguments], workspace: Workspace) -> EventPostAnswer:
    """Post an event.

    Raises:
        KeyReused, MailboxFull, UnknownMember: As for `Events.post`.
        InvalidArgument: The workspace has no society, or an argument is invalid.
    """
    society, given = workspace.society, call.given
    verified = given.source is None and is_owner(call, society)
    event = Event(
        id=given.event,
        type=given.type,
        source=USER if verified else given.source or call.caller.account or "operator",
        domain=given.domain,
        payload=given.payload,
        metadata=given.metadata,
        timestamp=clock_of(workspace).now(),
        source_verified=verified,
    )
    return EventPostAnswer(event=_record(await society.events.post(event, to=given.to)))


@operation(
    "List events",
    "The last events of the workspace, the decisions about them, and their results, for the owner and operators.",
    who="owner",
)
async def event_list(call: Call[EventListArguments], workspace: Workspace) -> EventListAnswer:
    """Return the last events.

    Raises:
        InvalidArgument: The workspace has no society.
    """
    society, given = workspace.society, call.given
    chosen = given.model_dump(include={"state", "member", "type", "result", "since", "limit"})
    found = await society.events.list(**chosen)
    return EventListAnswer(events=[_record(each) for each in found])


def _record(posted: PostedEvent) -> EventRecord:
    fields = posted.to_json()
    event = {name: value for name, value in fields.pop("event").items() if name != "source_verified"}
    kept = {name: fields.get(name) for name in EventRecord.model_fields if name not in event}
    return EventRecord.model_validate({**event, **kept, "timestamp": to_json(posted.event.timestamp)})
