"""One turn on the command line: its agent, SIGTERM while it runs, how its end is told, and the exit code.

What the turn is about, the commands know; what is printed of it, `output`.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import (
    AgentClosed,
    AlreadyAnswered,
    AttachmentNotTaken,
    GraphChanged,
    InvalidArgument,
    NotAnApprover,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    ThreadPaused,
    TurnTimeout,
    WorldAgentError,
)
from ...core.pauses import Pause
from ..pauses import is_late
from .exits import DONE, FAILED, PAUSED, TERMINATED
from .options import WORKSPACE, AgentOptions, GoOnOptions, ThreadsOptions
from .output import Output
from .pauses import pause_text
from .signals import signals_handled

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent

DRAIN: Final = 5.0
"""Seconds that a turn has to its next step at a SIGTERM; those who send one send SIGKILL after ten."""

_SAME: Final = (
    *("lm", "temperature", "max_tokens", "reasoning_effort", "header", "identity", "profile", "worker"),
    *("role_host", "role_host_stdio", "token_file", "role"),
)

_REMEDIES: Final[Mapping[type[WorldAgentError], str]] = {
    AlreadyAnswered: "run `{command}` without an answer to it",
    NotAnApprover: "give --account, with one of those who may answer; `worldagent approvals list` tells them",
    GraphChanged: "give the --app, --worker and --workers that the turn began with, and run the version of the code "
    "that began it; no answer was taken. `worldagent threads cancel` ends the turn",
    AttachmentNotTaken: "name a model that does with --lm, or set WORLDAGENT_ATTACHMENT_FALLBACK=note to let it know "
    "the name alone; where it does take them, set WORLDAGENT_MODEL_TAKES",
    RoleChanged: "bring the role back as it was, or add --on-role-change refresh to go on with what is active now",
    RoleKeyMismatch: "set role_key to the key of that installation, or put its role.key back; where it is lost, see "
    "`worldagent doctor --rekey`, and add --on-role-change refresh",
    RoleRequired: "give --role again, or set the role again where it is stored; add --no-role to go on without that of "
    "the call, or --on-role-change refresh to go on with what is active now",
    ThreadPaused: "run `{command}`, which says how to go on, or cancel the turn",
    TurnTimeout: "run `{command}` to go on, or raise turn_timeout",
}
"""What the package says to those who call `resume()` of it, to those who run the command."""

Begin = Callable[[], Awaitable["Turn"]]


def one_form(json: bool, events: bool) -> None:
    """Refuse two forms of output at once.

    Raises:
        InvalidArgument: Both are asked for.
    """
    if json and events:
        raise InvalidArgument("--json and --events exclude each other", remedy="give one of them")


async def one_turn(agent: WorldAgent, options: AgentOptions, output: Output, thread: str, begin: Begin) -> int:
    """Open the agent, run one turn, tell how it ended, and give the exit code.

    SIGTERM drains the agent: the turn stops at its next step and can be resumed. A second one ends the process.

    Args:
        agent: Not started.
        options: The command's options, for the command that goes on with the turn.
        output: Where the turn goes.
        thread: The thread's id.
        begin: Runs the turn; gives it once it has ended.

    Raises:
        WorldAgentError: As the turn does; the remedy is one for the command line.
    """
    stopping, command = _Stopping(agent), resume_command(options, thread)
    failure: WorldAgentError | None = None
    try:
        async with stopping.watching(), agent:
            stopping.opened = True
            turn = await begin()
            stopping.over = True
            return tell(turn, output, command, options)
    except (asyncio.CancelledError, AgentClosed):
        if not stopping.asked:
            raise
    except WorldAgentError as error:
        failure = error
    if failure is not None:
        raise as_said_here(failure, _REMEDIES, command=command)
    if isinstance(options, GoOnOptions):
        problem, remedy = "stopped before the turn went on; answers that were taken are kept", f"run `{command}`"
    else:
        problem, remedy = "stopped before the turn began; nothing of it is written", "run the command again"
    output.failed("terminated", problem, remedy)
    return TERMINATED


def as_said_here(
    error: WorldAgentError, remedies: Mapping[type[WorldAgentError], str], **words: str
) -> WorldAgentError:
    """An error of a turn with the remedy that there is for a person here, where it has one of its own.

    Args:
        error: As the package raised it.
        remedies: What a person does, by the kind of error.
        words: What stands in remedies for names in braces.
    """
    remedy = remedies.get(type(error))
    if remedy is None:
        return error
    told = type(error)(error.problem, remedy=remedy.format(**words))
    told.turn_id = error.turn_id
    return told.with_traceback(error.__traceback__)


def tell(turn: Turn, output: Output, command: str, options: AgentOptions) -> int:
    """Print how a turn ended, with what a person does next where it can go on, and give the exit code.

    Args:
        turn: The turn.
        output: Where it goes.
        command: The command that goes on with it.
        options: What it was begun with.
    """
    if turn.status == "cancelled" and output.form == "text":
        output.failed("cancelled", "the turn was cancelled", "begin a new turn")
        return FAILED
    waits = turn.status in ("paused", "stopped")
    output.turn(turn, resume=command if waits else None)
    if not waits:
        return DONE if turn.status == "done" else FAILED
    if output.form != "json":
        told = pauses_text(turn.pauses, command) if turn.pauses else f"the turn was stopped; go on with: {command}"
        output.note(f"{told}{_same(options)}")
    return PAUSED if turn.status == "paused" else TERMINATED


def resume_command(options: AgentOptions, thread: str) -> str:
    """The command that goes on with a thread's turn, to be copied. No role is in it."""
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
    """The options that name workspace and home, where they are not the usual ones."""
    words = [] if options.workspace == WORKSPACE else ["--workspace", options.workspace]
    return words if options.home is None else [*words, "--home", str(options.home)]


