"""What a command prints: answers and JSON on stdout, everything about them on stderr.

Every `--help` loads this module, so the package is imported inside functions.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.cells import cell_len, chop_cells

if TYPE_CHECKING:
    from ...agent import ThreadState, Turn
    from ...core.errors import WorldAgentError
    from ...core.events import TurnEvent
    from ...memory import Message
    from ...memory.attachments import AttachmentSource

Form = Literal["text", "json", "events"]

MIN_NOTED_WAIT_SECONDS: Final = 0.5  # seconds; a longer wait for a rate limit is noted


class Output:
    """Prints one command's outcome.

    Args:
        json: Whether to print one JSON object, not text for people.
        events: Whether to print each event as a line of JSON.
        verbose: Whether to print on stderr which tiers were active, and which memory entries were recalled.

    Attributes:
        interactive: Whether a person converses.
    """

    interactive = False

    def __init__(self, *, json: bool = False, events: bool = False, verbose: bool = False) -> None:
        self.form: Form = "events" if events else "json" if json else "text"
        self._verbose = verbose
        self._terminal = sys.stdout.isatty()
        self._shown = ""  # the part of the answer that is on the terminal

    @property
    def live(self) -> bool:
        """Whether events are printed while the turn runs."""
        return self.form == "events" or (self.form == "text" and self._terminal)

    def event(self, event: TurnEvent) -> None:
        """Show one event of a turn, if it is printed while the turn runs."""
        from ...core import events as kinds

        note = note_text(event)
        if note and (isinstance(event, kinds.ModelWaiting) or (self.live and self.form == "text")):
            self.note(note)
        if self.form == "events":
            self._line(event.model_dump_json())
        elif not self.live:
            pass
        elif isinstance(event, kinds.TextDelta):
            self._shown += event.text
            self._write(event.text)
        elif isinstance(event, kinds.TextReplaced):
            self._replace(event.text)
        elif isinstance(event, kinds.StepEnded) and event.interim and self._shown:
            self._write("\n")  # the text came with calls, and the answer begins on a new line
            self._shown = ""

    def turn(self, turn: Turn, *, resume: str | None = None) -> None:
        """Show a turn that has ended.

        Args:
            turn: The turn. A turn that waits has no text, so it is printed here only as JSON.
            resume: The command that resumes it, if it can be resumed.
        """
        if self.form == "json":
            self._json(turn.to_json() | ({} if resume is None else {"resume": resume}))
        elif self.form == "text" and turn.status == "done":
            self._replace(f"{_result_text(turn)}\n")
            self._shown = ""  # later output begins on a new line already
            self._shown = ""  # the line has ended, so an error needs no new one
        elif self.form == "text" and self._shown:
            self._line("")  # later output begins on a new line
        if turn.withheld and self.form == "text":
            self.note(turn.withheld.note)
        if self._verbose:
            self._print_details(turn)

    def result(self, value: dict[str, Any], text: str | None = None) -> None:
        """Show what a command found: `value` as JSON, `text` for people. The text is None if a note says it all."""
        if self.form == "json":
            self._json(value)
        elif text is not None:
            self._line(text)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, widths: Sequence[int]) -> str:
        """Lay out a table as `table` does. Cells are cut only on a terminal, since a program reads a pipe."""
        return table(head, rows, widths=widths if self._terminal else ())

    def error(self, error: WorldAgentError) -> None:
        """Show why there is no answer."""
        self.failed(error.code, error.problem, error.remedy, retryable=error.retryable, turn_id=error.turn_id)

    def interrupted(self) -> None:
        """Show that the person stopped the command."""
        problem = "interrupted; the running work is cancelled"
        self.failed("interrupted", problem, "run the command again", retryable=True)

    def failed(
        self, code: str, problem: str, remedy: str, *, retryable: bool = False, turn_id: str | None = None
    ) -> None:
        """Show a failure, also one that no error of the package describes."""
        if self.form != "text":
            shown = {"code": code, "message": problem, "remedy": remedy, "retryable": retryable, "turn_id": turn_id}
            self._json({"error": shown})
            return
        if self._shown:
            self._line("")  # the error begins on a new line
        self.note(f"error: {problem}\nremedy: {remedy}")

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        print(_printable(text) if sys.stderr.isatty() else text, file=sys.stderr)

    def _replace(self, text: str) -> None:
        """Replace the answer. Lines that have scrolled away cannot be rewritten, so the new text begins below."""
        if not text.startswith(self._shown):
            self._write("\n[the answer so far is withdrawn]\n")
            self._shown = ""
        self._write(text[len(self._shown) :])
        self._shown = text

    def _print_details(self, turn: Turn) -> None:
        self.note(f"role tiers: {', '.join(turn.role_tiers) or 'none'}")
        if turn.skipped_tiers:
            self.note(f"skipped, because their source was down: {', '.join(turn.skipped_tiers)}")
        if turn.recalled:
            self.note(f"memory: {', '.join(turn.recalled)}")

    def _json(self, value: dict[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False)
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:  # such as a file name that is not UTF-8, which JSON can escape
            text = json.dumps(value)
        self._line(text)

    def _line(self, text: str) -> None:
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(_printable(text) if self._terminal else text)
        sys.stdout.flush()


def _printable(text: str) -> str:
    from ..service.pauses import printable

    return printable(text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, widths: Sequence[int] = ()) -> str:
    """Lay out a table. Columns are as wide as their cells, and numbers are aligned to the right.

    Args:
        head: The names of the columns.
        rows: The cells.
        widths: The most terminal cells of the first columns. Longer cells are cut.
    """
    lines = [[" ".join(cell.split()) for cell in row] for row in (head, *rows)]
    limits = chain(widths, repeat(sys.maxsize))
    wide = [min(limit, max(map(cell_len, column))) for limit, *column in zip(limits, *lines, strict=False)]
    return "\n".join("  ".join(map(_cell, line, wide)).rstrip() for line in lines)


def lines_of(record: Mapping[str, Any], *hidden: str) -> str:
    """The fields of a record, one a line, without those that are empty or hidden."""
    shown = {name: each for name, each in record.items() if name not in hidden and each not in (None, "", [], {})}
    return "\n".join(f"{name}: {each}" for name, each in shown.items())


def records_table(columns: Mapping[str, Any], records: Sequence[Any], empty: str | None = None) -> str | None:
    """Lay out records as a table.

    Args:
        columns: The heads, each with the name of a field, or a function of a record.
        records: The records.
        empty: The text if there are none.
    """
    rows = [
        [
            "" if (cell := getattr(each, of) if isinstance(of, str) else of(each)) is None else str(cell)
            for of in columns.values()
        ]
        for each in records
    ]
    return table([*columns], rows) if rows else empty


def problem_objects(problems: Iterable[WorldAgentError]) -> list[dict[str, str]]:
    """Problems, for a program."""
    return [problem_object(each) for each in problems]


def problem_object(problem: WorldAgentError) -> dict[str, str]:
    """A problem, for a program."""
    return {"code": problem.code, "message": problem.problem, "remedy": problem.remedy}


def note_text(event: TurnEvent) -> str:
    """The note for a person about an event of a turn; empty if there is none."""
    from ...core import events as kinds

    match event:
        case kinds.ModelWaiting() if event.seconds >= MIN_NOTED_WAIT_SECONDS:
            return f"waiting {math.ceil(event.seconds)} s for the rate limit of {event.model}"
        case kinds.AnswerChecked(satisfied=False):
            return "a check rejected this answer; a new one follows"
        case kinds.MessageTaken():
            return f"{event.name or event.author} said meanwhile: {event.text}"
        case kinds.AttachmentLeftOut():
            return f"not shown to the model, because {_LEFT_OUT_REASONS[event.reason]}: {event.name}"
        case _:
            return ""


def last_turn_text(state: ThreadState) -> str:
    """How the last turn of a thread ended, for an error."""
    if not state.turn_id:
        return f"the thread {state.thread!r} has no turn yet"
    return f"the last turn of the thread {state.thread!r} is {state.status}"


def time_text(at: datetime) -> str:
    """A time as tables show it: local time, to the minute."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def counted(number: int, what: str) -> str:
    """A number of things, such as `2 turns`."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def count_text(count: int | None) -> str:
    """A number of tokens as people read it; a question mark if it is not known."""
    return "?" if count is None else f"{count:,}"


def tokens_text(sent: int | None, received: int | None) -> str:
    """The tokens that were sent to a model and received from it."""
    return f"{count_text(sent)} + {count_text(received)} tokens"


def duration_text(seconds: float) -> str:
    """How long something took, as people read it."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def cost_text(cost: float) -> str:
    """A cost as people read it. Small amounts get more digits."""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.6f}"


