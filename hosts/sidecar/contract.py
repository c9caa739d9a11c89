"""The tools of the contract, and their published JSON Schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from mcp.types import Tool, ToolAnnotations
from pydantic import Field

from ...agent.threads import ThreadStatus
from ..service.arguments import (
    ConverseArguments,
    Label,
    ResumeArguments,
    RoleArgument,
    ScheduledArguments,
    Seq,
    SkillArguments,
    TaskArguments,
    ThreadArguments,
    Title,
    Words,
    WorkspaceArguments,
)
from ..service.records import (
    Answer,
    CancelAnswer,
    ErrorAnswer,
    EventsAnswer,
    ExplainAnswer,
    ForkAnswer,
    HistoryAnswer,
    PausesAnswer,
    RenameAnswer,
    RoleClearAnswer,
    RoleSetAnswer,
    ThreadsAnswer,
    TurnAnswer,
)
from ..serving import output_schema, wire_schema


class EventsArguments(WorkspaceArguments):
    """Arguments of `events`."""

    turn_id: Label = Field(description="the turn", examples=["3f2a9c0d11be"])
    after: Seq = Field(default=0, description="the number of the last event that the client has")
    wait: float = Field(
        default=30.0, ge=0, le=300, allow_inf_nan=False, description="seconds to wait for the first event"
    )
    limit: int = Field(default=1000, ge=1, le=1000, description="events in one answer, at most")


class HistoryArguments(ThreadArguments):
    """Arguments of `history`."""

    before: Label | None = Field(default=None, description="a message's id; the page ends just before it")
    limit: int = Field(default=50, ge=1, le=1000, description="messages in one answer, at most")


class ForkArguments(ThreadArguments):
    """Arguments of `fork`."""

    at: Label | None = Field(default=None, description="the message to continue from; left out, the newest")
    to: Label | None = Field(default=None, description="the new thread's id; left out, one is made")


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
    status: ThreadStatus | None = Field(default=None, description="only those with this status", examples=["paused"])
    of_account: Label | None = Field(
        default=None, description="only those on which a turn has run for this account", examples=["ana"]
    )
    channel: Label | None = Field(default=None, description="only those whose newest turn is of this channel")
    query: Words | None = Field(
        default=None, max_length=200, description="only those whose title or messages say this, in capitals or not"
    )
    before: Words | None = Field(
        default=None, max_length=1000, description="the next page: the `page_key` of the last thread that you have"
    )


class RenameArguments(ThreadArguments):
    """Arguments of `thread_rename`."""

    title: Title | None = Field(
        default=None, description="left out, the first words of the first message", examples=["Dragons of Vell"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool.

    Attributes:
        title: Its display name.
        arguments: The model of its arguments.
        answer: The model of its answer.
        description: What it does, for people and models.
        effect: `reads` changes nothing in the workspace, `adds` only adds, `changes` can replace, remove or end things.
        idempotent: Whether it is idempotent.
        open_world: Whether it runs the agent, whose tools can reach anything.
    """

    title: str
    arguments: type[WorkspaceArguments]
    answer: type[Answer]
    description: str
    effect: Literal["reads", "adds", "changes"] = "reads"
    idempotent: bool = True
    open_world: bool = False


def _turn(title: str, arguments: type[WorkspaceArguments], description: str) -> ToolSpec:
    """Return a tool that runs a turn. In the turn, the agent can do whatever its tools can."""
    return ToolSpec(
        title=title,
        arguments=arguments,
        answer=TurnAnswer,
        description=f"{description} {_LASTS}",
        effect="changes",
        idempotent=False,
        open_world=True,
    )


_LASTS: Final = (
    "The turn continues when the client disconnects, cancels the request or times out, unless `detach` is false; "
    "`cancel` ends it, and `next`, `pauses` and `events` lead back to it. With a progress token, "
    "events and heartbeats come as progress, so the client can restart its time-out at each."
)

