"""What a person sees at a terminal. Everything goes through one console; nothing here reads."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ....core import events
from ....core.errors import InvalidArgument, WorldAgentError
from ....core.pauses import Pause
from ...pauses import printable
from ..messages import left_out_text
from ..options import ChatOptions
from ..output import WANTING, Output, waiting_text
from ..pauses import pause_text
from .markdown import AnswerStream
from .waiting import answer_keys

if TYPE_CHECKING:
    from ....agent import Turn
    from .waiting import Waiting

_REFRESH_SECONDS: Final = 0.125
_PATIENCE: Final = 0.2  # seconds before a wait is shown; what is quicker needs no sign
_WAITING: Final = "waiting"
_CLIPBOARDS: Final = (("pbcopy",), ("wl-copy",), ("xclip", "-selection", "clipboard"), ("clip",))
_CLIPBOARD_SECONDS: Final = 2.0


class _Notes(Output):
    """Keeps notes until they can be shown without running into what is typed."""

    def __init__(self) -> None:
        super().__init__("text", verbose=False)
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Keep a note."""
        self.kept.append(text)


class Screen:
    """Shows a chat on the terminal. It heeds NO_COLOR, and draws nothing where TERM is dumb.

    Attributes:
        interactive: Whether a person looks on.
        notes: Where notes go while the agent loads.
    """

    interactive = True

    def __init__(self) -> None:
        self.notes = _Notes()
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._answer = AnswerStream(self._console)
        self._shown = ""  # of the answer
        self._tasks: dict[str, str] = {}  # labels of those in work
        self._spinner = Spinner("line")
        self._spins_at = math.inf  # when a wait is to be shown
        self._timer: asyncio.TimerHandle

    def begin(self, options: ChatOptions) -> None:
        """Say where the person is."""
        places = [("workspace", options.workspace) if options.app is None else ("app", options.app)]
        places += [("thread", options.thread)]
        places += [(what, id_) for what in ("account", "channel") if (id_ := getattr(options, what)) is not None]
        self._dim("worldagent chat: " + ", ".join(f"{what} {id_}" for what, id_ in places))
        self._dim("/help lists the commands, Ctrl-D leaves.")

    def opened(self, about: str, trouble: WorldAgentError | None) -> None:
        """Say what answers, and why the role host cannot be reached."""
        for text in (about, *self.notes.kept):
            self._dim(text)
        if trouble is not None:
            self._failure(trouble)
            self._dim("Messages get no answer until the role host is back.")

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Show the answer as it grows, or a sign of waiting, and no keys that are pressed meanwhile."""
        self._shown, self._tasks = "", {}
        # Refreshed here: a refresh on a thread of rich's, in the middle of a print, erases lines that are to stay.
        live = Live(console=self._console, get_renderable=self._latest, auto_refresh=False, transient=True)
        with unechoed(lines=True), live:
            self._wait()
            self._refresh(live)
            try:
                yield
            finally:
                self._timer.cancel()
                self._spins_at = math.inf
                self._answer.end()

    def _refresh(self, live: Live) -> None:
        live.refresh()
        self._timer = asyncio.get_running_loop().call_later(_REFRESH_SECONDS, self._refresh, live)

    def _latest(self) -> RenderableType:
        """What stands below all that is printed."""
        growing = self._answer.growing(max(1, self._console.height - 1))
        if growing is not None:
            return growing
        return self._spinner if time.monotonic() >= self._spins_at else ""

    def event(self, event: events.Event) -> None:
        """Show one event of a turn."""
        if told := _event_text(event):
            self._dim(told)
        match event:
            case events.TextDelta():
                self._add(event.text)
            case events.TextReplaced():
                self._replace(event.text)
            case events.StepEnded(interim=True):
                self._answer.end()
                self._shown = ""  # it was said beside calls, and stays on lines of its own
            case events.CallStarted() if event.parent == event.turn_id:
                self._dim(f"calling {event.title or event.function}")
                self._wait()
            case events.TaskStarted():
                self._tasks[event.task_id] = event.label
                self._dim(f"working on it: {event.label}")
                self._wait()
            case events.TaskEnded():
                label = self._tasks.pop(event.task_id, "a task")
                if event.status == "failed":
                    self._dim(f"{label} failed: {event.code}")
                self._wait()
            case _:
                pass

    def ended(self, turn: Turn) -> None:
        """Show what is left of the answer, or what the turn waits for."""
        self._replace(turn.text)
        if turn.status == "done" and not turn.text.strip():
            self._dim("[the answer is empty]")
        self._answer.end()
        if turn.status == "cancelled":
            self._dim("the turn was cancelled, not from here")
        if turn.pauses:
            self._ask(turn.pauses)
        elif turn.status != "stopped":
            self._print("")

    def waits(self, waiting: Waiting, thread_id: str) -> None:
        """Show what a turn from before waits for."""
        self._dim("The last turn of this thread is not over.")
        self._ask(waiting.open)

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """Show what is asked next."""
        self._question(waiting.open[0])

    def told(self, command: str, text: str) -> None:
        """Show what a command found."""
        self._print(f"{text}\n")

    def error(self, error: WorldAgentError) -> None:
        """Show why there is no answer."""
        self._failure(error)
        self._print("")

    def interrupted(self) -> None:
        """Say that the answer ends here because the person wanted it."""
        self._dim("cancelled")
        self._print("")

    def note(self, text: str) -> None:
        """Say something beside the answer, on a line of its own."""
        self._dim(text)

    def copy(self, text: str) -> None:
        """Put a text on the clipboard: by a program of this machine, else by a sequence that most terminals know.

        Raises:
            InvalidArgument: The terminal can do nothing.
        """
        data = printable(text).encode()
        remote = "SSH_CONNECTION" in os.environ  # the person's clipboard is then on another machine
        if not remote and any(_copied(program, data) for program in _CLIPBOARDS):
            return
        if self._console.is_dumb_terminal:
            raise InvalidArgument("this terminal has no clipboard", remedy="use /export FILE.md")
        self._console.file.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._console.file.flush()

    def hung_up(self) -> None:
        """Write into the void from now on, if the terminal is gone."""
        if not os.isatty(1):
            void = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(void, stream)
            os.close(void)

    def _add(self, text: str) -> None:
        if text:
            self._spins_at = math.inf
            self._shown += text
            self._answer.feed(text)

    def _replace(self, text: str) -> None:
        """Lines that have scrolled away cannot be rewritten, so the text that replaces them begins below."""
        if self._shown and not text.startswith(self._shown):
            self._dim("[the answer so far is withdrawn]")
            self._shown = ""
        self._add(text[len(self._shown) :])

    def _wait(self) -> None:
        """Show a sign of waiting, unless something else happens before long."""
        text = f"waiting for {', '.join(self._tasks.values())}" if self._tasks else _WAITING
        self._spinner = Spinner("line", Text(printable(text), style="dim", no_wrap=True, overflow="ellipsis"))
        self._spins_at = time.monotonic() + _PATIENCE

    def _ask(self, pauses: Sequence[Pause]) -> None:
        """Show what is asked first; what comes after it is shown when its turn comes."""
        count = "an answer: /later leaves" if len(pauses) == 1 else f"{len(pauses)} answers: /pauses shows all"
        self._dim(f"The turn waits for {count}, /cancel ends it.")
        self._question(pauses[0])

    def _question(self, pause: Pause) -> None:
        self._print(pause_text(pause))
        if not self._console.is_dumb_terminal and (keys := answer_keys(pause)):
            self._dim("keys: " + ", ".join(f"Alt-{key.upper()} {answer}" for key, answer in keys.items()))
        self._print("")

    def _failure(self, error: WorldAgentError) -> None:
        for word, text in (("error:", error.problem), ("remedy:", error.remedy)):
            self._console.print(Text.assemble((word, "bold"), " ", printable(text)))

    def _dim(self, text: str) -> None:
        self._answer.end()
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


def _copied(program: Sequence[str], data: bytes) -> bool:
    """Whether a program took `data` for the clipboard."""
    if shutil.which(program[0]) is None:
        return False
    void = subprocess.DEVNULL  # xclip stays, and would keep a pipe open
    try:
        subprocess.run(program, input=data, stdout=void, stderr=void, timeout=_CLIPBOARD_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # such as no display
        return False
    return True


def _event_text(event: events.Event) -> str:
    """What a person is shown of an event beside the answer."""
    match event:
        case events.TurnStarted(role_tiers=tiers) if tiers:
            return f"role: {', '.join(tiers)}"
        case events.RoleTierSkipped():
            return f"left out, since its source is down: {event.tier} role"
        case events.AttachmentLeftOut():
            return left_out_text(event)
        case events.ModelWaiting():
            return waiting_text(event)
        case events.AnswerChecked(satisfied=False):
            return WANTING
        case events.HistorySummarised():
            return "the beginning of this conversation is summed up now; nothing of it is lost"
        case events.SummaryFailed():
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
