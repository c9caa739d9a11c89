"""The commands `workspace emit`, `events` and `run`: what happens in a workspace, and what members decide about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command import bad_usage, command, storage_of
from .exits import DONE, PAUSED
from .operating import opened
from .options import AgentOptions, ThreadsOptions, option_group
from .output import Output, counted, table
from .workspace import app as workspace_app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from datetime import datetime

    from ...agent import WorldAgent
    from ...members.data.workspace import Event, WorkspaceConfig
    from ...members.events.events import PostedEvent

_COLUMNS: Final = ("EVENT", "TYPE", "MEMBER", "DECISION", "STATE", "WHY")


@option_group
class NewEvent(ThreadsOptions):
    """The options of `workspace emit`.

    Attributes:
        type (TYPE): What happened, such as lead.created.
        domain (--domain DOMAIN; The event): What it is about. The first live member of it gets the event.
        payload (--payload JSON|@FILE|-; The event): What is known of it.
        id (--id ID; The event): Its id, which makes it one however often it is posted. Default: a new one.
        source (--source SOURCE; The event): Where it comes from. user is the owner.
        to (--to MEMBER; The event): The member that gets it first. It forwards what is not of its domains.
        lines (--events FILE|-; The event): JSON Lines, one event each: id, type, source, domain, payload. - reads
            standard input. Instead of TYPE.
        verified (--verified; The event): Vouch that each event is from its source, so that members obey a directive of
            the owner in them. An event of user always is.
    """

    type: str | None = None
    domain: str | None = None
    payload: str | None = None
    id: str | None = None
    source: str = "user"
    to: str | None = None
    lines: str | None = None
    verified: bool = False


@command(workspace_app, "emit", asks=("event_post",))
async def emit(options: NewEvent, output: Output) -> None:
    """Post an event, or the events of a file. A gateway, such as that of [bold]worker[/bold], handles them.

    [bold]Examples[/bold]

      worldagent workspace emit lead.created --domain revenue --payload '{"company": "Acme"}'

      worldagent workspace emit --events events.jsonl
    """
    from ...core import SystemClock

    async with opened(options) as workspace:
        now = SystemClock().now()
        if options.lines is None:
            posted = [await workspace.society.events.post(_event(options, now), to=options.to)]
        else:
            _only_lines(options)
            posted = [
                await workspace.society.events.post(each)
                for each in _read(options.lines, now, verified=options.verified)
            ]
    output.result({"events": [each.to_json() for each in posted]}, _text(posted))


@option_group
class EventsOptions(ThreadsOptions):
    """The options of `workspace events`.

    Attributes:
        state (--state waiting|decided|paused|done; Which): Only events with this state.
        member (--member MEMBER; Which): Only events that this member has.
        type (--type GLOB; Which): Only events of these types.
        result (--result done|failed|refused|cancelled|escalated|ignored; Which): Only events with this result.
        case (--case ID; Which): Only the event that the case began with: the id of a message or turn that followed.
        since (--since TIME; Which): Only events that were posted then or later, such as 2026-02-18 or
            2026-02-18T09:30. Without a zone it is the time of this machine.
        limit (--limit N; Which): How many to show, 1 to 10,000, the last ones.
        export (--export FILE; Output): Write all events instead, with their outcomes, feedback, approvals and spawns,
            as JSON Lines for [bold]workspace try[/bold]. An existing file is replaced only if it is such a file.
    """

    state: str | None = None
    member: str | None = None
    type: str | None = None
    result: str | None = None
    case: str | None = None
    since: str | None = None
    limit: int = 100
    export: Path | None = None


@command(workspace_app, "events", asks=("event_list", "event_export"))
async def events(options: EventsOptions, output: Output) -> None:
    """List the last events with the decisions about them and their results.

    [bold]worldagent case ID[/bold] tells all that followed from one of them.

    [bold]Examples[/bold]

      worldagent workspace events --state paused

      worldagent workspace events --member cro --type 'lead.*' --result failed --since 2026-02-18

      worldagent workspace events --export week.jsonl
    """
    if options.export is not None:
        return await _exported(options, output, options.export)
    from ...members.cases import case_with
    from ..service.home import stores_of

    since = None if options.since is None else _time(options.since)
    async with opened(options) as workspace:
        found = await workspace.society.events.list(
            state=options.state,
            member=options.member,
            type=options.type,
            result=options.result,
            since=since,
            limit=options.limit,
        )
        if options.case is not None:
            of_case = await case_with(stores_of(workspace), workspace.society, options.case)
            ids = {each.id for each in of_case.steps if each.kind == "event"}
            found = tuple(each for each in found if each.event.id in ids)
    chosen = (options.state, options.member, options.type, options.result, options.case, options.since)
    none = "no event fits" if any(chosen) else f"there are no events in the workspace {options.workspace!r}"
    output.result({"events": [each.to_json() for each in found]}, _text(found) if found else none)


async def _exported(options: ThreadsOptions, output: Output, file: Path) -> None:
    import asyncio

    from ...members.events.recorded import BEGIN, written
    from ...members.exporting import recorded
    from ..service.home import open_home
    from .trace import open_traces, replace_own

    async with open_home(storage_of(options.home), options.workspace) as home, open_traces(options) as traces:
        lines = await recorded(home.stores, options.workspace, traces)
    await asyncio.to_thread(replace_own, file, written(lines), BEGIN)
    count = sum(each.kind == "event" for each in lines)
    output.note(f"wrote {count} events to {str(file)!r}")
    output.result({"exported": {"file": str(file), "events": count, "lines": len(lines)}})


@option_group
class RunOptions(AgentOptions):
    """The options of `workspace run`.

    Attributes:
        file (FILE): The file of the workspace. Default: the society of --app.
        lines (--events FILE|-; The event): JSON Lines, one event each: id, type, source, domain, payload. - reads
            standard input. They are posted first.
        verified (--verified; The event): Vouch that each event is from its source, so that members obey a directive of
            the owner in them.
    """

    file: Path | None = None
    lines: str | None = None
    verified: bool = False


@command(workspace_app, "run")
async def run(options: RunOptions, output: Output) -> int:
    """Handle the events and messages of a workspace until nothing is left to do, and print each decision.

    What members run are functions and workers of the agent: give your own with --app, or workers with --worker. A
    second run with the same events does nothing twice. The exit code is 3 if something waits for a person; see
    [bold]approvals list[/bold].

    [bold]Examples[/bold]

      worldagent workspace run team.yaml --app team:agent --events events.jsonl

      worldagent workspace run --app team:agent
    """
    from ...agent.runtime.inside import inside
    from ...members.events.events import MAX_EVENTS
    from ...members.gateway import Gateway

    async with _agent(options, output) as agent:
        society, now = agent.society, inside(agent).clock.now()
        events = society.events
        read = [] if options.lines is None else [*_read(options.lines, now, verified=options.verified)]
        ids = {(await events.post(each)).event.id: None for each in read}
        for state in ("waiting", "decided", "paused"):
            ids |= {each.event.id: None for each in await events.list(state=state, limit=MAX_EVENTS)}
        gateway = Gateway(agent)
        while await gateway.deliver():
            pass
        found = [each for each in [await events.get(id_) for id_ in ids] if each is not None]
        waiting, asked = await society.mail.waiting(), await society.pauses()
        home = inside(agent).stores.storage.home
    left = sum(each.state in ("waiting", "decided") for each in found)
    if left:
        output.note(f"{counted(left, 'event')} could not be handled yet: run the command again")
    if waiting:
        output.note(f"messages wait for {counted(len(waiting), 'member')}")
    paused = sum(each.state == "paused" for each in found)
    if paused or asked:
        place = "" if home == storage_of(None).home else f" --home {shlex.quote(str(home))}"
        listing = f"worldagent approvals list --workspace {shlex.quote(society.config.id)}{place}"
        what = counted(paused, "event") if paused else counted(len(asked), "question") + " of members"
        output.note(f"a person is needed for {what}: answer with `{listing}`, then run the command again")
    output.result({"events": [each.to_json() for each in found]}, _text(found) if found else "no event waits")
    return PAUSED if paused or asked else DONE


def _absent(agent: WorldAgent, config: WorkspaceConfig) -> list[str]:
    """The operators of a workspace's file that the agent does not have."""
    named = {each for role in config.roles for each in role.operator_ids}
    named |= {each for template in config.role_templates.values() for each in template.operator_ids}
    return sorted(named - {each.name for each in agent.functions})


