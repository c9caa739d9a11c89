"""The commands of `schedule`. `worker` fires schedules while it runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .operating import ask, operation
from .options import AgentOptions, argument, option_group
from .output import Output, records_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..service.schedules import RunRecord, ScheduleRecord


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(each)}" for name, each in value.items() if each is not None)
    return "" if value is None else str(value)


def _record(schedule: ScheduleRecord) -> dict[str, Any]:
    fields = schedule.model_dump(mode="json")
    return fields | {"workspace": schedule.workspace, "next": fields.pop("next_slot")}


def _value(found: Any) -> dict[str, Any]:
    if hasattr(found, "schedules"):
        return {"schedules": [_record(each) for each in found.schedules]}
    return {"schedule": _record(found.schedule)}


def _lines(schedule: ScheduleRecord) -> str:
    return "\n".join(f"{name}: {_shown(each)}" for name, each in _record(schedule).items())


def _run(run: RunRecord) -> dict[str, Any]:
    return {"slot": run.slot, "status": run.status, "turn": run.turn_id, "note": run.note}


def _ran(found: Any) -> dict[str, Any]:
    return {"run": _run(found.run)}


_COLUMNS: Final = {
    "ID": "id",
    "WHEN": lambda each: _shown(each.when),
    "STARTS": lambda each: _shown(each.starts)[:60],
    "NEXT": lambda each: "paused" if each.paused else each.next_slot,
    "THREAD": "thread",
}
_RUNS: Final = {"SLOT": "slot", "STATUS": "status", "TURN": "turn_id", "NOTE": "note"}
_ID: Final = argument("ID", "The id of the schedule.")


def _listed(found: Any) -> str | None:
    return records_table(_COLUMNS, found.schedules, "there are no schedules")


app = typer.Typer(name="schedule", no_args_is_help=True)


@app.callback()
def _schedule() -> None:
    """Schedules: what the agent starts at set times, such as a report every morning.

    They are stored with the threads. [bold]worldagent worker[/bold] fires them while it runs. Give the same options for
    the agent everywhere.

    [bold]Example[/bold]

      worldagent schedule add report --cron '30 7 * * MON-FRI' --zone Europe/Berlin --message 'What is new?'
    """


@option_group
class NewSchedule(AgentOptions):
    """The options of `schedule add`.

    Attributes:
        id (ID): Its id: letters, digits, '_', '.' and '-'.
        cron (--cron LINE; When): The five fields of a cron line, or @daily and its kin, by the clock of --zone.
        every (--every SECONDS; When): An interval.
        at (--at TIME; When): One time, such as 2030-01-01T09:00, by the clock of --zone.
        zone (--zone NAME; When): The time zone, such as Europe/Berlin.
        misfire (--misfire skip|once|all; When): What happens to slots that passed while no worker ran.
        overlap (--overlap skip|queue|cancel-older; When): What happens if the run before is not over.
        message (--message TEXT; What it starts): A message of the conversation.
        task (--task SHAPE; What it starts): A task of this shape, with --params.
        skill (--skill NAME; What it starts): A skill, with --request or --params.
        event (--event TYPE; What it starts): An event for the members of the workspace, with --domain and --params.
        domain (--domain DOMAIN; What it starts): What the event is about.
        request (--request TEXT; What it starts): What the skill should do.
        params (--params JSON|@FILE|-; What it starts): The params of the task, the input of the skill, or the payload
            of the event.
        account (--account ID; What it starts): The account of its runs. Its stored role applies.
        unattended (--unattended refuse|pause; What it starts): What a run does if a person would be asked. Default: the
            setting unattended.
        guard (--guard/--no-guard; What it starts): No model of its runs that calls tools reads what a stranger can
            have written. Default: the profile, else the setting guard.
    """

    id: str
    cron: str | None = None
    every: int | None = None
    at: str | None = None
    zone: str = "UTC"
    misfire: str = "once"
    overlap: str = "skip"
    message: str | None = None
    task: str | None = None
    skill: str | None = None
    event: str | None = None
    domain: str | None = None
    request: str | None = None
    params: str | None = None
    account: str | None = None
    unattended: str | None = None
    guard: bool | None = None


@command(app, "add", asks=("schedule_add",))
async def add(options: NewSchedule, output: Output) -> None:
    """Store a schedule. What it starts is checked first.

    [bold]Examples[/bold]

      worldagent schedule add report --cron '30 7 * * *' --zone Europe/Berlin --message 'What is new?'

      worldagent schedule add minutes --every 3600 --skill meeting-notes --request 'Summarise notes.txt'

      worldagent schedule add review --cron '0 9 * * MON' --event pipeline.review --domain revenue
    """
    from ...scheduling import Schedule, Schedules
    from ...scheduling.schedule import refuse_call_role
    from .agents import open_agent

    schedule = Schedule.from_json(_given(options))
    refuse_call_role(options.id, options.role)
    async with open_agent(options, output) as agent:
        schedules = Schedules(agent)
        schedule = replace(schedule, workspace=schedules.workspace)  # that of --app
        await schedules.add(schedule)
        slot = await schedules.next_slot(schedule.id)
    output.result(
        {"schedule": schedule.to_json(), "next": None if slot is None else slot.id},
        f"{schedule.id}: next at {'never' if slot is None else slot.id}",
    )


@operation(app, "list", "schedule_list", show=_listed, value=_value)
def list_schedules(options: AgentOptions, output: Output) -> None:
    """List the schedules of the workspace with their next slot.

    [bold]Example[/bold]

      worldagent schedule list --json
    """


@operation(app, "show", "schedule_show", show=lambda found: _lines(found.schedule), value=_value)
def show(options: AgentOptions, output: Output, schedule: str = _ID) -> None:
    """Show a schedule with all its fields.

    [bold]Example[/bold]

      worldagent schedule show report
    """


@command(app, "pause", asks=("schedule_pause",))
async def pause(options: AgentOptions, output: Output, id: str = _ID, off: bool = False) -> None:
    """Skip the slots of a schedule from now on, or with --off fire them again.

    [bold]Examples[/bold]

      worldagent schedule pause report

      worldagent schedule pause report --off

    Args:
        off (--off; Which): Fire it again.
    """
    await ask(options, "schedule_pause", output, schedule=id, paused=not off)
    output.result({"id": id, "paused": not off}, f"{id}: {'fires again' if off else 'paused'}")


@operation(app, "run", "schedule_run", show=lambda found: " ".join(filter(None, _run(found.run).values())), value=_ran)
def run(options: AgentOptions, output: Output, schedule: str = _ID) -> None:
    """Fire a schedule once now, also if it is paused, and wait until its run ends or waits for a person.

    [bold]Example[/bold]

      worldagent schedule run report
    """


@command(app, "rm", asks=("schedule_remove",))
async def remove(options: AgentOptions, output: Output, id: str = _ID) -> None:
    """Remove a schedule and its history. Turns that it started stay.

    [bold]Example[/bold]

      worldagent schedule rm report
    """
    await ask(options, "schedule_remove", output, schedule=id)
    output.result({"removed": id}, f"{id}: removed")


@operation(
    app,
    "history",
    "schedule_history",
    show=lambda found: records_table(_RUNS, found.runs, "it has not run"),
    value=lambda found: {"runs": [_run(each) for each in found.runs]},
)
def history(options: AgentOptions, output: Output, schedule: str = _ID, limit: int = 20) -> None:
    """List the newest runs of a schedule, and why some were skipped or failed.

    [bold]Example[/bold]

      worldagent schedule history report --limit 5

    Args:
        limit (--limit NUMBER; Which): How many runs, up to 1000.
    """


def _given(options: NewSchedule) -> dict[str, Any]:
    """The options as the JSON of a schedule, which says itself what is wrong with their values."""
    from .sources import task_params

    _one_of({"--cron": options.cron, "--every": options.every, "--at": options.at})
    event, domain = options.event, options.domain
    _one_of({"--message": options.message, "--task": options.task, "--skill": options.skill, "--event": event})
    if options.skill is not None:
        _one_of({"--request": options.request, "--params": options.params})
    _only_with("--request", options.request, "--skill", options.skill)
    _only_with("--params", options.params, "--task, --skill or --event", options.task or options.skill or event)
    _only_with("--domain", domain, "--event", event)
    _only_with("--event", event, "--domain", domain)
    times = {"cron": options.cron, "every": options.every, "at": _time(options.at)}
    starts: dict[str, Any] = {}
    if options.message is not None:
        starts["message"] = options.message
    params = None if options.params is None else task_params(options.params, None)
    if options.task is not None:
        starts |= {"task": options.task, "params": params or {}}
    if options.skill is not None:
        starts |= {"skill": options.skill, "input": options.request if params is None else params}
    if event is not None:
        starts |= {"event": event, "domain": domain, "payload": params or {}}
    names = ("id", "workspace", "account", "zone", "misfire", "overlap", "unattended", "guard")
    return {
        **{name: getattr(options, name) for name in names},
        "when": {name: each for name, each in times.items() if each is not None},
        "starts": starts,
    }


def _one_of(values: Mapping[str, object]) -> None:
    from ...core.errors import InvalidArgument

    given = [name for name, value in values.items() if value is not None]
    if len(given) != 1:
        raise InvalidArgument(
            f"a schedule needs one of {', '.join(values)}, got {' and '.join(given) or 'none'}",
            remedy="give exactly one of them",
        )


def _only_with(name: str, value: str | None, other: str, given: str | None) -> None:
    from ...core.errors import InvalidArgument

    if value is not None and given is None:
        raise InvalidArgument(f"{name} has no effect without {other}", remedy=f"omit it, or give {other}")


def _time(text: str | None) -> str | None:
    from ...core.errors import InvalidArgument

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise InvalidArgument(f"--at is not a time: {text[:40]!r}", remedy="write it as 2030-01-01T09:00")