TOOLS: Final[dict[str, ToolSpec]] = {
    "converse": _turn("Converse", ConverseArguments, "Say something on a thread and get the agent's answer."),
    "task": _turn("Run a task", TaskArguments, "Dispatch one task to a shape and get its typed result."),
    "run_skill": _turn("Run a skill", SkillArguments, "Run a composed skill: a shape with a prompt added to it."),
    "run_scheduled": _turn("Run a schedule", ScheduledArguments, "Run a turn because a schedule fired."),
    "resume": _turn(
        "Resume a turn",
        ResumeArguments,
        "Resume the thread's turn that waits for a person, was stopped, failed in passing, or was interrupted.",
    ),
    "events": ToolSpec(
        title="Follow a turn",
        arguments=EventsArguments,
        answer=EventsAnswer,
        description="Attach to a turn again: its events after a number. Turns begun with `detach` false and without a "
        "key keep no events.",
    ),
    "pauses": ToolSpec(
        title="List pauses",
        arguments=ThreadArguments,
        answer=PausesAnswer,
        description="The status of a thread, and what its turn waits for a person to say.",
    ),
    "cancel": ToolSpec(
        title="Cancel a turn",
        arguments=ThreadArguments,
        answer=CancelAnswer,
        description="Cancel the thread's turn, wherever it runs or waits.",
        effect="changes",
    ),
    "history": ToolSpec(
        title="Read the history",
        arguments=HistoryArguments,
        answer=HistoryAnswer,
        description="A page of the conversation, oldest first.",
    ),
    "fork": ToolSpec(
        title="Fork a thread",
        arguments=ForkArguments,
        answer=ForkAnswer,
        description="Make a thread that continues from a message of this one, which stays as it is.",
        effect="adds",
        idempotent=False,
    ),
    "thread_rename": ToolSpec(
        title="Rename a thread",
        arguments=RenameArguments,
        answer=RenameAnswer,
        description="Set what a thread is called in lists; no model sees it.",
        effect="changes",
    ),
    "thread_role_set": ToolSpec(
        title="Set the thread's role",
        arguments=RoleSetArguments,
        answer=RoleSetAnswer,
        description="Set or replace the thread's role; it is held in memory alone.",
        effect="changes",
    ),
    "thread_role_clear": ToolSpec(
        title="Clear the thread's role",
        arguments=ThreadArguments,
        answer=RoleClearAnswer,
        description="Take the thread's role away.",
        effect="changes",
    ),
    "explain_role": ToolSpec(
        title="Explain the role",
        arguments=ExplainArguments,
        answer=ExplainAnswer,
        description="Which tiers of role would be active now, in what order and how long; no content is shown.",
    ),
    "threads": ToolSpec(
        title="List threads",
        arguments=ThreadsArguments,
        answer=ThreadsAnswer,
        description="The status of the workspace's threads, the one with the newest turn first.",
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the contract by name: `converse.input`, `converse.output` and so on, and `error`.

    An `output` accepts the tool's answer and every error; `error` accepts errors only.
    """
    made: dict[str, dict[str, Any]] = {"error": wire_schema(ErrorAnswer)}
    for name, spec in TOOLS.items():
        made[f"{name}.input"] = wire_schema(spec.arguments)
        made[f"{name}.output"] = output_schema(spec.answer, ErrorAnswer)
    return made


def published() -> list[Tool]:
    """Return the tools as `tools/list` lists them."""
    made = schemas()
    return [
        Tool(
            name=name,
            title=spec.title,
            description=spec.description,
            input_schema=made[f"{name}.input"],
            output_schema=made[f"{name}.output"],
            annotations=ToolAnnotations(
                read_only_hint=spec.effect == "reads",
                destructive_hint=spec.effect == "changes",
                idempotent_hint=spec.idempotent,
                open_world_hint=spec.open_world,
            ),
        )
        for name, spec in TOOLS.items()
    ]