@asynccontextmanager
async def _agent(options: RunOptions, output: Output) -> AsyncGenerator[WorldAgent]:
    """The agent of a run, open, with the society of its file."""
    from ...members.workspace_file import load_workspace
    from ..service.members import society_of
    from .agents import open_agent

    config = None if options.file is None else load_workspace(options.file)
    if options.app is None and config is None:
        raise bad_usage("there is no workspace", remedy="give the FILE of one, or --app with an agent that has one")
    made = open_agent(options, output, society=config, stays=True)
    async with made as agent:
        society = society_of(agent)
        if society is None:
            raise bad_usage("the agent of --app has no society", remedy="create it with society=load_workspace(FILE)")
        if config is not None and society.config != config:
            raise bad_usage(
                f"{str(options.file)!r} is not the workspace of --app", remedy="omit FILE, or load it in the app"
            )
        absent = _absent(agent, society.config)
        if absent:  # each event that needs one would be over, and is not handled again
            raise bad_usage(
                f"the agent has no operator {', '.join(map(repr, absent))}",
                remedy="give --app with an agent that has these functions and workers, or --worker",
            )
        yield agent


# --- reading events ---------------------------------------------------------------------------------------------------


def _event(options: NewEvent, now: datetime) -> Event:
    from ...core import new_id
    from ...members.events.events import read_event
    from .sources import json_object, text

    if options.type is None or options.domain is None:
        raise bad_usage("an event needs TYPE and --domain", remedy="give both, or --events FILE")
    payload = {} if options.payload is None else json_object("--payload", text("--payload", options.payload))
    given = {"id": options.id or new_id("evt"), "type": options.type, "source": options.source}
    verified = options.verified or options.source == "user"
    return read_event({**given, "domain": options.domain, "payload": payload}, now=now, verified=verified)


