"""The arguments of calls. `threads` and `turns` have the functions that take them."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ...agent.threads import ThreadStatus
from ...core.bounds import OutOfBounds
from ...core.pauses import current_pause_id
from ...core.validation import is_text
from ...memory.examples import MAX_NOTE_CHARACTERS, Feedback
from ...role_resolution import Echo
from ..bounds import MAX_TEXT, VALUE
from .answers import ANSWERS_SCHEMA
from .validation import Label, Printable, Wire

CONTRACT: Literal[1] = 1
"""The version of the contract. Every answer has it."""


def _said(value: str) -> str:
    if is_text(value):
        return value
    raise PydanticCustomError("blank", "It is blank or has characters that UTF-8 cannot hold")


def _json(value: dict[str, Any]) -> dict[str, Any]:
    problem = ""
    try:
        VALUE.count(value)
    except OutOfBounds as error:
        problem = f"It has {error}"
    if problem:
        raise PydanticCustomError("out_of_bounds", "{problem}", {"problem": problem})
    with suppress(ValueError, TypeError, RecursionError):  # their messages quote the value
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return value
    raise PydanticCustomError("not_json", "It has a number or a character that JSON does not have")


def _moment(value: str) -> str:
    with suppress(ValueError):  # its message quotes the value
        if datetime.fromisoformat(value).tzinfo is not None:
            return value
    raise PydanticCustomError("no_moment", "It must be an RFC 3339 time with a time zone")


PersonName = Annotated[str, Field(min_length=1, max_length=80), Printable]

Title = Annotated[str, Field(min_length=1, max_length=120), Printable]

Words = Annotated[str, Field(min_length=1), AfterValidator(_said)]
"""A text that is not blank."""

JsonObject = Annotated[dict[str, Any], AfterValidator(_json)]

Moment = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"format": "date-time"})]

Seq = Annotated[int, Field(ge=0, le=2**53)]


class RoleText(Wire):
    """A role to store: a text and its name."""

    content: Words = Field(
        description="how to go about it, in plain words; 32 KiB of UTF-8 by default",
        examples=["You are terse. Answer in one sentence."],
    )
    name: Label = Field(default="role", description="a label for people; no model sees it", examples=["terse"])

    def __repr__(self) -> str:
        return "<a role>"

    __str__ = __repr__


class RoleArgument(RoleText):
    """A role of one call, or of a thread."""

    applies_to: list[Words] = Field(
        default_factory=list, max_length=100, description="globs over Signature names; none is the entry Signature"
    )
    exclusive: bool = Field(default=False, description="whether the tiers below it are left out")
    echo: Echo | None = Field(
        default=None, description="what happens if an answer gives it back; left out, as the agent's setting says"
    )


class WorkspaceArguments(Wire):
    """The arguments of every tool."""

    workspace: Label | None = Field(
        default=None, description="the workspace; may be left out where the token reaches one", examples=["novel"]
    )
    account: Label | None = Field(
        default=None,
        description="who speaks; left out it is the token's only account, else no account",
        examples=["ana"],
    )


class ThreadArguments(WorkspaceArguments):
    """The arguments of every tool that is about one thread."""

    thread: Label = Field(description="the conversation", examples=["t1"])
    channel: Label | None = Field(default=None, description="where the conversation hangs")


class _Followed(Wire):
    after: Seq = Field(
        default=0,
        description="events up to this number are not sent as progress; those behind it are, of earlier runs too; "
        "left out: all of this run",
    )
    pauses: Literal["elicit", "return"] = Field(
        default="elicit",
        description="whether a person is asked through the client, where it can, or the paused turn is the answer",
    )
    subagents: bool = Field(
        default=False,
        description="whether the text, reasoning and calls' arguments of workers and skills are sent in parts, too",
    )


class SurfaceArguments(_Followed, ThreadArguments):
    """The arguments of every tool that begins a turn."""

    detach: bool = Field(
        default=True,
        description="whether the turn continues when the client disconnects, cancels the request or times out; "
        "false: that cancels the turn",
    )
    name: PersonName | None = Field(
        default=None, description="how the person is called in messages; it gives no right", examples=["Ana"]
    )
    role: RoleArgument | None = Field(default=None, description="how to go about this one turn; it is stored nowhere")
    model: Label | Annotated[list[Label], Field(min_length=1, max_length=10)] | None = Field(
        default=None, description="the model of this one turn, by name; several are tried in turn"
    )
    key: Label | None = Field(
        default=None,
        description="an idempotency key: the same start on the same thread with the same key is the same turn",
        examples=["0b7d6c1e"],
    )
    unattended: Literal["refuse", "pause"] | bool | None = Field(
        default=None,
        description="what the turn does where a person would be asked: refuse the call, or pause and notify; true: by "
        "the server's setting; false: a person is asked; null: false, and true for a scheduled run",
    )
    guard: bool | None = Field(
        default=None,
        description="whether no model of the turn that calls tools reads what a stranger can have written; null: by "
        "the server's profile and setting",
    )


class _Conversing(SurfaceArguments):
    inputs: JsonObject | None = Field(
        default=None, description="the further inputs that the agent's `Converse` declares, by name"
    )


class ConverseArguments(_Conversing):
    """Of `converse`."""

    text: Words = Field(
        max_length=MAX_TEXT, description="what the person says", examples=["What do you think of the first chapter?"]
    )
    output: JsonObject | None = Field(
        default=None,
        description="a JSON Schema that the answer must fit; it is then in `result`, as JSON",
        examples=[{"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}],
    )
    interrupt: bool = Field(
        default=False,
        description="whether the thread's turn that runs or waits is cancelled for this one: at once while its model "
        "thinks, else after the calls under way",
    )


class TaskArguments(SurfaceArguments):
    """Of `task`."""

    shape: Label = Field(description="the kind of work", examples=["subagent"])
    params: JsonObject = Field(default_factory=dict, description="its params, as the shape declares them")


class SkillArgument(Wire):
    """A composed skill."""

    prompt: Words = Field(description="added to the instructions of the shape's entry Signature; it is stored nowhere")
    shape: Label = Field(default="subagent", description="the shape that runs")
    params: JsonObject = Field(default_factory=dict, description="the shape's params")
    name: Label = Field(default="skill", description="a label for people")

    def __repr__(self) -> str:
        return "<a skill>"

    __str__ = __repr__


class SkillArguments(SurfaceArguments):
    """Of `run_skill`."""

    skill: SkillArgument | Label = Field(description="the name of one of the agent's skills, or a composed skill")
    params: JsonObject = Field(
        default_factory=dict,
        description="for a name: `request`, or the input that the skill declares; else params that go over its own",
    )


class ScheduledArguments(_Conversing):
    """Of `run_scheduled`."""

    schedule: Label = Field(description="the schedule's id", examples=["nightly"])
    fired_at: Moment = Field(
        description="when it fired, as RFC 3339 with a time zone", examples=["2030-01-01T10:00:00Z"]
    )
    payload: JsonObject = Field(default_factory=dict, description="what it brings along")


def _by_current_ids(answers: dict[str, Any]) -> dict[str, Any]:
    found = {current_pause_id(pause_id): answer for pause_id, answer in answers.items()}
    if len(found) < len(answers):
        raise PydanticCustomError("twice", "It answers a pause twice")
    return found


class ResumeArguments(_Followed, ThreadArguments):
    """Of `resume`."""

    detach: bool | None = Field(
        default=None,
        description="whether the turn continues when the client disconnects, cancels the request or times out; null: "
        "as it began, so a turn that began with detach or with a key continues",
    )
    answers: Annotated[JsonObject, AfterValidator(_by_current_ids), WithJsonSchema(ANSWERS_SCHEMA)] = Field(
        default_factory=dict,
        description="answers by pause id; some of several will do",
        examples=[{"3f2a9c0d": {"approve": {}}}],
    )
    role: RoleArgument | None = Field(
        default=None,
        description="the call's role again, where the turn began with one; null: without one on purpose",
    )
    on_role_change: Literal["fail", "refresh", "pin"] = Field(
        default="fail", description="what happens where the role is not the one that the turn began with"
    )
    skill: SkillArgument | None = Field(
        default=None,
        description="the composed skill again, where the turn runs one; one that was run by its name is found by it",
    )


class EventsArguments(WorkspaceArguments):
    """Arguments of `events`."""

    turn_id: Label = Field(description="the turn", examples=["3f2a9c0d11be"])
    after: Seq = Field(default=0, description="the number of the last event that the client has")
    wait: float = Field(
        default=30.0, ge=0, le=300, allow_inf_nan=False, description="seconds to wait for the first event"
    )
    limit: int = Field(default=1000, ge=1, le=1000, description="events in one answer, at most")


class TurnFeedbackArguments(WorkspaceArguments):
    """Arguments of `turn_feedback`."""

    turn_id: Label = Field(description="the turn", examples=["3f2a9c0d11be"])
    feedback: Feedback = Field(description="what the person thinks of it", examples=["good"])
    note: Words | None = Field(default=None, max_length=MAX_NOTE_CHARACTERS, description="why")


class HistoryArguments(ThreadArguments):
    """Arguments of `history`."""

    before: Label | None = Field(default=None, description="a message's id; the page ends just before it")
    limit: int = Field(default=50, ge=1, le=1000, description="messages in one answer, at most")


class ForkArguments(ThreadArguments):
    """Arguments of `fork`."""

    at: Label | None = Field(default=None, description="the message to continue from; left out, the newest")
    to: Label | None = Field(default=None, description="the new thread's id; left out, one is made")


class BackgroundTaskArguments(ThreadArguments):
    """Arguments of `background_cancel`."""

    task: Label = Field(description="the id of a background task of the conversation", examples=["3f2a9c0d"])


class RoleSetArguments(ThreadArguments):
    """Arguments of `thread_role_set`."""

    role: RoleArgument
    ttl: float | None = Field(
        default=None, gt=0, le=366 * 86_400, allow_inf_nan=False, description="seconds after which it ends"
    )


class ExplainArguments(ThreadArguments):
    """Arguments of `explain_role`."""

    role: RoleArgument | None = Field(default=None, description="a call role to explain along")


class ThreadsArguments(WorkspaceArguments):
    """Arguments of `threads`."""

    limit: int = Field(default=100, ge=1, le=1000, description="threads in the answer, at most")
    status: ThreadStatus | None = Field(
        default=None,
        description="only those with this status; with it, threads of background tasks are listed, too",
        examples=["paused"],
    )
    of_account: Label | None = Field(
        default=None, description="only those on which a turn has run for this account", examples=["ana"]
    )
    channel: Label | None = Field(default=None, description="only those whose newest turn is of this channel")
    query: Words | None = Field(
        default=None, max_length=200, description="only those whose title or messages say this, in capitals or not"
    )
    archived: bool | None = Field(
        default=False, description="true: only archived threads; null: both kinds, and threads of background tasks"
    )
    before: Words | None = Field(
        default=None, max_length=1000, description="the next page: the `page_key` of the last thread that you have"
    )


class ArchiveArguments(ThreadArguments):
    """Arguments of `thread_archive`."""

    archived: bool = Field(default=True, description="false shows the thread in lists again")


class HandOverArguments(ThreadArguments):
    """Arguments of `thread_hand_over`."""

    member: Label = Field(description="the id of the member", examples=["bdr-apac"])
    messages: Literal["none", "all"] | Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default="none",
        description="what it is shown of the conversation so far; a number is that many of the last messages",
    )


class RenameArguments(ThreadArguments):
    """Arguments of `thread_rename`."""

    title: Title | None = Field(
        default=None, description="left out, the first words of the first message", examples=["Dragons of Vell"]
    )
