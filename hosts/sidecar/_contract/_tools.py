"""The tools of the contract, and their JSON Schemas as they are published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mcp.types import Tool, ToolAnnotations

from ...serving import output_schema, wire_schema
from .answers import (
    CancelAnswer,
    ExplainAnswer,
    ForkAnswer,
    HistoryAnswer,
    PausesAnswer,
    RoleClearAnswer,
    RoleSetAnswer,
    ThreadsAnswer,
)
from .arguments import (
    EventsArguments,
    ExplainArguments,
    ForkArguments,
    HistoryArguments,
    RoleSetArguments,
    ThreadsArguments,
)
from .surfaces import ConverseArguments, ResumeArguments, ScheduledArguments, SkillArguments, TaskArguments
from .turns import Answer, ErrorAnswer, EventsAnswer, TurnAnswer
from .words import ThreadArguments, WorkspaceArguments


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool.

    Attributes:
        arguments: What it takes.
        answer: What it gives.
        description: What it does, for people and models.
        writes: Whether it changes anything.
        again: Whether calling it twice is as good as once.
    """

    arguments: type[WorkspaceArguments]
    answer: type[Answer]
    description: str
    writes: bool = True
    again: bool = False


TOOLS: Final[dict[str, ToolSpec]] = {
    "converse": ToolSpec(ConverseArguments, TurnAnswer, "Say something on a thread and get the agent's answer."),
    "task": ToolSpec(TaskArguments, TurnAnswer, "Dispatch one task to a shape and get its typed result."),
    "run_skill": ToolSpec(SkillArguments, TurnAnswer, "Run a composed skill: a shape with a prompt added to it."),
    "run_scheduled": ToolSpec(ScheduledArguments, TurnAnswer, "Run a turn because a schedule fired."),
    "resume": ToolSpec(
        ResumeArguments,
        TurnAnswer,
        "Go on with the thread's turn that waits for a person, was stopped, failed in passing, or was cut off.",
    ),
    "events": ToolSpec(
        EventsArguments,
        EventsAnswer,
        "Attach to a turn again: its events after a number. Only turns begun with detach or a key keep their events.",
        writes=False,
        again=True,
    ),
    "pauses": ToolSpec(
        ThreadArguments,
        PausesAnswer,
        "Where a thread stands, and what its turn waits for a person to say.",
        writes=False,
        again=True,
    ),
    "cancel": ToolSpec(
        ThreadArguments, CancelAnswer, "Cancel the thread's turn, wherever it runs or waits.", again=True
    ),
    "history": ToolSpec(
        HistoryArguments, HistoryAnswer, "A page of the conversation, oldest first.", writes=False, again=True
    ),
    "fork": ToolSpec(ForkArguments, ForkAnswer, "Make a thread that goes on from a message of this one."),
    "thread_role_set": ToolSpec(
        RoleSetArguments, RoleSetAnswer, "Set or replace the thread's role; it is held in memory alone.", again=True
    ),
    "thread_role_clear": ToolSpec(ThreadArguments, RoleClearAnswer, "Take the thread's role away.", again=True),
    "explain_role": ToolSpec(
        ExplainArguments,
        ExplainAnswer,
        "Which tiers of role would be active now, in what order and how long; no content is shown.",
        writes=False,
        again=True,
    ),
    "threads": ToolSpec(
        ThreadsArguments,
        ThreadsAnswer,
        "Where the workspace's threads stand, the one with the newest turn first.",
        writes=False,
        again=True,
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of the contract by name: `converse.input`, `converse.output` and so on, and `error`.

    An `output` takes the tool's answer and every error; `error` takes errors alone.
    """
    made: dict[str, dict[str, Any]] = {"error": wire_schema(ErrorAnswer)}
    for name, spec in TOOLS.items():
        made[f"{name}.input"] = wire_schema(spec.arguments)
        made[f"{name}.output"] = output_schema(spec.answer, ErrorAnswer)
    return made


def published() -> list[Tool]:
    """The tools as `tools/list` gives them."""
    made = schemas()
    return [
        Tool(
            name=name,
            description=spec.description,
            input_schema=made[f"{name}.input"],
            output_schema=made[f"{name}.output"],
            annotations=ToolAnnotations(
                read_only_hint=not spec.writes,
                destructive_hint=spec.writes,
                idempotent_hint=spec.again,
                open_world_hint=spec.writes,
            ),
        )
        for name, spec in TOOLS.items()
    ]


__all__ = ["TOOLS", "ToolSpec", "published", "schemas"]
