"""The commands of `schedule`. `worker` fires schedules while it runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from .command import command
from .options import AgentOptions, option_group
from .output import Output, table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ...scheduling import Schedule, ScheduleRun, Schedules

_WHEN = "When"
_WHAT = "What it starts"
_COLUMNS = ("ID", "WHEN", "STARTS", "NEXT", "THREAD")
_RUNS = ("SLOT", "STATUS", "TURN", "NOTE")

app = typer.Typer(no_args_is_help=True)


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


@command(app, "add", asks=("schedule_add",))
async def add(options: NewSchedule, output: Output) -> None:
    """Store a schedule. What it starts is checked first.

    [bold]Examples[/bold]

      worldagent schedule add report --cron '30 7 * * *' --zone Europe/Berlin --message 'What is new?'

      worldagent schedule add minutes --every 3600 --skill meeting-notes --request 'Summarise notes.txt'

      worldagent schedule add review --cron '0 9 * * MON' --event pipeline.review --domain revenue
    """
    from ...scheduling import Schedule

    schedule = Schedule.from_json(_given(options))
    async with _schedules(options, output) as schedules:
        schedule = replace(schedule, workspace=schedules.workspace)  # that of --app
        await schedules.add(schedule)
        slot = await schedules.next_slot(schedule.id)
    output.result(
        {"schedule": schedule.to_json(), "next": None if slot is None else slot.id},
        f"{schedule.id}: next at {'never' if slot is None else slot.id}",
    )


@command(app, "list", asks=("schedule_list",))
async def list_schedules(options: AgentOptions, output: Output) -> None:
    """List the schedules of the workspace with their next slot.

    [bold]Example[/bold]

      worldagent schedule list --json
    """
    async with _schedules(options, output) as schedules:
        found = [(each, await schedules.next_slot(each.id)) for each in await schedules.list()]
    rows = [
        (each.id, _when(each), _starts(each), "paused" if each.paused else slot.id if slot else "", each.thread_id)
        for each, slot in found
    ]
    value = [{**each.to_json(), "next": None if slot is None else slot.id} for each, slot in found]
    output.result({"schedules": value}, table(_COLUMNS, rows) if rows else "there are no schedules")


@command(app, "show", asks=("schedule_show",))
async def show(options: AgentOptions, output: Output, id: str) -> None:
    """Show a schedule with all its fields.

    [bold]Example[/bold]

      worldagent schedule show report

    Args:
        id (ID): The id of the schedule.
    """
    async with _schedules(options, output) as schedules:
        schedule = await schedules.get(id)
    value = schedule.to_json()
    output.result({"schedule": value}, "\n".join(f"{name}: {_shown(each)}" for name, each in value.items()))


@command(app, "pause", asks=("schedule_pause",))
async def pause(options: AgentOptions, output: Output, id: str, off: bool = False) -> None:
    """Skip the slots of a schedule from now on, or with --off fire them again.

    [bold]Examples[/bold]

      worldagent schedule pause report

      worldagent schedule pause report --off

    Args:
        id (ID): The id of the schedule.
        off (--off; Which): Fire it again.
    """
    async with _schedules(options, output) as schedules:
        await schedules.pause(id, paused=not off)
    output.result({"id": id, "paused": not off}, f"{id}: {'fires again' if off else 'paused'}")


@command(app, "run", asks=("schedule_run",))
async def run(options: AgentOptions, output: Output, id: str) -> None:
    """Fire a schedule once now, also if it is paused, and wait until its run ends or waits for a person.

    [bold]Example[/bold]

      worldagent schedule run report

    Args:
        id (ID): The id of the schedule.
    """
    async with _schedules(options, output) as schedules:
        begun = await schedules.run_now(id)
        await schedules.settled()
        [found] = [each for each in await schedules.history(id, limit=1000) if each.slot == begun.slot]
    output.result({"run": _run(found)}, _line(found))


@command(app, "rm", asks=("schedule_remove",))
async def remove(options: AgentOptions, output: Output, id: str) -> None:
    """Remove a schedule and its history. Turns that it started stay.

    [bold]Example[/bold]

      worldagent schedule rm report

    Args:
        id (ID): The id of the schedule.
    """
    async with _schedules(options, output) as schedules:
        await schedules.remove(id)
    output.result({"removed": id}, f"{id}: removed")


@command(app, "history", asks=("schedule_history",))
async def history(options: AgentOptions, output: Output, id: str, limit: int = 20) -> None:
    """List the newest runs of a schedule, and why some were skipped or failed.

    [bold]Example[/bold]

      worldagent schedule history report --limit 5

    Args:
        id (ID): The id of the schedule.
        limit (--limit NUMBER; Which): How many runs, up to 1000.
    """
    async with _schedules(options, output) as schedules:
        found = await schedules.history(id, limit=limit)
    rows = [(each.slot, each.status, each.turn or "", each.note or "") for each in found]
    output.result({"runs": [_run(each) for each in found]}, table(_RUNS, rows) if rows else "it has not run")


@asynccontextmanager
async def _schedules(options: AgentOptions, output: Output) -> AsyncGenerator[Schedules]:
    from ...scheduling import Schedules
    from ...scheduling.schedule import refuse_call_role
    from .agents import open_agent

    refuse_call_role(getattr(options, "id", "of this command"), options.role)
    async with open_agent(options, output) as agent:
        yield Schedules(agent)


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
    names = ("id", "workspace", "account", "zone", "misfire", "overlap", "unattended")
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


def _when(schedule: Schedule) -> str:
    return _shown(schedule.to_json()["when"])


def _starts(schedule: Schedule) -> str:
    return _shown(schedule.to_json()["starts"])[:60]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_shown(each)}" for key, each in value.items() if each is not None)
    return "" if value is None else str(value)


def _run(run: ScheduleRun) -> dict[str, Any]:
    return {"slot": run.slot, "status": run.status, "turn": run.turn, "note": run.note}


def _line(run: ScheduleRun) -> str:
    return " ".join(filter(None, [run.slot, run.status, run.turn, run.note]))
