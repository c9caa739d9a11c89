"""The commands `threads steer`, `queue`, `queued`, `withdraw`, `reorder` and `release`: messages beside a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .command import command
from .exits import FAILED
from .operating import ask, ask_in, fields_of, opened
from .options import AgentOptions, BeginOptions, SpeakerOptions, ThreadOptions, option_group
from .output import Output, time_text
from .threads import app as threads

if TYPE_CHECKING:
    from ..service.inbox import PendingRecord

_WAITS: Final = {"turn": "its turn", "role": "its role", "error": "an error", None: ""}
_STAYS: Final = (
    "no turn runs or waits on the thread {thread!r}: the message waits for a process that stays, such as "
    "`worldagent worker`, `serve` or `chat`, which begins its turn"
)


@option_group
class SteerOptions(SpeakerOptions):
    """The options of `threads steer`.

    Attributes:
        thread (THREAD): The conversation within the workspace.
    """

    thread: str


@option_group
class QueueOptions(BeginOptions):
    """The options of `threads queue`.

    Attributes:
        thread (THREAD): The conversation within the workspace.
        role (--role TEXT; Model and role): Refused: a role is kept in memory alone, and this command ends. Store one
            for the account, or queue the message in a chat.
        interrupt (--interrupt; Queue): Put it before all others, and cancel the turn that runs or waits: at once while
            its model thinks, else after the calls under way.
        task (--task SHAPE; Queue): Queue a task in place of a message.
        skill (--skill NAME; Queue): Queue a skill in place of a message.
        params (--params JSON|@FILE|-; Queue): The params of the task or the skill.
        key (--key KEY; Queue): A repeat with the same key is the same message.
    """

    thread: str
    role: str | None = None
    interrupt: bool = False
    task: str | None = None
    skill: str | None = None
    params: str | None = None
    key: str | None = None


@option_group
class ReleaseOptions(AgentOptions):
    """The options of `threads release`.

    Attributes:
        thread (THREAD): The conversation within the workspace.
        role (--role TEXT; Model and role): Refused: a role is kept in memory alone, and this command ends. Release the
            message with its role in a process that stays.
    """

    thread: str
    role: str | None = None


@command(threads, "steer", asks=("thread_steer",))
async def steer(options: SteerOptions, output: Output, text: str | None = None, key: str | None = None) -> None:
    """Say something that the running turn reads before its next step, in whatever process it runs.

    Calls under way end as they would. A turn that waits for a person reads it when it resumes. Give the options for the
    agent that the turn began with.

    [bold]Example[/bold]

      worldagent threads steer t1 'rather in blue'

    Args:
        text ([TEXT]): The message. Without TEXT, or with -, the command reads it from standard input.
        key (--key KEY; Queue): A repeat with the same key is the same message.
    """
    from ...core.errors import NothingToSteer, NotSteerable
    from .sources import message

    _refuse_role(options, "a message to a running turn carries no role, since the turn has its own", "omit --role")
    said = message(options, text, output)
    async with opened(options, output) as workspace:
        try:
            answer = await ask_in(workspace, options, "thread_steer", text=said, key=key)
        except NothingToSteer as error:
            remedy = "begin a turn with `worldagent ask`, or queue the message with `worldagent threads queue`"
            raise NothingToSteer(error.problem, remedy=remedy) from None
        except NotSteerable as error:
            remedy = "queue the message with `worldagent threads queue`, or give --account as the turn has it"
            raise NotSteerable(error.problem, remedy=remedy) from None
        state = await workspace.thread(options.thread).state()
    when = "when it resumes" if state is not None and state.status in ("paused", "stopped") else "before its next step"
    output.note(f"the turn of the thread {options.thread!r} reads it {when}")
    output.result(fields_of(answer), answer.message.id)


@command(threads, "queue", asks=("thread_queue",))
async def queue(options: QueueOptions, output: Output, text: str | None = None) -> None:
    """Say something for after the running turn: it begins a turn of its own, after what was queued before.

    This command does not run the turn. The process that ends the turn before it does, or the next one that stays and
    opens the workspace, such as [bold]worldagent worker[/bold], [bold]serve[/bold] or [bold]chat[/bold]. On a thread
    where nothing runs, the message waits for such a process.

    [bold]Examples[/bold]

      worldagent threads queue t1 'and then the window'

      worldagent threads queue t1 'stop, rather the garden' --interrupt

      worldagent threads queue t1 'Good night.' && worldagent worker

    Args:
        text ([TEXT]): The message. Without TEXT, or with -, the command reads it from standard input.
    """
    from ..service.threads import OPEN
    from .sources import message, task_params

    given: dict[str, Any] = {}
    _refuse_role(options)
    if options.task is None and options.skill is None:
        _alone(options.params is None, "--params", "--task or --skill")
        given["text"] = message(options, text, output)
    else:
        _alone(text is None and None in (options.task, options.skill), "TEXT, --task and --skill", "each other")
        given |= {"shape": options.task, "skill": options.skill, "params": task_params(options.params, None)}
    how: dict[str, Any] = {**options.how, "key": options.key, "interrupt": options.interrupt}
    async with opened(options, output) as workspace:
        before = await workspace.thread(options.thread).state()
        answer = await ask_in(workspace, options, "thread_queue", **given, **how)
        waits = [each.id for each in await workspace.thread(options.thread).queued()]
    if before is None or before.status not in OPEN:
        output.note(_STAYS.format(thread=options.thread))
    else:
        place = waits.index(answer.message.id) + 1 if answer.message.id in waits else 1
        output.note(f"it is number {place} of those that wait on the thread {options.thread!r}")
    output.result(fields_of(answer), answer.message.id)


@command(threads, "queued", asks=("thread_queued",))
async def queued(options: ThreadOptions, output: Output) -> None:
    """List the messages that wait on a thread, in the order in which they are read. No model is needed.

    [bold]Example[/bold]

      worldagent threads queued t1
    """
    answer = await ask(options, "thread_queued", output)
    _show(answer.messages, options, output)


@command(threads, "withdraw", asks=("thread_withdraw",))
async def withdraw(options: ThreadOptions, output: Output, message: str) -> int | None:
    """Delete a message that waits on a thread. If it does not wait, the exit code is 1.

    [bold]Example[/bold]

      worldagent threads withdraw t1 inbox-3f2a9c0d

    Args:
        message (ID): The message, as [bold]threads queued[/bold] shows it.
    """
    answer = await ask(options, "thread_withdraw", output, message=message)
    if not answer.withdrawn:
        problem = f"no message of this id waits on the thread {options.thread!r}"
        output.failed("not_found", problem, "see `worldagent threads queued`")
        return FAILED
    output.result({"withdrawn": message}, f"{message}: withdrawn")
    return None


@command(threads, "reorder", asks=("thread_reorder",))
async def reorder(options: ThreadOptions, output: Output, messages: list[str]) -> None:
    """Put the queued messages of a thread in another order. Those that are not named come after the others.

    [bold]Example[/bold]

      worldagent threads reorder t1 inbox-3f2a9c0d inbox-07bb51e2

    Args:
        messages (ID...): The messages, in their new order.
    """
    answer = await ask(options, "thread_reorder", output, messages=messages)
    _show(answer.messages, options, output)


@command(threads, "release", asks=("thread_release",))
async def release(options: ReleaseOptions, output: Output, message: str) -> None:
    """Let a queued message begin without the role that it waits for, or again after an error.

    The next process that stays begins it, as with [bold]threads queue[/bold].

    [bold]Example[/bold]

      worldagent threads release t1 inbox-3f2a9c0d

    Args:
        message (ID): The message, as [bold]threads queued[/bold] shows it.
    """
    _refuse_role(options)
    answer = await ask(options, "thread_release", output, message=message)
    output.result(fields_of(answer), f"{message}: released")


_ENDS: Final = "a queued message keeps its role in the memory of a process, and this command ends"
_ELSEWHERE: Final = "omit --role, store the role with `worldagent roles set`, or queue the message in `worldagent chat`"


def _refuse_role(options: AgentOptions, why: str = _ENDS, remedy: str = _ELSEWHERE) -> None:
    from ...core.errors import RoleNotStorable

    if options.role is not None:
        raise RoleNotStorable(why, remedy=remedy)


def _alone(good: bool, name: str, other: str) -> None:
    from ...core.errors import InvalidArgument

    if not good:
        raise InvalidArgument(f"{name} and {other} do not fit together", remedy="see `worldagent threads queue --help`")


def _show(messages: list[PendingRecord], options: ThreadOptions, output: Output) -> None:
    rows = [
        (each.id, each.kind, each.author, time_text(each.at), _WAITS[each.waits_for], each.code or "", each.text)
        for each in messages
    ]
    head = ("ID", "KIND", "FROM", "SINCE", "WAITS FOR", "ERROR", "TEXT")
    shown = output.table(head, rows, widths=(30, 6, 12, 16, 12, 20, 60)) if rows else None
    if not rows:
        output.note(f"nothing waits on the thread {options.thread!r} of the workspace {options.workspace!r}")
    output.result({"messages": [each.model_dump(mode="json") for each in messages]}, shown)
