"""Turns as records, and the streams that begin and resume them. It needs an open agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from ...agent import UNSET, Thread, Trigger, Turn, TurnStream
from ...agent.threads import ThreadState
from ...core.pauses import Pause, PersonAnswer
from ...graphs import Composed
from ...harness.schema import check_apart
from ...memory.attachments import AttachmentSource
from .answers import pause_record, read_answers
from .arguments import (
    ConverseArguments,
    EventsArguments,
    ResumeArguments,
    ScheduledArguments,
    SkillArgument,
    SkillArguments,
    SurfaceArguments,
    TaskArguments,
    WorkspaceArguments,
)
from .call import Call, check_resume
from .next_steps import to_call
from .operation import Operation
from .pauses import unanswered
from .records import EventsAnswer, NextStep, TurnAnswer, TurnRecord
from .threads import check_open_turn, role_of

C = TypeVar("C", bound=Call[Any])


async def check_start(call: Call[Any], thread: Thread) -> None:
    """Check what a call begins a turn with. A wide JSON Schema of an answer does not hold the event loop.

    Raises:
        Refused: It would interrupt a turn of another account.
        OutputInvalid: The schema is invalid.
    """
    given = call.given
    if not isinstance(given, ConverseArguments):
        return
    if given.output is not None:
        await check_apart(given.output)
    if given.interrupt:
        await check_open_turn(call, thread)


def begin(given: SurfaceArguments, thread: Thread, attachments: Sequence[AttachmentSource] = ()) -> TurnStream:
    """Return the stream of a new turn, which begins when the stream is entered.

    Args:
        given: The arguments, which decide the surface.
        thread: The thread.
        attachments: Images and files of a message.
    """
    how: dict[str, Any] = {
        "role": role_of(given.role),
        "model": given.model,
        "key": given.key,
        "detach": given.detach,
        "unattended": given.unattended,
        "guard": given.guard,
        "subagents": given.subagents,
    }
    match given:
        case ConverseArguments():
            more: dict[str, Any] = {"output": given.output, "attachments": attachments, "inputs": given.inputs}
            more["interrupt"] = given.interrupt
            return thread.stream(given.text, **more, **how)
        case TaskArguments():
            return thread.stream_task(given.shape, given.params, **how)
        case SkillArguments():
            skill = given.skill if isinstance(given.skill, str) else _skill_of(given.skill)
            return thread.stream_skill(skill, given.params, **how)
        case ScheduledArguments():
            fired = datetime.fromisoformat(given.fired_at)
            trigger = Trigger(schedule=given.schedule, fired_at=fired, payload=given.payload)
            return thread.stream_scheduled(trigger, inputs=given.inputs, **how)
        case _:
            raise AssertionError(f"no surface has the arguments {type(given).__name__}")


def resume(given: SurfaceArguments | ResumeArguments, thread: Thread, answers: dict[str, PersonAnswer]) -> TurnStream:
    """Return the stream of the thread's turn, which resumes when the stream is entered.

    Args:
        given: The arguments. Those that began the turn send its role and skill again.
        thread: The thread.
        answers: A person's answers by pause id.
    """
    again = isinstance(given, ResumeArguments)
    left_out = again and "role" not in given.model_fields_set
    skill = given.skill if isinstance(given, ResumeArguments | SkillArguments) else None
    return thread.stream_resume(
        answers,
        role=UNSET if left_out else role_of(given.role),
        on_role_change=given.on_role_change if isinstance(given, ResumeArguments) else "fail",
        skill=_skill_of(skill) if isinstance(skill, SkillArgument) else None,  # a package is found by its name
        detach=bool(given.detach),
        subagents=given.subagents,
    )


async def checked_answers(call: Call[ResumeArguments], thread: Thread) -> dict[str, PersonAnswer]:
    """Return the answers that a call gives, if the caller can resume the turn with them.

    Raises:
        Refused: The turn belongs to another account, and the call has more than answers to pauses that name the caller.
        AnswerInvalid, NotAnApprover: An answer is not accepted.
    """
    given, pauses, state = call.given, unanswered(await thread.pauses()), await thread.state()
    if state is not None:  # before the answers are read, since their errors would reveal another account's pauses
        call.note_turn(state)
        check_resume(call.caller, state, given.answers.keys(), pauses, changes=has_changes(given))
    return read_answers(given.answers, pauses, account=call.caller.account)


def with_detach(call: C) -> C:
    """Fill in `detach` of a call of `resume` that omits it, with the value that the turn began with."""
    if not isinstance(call.given, ResumeArguments) or call.given.detach is not None:
        return call
    # A turn that began with `detach` or with a key keeps its events.
    return replace(call, given=call.given.model_copy(update={"detach": call.facts.recorded}))


def has_changes(given: SurfaceArguments | ResumeArguments) -> bool:
    """Whether a call has more than answers that affects how a turn continues."""
    if not isinstance(given, ResumeArguments):
        return True  # it began the turn, and sends the same role and skill again
    return "role" in given.model_fields_set or given.skill is not None or given.on_role_change != "fail"


def turn_answer(call: Call[Any], turn: Turn, *, seq: int) -> TurnAnswer:
    """Return the answer of a call that followed a turn to its end or a pause.

    Args:
        call: The call.
        turn: The turn.
        seq: The number of the last event that the client has.
    """
    pauses = [pause_record(pause) for pause in turn.pauses]
    record = {**turn.to_json(), "thread": turn.thread or call.given.thread, "pauses": pauses}
    made = to_call(call, turn.status, turn.id, turn.pauses, seq=seq)
    return TurnAnswer(turn=TurnRecord.model_validate(record), seq=seq, next=made)


def status_answer(call: Call[Any], state: ThreadState, pauses: Sequence[Pause], *, seen: int) -> TurnAnswer:
    """Return the answer of a call that did not follow the turn: its status, and what to call for the rest.

    Args:
        call: The call.
        state: The state of the turn.
        pauses: The pauses that it waits for.
        seen: The number of the last event that was sent to the client.
    """
    seq = max(call.given.after, seen)
    made = to_call(call, state.status, state.turn_id, pauses, seq=seq)
    if not made and call.facts.own:
        made = [NextStep(tool="history", arguments=dict(call.ids), why="the turn is over; read its messages")]
    record = {
        "id": state.turn_id,
        "thread": state.thread,
        "status": state.status,
        "pauses": [pause_record(pause) for pause in pauses],
    }
    return TurnAnswer(turn=TurnRecord.model_validate(record), seq=seq, next=made)


def _skill_of(given: SkillArgument) -> Composed:
    return Composed(given.prompt, shape=given.shape, params=given.params, name=given.name)


# --- operations, which each host runs and follows in its own way ------------------------------------------------------

_LASTS: Final = (
    "The turn continues when the client disconnects, cancels the request or times out, unless `detach` is false; "
    "`cancel` ends it, and `next`, `pauses` and `events` lead back to it. With a progress token, "
    "events and heartbeats come as progress, so the client can restart its time-out at each."
)


def _turn(name: str, title: str, arguments: type[WorkspaceArguments], description: str, **more: Any) -> Operation:
    """Return an operation that runs a turn. In the turn, the agent can do whatever its tools can."""
    return Operation(
        name=name,
        title=title,
        arguments=arguments,
        answer=TurnAnswer,
        description=f"{description} {_LASTS}",
        kind="turn",
        effect="changes",
        idempotent=False,
        open_world=True,
        **more,
    )


OPERATIONS: Final = (
    _turn("converse", "Converse", ConverseArguments, "Say something on a thread and get the agent's answer."),
    _turn("task", "Run a task", TaskArguments, "Dispatch one task to a shape and get its typed result."),
    _turn("run_skill", "Run a skill", SkillArguments, "Run a skill by its name, or a shape with a prompt added to it."),
    _turn(
        "run_scheduled",
        "Run a schedule",
        ScheduledArguments,
        "Run a turn because a schedule fired.",
        absent={
            "web": "a scheduler of the host calls it, over the sidecar; a page has `schedule_run`",
            "command": "`worldagent worker` fires schedules, and `schedule run` fires one now",
        },
    ),
    _turn(
        "resume",
        "Resume a turn",
        ResumeArguments,
        "Resume the thread's turn that waits for a person, was stopped, failed in passing, or was interrupted.",
    ),
    Operation(
        name="events",
        title="Follow a turn",
        arguments=EventsArguments,
        answer=EventsAnswer,
        description="Attach to a turn again: its events after a number. Turns begun with `detach` false and without a "
        "key keep no events.",
        kind="events",
        absent={"command": "a command follows the turn that it runs; `trace show` shows one that has run"},
    ),
)
