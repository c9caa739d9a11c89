"""What a person sees at a terminal. Everything goes through one console; nothing here reads."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ....core.errors import WorldAgentError
from ....core.events import (
    AnswerChecked,
    AttachmentLeftOut,
    CallStarted,
    Event,
    HistorySummarised,
    ModelWaiting,
    RoleTierSkipped,
    StepEnded,
    SummaryFailed,
    TaskEnded,
    TaskStarted,
    TextDelta,
    TextReplaced,
    TurnStarted,
)
from ....core.pauses import Pause
from ...pauses import printable
from .._attachments import left_out_text
from .._output import WANTING, Output, waiting_text
from .._pauses import pause_text
from .wrap import Wrap

if TYPE_CHECKING:
    from rich.status import Status

    from ....agent import Turn
    from .session import Talk
    from .waiting import Waiting

_PATIENCE: Final = 0.2  # seconds before a wait is shown; what is quicker needs no sign
_WAITING: Final = "waiting"


class _Notes(Output):
    """Keeps notes until they can be shown without running into what is typed."""

    def __init__(self) -> None:
        super().__init__("text", verbose=False)
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Keep a note."""
        self.kept.append(text)


class Screen:
    """Shows a chat on the terminal. It wraps at the terminal's width and heeds NO_COLOR and TERM=dumb."""

    interactive = True

    def __init__(self) -> None:
        self.notes = _Notes()
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._wrap = Wrap()
        self._shown = ""  # of the answer
        self._tasks: dict[str, str] = {}  # labels of those in work
        self._spinner: Status | None = None
        self._patience: asyncio.TimerHandle | None = None

    def begin(self, talk: Talk) -> None:
        """Say where the person is."""
        options = talk.options
        places = [("workspace", options.workspace) if options.app is None else ("app", options.app)]
        places += [("thread", talk.thread_id)]
        places += [(what, id_) for what in ("account", "channel") if (id_ := getattr(options, what)) is not None]
        self._dim("worldagent chat: " + ", ".join(f"{what} {id_}" for what, id_ in places))
        self._dim("/help lists the commands, Ctrl-D leaves.")

    def opened(self, talk: Talk, trouble: WorldAgentError | None) -> None:
        """Say what answers, and where the stored roles are if not here."""
        host = f", roles at {talk.role_host}" if talk.role_host is not None else ""
        what = f"model {talk.model}" if talk.options.app is None else f"workspace {talk.workspace}"
        self._dim(f"{what}, profile {talk.profile}{host}")
        for note in self.notes.kept:
            self._dim(note)
        if trouble is not None:
            self._failure(trouble)
            self._dim("Messages get no answer until the role host is back.")

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Show a sign of waiting until there is something to read, and no keys that are pressed meanwhile."""
        self._wrap, self._shown, self._tasks = Wrap(), "", {}
        with unechoed(lines=True):
            self._wait()
            try:
                yield
            finally:
                self._stop_waiting()
                self._end_line()

    def event(self, event: Event) -> None:
        """Show one event of a turn."""
        told = _told_of(event)
        if told:
            self._dim(told)
        match event:
            case TextDelta():
                self._answer(event.text)
            case TextReplaced():
                self._replace(event.text)
            case StepEnded(interim=True):
                self._end_line()
                self._shown = ""  # it was said beside calls, and stays on lines of its own
            case CallStarted() if event.parent == event.turn_id:
                self._end_line()
                self._dim(f"calling {event.title or event.function}")
                self._wait()
            case TaskStarted():
                self._begin_task(event)
            case TaskEnded():
                self._end_task(event)
            case _:
                pass

    def ended(self, turn: Turn) -> None:
        """Show what is left of the answer, or what the turn waits for."""
        self._replace(turn.text)
        if turn.status == "done" and not turn.text.strip():
            self._dim("[the answer is empty]")
        self._end_line()
        if turn.status == "cancelled":
            self._dim("the turn was cancelled, not from here")
        if turn.pauses:
            self._ask(turn.pauses)
        elif turn.status != "stopped":
            self._print("")

    def waits(self, waiting: Waiting) -> None:
        """Show what a turn waits for that was begun before."""
        self._dim("The last turn of this thread is not over.")
        self._ask(waiting.open)

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """Show what is asked next."""
        self._print(f"{pause_text(waiting.open[0])}\n")

    def told(self, command: str, text: str) -> None:
        """Show what a command found."""
        self._print(f"{text}\n")

    def error(self, error: WorldAgentError) -> None:
        """Show why there is no answer."""
        self._failure(error)
        self._print("")

    def cancelled(self) -> None:
        """Say that the answer ends here because the person wanted it."""
        self._dim("cancelled")
        self._print("")

    def note(self, text: str) -> None:
        """Say something beside, on a line of its own."""
        self._stop_waiting()
        self._end_line()
        self._dim(text)

    def hung_up(self) -> None:
        """Write into the void from now on, if the terminal is gone."""
        if not os.isatty(1):
            void = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(void, stream)
            os.close(void)

    def _failure(self, error: WorldAgentError) -> None:
        for word, text in (("error:", error.problem), ("remedy:", error.remedy)):
            self._console.print(Text.assemble((word, "bold"), " ", printable(text)))

    def _ask(self, pauses: Sequence[Pause]) -> None:
        """Show what is asked first; what comes after it is shown when its turn comes."""
        count = "an answer: /later leaves" if len(pauses) == 1 else f"{len(pauses)} answers: /pauses shows all"
        self._dim(f"The turn waits for {count}, /cancel ends it.")
        self._print(f"{pause_text(pauses[0])}\n")

    def _answer(self, text: str) -> None:
        if text:
            self._stop_waiting()
            self._shown += text
            self._write(self._wrap.feed(printable(text)))

    def _replace(self, text: str) -> None:
        """Lines that have scrolled away cannot be rewritten, so what now stands begins on a line of its own."""
        if self._shown and not text.startswith(self._shown):
            self._end_line()
            self._dim("[the answer so far is withdrawn]")
            self._shown = ""
        self._answer(text[len(self._shown) :])

    def _begin_task(self, event: TaskStarted) -> None:
        self._tasks[event.task_id] = event.label
        self._end_line()
        self._dim(f"working on it: {event.label}")
        self._wait(f"waiting for {', '.join(self._tasks.values())}")

    def _end_task(self, event: TaskEnded) -> None:
        label = self._tasks.pop(event.task_id, "a task")
        if event.status == "failed":
            self._end_line()
            self._dim(f"{label} failed: {event.code}")
        self._wait(f"waiting for {', '.join(self._tasks.values())}" if self._tasks else _WAITING)

    def _wait(self, text: str = _WAITING) -> None:
        self._stop_waiting()
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_PATIENCE, self._spin, printable(text))

    def _spin(self, text: str) -> None:
        self._spinner = self._console.status(Text(text, style="dim", no_wrap=True, overflow="ellipsis"), spinner="line")
        self._spinner.start()

    def _stop_waiting(self) -> None:
        patience, self._patience = self._patience, None
        if patience is not None:
            patience.cancel()
        spinner, self._spinner = self._spinner, None
        if spinner is not None:
            spinner.stop()

    def _end_line(self) -> None:
        self._write(self._wrap.end())
        if self._shown and self._wrap.inside:
            self._write("\n")
            self._wrap = Wrap()

    def _dim(self, text: str) -> None:
        self._console.print(Text(printable(text), style="dim"))

    def _print(self, text: str) -> None:
        for line in printable(text).split("\n"):
            indent = len(line) - len(line.lstrip())
            if not indent or cell_len(line) <= self._console.width:
                self._console.print(Text(line))
                continue
            # What is indented stays so, or a long value could imitate a line of its own.
            within = Text(line.lstrip()).wrap(self._console, max(10, self._console.width - indent - 2))
            for number, part in enumerate(within):
                self._console.print(Text(" " * (indent + 2 * bool(number))) + part, soft_wrap=True)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


def _told_of(event: Event) -> str:
    """What a person is told beside the answer."""
    match event:
        case TurnStarted(role_tiers=tiers) if tiers:
            return f"role: {', '.join(tiers)}"
        case RoleTierSkipped():
            return f"left out, since its source is down: {event.tier} role"
        case AttachmentLeftOut():
            return left_out_text(event)
        case ModelWaiting():
            return waiting_text(event)
        case AnswerChecked(satisfied=False):
            return WANTING
        case HistorySummarised():
            return "the beginning of this conversation is summed up now; nothing of it is lost"
        case SummaryFailed():
            return f"the beginning of this conversation could not be summed up: {event.code}"
        case _:
            return ""


@contextmanager
def unechoed(*, lines: bool) -> Generator[None, None, None]:
    """Keep what is typed out of what is written; it is there for the next prompt.

    Args:
        lines: Whether the terminal goes on to gather lines, for a prompt that reads them. One that reads keys gets all
            of them as they were pressed: a Ctrl-D that the terminal takes for the end of a line would be lost to it.
    """
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        before = termios.tcgetattr(0)
    except termios.error:
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    if not lines:
        quiet[0] &= ~termios.ICRNL
        quiet[3] &= ~(termios.ICANON | termios.IEXTEN)
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSANOW, before)


__all__ = ["Screen", "unechoed"]
