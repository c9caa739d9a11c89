"""Runs one turn on the command line: its agent, SIGTERM while it runs, how its end is printed, and the exit code.

The commands decide what the turn does, and `output` prints it.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core import errors
from ...core.errors import InvalidArgument, WorldAgentError
from ...core.pauses import Pause
from ..service.pauses import takes_answer, waits_for_reply
from ..service.typed_answers import pause_text
from .command import Work, signals_handled
from .exits import DONE, FAILED, PAUSED, TERMINATED
from .options import WORKSPACE, AgentOptions, BeginOptions, ResumingOptions, ThreadsOptions
from .output import Output

if TYPE_CHECKING:
    from ...agent import Turn, TurnStream, WorldAgent

DRAIN: Final = 5.0
"""Seconds that a turn has to reach its next step after SIGTERM. Supervisors usually send SIGKILL after ten."""

REPEATED_OPTIONS: Final = (
    *("lm", "temperature", "max_tokens", "reasoning_effort", "header", "identity", "profile", "worker"),
    *("role_host", "role_host_stdio", "token_file", "role"),
)

ROLE_REMEDIES: Final[Mapping[type[WorldAgentError], str]] = {
    errors.RoleChanged: "restore the role, or {refresh} to resume with the roles that are active now",
    errors.RoleKeyMismatch: "set role_key to the key of that installation, or restore its role.key; if it is lost, see "
    "`worldagent doctor --rekey`, and {refresh}",
}
"""Remedies for a turn that began with other roles, which the chat gives too."""

_REMEDIES: Final[Mapping[type[WorldAgentError], str]] = {
    errors.AlreadyAnswered: "run `{command}` without an answer to it",
    errors.NotAnApprover: "give --account with an approver; `worldagent approvals list` shows the approvers",
    errors.GraphChanged: "give the --app, --worker and --workers that the turn began with, and run the version of the "
    "code that began it; no answer was accepted. `worldagent threads cancel` ends the turn",
    errors.AttachmentNotTaken: "use --lm with a model that takes it, or set WORLDAGENT_ATTACHMENT_FALLBACK=note to "
    "send only the name; if the model does take it, set WORLDAGENT_MODEL_TAKES",
    **ROLE_REMEDIES,
    errors.RoleRequired: "give --role again, or set the role again where it is stored; add --no-role to resume without "
    "the call role, or --on-role-change refresh to resume with the roles that are active now",
    errors.ThreadPaused: "run `{command}`, which says how to resume, or cancel the turn",
    errors.TurnTimeout: "run `{command}` to resume, or raise turn_timeout",
}
"""Remedies for people who run the command, which replace those for code that calls `resume()`."""


def one_form(json: bool, events: bool) -> None:
    """Refuse two forms of output at once.

    Raises:
        InvalidArgument: Both are asked for.
    """
    if json and events:
        raise InvalidArgument("--json and --events exclude each other", remedy="give only one of them")


def new_turn(
    options: BeginOptions, output: Output, thread: str, begin: Callable[..., TurnStream], *, shown: type = object
) -> Work:
    """Make the agent and run a new turn on it; see `one_turn`. `begin` is called with the thread and how the turn runs.

    Raises:
        UsageError: An option or a setting is not valid.
    """
    from .agents import open_agent, thread_of
    from .sources import role

    how = {"role": role(options.role), **options.how}
    agent = open_agent(options, output)
    named = thread_of(agent, options, thread)
    return one_turn(agent, options, output, thread, lambda: begin(named, **how), shown=shown)


async def one_turn(
    agent: WorldAgent,
    options: AgentOptions,
    output: Output,
    thread: str,
    begin: Callable[[], TurnStream],
    *,
    shown: type = object,
) -> int:
    """Open the agent, run one turn, print how it ended, and return the exit code.

    SIGTERM drains the agent: the turn stops at its next step and can be resumed. A second one ends the process.

    Args:
        agent: The agent, not started.
        options: The command's options, for the command that resumes the turn.
        output: Where to print the turn.
        thread: The thread's id.
        begin: Makes the stream of the turn, once the agent is open.
        shown: The events to show.

    Raises:
        WorldAgentError: The turn failed; the remedy is one for the command line.
    """
    stopping, command = _Stopping(agent), resume_command(options, thread)
    failure: WorldAgentError | None = None
    try:
        async with stopping.watching(), agent:
            stopping.opened = True
            async with begin() as stream:
                async for event in stream:
                    if isinstance(event, shown):
                        output.event(event)
            stopping.over = True
            code = report(stream.turn, output, command, options)
            await _note_left(agent, output, thread)
            return code
    except (asyncio.CancelledError, errors.AgentClosed):
        if stopping.task is None:
            raise
    except WorldAgentError as error:
        failure = error
    if failure is not None:
        raise with_local_remedy(failure, _REMEDIES, command=command, refresh="add --on-role-change refresh")
    if isinstance(options, ResumingOptions):
        problem, remedy = "stopped before the turn resumed; accepted answers are kept", f"run `{command}`"
    else:
        problem, remedy = "stopped before the turn began; nothing of it was written", "run the command again"
    output.failed("terminated", problem, remedy)
    return TERMINATED


async def _note_left(agent: WorldAgent, output: Output, thread: str) -> None:
    """Say that the turn has left work in the background that this process does not begin."""
    from ...agent.runtime.inside import inside  # the agent is loaded by now

    tasks = await agent.background_tasks(agent.thread(thread)) if "background" in inside(agent).opened else ()
    if any([(await each.state()).status == "queued" for each in tasks]):
        output.note(
            "work in the background waits for a process that stays, such as `worldagent worker`, `serve` or `chat`; "
            f"see `worldagent background list {shlex.quote(thread)}`"
        )


def with_local_remedy(
    error: WorldAgentError, remedies: Mapping[type[WorldAgentError], str], **words: str
) -> WorldAgentError:
    """An error of a turn with the remedy for a person here, if there is one, else the error itself.

    Args:
        error: The error that the package raised.
        remedies: The remedies for a person, by the type of error.
        words: The values of the names in braces in the remedies.
    """
    remedy = remedies.get(type(error))
    if remedy is None:
        return error
    shown = type(error)(error.problem, remedy=remedy.format(**words))
    shown.turn_id = error.turn_id
    return shown.with_traceback(error.__traceback__)


def report(turn: Turn, output: Output, command: str, options: AgentOptions) -> int:
    """Print how a turn ended and, if it can be resumed, how to resume it. Return the exit code.

    Args:
        turn: The turn.
        output: Where to print it.
        command: The command that resumes it.
        options: The options that it began with.
    """
    if turn.status == "cancelled" and output.form == "text":
        output.failed("cancelled", "the turn was cancelled", "begin a new turn")
        return FAILED
    waits = turn.status in ("paused", "stopped")
    output.turn(turn, resume=command if waits else None)
    if not waits:
        return DONE if turn.status == "done" else FAILED
    if output.form != "json":
        shown = pauses_text(turn.pauses, command) if turn.pauses else f"the turn was stopped; resume it with: {command}"
        # Name the options that the other command needs again. Their values can be long, or a role.
        given = [name for name in REPEATED_OPTIONS if getattr(options, name) not in (None, "", [])]
        again = f"\nwith the same {', '.join(map(options.option_name, given))}" if given else ""
        output.note(f"{shown}{again}")
    return PAUSED if turn.status == "paused" else TERMINATED


def resume_command(options: AgentOptions, thread: str) -> str:
    """The command that resumes a thread's turn, to be copied. It holds no role."""
    words = ["worldagent", "resume", thread]
    if options.app is not None:
        words += ["--app", options.app]
    words += where(options)
    if options.policy is not None:
        words += ["--policy", str(options.policy)]
    if options.workers is not None:
        words += ["--workers", str(options.workers)]
    return shlex.join(words)


