"""One turn on the command line: its agent, SIGTERM while it runs, how its end is told, and the exit code.

What the turn is about the commands know; what is printed of it, `_output`.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import AgentClosed, InvalidArgument, ThreadPaused
from ...core.pauses import Pause
from ._options import WORKSPACE, AgentOptions
from ._output import Output
from ._pauses import pause_text
from ._session import DONE, FAILED, PAUSED, TERMINATED
from ._signals import signals_handled
from ._thread_options import ResumeOptions

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent

DRAIN: Final = 5.0
"""Seconds that a turn has to its next step at a SIGTERM; those who send one send SIGKILL after ten."""

_SAME: Final = ("lm", "identity", "worker", "role_host", "role_host_stdio", "token_file", "role")

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
        ThreadPaused: The thread waits; the remedy is a command.
        WorldAgentError: As the turn does.
    """
    stopping, command = _Stopping(agent), resume_command(options, thread)
    paused: ThreadPaused | None = None
    try:
        async with stopping.watching(), agent:
            turn = await begin()
            stopping.over = True
            return tell(turn, output, command, options)
    except ThreadPaused as error:
        paused = error
    except (asyncio.CancelledError, AgentClosed):
        if not stopping.asked:
            raise
    if paused is not None:
        told = ThreadPaused(paused.problem, remedy=f"run `{command}`, which says how to go on, or cancel the turn")
        told.turn_id = paused.turn_id
        raise told
    if isinstance(options, ResumeOptions):
        problem, remedy = "stopped before the turn went on; answers that were taken are kept", f"run `{command}`"
    else:
        problem, remedy = "stopped before the turn began; nothing of it is written", "run the command again"
    output.failed("terminated", problem, remedy)
    return TERMINATED


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
    if options.workspace != WORKSPACE:
        words += ["--workspace", options.workspace]
    if options.home is not None:
        words += ["--home", str(options.home)]
    return shlex.join(words)


def pauses_text(pauses: Sequence[Pause], command: str) -> str:
    """What waits for a person, and the command that answers, for a person at a terminal."""
    count = len(pauses)
    told = [f"the turn waits for {'an answer' if count == 1 else f'{count} answers'}:"]
    for pause in pauses:
        told += ["", pause_text(pause), f"id: {pause.id}"]
    kinds = {pause.kind for pause in pauses}
    which = "" if count == 1 else "ID"
    ways: list[str] = []
    if "approval" in kinds:
        ways += [f"{command} --approve {which}".rstrip(), f"{command} --reject {'' if count == 1 else 'ID='}REASON"]
    if kinds - {"approval"}:
        ways += [f"{command} --answer {'' if count == 1 else 'ID='}ANSWER"]
    return "\n".join([*told, "", "answer with one of:" if len(ways) > 1 else "answer with:", *(f"  {w}" for w in ways)])


def _same(options: AgentOptions) -> str:
    """Say which options the other command needs again; what they hold may be long, or a role."""
    given = [f"--{name.replace('_', '-')}" for name in _SAME if getattr(options, name)]
    return f"\nwith the same {', '.join(given)}" if given else ""


class _Stopping:
    """Drains an agent at SIGTERM.

    Args:
        agent: The agent.

    Attributes:
        over: Whether the turn has ended, so that there is nothing to stop.
        asked: Whether a SIGTERM came.
    """

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self._task: asyncio.Task[None] | None = None
        self.over = False

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
        self._task = asyncio.ensure_future(self._drain(main))

    async def _drain(self, main: asyncio.Task[Any]) -> None:
        try:
            await self._agent.drain(DRAIN)
        except AgentClosed:  # it is being opened
            main.cancel()


__all__ = ["DRAIN", "one_form", "one_turn", "pauses_text", "resume_command", "tell"]
