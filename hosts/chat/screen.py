"""What a person sees at a terminal. All output goes through one console, and this module reads no input."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.text import Text

from ...core import ROOT, events
from ...core.errors import InvalidArgument, WorldAgentError
from ...core.pauses import Pause
from ..cli.options import ChatOptions
from ..cli.output import Output, note_text
from ..service.pauses import printable, waits_for_reply
from ..service.typed_answers import pause_text

if TYPE_CHECKING:
    from ...agent import Turn
    from .session import Waiting

_REFRESH_SECONDS: Final = 0.125
_REFRESH_SHARE: Final = 4  # a redraw that takes long is followed by a rest of this many times its duration
_SPINNER_DELAY_SECONDS: Final = 0.2  # seconds before a wait is shown
_CLIPBOARDS: Final = (("pbcopy",), ("wl-copy",), ("xclip", "-selection", "clipboard"), ("clip",))
_CLIPBOARD_SECONDS: Final = 2.0


class Screen(Output):
    """Shows a chat on the terminal. It respects NO_COLOR, and draws nothing if TERM is dumb.

    Attributes:
        interactive: Whether a person is watching.
    """

    interactive = True

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._typed = ""  # what the person types while a turn runs
        self._growing = ""  # the end of the answer, which is not printed permanently
        self._tasks: dict[str, str] = {}  # labels of running tasks
        self._spinner = Spinner("line")
        self._spins_at = math.inf  # when a wait is to be shown
        self._timer: asyncio.TimerHandle

    def begin(self, options: ChatOptions) -> None:
        """Show the workspace or app, the thread, the account and the channel."""
        places = [("workspace", options.workspace) if options.app is None else ("app", options.app)]
        places += [("thread", options.thread)]
        places += [(what, id_) for what in ("account", "channel") if (id_ := getattr(options, what)) is not None]
        self.note("worldagent chat: " + ", ".join(f"{what} {id_}" for what, id_ in places))
        self.note("/help lists the commands, Ctrl-D ends the chat.")

    def opened(self, about: str, trouble: WorldAgentError | None) -> None:
        """Show the model, and why the role host cannot be reached."""
        self.note(about)
        if trouble is not None:
            self._failure(trouble)
            self.note("Messages get no answer until the role host is back.")

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Show the answer as it grows, or a spinner."""
        self._shown, self._tasks = "", {}
        # Refreshed here, since a refresh on rich's own thread can come in the middle of a print and erase its lines.
        with Live(console=self._console, get_renderable=self._latest, auto_refresh=False, transient=True) as live:
            self._wait()
            self._refresh(live)
            try:
                yield
            finally:
                self._timer.cancel()
                self._spins_at = math.inf
                self._print_answer()

    def _refresh(self, live: Live) -> None:
        began = time.monotonic()
        live.refresh()
        rest = max(_REFRESH_SECONDS, _REFRESH_SHARE * (time.monotonic() - began))
        self._timer = asyncio.get_running_loop().call_later(rest, self._refresh, live)

    def _latest(self) -> RenderableType:
        """The live part below the printed lines."""
        typed = Text(f"> {printable(self._typed)}", overflow="fold") if self._typed else None
        lines = 0 if typed is None else len(typed.wrap(self._console, self._console.width))
        shown: RenderableType = ""
        if self._growing.strip():
            shown = Answer(self._growing, last=max(1, self._console.height - 1 - lines))
        elif time.monotonic() >= self._spins_at:
            shown = self._spinner
        return shown if typed is None else Group(shown, typed) if shown else typed

    def typing(self, text: str) -> None:
        """Show what the person types while a turn runs."""
        self._typed = text

    def next(self, text: str) -> None:
        """Show a message that waited, before the answer to it."""
        self._print(text)
        self._shown = ""
        self._wait()

    def event(self, event: events.TurnEvent) -> None:
        """Show one event of a turn."""
        if shown := _event_text(event):
            self.note(shown)
        match event:
            case events.TextDelta():
                self._add(event.text)
            case events.TextReplaced():
                self._replace(event.text)
            case events.StepEnded(interim=True):
                self._print_answer()
                self._shown = ""  # text that came with calls stays on its own lines
            case events.CallStarted() if event.parent == event.turn_id:
                self.note(f"calling {event.title or event.function}")
                self._wait()
            case events.TaskStarted():
                self._tasks[event.task_id] = event.label
                self.note(f"working on it: {event.label}")
                self._wait()
            case events.TaskEnded():
                label = self._tasks.pop(event.task_id, "a task")
                if event.status == "failed":
                    self.note(f"{label} failed: {event.code}")
                self._wait()
            case _:
                pass

    def ended(self, turn: Turn) -> None:
        """Show the rest of the answer, or what the turn waits for."""
        self._replace(turn.text)
        if turn.status == "done" and not turn.text.strip():
            self.note("[the answer is empty]")
        self._print_answer()
        if turn.withheld:
            self.note(turn.withheld.note)
        if turn.status == "cancelled":
            self.note("the turn was cancelled from outside this chat")
        if turn.pauses:
            self._ask(turn.pauses)
        elif turn.status != "stopped":
            self._print("")

    def waits(self, waiting: Waiting, thread_id: str) -> None:
        """Show what an earlier turn waits for. Earlier keys are dropped: they could approve an unseen call."""
        if sys.platform != "win32":
            import termios

            with suppress(termios.error):  # the terminal is gone
                termios.tcflush(0, termios.TCIFLUSH)
        self.note("The last turn of this thread has not ended.")
        self._ask(waiting.open)

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """Show the next pause."""
        self._question(waiting.open[0])

    def show_result(self, command: str, text: str) -> None:
        """Show the output of a command."""
        self._print(f"{text}\n")

    def error(self, error: WorldAgentError) -> None:
        """Show why there is no answer."""
        self._failure(error)
        self._print("")

    def interrupted(self) -> None:
        """Show that the person cancelled the answer."""
        self.note("cancelled")
        self._print("")

    def note(self, text: str) -> None:
        """Show a note on its own line."""
        self._print_answer()
        self._console.print(Text(printable(text), style="dim"))

    def told(self, text: str) -> None:
        """Ring the bell, and show a note about something that happened beside the chat."""
        self._console.bell()
        self.note(text)

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard: with a program of this machine, else with a sequence that most terminals know.

        Raises:
            InvalidArgument: The terminal has no clipboard.
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
        """Discard all output from now on if the terminal is gone."""
        if not os.isatty(1):
            void = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(void, stream)
            os.close(void)

    def _add(self, text: str) -> None:
        if text:
            self._spins_at = math.inf
            self._growing += text

    def _replace(self, text: str) -> None:
        """Replace the answer. Printed lines cannot be rewritten, so the new text begins below them."""
        self._growing = ""
        if not text.startswith(self._shown):
            self.note("[the answer so far is withdrawn]")
            self._shown = ""
        self._add(text[len(self._shown) :])

    def _print_answer(self) -> None:
        """Print the answer so far permanently."""
        answer, self._growing = self._growing, ""
        self._shown += answer
        if answer.strip():
            self._console.print(Answer(answer))

    def _wait(self) -> None:
        """Show a spinner, unless something else happens soon."""
        text = f"waiting for {', '.join(self._tasks.values())}" if self._tasks else "waiting"
        self._spinner = Spinner("line", Text(printable(text), style="dim", no_wrap=True, overflow="ellipsis"))
        self._spins_at = time.monotonic() + _SPINNER_DELAY_SECONDS

    def _ask(self, pauses: Sequence[Pause]) -> None:
        """Show the first pause. Each further pause is shown once the one before it is answered."""
        count = "an answer: /later ends the chat" if len(pauses) == 1 else f"{len(pauses)} answers: /pauses shows all"
        if all(map(waits_for_reply, pauses)):
            count = "a reply: /later ends the chat"
        self.note(f"The turn waits for {count}, /cancel ends the turn.")
        self._question(pauses[0])

    def _question(self, pause: Pause) -> None:
        self._print(f"{pause_text(pause)}\n")

    def _failure(self, error: WorldAgentError) -> None:
        for word, text in (("error:", error.problem), ("remedy:", error.remedy)):
            self._console.print(Text.assemble((word, "bold"), " ", printable(text)))

    def _print(self, text: str) -> None:
        for line in printable(text).split("\n"):
            indent = len(line) - len(line.lstrip())
            if not indent or cell_len(line) <= self._console.width:
                self._console.print(Text(line))
                continue
            # Wrapped lines stay indented, or a long value could imitate a separate line.
            within = Text(line.lstrip()).wrap(self._console, max(10, self._console.width - indent - 2))
            for number, part in enumerate(within):
                self._console.print(Text(" " * (indent + 2 * bool(number))) + part, soft_wrap=True)