def where(options: AgentOptions | ThreadsOptions) -> list[str]:
    """The options that name workspace and home, if they are not the default ones."""
    words = [] if options.workspace == WORKSPACE else ["--workspace", options.workspace]
    return words if options.home is None else [*words, "--home", str(options.home)]


def pauses_text(pauses: Sequence[Pause], command: str) -> str:
    """The pauses of a turn and the command that answers them, for a person at a terminal."""
    count = sum(not waits_for_reply(pause) for pause in pauses)
    awaited = ("an answer" if count == 1 else f"{count} answers") if count else "a reply"
    shown = [f"the turn waits for {awaited}:"]
    for pause in pauses:
        shown += ["", pause_text(pause), f"id: {pause.id}"]
    if not count:
        return "\n".join([*shown, "", "it continues once the reply is there and a gateway runs: `worldagent worker`"])
    left = [pause for pause in pauses if takes_answer(pause)]
    if not left:
        return "\n".join([*shown, "", "resume without an answer with:", f"  {command}"])
    which, before = ("", "") if len(pauses) == 1 else ("ID", "ID=")
    ways = [f"{command} --answer {before}ANSWER"]
    if any(pause.kind == "approval" for pause in left):
        ways = [f"{command} --approve {which}".rstrip(), f"{command} --reject {before}REASON", *ways]
    heading = "answer with one of:" if len(ways) > 1 else "answer with:"
    return "\n".join([*shown, "", heading, *(f"  {way}" for way in ways)])


class _Stopping:
    """Drains an agent at SIGTERM.

    Args:
        agent: The agent.

    Attributes:
        opened: Whether the agent is open, so that it can be drained.
        over: Whether the turn has ended, so that nothing has to be stopped.
        task: Drains the agent; None before a SIGTERM came.
    """

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self.task: asyncio.Task[None] | None = None
        self.opened = self.over = False

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Handle SIGTERM inside the block. If one came, the agent is drained at the end of the block."""
        main = asyncio.current_task()
        assert main is not None
        try:
            with signals_handled({signal.SIGTERM: partial(self._stop, main)}):
                yield
        finally:
            if self.task is not None:
                await asyncio.gather(self.task, return_exceptions=True)  # the turn reports what went wrong

    def _stop(self, main: asyncio.Task[Any]) -> None:
        if self.over:
            return
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)  # the next one ends the process
        if not self.opened:
            main.cancel()
        self.task = asyncio.ensure_future(self._agent.drain(DRAIN))