def pauses_text(pauses: Sequence[Pause], command: str) -> str:
    """What waits for a person, and the command that answers, for a person at a terminal."""
    count = len(pauses)
    told = [f"the turn waits for {'an answer' if count == 1 else f'{count} answers'}:"]
    for pause in pauses:
        told += ["", pause_text(pause), f"id: {pause.id}"]
    left = [pause for pause in pauses if not is_late(pause)]
    if not left:
        return "\n".join([*told, "", "go on without an answer with:", f"  {command}"])
    which, before = ("", "") if count == 1 else ("ID", "ID=")
    ways = [f"{command} --answer {before}ANSWER"]
    if any(pause.kind == "approval" for pause in left):
        ways = [f"{command} --approve {which}".rstrip(), f"{command} --reject {before}REASON", *ways]
    return "\n".join([*told, "", "answer with one of:" if len(ways) > 1 else "answer with:", *(f"  {w}" for w in ways)])


def _same(options: AgentOptions) -> str:
    """Say which options the other command needs again; what they hold may be long, or a role."""
    given = [f"--{name.replace('_', '-')}" for name in _SAME if getattr(options, name) not in (None, "", [])]
    return f"\nwith the same {', '.join(given)}" if given else ""


class _Stopping:
    """Drains an agent at SIGTERM.

    Args:
        agent: The agent.

    Attributes:
        opened: Whether the agent is open, so that it can be drained.
        over: Whether the turn has ended, so that there is nothing to stop.
        asked: Whether a SIGTERM came.
    """

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self._task: asyncio.Task[None] | None = None
        self.opened = self.over = False

    @property
    def asked(self) -> bool:
        return self._task is not None

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Heed SIGTERM inside the block, and have drained the agent at its end if one came."""
        main = asyncio.current_task()
        assert main is not None
        try:
            with signals_handled({signal.SIGTERM: partial(self._stop, main)}):
                yield
        finally:
            if self._task is not None:
                await asyncio.gather(self._task, return_exceptions=True)  # the turn has told what went wrong

    def _stop(self, main: asyncio.Task[Any]) -> None:
        if self.over:
            return
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)  # the next one ends the process
        if not self.opened:
            main.cancel()
        self._task = asyncio.ensure_future(self._agent.drain(DRAIN))
