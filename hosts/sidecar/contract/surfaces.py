"""The arguments of the tools that begin or resume a turn. `calls` has the tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ....core.pauses import current_pause_id
from ..pauses import ANSWERS_SCHEMA
from .words import JsonObject, Label, Moment, PersonName, RoleArgument, Seq, ThreadArguments, Wire, Words


class _Followed(Wire):
    after: Seq = Field(
        default=0,
        description="events up to this number are not sent as progress; those behind it are, of earlier runs too",
    )
    pauses: Literal["elicit", "return"] = Field(
        default="elicit",
        description="whether a person is asked through the client, where it can, or the paused turn is the answer",
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


class ConverseArguments(SurfaceArguments):
    """Of `converse`."""

    text: Words = Field(description="what the person says", examples=["What do you think of the first chapter?"])
    output: JsonObject | None = Field(
        default=None,
        description="a JSON Schema that the answer must fit; it is then in `result`, as JSON",
        examples=[{"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}],
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

    skill: SkillArgument
    params: JsonObject = Field(default_factory=dict, description="params that go over the skill's own")


class ScheduledArguments(SurfaceArguments):
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
    skill: SkillArgument | None = Field(default=None, description="the skill again, where the turn runs one")


__all__ = [
    "ConverseArguments",
    "ResumeArguments",
    "ScheduledArguments",
    "SkillArgument",
    "SkillArguments",
    "SurfaceArguments",
    "TaskArguments",
]
