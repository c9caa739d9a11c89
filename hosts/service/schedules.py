"""The calls about schedules: their arguments and records, and what they do.

They store schedules and look at them. What fires them is `worldagent worker`, or `Schedules` in a process of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from ...agent import WorldAgent
from ...core import digest
from ...core.errors import FunctionInvalid, InvalidArgument, NameTaken, ScheduleInvalid, UnknownSchedule
from ...memory.schedules import RunStatus, ScheduleRun, schedule_taken, unknown_schedule
from ...scheduling import Cron, Misfire, Overlap, Schedule, Schedules, StartTask
from ...scheduling.slots import find_zone
from ...scheduling.when import MAX_EVERY_SECONDS
from .arguments import JsonObject, Moment, Words, WorkspaceArguments
from .call import Call, Caller, check_thread, forbidden
from .next_steps import to_call
from .operation import operation
from .pauses import unanswered
from .records import Answer, NextStep
from .validation import Label, Wire

# --- arguments --------------------------------------------------------------------------------------------------------


def _accepted(check: Callable[[str], object]) -> AfterValidator:
    """A rule of the package as a rule of a field. Remedies quote no value, so the text is the remedy."""

    def validate(value: str) -> str:
        try:
            check(value)
        except (FunctionInvalid, ScheduleInvalid) as error:
            remedy = error.remedy
        else:
            return value
        raise PydanticCustomError("schedule", "It cannot be used: {remedy}", {"remedy": remedy})

    return AfterValidator(validate)


def _time(value: str) -> str:
    try:
        datetime.fromisoformat(value)
    except ValueError:  # its message quotes the value
        pass
    else:
        return value
    raise PydanticCustomError("no_time", "It must be a time as RFC 3339 has it, with or without a time zone")


MAX_ID_CHARACTERS: Final = 64
MAX_RUNS: Final = 1000
ScheduleId = Annotated[
    str,
    Field(
        pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MAX_ID_CHARACTERS - 1}}}$",
        description="the schedule's id",
        examples=["nightly"],
    ),
]


def _one_of(given: Wire, names: tuple[str, ...]) -> None:
    if sum(getattr(given, name) is not None for name in names) != 1:
        raise PydanticCustomError("one_of", "It must have exactly one of {names}", {"names": ", ".join(names)})


class WhenArgument(Wire):
    """When a schedule fires: exactly one of `cron`, `every` and `at`."""

    cron: Annotated[str, _accepted(Cron)] | None = Field(
        default=None,
        description="the five fields of a cron line, or `@daily` and its kin, by the clock of `zone`",
        examples=["30 7 * * *"],
    )
    every: int | None = Field(
        default=None, ge=1, le=MAX_EVERY_SECONDS, description="an interval in seconds", examples=[3600]
    )
    start: Moment | None = Field(default=None, description="with `every`: its first slot; left out, counted from 1970")
    at: Annotated[str, AfterValidator(_time)] | None = Field(
        default=None, description="one time; without a time zone, by the clock of `zone`", examples=["2030-01-01T09:00"]
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        _one_of(self, ("cron", "every", "at"))
        if self.every is None and self.start is not None:
            raise PydanticCustomError("alone", "It can have `start` only with `every`")
        return self


class StartsArgument(Wire):
    """What a schedule starts: exactly one of `message`, `task` and `skill`."""

    message: Words | None = Field(
        default=None, description="a message of the conversation", examples=["What is new since yesterday?"]
    )
    inputs: JsonObject | None = Field(
        default=None, description="with `message`: the further inputs that the agent's `Converse` declares"
    )
    task: Annotated[str, _accepted(StartTask)] | None = Field(default=None, description="the key of a shape")
    params: JsonObject | None = Field(default=None, description="with `task`: its params, as the shape declares them")
    skill: Annotated[Label, Field(max_length=64)] | None = Field(default=None, description="the name of a skill")
    input: Words | JsonObject | None = Field(
        default=None, description="with `skill`: the request, or the input that the skill declares"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        _one_of(self, ("message", "task", "skill"))
        if self.message is None and self.inputs is not None:
            raise PydanticCustomError("alone", "It can have `inputs` only with `message`")
        if self.task is None and self.params is not None:
            raise PydanticCustomError("alone", "It can have `params` only with `task`")
        if (self.skill is None) != (self.input is None):
            raise PydanticCustomError("alone", "It must have `skill` and `input` together")
        return self


class ScheduleAddArguments(WorkspaceArguments):
    """Arguments of `schedule_add`."""

    schedule: ScheduleId
    when: WhenArgument = Field(description="when it fires", examples=[{"cron": "30 7 * * MON-FRI"}])
    starts: StartsArgument = Field(description="what it starts", examples=[{"message": "What is new?"}])
    zone: Annotated[str, _accepted(find_zone)] = Field(
        default="UTC", description="the IANA time zone of its times of day", examples=["Europe/Berlin"]
    )
    thread: Label | None = Field(
        default=None, description="the thread of its runs, on which no turn has run; left out, one of its own"
    )
    tiers: list[Literal["thread", "channel", "workspace", "account"]] | None = Field(
        default=None, max_length=4, description="the only tiers whose stored roles its runs have; null is all"
    )
    misfire: Misfire = Field(default="once", description="what happens to slots that passed while nothing fired them")
    misfire_limit: int = Field(default=10, ge=1, le=1000, description="how many slots `all` fires at most, the newest")
    overlap: Overlap = Field(default="skip", description="what happens at a slot while an earlier run is not over")
    paused: bool = Field(default=False, description="whether its slots are skipped for now")
    unattended: Literal["refuse", "pause"] | None = Field(
        default=None, description="what a run does where a person would be asked; null: by the server's setting"
    )
    guard: bool | None = Field(
        default=None, description="whether its runs are guarded; null: by the profile, else by the server's setting"
    )


class ScheduleArguments(WorkspaceArguments):
    """Arguments of the tools that are about one schedule."""

    schedule: ScheduleId


class SchedulePauseArguments(ScheduleArguments):
    """Arguments of `schedule_pause`."""

    paused: bool = Field(default=True, description="false fires it again; slots that have passed by then stay skipped")


class ScheduleHistoryArguments(ScheduleArguments):
    """Arguments of `schedule_history`."""

    limit: int = Field(default=50, ge=1, le=MAX_RUNS, description="runs in the answer, at most")


# --- records ----------------------------------------------------------------------------------------------------------


class ScheduleRecord(Wire):
    """A schedule."""

    id: str
    when: dict[str, Any] = Field(description="`cron`, `every` with `start`, or `at`")
    starts: dict[str, Any] = Field(
        description="`message`, `inputs`; `task`, `params`; `skill`, `input`; `event`, `domain`, `payload`; or `target`"
    )
    account: str | None = Field(description="the account of its runs, and the only one that can change it")
    zone: str
    thread: str = Field(description="the thread of its runs")
    tiers: list[str] | None
    misfire: Misfire
    misfire_limit: int
    overlap: Overlap
    paused: bool
    unattended: Literal["refuse", "pause"] | None
    guard: bool | None = Field(default=None, description="whether its runs are guarded")
    untrusted: list[str] = Field(
        default_factory=list, description="the untrusted functions whose results it was made of, and who may see it"
    )
    next_slot: str | None = Field(description="the next time at which it fires if it is not paused; null without one")
    workspace: SkipJsonSchema[str] = Field(default="", exclude=True)  # the caller knows it


class RunRecord(Wire):
    """One slot of a schedule, and its run."""

    slot: str = Field(description="its time in UTC")
    status: RunStatus = Field(description="due: it has not started yet")
    turn_id: str | None = Field(description="the turn that it started")
    note: str | None = Field(description="why it was skipped or failed")


class ScheduleAnswer(Answer):
    """Answer of `schedule_add`, `schedule_show` and `schedule_pause`."""

    schedule: ScheduleRecord


class SchedulesAnswer(Answer):
    """Answer of `schedule_list`."""

    schedules: list[ScheduleRecord] = Field(description="by id")


class ScheduleRunAnswer(Answer):
    """Answer of `schedule_run`."""

    run: RunRecord
    next: list[NextStep] = Field(default_factory=list, description="how to follow the turn that it started")


class ScheduleRemoveAnswer(Answer):
    """Answer of `schedule_remove`."""

    removed: Literal[True] = True


class ScheduleHistoryAnswer(Answer):
    """Answer of `schedule_history`."""

    runs: list[RunRecord] = Field(description="newest first")


# --- calls ------------------------------------------------------------------------------------------------------------

_FIELDS: Final = ("zone", "thread", "tiers", "misfire", "misfire_limit", "overlap", "paused", "unattended", "guard")


@operation(
    "Add a schedule",
    "Store what the agent starts at set times for the account of the call. `worldagent worker` fires it.",
    effect="adds",
)
async def schedule_add(call: Call[ScheduleAddArguments], agent: WorldAgent) -> ScheduleAnswer:
    """Store a schedule for the account of the call.

    Raises:
        Refused: The caller does not reach the thread of its runs.
        NameTaken, ScheduleInvalid, UnknownShape, ParamsInvalid, InvalidArgument: As for `Schedules.add`.
    """
    given, schedules = call.given, Schedules(agent)
    fields = {name: getattr(given, name) for name in _FIELDS}
    starts = given.starts.model_dump(exclude_none=True)
    if "task" in starts:
        starts.setdefault("params", {})
    when = given.when.model_dump(exclude_none=True)
    ids = {"id": given.schedule, "workspace": call.caller.workspace, "account": call.caller.account}
    schedule = Schedule.from_json({**ids, **fields, "when": when, "starts": starts})
    grant = call.caller.grant
    found = grant.new_thread(schedule.thread_id) if given.thread is None else grant.own_thread(schedule.thread_id)
    schedule = replace(schedule, thread=found)
    check_thread(grant, schedule.thread_id)
    call.facts.thread = schedule.thread_id
    own = _own_id(call.caller, schedule.id)
    if len(own) > MAX_ID_CHARACTERS:
        raise InvalidArgument(
            f"the id {schedule.id!r} of the schedule is too long",
            remedy=f"use at most {MAX_ID_CHARACTERS - len(own) + len(schedule.id)} characters",
        )
    for stored in dict.fromkeys((schedule.id, own)):
        if await _find(call, schedules) is not None:
            break
        with suppress(NameTaken):
            schedule = replace(schedule, id=stored)
            await schedules.add(schedule)
            return ScheduleAnswer(schedule=await _record(call, schedules, schedule))
    raise schedule_taken(given.schedule)


@operation("List schedules", "The schedules of the workspace, each with its next slot.")
async def schedule_list(call: Call[WorkspaceArguments], agent: WorldAgent) -> SchedulesAnswer:
    """Return the schedules whose threads the caller reaches."""
    schedules = Schedules(agent)
    reached = [each for each in await schedules.list() if call.caller.grant.allows_thread(each.thread_id)]
    records = [await _record(call, schedules, each) for each in reached]
    return SchedulesAnswer(schedules=sorted(records, key=lambda each: each.id))


@operation("Show a schedule", "One schedule with its next slot.")
async def schedule_show(call: Call[ScheduleArguments], agent: WorldAgent) -> ScheduleAnswer:
    """Return one schedule.

    Raises:
        UnknownSchedule: The caller reaches none with this id.
    """
    schedules = Schedules(agent)
    return ScheduleAnswer(schedule=await _record(call, schedules, await _reached(call, schedules)))


@operation(
    "Pause a schedule",
    "Skip the slots of a schedule from now on, or with `paused` false fire them again.",
    effect="changes",
)
async def schedule_pause(call: Call[SchedulePauseArguments], agent: WorldAgent) -> ScheduleAnswer:
    """Skip the slots of a schedule from now on, or fire them again.

    Raises:
        UnknownSchedule: The caller reaches none with this id.
        Refused: It belongs to another account.
    """
    schedules = Schedules(agent)
    schedule = await _own(call, schedules)
    await schedules.pause(schedule.id, paused=call.given.paused)
    return ScheduleAnswer(schedule=await _record(call, schedules, await schedules.get(schedule.id)))


async def fire(call: Call[ScheduleArguments], agent: WorldAgent, schedules: Schedules) -> ScheduleRunAnswer:
    """Fire a schedule once now.

    Args:
        call: The call.
        agent: The agent.
        schedules: Its schedules. What begins here is over when they are `settled`.

    Raises:
        UnknownSchedule: The caller reaches none with this id.
        Refused: It belongs to another account.
    """
    schedule = await _own(call, schedules)
    run = await schedules.run_now(schedule.id)
    thread = agent.thread(schedule.thread_id, account=schedule.account)
    state = await thread.state() if run.turn is not None else None
    made: list[NextStep] = []
    if state is not None and state.turn_id == run.turn:
        call.note_turn(state)
        ids = {**call.ids, "thread": schedule.thread_id}
        made = to_call(call, state.status, state.turn_id, unanswered(await thread.pauses()), ids=ids)
    return ScheduleRunAnswer(run=_run(run), next=made)


@operation(
    "Fire a schedule now",
    "Fire a schedule once now, also if it is paused. The answer comes once its turn has begun; `next` follows it.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def schedule_run(call: Call[ScheduleArguments], agent: WorldAgent) -> ScheduleRunAnswer:
    """Fire a schedule once now, and wait until its run ends or waits for a person.

    A server, whose client cannot wait that long, answers as soon as the turn has begun (`fire`).

    Raises:
        UnknownSchedule, Refused: As for `fire`.
    """
    schedules = Schedules(agent)
    answer = await fire(call, agent, schedules)
    await schedules.settled()
    found = await schedules.history((await _own(call, schedules)).id, limit=MAX_RUNS)
    return answer.model_copy(update={"run": next(_run(each) for each in found if each.slot == answer.run.slot)})


@operation("List runs", "The newest runs of a schedule, and why some were skipped or failed.")
async def schedule_history(call: Call[ScheduleHistoryArguments], agent: WorldAgent) -> ScheduleHistoryAnswer:
    """Return the newest runs of a schedule.

    Raises:
        UnknownSchedule: The caller reaches none with this id.
    """
    schedules = Schedules(agent)
    schedule = await _reached(call, schedules)
    found = await schedules.history(schedule.id, limit=call.given.limit)
    return ScheduleHistoryAnswer(runs=[_run(each) for each in found])


@operation("Remove a schedule", "Remove a schedule and its history. Turns that it started stay.", effect="changes")
async def schedule_remove(call: Call[ScheduleArguments], agent: WorldAgent) -> ScheduleRemoveAnswer:
    """Remove a schedule and its history. Turns that it started stay.

    Raises:
        UnknownSchedule: The caller reaches none with this id.
        Refused: It belongs to another account.
    """
    schedules = Schedules(agent)
    await schedules.remove((await _own(call, schedules)).id)
    return ScheduleRemoveAnswer()


def _own_id(caller: Caller, schedule: str) -> str:
    """The stored id of a caller's schedule where another caller's, which they do not reach, has its id.

    To them it is shown without the part after the last dot, so that nobody learns from an id what others have.
    """
    if caller.grant.allows_any_thread:
        return schedule
    return f"{schedule}.{digest(caller.reader, length=16)}"


async def _find(call: Call[Any], schedules: Schedules) -> Schedule | None:
    """The schedule that a call names, of the caller or of others; None if the caller does not reach its thread."""
    named = call.given.schedule
    for stored in dict.fromkeys((_own_id(call.caller, named), named)):
        with suppress(UnknownSchedule):
            schedule = await schedules.get(stored)
            if call.caller.grant.allows_thread(schedule.thread_id):
                return schedule
    return None


async def _reached(call: Call[Any], schedules: Schedules) -> Schedule:
    """The schedule that a call names. One whose thread the caller does not reach is refused as if there were none."""
    schedule = await _find(call, schedules)
    if schedule is None:
        raise unknown_schedule(call.given.schedule)
    call.facts.thread = schedule.thread_id
    return schedule


async def _own(call: Call[Any], schedules: Schedules) -> Schedule:
    schedule, caller = await _reached(call, schedules), call.caller
    if caller.grant.operator or schedule.account in (None, caller.account):
        return schedule
    raise forbidden("schedule")


async def _record(call: Call[Any], schedules: Schedules, schedule: Schedule) -> ScheduleRecord:
    slot = await schedules.next_slot(schedule.id)
    fields = schedule.to_json()
    fields |= {"id": schedule.id.removesuffix(_own_id(call.caller, "")), "thread": schedule.thread_id}
    fields |= {"next_slot": None if slot is None else slot.id}
    return ScheduleRecord.model_validate(fields)


def _run(run: ScheduleRun) -> RunRecord:
    return RunRecord(slot=run.slot, status=run.status, turn_id=run.turn, note=run.note)