_LEFT_OUT_REASONS: Final = {
    "missing": "its content is gone",
    "not_taken": "the model does not take this kind",
    "too_large": "with the other attachments it is too large",
}


def _cell(text: str, width: int) -> str:
    if cell_len(text) > width:
        text = chop_cells(text, width - 1)[0] + "…"
    blanks = " " * (width - cell_len(text))
    return blanks + text if text.replace(",", "").isdecimal() else text + blanks


def _result_text(turn: Turn) -> str:
    """The answer for a person: the field `text` of a result if it has one, else its JSON."""
    if turn.result is None:
        return turn.text
    text = getattr(turn.result, "text", None)
    return text if isinstance(text, str) else turn.result.model_dump_json(indent=2)


def attachment_name(source: AttachmentSource) -> str:
    """The name of an attachment, for a person."""
    if isinstance(source, Path):
        return source.name
    return getattr(source, "name", None) or str(source)


def attached_text(message: Message) -> str:
    """A line that names what is attached to a message, or the empty text."""
    from ...memory.attachments import attachments_of

    found = attachments_of(message)
    return f"[attached: {', '.join(f'{one.name} ({one.media_type})' for one in found)}]" if found else ""


def message_text(message: Message) -> str:
    """The text of a message with its attachments. A message without either is shown as JSON."""
    text = message.body.get("text")
    shown = f"{text.strip()} {attached_text(message)}".strip() if isinstance(text, str) else ""
    if not shown:
        return f"[{message.kind}] {json.dumps(dict(message.body), ensure_ascii=False)}"
    return f"[summary] {shown}" if message.kind == "summary" else shown


def author_text(message: Message) -> str:
    """The author of a message: the account, after the name if another name was given."""
    name = message.name
    return message.author if name is None or name == message.author else f"{name} ({message.author})"
