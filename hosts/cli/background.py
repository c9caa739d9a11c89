"""The commands `background list`, `start`, `steer` and `cancel`: work in the background of a conversation."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command
from .exits import FAILED
from .operating import ask, ask_in, fields_of, opened
from .options import SpeakerOptions, ThreadOptions, option_group
from .output import Output, time_text

if TYPE_CHECKING:
    from ..service.background import BackgroundRecord

_HEAD: Final = ("TASK", "NAME", "STATUS", "SINCE", "CALLS", "COST", "DOING", "QUESTIONS", "ACCOUNT", "THREAD")
_WIDTHS: Final = (10, 20, 10, 16, 5, 8, 40, 9, 20, 60)
_STAYS: Final = (
    "this command does not do the work: a process that stays begins it, such as `worldagent worker`, `serve` or `chat`"
)

app = typer.Typer(name="background", no_args_is_help=True)


@app.callback()
def _background() -> None:
    """Background: work that goes on beside a conversation, which is told when it ends.

    Models start it where the agent has the capability background: [bold]--with background[/bold], the setting
    capabilities, or your own agent's background=True. `list` and `cancel` need no model.

    [bold]Example[/bold]

      worldagent background list t1
    """


@option_group
class StartOptions(SpeakerOptions):
    """The options of `background start`.

    Attributes:
        thread (THREAD): The conversation within the workspace, which is told.
        to (--to WORKER; Task): The worker that does it. Default: a conversation of its own.
        task (--task SHAPE; Task): Start a task of this shape in place of a message.
        skill (--skill NAME; Task): Start a skill in place of a message.
        params (--params JSON|@FILE|-; Task): The params of the task or the skill.
        report (--report turn|next|event; Task): What its report does if no turn of the conversation runs: begin one,
            wait for the next one, or be an event alone.
        turn_model (--turn-model NAME; Model and role): The model of the task: a name from the setting models, or a
            model string. Repeatable: if one model cannot be reached, the next one is called.
        key (--key KEY; Task): A repeat with the same key is the same task.
    """

    thread: str
    to: str | None = None
    task: str | None = None
    skill: str | None = None
    params: str | None = None
    report: str = "turn"
    turn_model: list[str] | None = None
    key: str | None = None


@option_group
class SteerOptions(SpeakerOptions):
    """The options of `background steer`.

    Attributes:
        thread (THREAD): The conversation within the workspace.
        task (TASK): The task, as [bold]background list[/bold] shows it.
        key (--key KEY; Task): A repeat with the same key is the same message.
    """

    thread: str
    task: str
    key: str | None = None


@command(app, "list", asks=("background_list",))
async def list_(options: ThreadOptions, output: Output) -> None:
    """List the background tasks of a conversation, oldest first. No model is needed.

    Answer what a task asks on its own thread, with [bold]approvals[/bold].

    [bold]Example[/bold]

      worldagent background list t1
    """
    answer = await ask(options, "background_list", output)
    if not answer.tasks:
        output.note(f"the thread {options.thread!r} of the workspace {options.workspace!r} has no background tasks")
    shown = output.table(_HEAD, list(map(_row, answer.tasks)), widths=_WIDTHS) if answer.tasks else None
    output.result(fields_of(answer), shown)


@command(app, "start", asks=("background_start",))
async def start(options: StartOptions, output: Output, text: str | None = None) -> None:
    """Let something work in the background of a conversation, which is told when it ends.

    This command does not do the work. A process that stays and opens the workspace begins it, such as
    [bold]worldagent worker[/bold], [bold]serve[/bold] or [bold]chat[/bold].

    [bold]Examples[/bold]

      worldagent background start t1 'What is Moby Dick about?' --to reader --workers staff

      worldagent background start t1 --task summarise --params '{"book": "Moby Dick"}' --report next --app shop:agent

    Args:
        text ([TEXT]): What to do. Without TEXT, or with -, the command reads it from standard input.
    """
    from .sources import message, task_params

    given: dict[str, Any] = {"worker": options.to, "model": options.turn_model or None}
    if options.task is None and options.skill is None:
        _alone(options.params is None, "--params", "a message")
        given["text"] = message(options, text, output)
    else:
        _alone(None in (options.task, options.skill) and text is None, "TEXT, --task and --skill", "each other")
        _alone(options.to is None, "--to", "--task and --skill")
        given |= {"shape": options.task, "skill": options.skill, "params": task_params(options.params, None)}
    if options.app is None:  # an agent of --app decides itself
        options = replace(options, capability=[*{*(options.capability or ()), "background"}])
    async with opened(options, output) as workspace:
        answer = await ask_in(workspace, options, "background_start", **given)
    output.note(_STAYS)
    output.result(fields_of(answer), answer.task.id)


@command(app, "steer", asks=("background_steer",))
async def steer(options: SteerOptions, output: Output, text: str | None = None) -> None:
    """Say something that a background task reads before its next step, or before its first one.

    Give the options for the agent that the task began with, and its account.

    [bold]Example[/bold]

      worldagent background steer t1 3f2a9c0d 'Only the first chapter.' --workers staff

    Args:
        text ([TEXT]): The message. Without TEXT, or with -, the command reads it from standard input.
    """
    from .sources import message

    said = message(options, text, output)
    with _remedies():
        answer = await ask(options, "background_steer", output, text=said)
    output.result(fields_of(answer), f"{options.task}: reads it before its next step")


@command(app, "cancel", asks=("background_cancel",))
async def cancel(options: ThreadOptions, output: Output, task: str) -> int | None:
    """Cancel a background task, whether it is queued, runs or waits. If it was over, the exit code is 1.

    [bold]Example[/bold]

      worldagent background cancel t1 3f2a9c0d

    Args:
        task (TASK): The task, as [bold]background list[/bold] shows it.
    """
    with _remedies():
        answer = await ask(options, "background_cancel", output, task=task)
    if not answer.cancelled:
        output.failed("not_found", f"the background task {task!r} was over", "see `worldagent background list`")
        return FAILED
    output.result({"cancelled": task}, f"{task}: cancelled")
    return None


@contextmanager
def _remedies() -> Generator[None]:
    """Name commands and options in the remedies of errors, in place of operations."""
    from ...core.errors import NothingToSteer, NotSteerable, UnknownTask

    try:
        yield
    except UnknownTask as error:
        raise UnknownTask(error.problem, remedy="use one of `worldagent background list`") from None
    except NothingToSteer as error:
        raise NothingToSteer(
            error.problem, remedy="read its result with `worldagent threads show`, or start more"
        ) from None
    except NotSteerable as error:
        remedy = "give --account as the task has it, or let it end if it is code"
        raise NotSteerable(error.problem, remedy=remedy) from None


def _alone(good: bool, name: str, other: str) -> None:
    from ...core.errors import InvalidArgument

    if not good:
        remedy = "see `worldagent background start --help`"
        raise InvalidArgument(f"{name} and {other} do not fit together", remedy=remedy)


def _row(each: BackgroundRecord) -> tuple[str, ...]:
    cost = "" if each.cost is None else f"{each.cost:.4f}"
    since = time_text(each.since or each.dispatched)
    status = each.status if each.code is None else f"{each.status} ({each.code})"
    doing, questions = each.doing or "", str(each.pauses or "")
    return (each.id, each.name, status, since, str(each.calls), cost, doing, questions, each.account or "", each.thread)
