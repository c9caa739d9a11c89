"""What a paused turn waits for, as text for a person. It cannot control a terminal, and long values are shortened.

Each host decides how a person answers: with typed text, a form or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ...core.pauses import Pause
from . import forms

_ARGUMENTS, _OPTIONS = 30, 50  # how many are shown
_VALUE, _QUESTION, _OPTION = 300, 4000, 200  # characters of each that are shown
_NAMES: Final = 20  # columns in which the names of a form's fields line up

_NUMBER: Final = re.compile(r"[0-9]{1,9}")

# A model's text must not control the terminal. This drops control characters except tab and line feed, and characters
# that reverse the order of others. Separators that some terminals treat specially become line feeds.
_CONTROLS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
) | {0x2028: "\n", 0x2029: "\n"}


def pause_lines(pause: Pause) -> list[str]:
    """Describe what a turn waits for, in lines for a person."""
    return [*_asked(pause), *_about(pause)]


def is_late(pause: Pause) -> bool:
    """Whether the pause has expired: it accepts no answer any more, and fails when the turn resumes."""
    return pause.expires is not None and pause.expires <= datetime.now(UTC)


def unanswered(pauses: Iterable[Pause]) -> tuple[Pause, ...]:
    """The pauses of a thread that have no answer yet."""
    return tuple(pause for pause in pauses if not pause.answered)


def printable(text: str) -> str:
    """Return `text` without characters that could control a terminal."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """Return `text` on one line, without characters that could control a terminal."""
    return " ".join(printable(text).split())


def numbered(options: tuple[str, ...]) -> bool:
    """Whether options can be chosen by number. They cannot if one of them looks like the number of another."""
    return not any(_NUMBER.fullmatch(option.strip()) for option in options)


def _asked(pause: Pause) -> Iterator[str]:
    """The call or the question, with everything that belongs to it."""
    function = one_line(pause.function)
    match pause.kind:
        case "approval":
            yield f"approval of a call: {function}"
        case "uncertain":
            yield f"uncertain call: {function}"
            yield "It was interrupted while it ran. It is not known whether its effect happened."
        case "question":
            yield "question:"
            yield from _indented(_short(pause.question or "", _QUESTION))
    yield from _arguments(pause)
    if pause.kind == "approval":
        for word, told in _facts(pause):
            yield f"{word}: {one_line(_short(told, _QUESTION if word == 'description' else _VALUE))}"
    if pause.options is not None:
        yield from _choices(pause.options)
    elif pause.kind == "question" and pause.schema is not None and not forms.is_text(pause.schema):
        yield from _form(pause.schema)


def _about(pause: Pause) -> Iterator[str]:
    """The state of the pause: what was wrong with the last answer, and until when an answer is accepted."""
    if pause.problem is not None:
        yield f"the last answer was not accepted: {one_line(_short(pause.problem, _QUESTION))}"
    if pause.expires is not None:
        word = "expired at" if is_late(pause) else "open until"
        yield f"{word} {pause.expires.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _arguments(pause: Pause) -> Iterator[str]:
    for name, value in list(pause.arguments.items())[:_ARGUMENTS]:
        yield f"  {one_line(name)}: {_short(_json(value), _VALUE)}"
    if len(pause.arguments) > _ARGUMENTS:
        yield f"  ({len(pause.arguments) - _ARGUMENTS} more)"


def _facts(pause: Pause) -> Iterator[tuple[str, str]]:
    """What a person should know about a call besides its arguments, as pairs of a label and a text."""
    if pause.risk:
        yield "risk", ", ".join(word.replace("_", " ") for word in pause.risk)
    if pause.description:
        yield "description", pause.description
    if pause.caller:
        yield "called by", pause.caller
    if pause.reason:
        yield "reason", pause.reason
    if pause.approvers:
        yield "approvers", ", ".join(pause.approvers)


def _choices(options: tuple[str, ...]) -> Iterator[str]:
    width = len(str(len(options)))
    for number, option in enumerate(options[:_OPTIONS], start=1):
        mark = f"{number:>{width}}" if numbered(options) else "-"
        yield f"  {mark}  {one_line(_short(option, _OPTION))}"
    if len(options) > _OPTIONS:
        yield f"  ({len(options) - _OPTIONS} more)"


def _form(schema: forms.Schema) -> Iterator[str]:
    lines = forms.field_lines(schema)
    width = min(_NAMES, max((len(name) for name, _ in lines), default=0))
    for name, told in lines:
        yield f"  {one_line(name).ljust(width)}  {one_line(_short(told, _VALUE))}"


def _json(value: Any) -> str:
    """A value as JSON on one line. Invisible characters are escaped, so that a person sees all that they approve."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in said)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in printable(text).split("\n")]


__all__ = ["is_late", "numbered", "one_line", "pause_lines", "printable"]