def _copied(program: Sequence[str], data: bytes) -> bool:
    """Whether a program put `data` on the clipboard."""
    if shutil.which(program[0]) is None:
        return False
    void = subprocess.DEVNULL  # xclip keeps running, and would keep a pipe open
    try:
        subprocess.run(program, input=data, stdout=void, stderr=void, timeout=_CLIPBOARD_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # such as no display
        return False
    return True


def _event_text(event: events.TurnEvent) -> str:
    """The line that an event shows besides the answer; empty if there is none."""
    match event:
        case events.TurnStarted(role_tiers=tiers, on_behalf_of=member) if tiers or member != ROOT:
            role = f"role: {', '.join(tiers)}" if tiers else ""
            return "; ".join(filter(None, (f"{member} answers" if member != ROOT else "", role)))
        case events.MemoryRecalled(entries=ids) if ids:
            return f"memory: {', '.join(ids)}"
        case events.RoleTierSkipped():
            return f"skipped, because its source is down: {event.tier} role"
        case events.HistorySummarised():
            return "the beginning of this conversation was summarised; all messages are kept"
        case events.SummaryFailed():
            return f"the beginning of this conversation could not be summarised: {event.code}"
        case _:
            return note_text(event)


@contextmanager
def unechoed() -> Generator[None, None, None]:
    """Do not echo keys, so that they do not mix with the output. The next prompt still gets each as it was pressed."""
    if sys.platform == "win32":
        yield
        return
    import termios

    before = termios.tcgetattr(0)
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSANOW, before)