def _only_lines(options: NewEvent) -> None:
    given = {"TYPE": options.type, "--domain": options.domain, "--payload": options.payload, "--id": options.id}
    named = [name for name, value in {**given, "--to": options.to}.items() if value is not None]
    if named:
        raise bad_usage(f"--events and {named[0]} exclude each other", remedy=f"omit {named[0]}")


def _read(source: str, now: datetime, *, verified: bool) -> Iterator[Event]:
    """The events of a file, all of which are read before the first is posted.

    Raises:
        InvalidArgument: A line is not an event; the text has its number.
    """
    from ...core.errors import InvalidArgument
    from ...members.events.events import read_event
    from .sources import json_object, text

    lines = text("--events", source if source == "-" else f"@{source}").split("\n")
    found: list[Event] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        problem, remedy = "", ""
        try:
            given = json_object(f"line {number} of --events", line)
            found.append(read_event(given, now=now, verified=verified))
        except InvalidArgument as error:
            problem, remedy = error.problem, error.remedy
        if problem:
            where = f"line {number} of --events"
            raise InvalidArgument(problem if where in problem else f"{where}: {problem}", remedy=remedy)
    return iter(found)


# --- the text ---------------------------------------------------------------------------------------------------------


def _time(text: str) -> datetime:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    raise bad_usage(f"--since cannot be {text[:40]!r}", remedy="write a time such as 2026-02-18 or 2026-02-18T09:30")


def _text(found: Iterable[PostedEvent]) -> str:
    return table(_COLUMNS, [_row(each) for each in found])


def _row(posted: PostedEvent) -> tuple[str, ...]:
    decision = posted.decision
    action: str = "" if decision is None else decision.action
    if decision is not None:
        what = decision.operator_id or decision.target_role_id
        action += f" {what}" if what and action != "ignore" else ""
    state = f"{posted.result or posted.state}{f' ({posted.code})' if posted.code else ''}"
    why = "" if decision is None else decision.reason
    members = " -> ".join((*posted.trail, posted.member))
    return posted.event.id, posted.event.type, members, action, state, why