# --- answers as Markdown ----------------------------------------------------------------------------------------------

# Rich would drop HTML and the addresses of images, so both are switched off and stay as they were written. References
# are off too, since their addresses can come after the block that needs them is drawn.
_PARSER: Final = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    .enable(["table", "strikethrough"])
    .disable(["html_block", "html_inline", "image", "reference", "autolink"])
)
_INDENT: Final = 4  # columns of a level, at most


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text  # to the left, without a frame


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")


def _clean(tokens: Iterable[Token]) -> None:
    """Drop characters that could control a terminal, also those from entities such as `&#x202e;`; keep line breaks."""
    for token in tokens:
        token.content, token.info = printable(token.content), printable(token.info)
        if "href" in token.attrs:
            token.attrs["href"] = printable(str(token.attrs["href"]))
        if token.type == "softbreak":
            token.type = "hardbreak"
        _clean(token.children or ())


class Answer(Markdown):
    """An answer as Markdown. The text of a model cannot control the terminal or get lost.

    Args:
        source: Its text.
        last: How many lines to show, from the end; 0 is all.
    """

    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code}

    def __init__(self, source: str, *, last: int = 0) -> None:
        # No hyperlinks: the address of a link is shown next to its text, which can name another one.
        super().__init__("", code_theme="ansi_dark", justify="default", hyperlinks=False)
        self._source, self._last = printable(source), last
        self.parsed = _PARSER.parse(self._source)
        _clean(self.parsed)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Each level is indented, and rich drops text that has no column left.
        depth = max((token.level for token in self.parsed), default=0)
        deep = depth * _INDENT > options.max_width * 3 // 4
        drawn: Iterable[Any] = [Text(self._source)] if deep else super().__rich_console__(console, options)
        for line in console.render_lines(Group(*drawn), options.update(height=None), pad=False)[-self._last :]:
            yield from line
            yield Segment.line()


def code_blocks(source: str) -> list[str]:
    """The code in the blocks of an answer."""
    return [token.content for token in _PARSER.parse(source) if token.type in ("fence", "code_block")]
